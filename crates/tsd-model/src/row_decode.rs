//! Decoding of a row to columns of points, for all queries.
//!
//! Most rows are a few increasing sequences, consecutive or interleaved: packed runs, a compacted
//! column, single cells in seconds or milliseconds. The decoder writes them directly into the
//! columns and sorts if their times overlap. Duplicate instants and columns that need a repair take
//! the slow path: the merge of [`crate::row_merge`], which compares cell timestamps and bytes.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::{
    base_time::BaseTime,
    cell::{Cell, Family, Row},
    column_kind::ColumnKind,
    columns::PointColumns,
    packed_run::PackedRun,
    point_column::AppendedPoints,
    qualifier::Qualifier,
    row_error::RowError,
    row_merge::{ColumnOrder, MergeRule, RowPoints},
};

/// Content of a row besides points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowExtras {
    /// Annotation cells.
    pub annotations: Vec<Cell>,
    /// Histogram cells.
    pub histograms: Vec<Cell>,
    /// Repaired values of append columns whose entries were out of order or repeated
    /// (`tsd.storage.repair_appends`).
    pub append_repairs: Vec<Cell>,
    /// Number of unknown columns; they are skipped.
    pub unknown: usize,
}

/// Appends the points of a row to `columns`, in time order and one per instant, and all other
/// content to `extras`. After an error both are unchanged.
///
/// The caller passes the rows of a series in time order. Unsorted columns are sorted; OpenTSDB's
/// queries return them in stored order.
pub fn decode_row(
    row: &Row,
    base: BaseTime,
    rule: MergeRule,
    columns: &mut PointColumns,
    extras: &mut RowExtras,
) -> Result<(), RowError> {
    let before = columns.len();
    let mut writer = ColumnWriter::new(base, columns);
    let fast = match decode_runs(row, base, &mut writer) {
        Ok(()) => decode_cells(&row.cells, &mut writer) && writer.finish(),
        Err(error) => {
            columns.truncate(before);
            return Err(error);
        }
    };
    if !fast {
        columns.truncate(before);
        decode_merged(row, base, rule, columns)?;
    }
    collect_extras(&row.cells, extras);
    Ok(())
}

/// Decodes packed runs in the order of their first points.
fn decode_runs(row: &Row, base: BaseTime, writer: &mut ColumnWriter<'_>) -> Result<(), RowError> {
    let mut runs: SmallVec<[&PackedRun; 8]> = row.runs.iter().collect();
    runs.sort_by_key(|run| run.offset_range_ms());
    for run in runs {
        run.decode_into(base.as_secs(), writer.columns)
            .map_err(|source| RowError::Run { key: row.key.clone(), source })?;
        writer.add_decoded(run.point_count());
    }
    Ok(())
}

/// Decodes cells of points; returns false if a cell needs the slow path.
fn decode_cells(cells: &[Cell], writer: &mut ColumnWriter<'_>) -> bool {
    for cell in cells {
        if cell.family != Family::T {
            continue;
        }
        let done = match *cell.qualifier {
            [a, b] if a < 0xF0 => {
                let offset_ms = (u32::from(a) << 4 | u32::from(b) >> 4) * 1_000;
                writer.push_bytes(offset_ms, b, &cell.value)
            }
            [a, b, c, d] if a >= 0xF0 => {
                let offset_ms = (u32::from_be_bytes([a, b, c, d]) & 0x0FFF_FFFF) >> 6;
                writer.push_bytes(offset_ms, d, &cell.value)
            }
            _ => match ColumnKind::of(&cell.qualifier) {
                ColumnKind::Compacted => decode_compacted(&cell.qualifier, &cell.value, writer),
                ColumnKind::Append | ColumnKind::BadAppend => false,
                _ => true,
            },
        };
        if !done {
            return false;
        }
    }
    true
}

/// Decodes a compacted column; returns false if it needs the slow path.
fn decode_compacted(qualifiers: &[u8], values: &[u8], writer: &mut ColumnWriter<'_>) -> bool {
    let (mut qualifiers, mut values) = (qualifiers, values);
    while let Some((qualifier, rest)) = Qualifier::split_first(qualifiers) {
        let flags = qualifier.flags();
        let Some((value, left)) = values.split_at_checked(flags.value_len()) else {
            return false;
        };
        if !writer.push_bytes(qualifier.offset_ms(), flags.bits(), value) {
            return false;
        }
        (qualifiers, values) = (rest, left);
    }
    qualifiers.is_empty()
}

