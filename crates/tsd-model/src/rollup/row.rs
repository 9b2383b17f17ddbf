//! Decoding of rollup rows to columns of points.

use bytes::Bytes;

use super::{RollupConfig, RollupInterval, RollupQualifier};
use crate::{
    base_time::BaseTime,
    cell::{Cell, Family, Row},
    columns::{PointColumns, Value},
    point_value::PointValue,
    row_error::RowError,
};

/// A value of a slot, with the time its cell was written.
type SlotValue = (u16, i64, Value);

/// Decodes the rows of an interval to columns.
#[derive(Clone, Copy, Debug)]
pub struct RollupRowDecoder<'a> {
    /// Has the ids of aggregators.
    pub config: &'a RollupConfig,
    /// The interval.
    pub interval: &'a RollupInterval,
    /// Of several values of a slot, decodes the newest; otherwise they are an error.
    pub newest_wins: bool,
}

impl RollupRowDecoder<'_> {
    /// Appends the values of some aggregators, given by ids, to the columns at the same index, in time
    /// order. After an error the columns are unchanged.
    ///
    /// Both forms of qualifiers are decoded, in any order of slots: a row of a month in which a writer
    /// was upgraded has both. OpenTSDB cannot read such rows.
    pub fn decode(
        &self,
        row: &Row,
        base: BaseTime,
        ids: &[u8],
        columns: &mut [PointColumns],
    ) -> Result<(), RowError> {
        let Self { config, interval, newest_wins } = *self;
        let mut found: Vec<Vec<SlotValue>> = vec![Vec::new(); ids.len()];
        for cell in row.cells.iter().filter(|cell| cell.family == Family::T) {
            let Some(qualifier) = RollupQualifier::decode(&cell.qualifier) else { continue };
            let id = config.id_of(qualifier.aggregator);
            let place = ids.iter().position(|wanted| Some(*wanted) == id);
            let Some(values) = place.and_then(|place| found.get_mut(place)) else { continue };
            values.push((qualifier.slot, cell.timestamp_ms, value(cell, &qualifier)?));
        }
        for values in &mut found {
            // Stable, newest cell of a slot first.
            values.sort_by_key(|(slot, written_ms, _)| (*slot, std::cmp::Reverse(*written_ms)));
            if !newest_wins
                && let Some(slot) =
                    values.windows(2).find_map(|pair| duplicate_slot(pair.first()?, pair.last()?))
            {
                return Err(RowError::RollupDuplicate { key: row.key.clone(), slot });
            }
            values.dedup_by_key(|(slot, ..)| *slot);
        }
        for (values, columns) in found.iter().zip(columns) {
            for (slot, _, value) in values {
                let secs = i64::try_from(interval.slot_start(base, *slot)).unwrap_or(i64::MAX);
                columns.push(secs.saturating_mul(1_000), *value);
            }
        }
        Ok(())
    }
}

fn duplicate_slot(a: &SlotValue, b: &SlotValue) -> Option<u16> {
    (a.0 == b.0).then_some(a.0)
}

fn value(cell: &Cell, qualifier: &RollupQualifier<'_>) -> Result<Value, RowError> {
    PointValue::decode(qualifier.flags, &cell.value).map(PointValue::widen).map_err(|problem| {
        RowError::Column {
            qualifier: Bytes::copy_from_slice(&cell.qualifier),
            problem: problem.into(),
        }
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use proptest::prelude::*;

    use super::*;
    use crate::rollup::RollupAggregator;

    const BASE: u32 = 1_357_344_000;

    fn config() -> RollupConfig {
        let json = r#"{"aggregationIds":{"sum":0,"count":1},"intervals":[{"table":"t",
            "preAggregationTable":"p","interval":"10m","rowSpan":"1d","defaultInterval":true}]}"#;
        RollupConfig::from_json(json.as_bytes(), |_| true).unwrap()
    }

    fn cell(aggregator: RollupAggregator<'_>, slot: u16, written: i64, v: PointValue) -> Cell {
        let (flags, value) = v.encode();
        Cell {
            family: Family::T,
            qualifier: RollupQualifier { aggregator, slot, flags }.encode().into_vec().into(),
            timestamp_ms: written,
            value: Bytes::copy_from_slice(&value),
        }
    }

    fn decode(cells: Vec<Cell>, newest_wins: bool) -> Result<Vec<PointColumns>, RowError> {
        let row = Row { key: Bytes::from_static(b"key"), cells, runs: Vec::new() };
        let config = config();
        let interval = &config.intervals()[0];
        let base = BaseTime::from_stored(BASE.to_be_bytes());
        let mut columns = vec![PointColumns::default(); 2];
        RollupRowDecoder { config: &config, interval, newest_wins }
            .decode(&row, base, &[0, 1], &mut columns)
            .map(|()| columns)
    }

    const SUM: RollupAggregator<'static> = RollupAggregator::Id(0);
    const COUNT: RollupAggregator<'static> = RollupAggregator::Id(1);
    const OLD_SUM: RollupAggregator<'static> = RollupAggregator::Name(b"sum");

    #[test]
    fn both_forms_are_one_column_in_time_order() {
        let columns = decode(
            vec![
                cell(SUM, 1, 0, PointValue::Integer(7)),
                cell(SUM, 4, 0, PointValue::Integer(300)),
                cell(COUNT, 1, 0, PointValue::Integer(2)),
                cell(RollupAggregator::Id(9), 1, 0, PointValue::Integer(2)),
                cell(OLD_SUM, 2, 0, PointValue::Single(1.5)),
            ],
            false,
        )
        .unwrap();
        let secs = |slot: i64| (i64::from(BASE) + 600 * slot) * 1_000;
        assert_eq!(columns[0].times_ms, [1, 2, 4].map(secs));
        assert_eq!(columns[0].value(1), Some(Value::Float(1.5)));
        assert_eq!(columns[1].times_ms, [secs(1)]);
    }

    #[test]
    fn a_duplicate_slot_is_an_error_or_the_newest() {
        let cells = || {
            vec![
                cell(SUM, 1, 5, PointValue::Integer(7)),
                cell(SUM, 1, 9, PointValue::Integer(300)),
                cell(OLD_SUM, 1, 2, PointValue::Integer(1)),
            ]
        };
        let message = decode(cells(), false).unwrap_err().to_string();
        assert!(message.starts_with("Duplicate timestamp for key=[107, 101, 121], slot=1;"));
        assert_eq!(decode(cells(), true).unwrap()[0].value(0), Some(Value::Integer(300)));
    }

    proptest! {
        #[test]
        fn arbitrary_cells_do_not_panic(
            cells in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 0..7), prop::collection::vec(any::<u8>(), 0..9)),
                0..6,
            ),
            newest_wins: bool,
        ) {
            let cells = cells.into_iter().map(|(qualifier, value)| Cell {
                family: Family::T,
                qualifier: qualifier.into(),
                timestamp_ms: 0,
                value: value.into(),
            });
            if let Ok(columns) = decode(cells.collect(), newest_wins) {
                prop_assert!(columns[0].times_ms.is_sorted_by(|a, b| a < b));
            }
        }
    }
}