/// Appends to columns and tracks whether times increase.
struct ColumnWriter<'c> {
    columns: &'c mut PointColumns,
    base_ms: i64,
    /// Length of the columns before this row.
    start: usize,
    /// Greater than all times so far, while they increase.
    last_ms: i64,
    rising: bool,
    /// Type of the points from `kind_start` on, not yet in `columns.kinds`.
    integers: bool,
    kind_start: usize,
}

impl<'c> ColumnWriter<'c> {
    fn new(base: BaseTime, columns: &'c mut PointColumns) -> Self {
        let start = columns.len();
        Self {
            columns,
            base_ms: base.as_millis(),
            start,
            last_ms: i64::MIN,
            rising: true,
            integers: true,
            kind_start: start,
        }
    }

    /// Adds a point; returns false if the value does not match the flags.
    #[inline]
    fn push_bytes(&mut self, offset_ms: u32, flags: u8, value: &[u8]) -> bool {
        let (bits, integer) = match (flags & 0xF, value) {
            (0, &[b0]) => (i64::from(b0 as i8) as u64, true),
            (1, &[b0, b1]) => (i64::from(i16::from_be_bytes([b0, b1])) as u64, true),
            (3, &[b0, b1, b2, b3]) => {
                (i64::from(i32::from_be_bytes([b0, b1, b2, b3])) as u64, true)
            }
            (11, &[b0, b1, b2, b3]) => {
                (f64::from(f32::from_be_bytes([b0, b1, b2, b3])).to_bits(), false)
            }
            (kind @ (7 | 15), value) => match <[u8; 8]>::try_from(value) {
                Ok(eight) => (u64::from_be_bytes(eight), kind == 7),
                Err(_) => return false,
            },
            _ => return false,
        };
        if integer != self.integers {
            self.flush_kinds();
            self.integers = integer;
        }
        let time_ms = self.base_ms + i64::from(offset_ms);
        self.rising &= time_ms > self.last_ms;
        self.last_ms = time_ms;
        self.columns.times_ms.push(time_ms);
        self.columns.bits.push(bits);
        true
    }

    /// Adds the types of the points pushed since the last call to `columns.kinds`.
    fn flush_kinds(&mut self) {
        let count = self.columns.len() - self.kind_start;
        if count > 0 {
            self.columns.kinds.extend(self.kind_start, self.integers, count);
            self.kind_start = self.columns.len();
        }
    }

    /// Accounts for points that were decoded directly into the columns, types included.
    fn add_decoded(&mut self, count: usize) {
        self.kind_start = self.columns.len();
        let decoded = self.columns.len() - count.min(self.columns.len());
        let times = self.columns.times_ms.get(decoded..).unwrap_or_default();
        if let (Some(first), Some(last)) = (times.first(), times.last()) {
            self.rising &= *first > self.last_ms;
            self.last_ms = *last;
        }
    }

    /// Sorts the points of the row; returns false if an instant is duplicated.
    fn finish(mut self) -> bool {
        self.flush_kinds();
        self.rising || sort_from(self.columns, self.start)
    }
}

/// Sorts the points from `start` on by time; returns false if two times are equal.
fn sort_from(columns: &mut PointColumns, start: usize) -> bool {
    let times = columns.times_ms.get(start..).unwrap_or_default();
    let mut order: Vec<(i64, u32)> = times.iter().copied().zip(0..).collect();
    // The sort merges increasing subsequences.
    order.sort_by_key(|(time, _)| *time);
    if !order.is_sorted_by(|a, b| a.0 < b.0) {
        return false;
    }
    let pick = |column: &[u64]| -> Vec<u64> {
        order.iter().filter_map(|(_, at)| column.get(start + *at as usize).copied()).collect()
    };
    let bits = pick(&columns.bits);
    columns.bits.truncate(start);
    columns.bits.extend(bits);
    columns.kinds.reorder(start, order.iter().map(|(_, at)| *at as usize));
    columns.times_ms.truncate(start);
    columns.times_ms.extend(order.iter().map(|(time, _)| *time));
    true
}

/// The slow path: merges points by cell timestamp and bytes.
fn decode_merged(
    row: &Row,
    base: BaseTime,
    rule: MergeRule,
    columns: &mut PointColumns,
) -> Result<(), RowError> {
    let expanded;
    let cells = if row.runs.is_empty() {
        &row.cells
    } else {
        expanded = row
            .clone()
            .into_cells()
            .map_err(|source| RowError::Run { key: row.key.clone(), source })?;
        &expanded
    };
    let points = RowPoints::read(&row.key, cells)?;
    let (merged, _) = points.merge(&row.key, rule, ColumnOrder::Sorted)?;
    let before = columns.len();
    for point in merged {
        let value = point.point_value().map_err(|problem| {
            columns.truncate(before);
            RowError::Column {
                qualifier: Bytes::copy_from_slice(point.qualifier.as_bytes()),
                problem: problem.into(),
            }
        })?;
        let time_ms = base.as_millis() + i64::from(point.qualifier.offset_ms());
        columns.push(time_ms, value.widen());
    }
    Ok(())
}

fn collect_extras(cells: &[Cell], extras: &mut RowExtras) {
    for cell in cells {
        // Most columns are single points, recognised by length.
        if matches!(cell.qualifier.len(), 2 | 4) || cell.family != Family::T {
            continue;
        }
        match ColumnKind::of(&cell.qualifier) {
            ColumnKind::Annotation => extras.annotations.push(cell.clone()),
            ColumnKind::Histogram => extras.histograms.push(cell.clone()),
            ColumnKind::Append => {
                if let Ok(appended) = AppendedPoints::decode(&cell.value)
                    && appended.needs_repair()
                {
                    let value = appended.repaired_value().into();
                    extras.append_repairs.push(Cell { value, ..cell.clone() });
                }
            }
            ColumnKind::Unknown => extras.unknown += 1,
            ColumnKind::Point | ColumnKind::Compacted | ColumnKind::BadAppend => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;
    use crate::{
        Flags, PackablePoint, PackedRun, PointValue, RunEncoder, RunShape, Value, encode_column,
        hex::from_hex, point_column::StoredPoint, row_compaction::plan_row_compaction,
    };

    const BASE: u32 = 1_356_998_400;

    fn bytes(hex: &str) -> Bytes {
        from_hex(hex.as_bytes()).unwrap().into()
    }

    /// A row from `qualifier=value` texts, each written a millisecond after the previous cell.
    fn row(texts: &[&str]) -> Row {
        let mut cells: Vec<Cell> = texts
            .iter()
            .zip(1..)
            .map(|(text, timestamp_ms)| {
                let (qualifier, value) = text.split_once('=').unwrap();
                Cell {
                    family: Family::T,
                    qualifier: bytes(qualifier),
                    value: bytes(value),
                    timestamp_ms,
                }
            })
            .collect();
        cells.sort_by(|a, b| a.qualifier.cmp(&b.qualifier));
        Row::from_cells(bytes("00000150E22700000001000001"), cells)
    }

    fn decode(row: &Row, rule: MergeRule) -> Result<(PointColumns, RowExtras), RowError> {
        let (mut columns, mut extras) = (PointColumns::default(), RowExtras::default());
        decode_row(row, BaseTime::containing(BASE), rule, &mut columns, &mut extras)?;
        Ok((columns, extras))
    }

    /// Offsets in milliseconds and values, integers as they are, floats with a point.
    fn show(columns: &PointColumns) -> String {
        let value = |i| match columns.value(i).unwrap() {
            Value::Integer(v) => v.to_string(),
            Value::Float(v) => crate::java_double(v),
        };
        let offset = |t: i64| t - i64::from(BASE) * 1_000;
        let points = columns.times_ms.iter().enumerate();
        points.map(|(i, t)| format!("{}={}", offset(*t), value(i))).collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn check(texts: &[&str], rule: MergeRule, expected: &str) {
        let (columns, _) = decode(&row(texts), rule).unwrap();
        assert_eq!(show(&columns), expected);
    }

    #[test]
    fn single_cells_of_every_type() {
        check(
            &[
                "0000=2A",
                "0011=FED4",
                "0023=00010001",
                "0037=0000000100000000",
                "004B=422A0000",
                "005F=40450CCCCCCCCCCD",
            ],
            MergeRule::Unanimous,
            "0=42 1000=-300 2000=65537 3000=4294967296 4000=42.5 5000=42.1",
        );
    }

    #[test]
    fn compacted_columns_seconds_and_milliseconds_interleave() {
        check(
            &["00000020=010300", "0010=02", "F0007D00=09", "F001F5000030=080401"],
            MergeRule::Unanimous,
            "0=1 500=9 1000=2 2000=3 2004=8 3000=4",
        );
    }

    #[test]
    fn duplicate_instants_follow_the_rule() {
        let texts = ["00000020=010300", "0000=05"];
        assert!(decode(&row(&texts), MergeRule::Unanimous).is_err());
        check(&texts, MergeRule::Newest, "0=5 2000=3");
        check(&texts, MergeRule::Smallest, "0=1 2000=3");
        check(&["0000=05", "F0000000=05", "0010=06"], MergeRule::Unanimous, "0=5 1000=6");
    }

    #[test]
    fn an_unsorted_column_is_sorted() {
        check(&["00200000=020100"], MergeRule::Unanimous, "0=1 2000=2");
    }

    #[test]
    fn append_columns_are_merged_and_reported_for_repair() {
        let appended = row(&["050000=001007000009", "050001=00300700200A", "0040=01"]);
        let (columns, extras) = decode(&appended, MergeRule::Unanimous).unwrap();
        assert_eq!(show(&columns), "0=9 1000=7 2000=10 3000=7 4000=1");
        let repaired: Vec<_> = extras.append_repairs.iter().map(|c| c.value.clone()).collect();
        assert_eq!(repaired, [bytes("000009001007"), bytes("00200A003007")]);
    }

    #[test]
    fn repaired_cells_are_those_of_opentsdb() {
        check(
            &["001B=0000000040866666", "000F=00000001", "0023=000000000000002A"],
            MergeRule::Unanimous,
            "0=1.401298464324817E-45 1000=4.199999809265137 2000=42",
        );
    }

    #[test]
    fn other_columns_are_returned_or_counted() {
        let row = row(&["0000=01", "010005=7B7D", "060001=2A00", "070000=AA", "00=BB"]);
        let (columns, extras) = decode(&row, MergeRule::Unanimous).unwrap();
        assert_eq!(show(&columns), "0=1");
        assert_eq!(extras.annotations.len(), 1);
        assert_eq!(extras.histograms.len(), 1);
        assert_eq!(extras.unknown, 2);
    }

    #[test]
    fn an_error_adds_nothing() {
        let (mut columns, mut extras) =
            decode(&row(&["0000=01", "0010=02"]), MergeRule::Unanimous).unwrap();
        let before = (columns.clone(), extras.clone());
        let bad = row(&["0020=01", "0030=", "010000=7B7D"]);
        let base = BaseTime::containing(BASE);
        assert!(decode_row(&bad, base, MergeRule::Newest, &mut columns, &mut extras).is_err());
        assert_eq!((columns, extras), before);
    }

    #[test]
    fn cells_of_other_families_are_ignored() {
        let mut row = row(&["0000=01"]);
        row.cells.push(Cell { family: Family::Name, ..row.cells.first().unwrap().clone() });
        assert_eq!(show(&decode(&row, MergeRule::Unanimous).unwrap().0), "0=1");
    }

    fn points() -> impl Strategy<Value = Vec<(u32, PointValue)>> {
        let value = prop_oneof![
            (any::<i64>(), 0..64_u32).prop_map(|(v, s)| PointValue::Integer(v >> s)),
            (-1e6..1e6_f32).prop_map(PointValue::Single),
            (-1e6..1e6_f64).prop_map(PointValue::Double),
        ];
        prop::collection::vec((0..3_600_u32, value), 1..60).prop_map(|mut points| {
            points.sort_by_key(|p| p.0);
            points.dedup_by_key(|p| p.0);
            points
        })
    }

    fn qualifier(offset: u32, flags: Flags) -> crate::Qualifier {
        crate::Qualifier::at_seconds(offset, flags).unwrap()
    }

    /// The points in one of the layouts of a store, chosen by `shape`.
    fn scatter(points: &[(u32, PointValue)], shape: &[u8]) -> Row {
        let mut cells = Vec::new();
        let mut groups: [Vec<StoredPoint<'_>>; 3] = Default::default();
        let encoded: Vec<_> = points
            .iter()
            .map(|(offset, value)| (qualifier(*offset, value.encode().0), value.encode().1))
            .collect();
        for ((qualifier, value), shape) in encoded.iter().zip(shape.iter().cycle()) {
            let point = StoredPoint { qualifier: *qualifier, value };
            match shape % 4 {
                0 => cells.push(cell(point.qualifier.as_bytes(), point.value)),
                n => groups.get_mut(usize::from(n) - 1).unwrap().push(point),
            }
        }
        let [column, singles, compacted] = groups;
        if !column.is_empty() {
            let (qualifier, value) = encode_column(&column);
            cells.push(cell(&qualifier, &value));
        }
        cells.sort_by(|a, b| a.qualifier.cmp(&b.qualifier));
        let mut row = Row::from_cells(bytes("00000150E22700000001000001"), cells);
        row.runs.extend(pack(&singles, RunShape::Singles));
        row.runs.extend(pack(&compacted, RunShape::Compacted));
        row
    }

    fn cell(qualifier: &[u8], value: &[u8]) -> Cell {
        Cell {
            family: Family::T,
            qualifier: Bytes::copy_from_slice(qualifier),
            value: Bytes::copy_from_slice(value),
            timestamp_ms: 7,
        }
    }

    fn pack(points: &[StoredPoint<'_>], shape: RunShape) -> Option<PackedRun> {
        let mut encoder = RunEncoder::new();
        for point in points {
            let point = PackablePoint::try_from_cell(point.qualifier.as_bytes(), point.value);
            encoder.push(point.unwrap(), 9).unwrap();
        }
        let mut out = Vec::new();
        (!points.is_empty()).then(|| {
            encoder.finish(shape, &mut out).unwrap();
            PackedRun::open(out.into()).unwrap()
        })
    }

    proptest! {
        #[test]
        fn the_layout_of_cells_does_not_matter(
            points in points(), shape in prop::collection::vec(any::<u8>(), 1..9),
        ) {
            let row = scatter(&points, &shape);
            let (columns, _) = decode(&row, MergeRule::Unanimous).unwrap();
            let mut expected = PointColumns::default();
            for (offset, value) in &points {
                expected.push(i64::from(BASE + offset) * 1_000, value.widen());
            }
            prop_assert_eq!(&columns.times_ms, &expected.times_ms);
            prop_assert_eq!(&columns.bits, &expected.bits);
            prop_assert!((0..points.len()).all(|i| columns.is_integer(i) == expected.is_integer(i)));
            let mut merged = PointColumns::default();
            decode_merged(&row, BaseTime::containing(BASE), MergeRule::Unanimous, &mut merged).unwrap();
            prop_assert_eq!(merged, expected);

            let cells = row.clone().into_cells().unwrap();
            let plan = plan_row_compaction(&row.key, &cells, MergeRule::Unanimous).unwrap();
            let compacted = Row::from_cells(row.key.clone(), vec![plan.result.unwrap()]);
            let (again, _) = decode(&compacted, MergeRule::Unanimous).unwrap();
            prop_assert_eq!(again.bits, columns.bits);
        }

        #[test]
        fn arbitrary_cells_do_not_panic(
            cells in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 0..10), prop::collection::vec(any::<u8>(), 0..20)),
                0..8,
            ),
        ) {
            let mut row = row(&[]);
            row.cells.extend(cells.into_iter().map(|(qualifier, value)| Cell {
                family: Family::T,
                qualifier: qualifier.into(),
                value: value.into(),
                timestamp_ms: 0,
            }));
            for rule in [MergeRule::Unanimous, MergeRule::Newest, MergeRule::Largest] {
                if let Ok((columns, _)) = decode(&row, rule) {
                    prop_assert!(columns.times_ms.is_sorted_by(|a, b| a < b));
                }
            }
        }
    }
}
