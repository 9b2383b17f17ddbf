//! Plan of a row compaction: the cells to put and to delete.
//!
//! The plan is a pure function of the cells, so all servers plan the same for a row. After a crash
//! between put and delete the row reads the same, and the next plan has the remaining deletes. The
//! caller checks the age of the row and whether compaction is enabled.

use bytes::Bytes;

use crate::{
    base_time::BaseTime,
    cell::{Cell, Family},
    column_kind::ColumnKind,
    point_column::encode_column,
    row_error::RowError,
    row_merge::{ColumnOrder, DroppedDuplicates, MergeRule, RowPoints},
};

/// Plan of a row compaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowCompaction {
    /// The column with all points of the row afterwards; `None` if there are no points.
    pub result: Option<Cell>,
    /// The cell to put first; `None` if the row already has it. Its timestamp is the timestamp of
    /// the newest point column that was read.
    pub put: Option<Cell>,
    /// [`superseded_ms`] of the put.
    pub superseded_ms: Option<i64>,
    /// Columns to delete after the put.
    pub delete: Vec<ReplacedColumn>,
    /// Points that the merge dropped.
    pub dropped: DroppedDuplicates,
}

/// A column that a row compaction replaces.
///
/// Later writes to the column are not part of the plan, so only versions up to `timestamp_ms` may
/// be deleted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplacedColumn {
    /// Column family.
    pub family: Family,
    /// Column qualifier.
    pub qualifier: Bytes,
    /// Timestamp of the cell as it was read, epoch milliseconds.
    pub timestamp_ms: i64,
}

/// Timestamp of the cell that `put` supersedes, as read from the row; `None` if the column is new.
#[must_use]
pub fn superseded_ms(cells: &[Cell], put: &Cell) -> Option<i64> {
    let is_superseded = |old: &&Cell| old.family == put.family && old.qualifier == put.qualifier;
    cells.iter().find(is_superseded).map(|old| old.timestamp_ms)
}

impl RowCompaction {
    /// Minimum age of a row, seconds after the start of its hour.
    pub const MIN_AGE_SECS: i64 = BaseTime::SPAN_SECONDS as i64 + 1;

    /// True if the row needs no write.
    #[must_use]
    pub const fn is_nothing(&self) -> bool {
        self.put.is_none() && self.delete.is_empty()
    }

    /// True if a row of that hour is old enough to be compacted.
    #[must_use]
    pub const fn is_due(base: BaseTime, now_secs: i64) -> bool {
        base.as_secs() as i64 <= now_secs - Self::MIN_AGE_SECS
    }
}

/// Plans the compaction of a row from its cells.
///
/// All points are merged into one column. Other columns (annotations, histograms, unknown ones) are
/// not changed, and a row with an append column is merged but never written. The put has the
/// timestamp of the newest point column of the row, so a value never gets a time later than its
/// newest source. A concurrent or late correction therefore stays newer than the compacted column.
pub fn plan_row_compaction(
    key: &Bytes,
    cells: &[Cell],
    rule: MergeRule,
) -> Result<RowCompaction, RowError> {
    let points = RowPoints::read(key, cells)?;
    if points.is_empty() {
        return Ok(RowCompaction::default());
    }
    let appended = points.appended;
    let newest_ms = points.newest_ms.unwrap_or_default();
    let untouched = points.column_count() == 1 && points.len() == 1 && !points.fixed;
    let (merged, dropped) = points.merge(key, rule, ColumnOrder::AsStored)?;
    let (qualifier, value) = encode_column(&merged);
    let cell = Cell {
        family: Family::T,
        qualifier: qualifier.into(),
        value: value.into(),
        timestamp_ms: newest_ms,
    };
    // A single point column is the result itself, with or without a tail.
    let lone = cells.iter().find(|c| ColumnKind::of(&c.qualifier) == ColumnKind::Point);
    if let Some(lone) = lone.filter(|_| untouched && !appended) {
        return Ok(RowCompaction { result: Some(lone.clone()), dropped, ..Default::default() });
    }
    if appended {
        return Ok(RowCompaction { result: Some(cell), dropped, ..Default::default() });
    }
    let mut present = false;
    let mut delete = Vec::new();
    for old in cells.iter().filter(|c| c.family == Family::T) {
        if !ColumnKind::of(&old.qualifier).is_points() {
            continue;
        }
        if old.qualifier == cell.qualifier {
            present = old.value == cell.value;
        } else {
            delete.push(ReplacedColumn {
                family: old.family,
                qualifier: old.qualifier.clone(),
                timestamp_ms: old.timestamp_ms,
            });
        }
    }
    let put = (!present).then(|| cell.clone());
    let superseded_ms = put.as_ref().and_then(|put| superseded_ms(cells, put));
    Ok(RowCompaction { result: Some(cell), put, superseded_ms, delete, dropped })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;
    use crate::hex::{from_hex, to_hex};

    fn bytes(hex: &str) -> Bytes {
        from_hex(hex.as_bytes()).unwrap().into()
    }

    fn key() -> Bytes {
        bytes("00000150E22700000001000001")
    }

    /// Cells from `qualifier=value`, each written a millisecond after the previous cell.
    fn cells(texts: &[&str]) -> Vec<Cell> {
        texts
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
            .collect()
    }

    fn show(plan: &RowCompaction) -> (Option<String>, Vec<String>) {
        let put =
            plan.put.as_ref().map(|c| format!("{}={}", to_hex(&c.qualifier), to_hex(&c.value)));
        (put, plan.delete.iter().map(|c| to_hex(&c.qualifier)).collect())
    }

    #[track_caller]
    fn check(rule: MergeRule, row: &[&str], put: Option<&str>, delete: &[&str]) {
        let plan = plan_row_compaction(&key(), &cells(row), rule).unwrap();
        let delete: Vec<String> = delete.iter().map(|d| (*d).to_owned()).collect();
        assert_eq!(show(&plan), (put.map(str::to_owned), delete));
    }

    #[test]
    fn annotations_and_histograms_are_ignored() {
        check(
            MergeRule::Unanimous,
            &["0000=01", "0010=02", "010005=7B7D", "060001=2A00", "070000=AA"],
            Some("00000010=010200"),
            &["0000", "0010"],
        );
    }

    #[test]
    fn a_row_without_points_is_unchanged() {
        check(MergeRule::Unanimous, &["010005=7B7D", "070000=AA"], None, &[]);
    }

    #[test]
    fn the_mixed_flag_comes_from_the_points_written() {
        check(
            MergeRule::Largest,
            &["F0007D000010=010200", "0020=03"],
            Some("F0007D0000100020=01020301"),
            &["F0007D000010", "0020"],
        );
    }

    #[test]
    fn largest_and_smallest_compare_values_not_write_times() {
        let row = ["0000=05", "0001=012C", "000B=40800000"];
        check(MergeRule::Largest, &row, None, &["0000", "000B"]);
        check(MergeRule::Smallest, &row, None, &["0000", "0001"]);
        check(MergeRule::Newest, &row, None, &["0000", "0001"]);
    }

    #[test]
    fn of_equal_values_the_newest_is_kept() {
        check(MergeRule::Largest, &["0000=05", "000B=40A00000"], None, &["0000"]);
        check(MergeRule::Smallest, &["000B=40A00000", "0000=05"], None, &["000B"]);
    }

    #[test]
    fn of_equal_cell_times_a_point_beats_a_column_of_points() {
        let mut row = cells(&["00000010=010200", "0001=012C"]);
        for cell in &mut row {
            cell.timestamp_ms = 7;
        }
        let plan = plan_row_compaction(&key(), &row, MergeRule::Newest).unwrap();
        assert_eq!(show(&plan).0.unwrap(), "00010010=012C0200");
        assert_eq!(plan.put.unwrap().timestamp_ms, 7);
    }

    #[test]
    fn the_duplicate_error_is_opentsdbs() {
        let row = cells(&["0007=0000000000000004", "F0000007=0000000000000005"]);
        let error = plan_row_compaction(&key(), &row, MergeRule::Unanimous).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Duplicate timestamp for key=[0, 0, 1, 80, -30, 39, 0, 0, 0, 1, 0, 0, 1], ms_offset=0, \
         older=[0, 0, 0, 0, 0, 0, 0, 5], newer=[0, 0, 0, 0, 0, 0, 0, 4]; set \
         tsd.storage.fix_duplicates=true to fix automatically or run Fsck"
        );
    }

    #[test]
    fn an_unsorted_column_is_merged_in_stored_order() {
        // 0020 is behind 0030 in its column, as in OpenTSDB.
        check(
            MergeRule::Unanimous,
            &["00300020=030200", "0010=01", "0040=04"],
            Some("0010003000200040=0103020400"),
            &["00300020", "0010", "0040"],
        );
    }

    #[test]
    fn values_of_invalid_length_are_errors() {
        for row in [["0002=010203", "0010=05"], ["0000=", "0010=05"]] {
            assert!(plan_row_compaction(&key(), &cells(&row), MergeRule::Newest).is_err());
        }
    }

    #[test]
    fn a_row_with_an_append_column_is_not_written() {
        let row = cells(&["050000=00002A", "0010=05"]);
        let plan = plan_row_compaction(&key(), &row, MergeRule::Unanimous).unwrap();
        assert!(plan.is_nothing());
        assert_eq!(to_hex(&plan.result.unwrap().value), "2A0500");
    }

    #[test]
    fn five_bytes_with_the_append_prefix_are_an_error() {
        let row = cells(&["0500000000=00002A"]);
        let error = plan_row_compaction(&key(), &row, MergeRule::Unanimous).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Can not parse cell, it is not  an appended cell. It has a different qualifier \
         [5, 0, 0, 0, 0], row key [0, 0, 1, 80, -30, 39, 0, 0, 0, 1, 0, 0, 1]"
        );
    }

    #[test]
    fn a_compacted_column_has_the_time_of_its_newest_source() {
        let row = cells(&["0000=01", "0010=02"]);
        let plan = plan_row_compaction(&key(), &row, MergeRule::Largest).unwrap();
        assert_eq!(plan.put.unwrap().timestamp_ms, 2);
        let times: Vec<i64> = plan.delete.iter().map(|old| old.timestamp_ms).collect();
        assert_eq!(times, [1, 2], "nothing newer than what was read goes");
    }

    #[test]
    fn rows_are_due_a_second_after_their_hour() {
        let base = BaseTime::containing(7_200);
        assert!(!RowCompaction::is_due(base, 10_800));
        assert!(RowCompaction::is_due(base, 10_801));
    }

    /// The row after the plan, or after the put alone.
    fn apply(row: &[Cell], plan: &RowCompaction, deletes: bool) -> Vec<Cell> {
        let mut after: Vec<Cell> = row.to_vec();
        if let Some(cell) = &plan.put {
            after.retain(|c| c.qualifier != cell.qualifier);
            after.push(cell.clone());
        }
        if deletes {
            after.retain(|c| !plan.delete.iter().any(|old| old.qualifier == c.qualifier));
        }
        after.sort_by(|a, b| a.qualifier.cmp(&b.qualifier));
        after
    }

    fn row() -> impl Strategy<Value = Vec<Cell>> {
        let cell = (0..40_u32, any::<bool>(), any::<i8>(), 1..50_i64).prop_map(
            |(offset, millis, value, timestamp_ms)| {
                let flags = crate::flags::Flags::from_bits(0);
                let qualifier = if millis {
                    crate::qualifier::Qualifier::at_millis(offset * 500, flags)
                } else {
                    crate::qualifier::Qualifier::at_seconds(offset, flags)
                };
                Cell {
                    family: Family::T,
                    qualifier: Bytes::copy_from_slice(qualifier.unwrap().as_bytes()),
                    value: Bytes::copy_from_slice(&value.to_be_bytes()),
                    timestamp_ms,
                }
            },
        );
        prop::collection::vec(cell, 1..30).prop_map(|mut cells| {
            cells.sort_by(|a, b| a.qualifier.cmp(&b.qualifier));
            cells.dedup_by(|a, b| a.qualifier == b.qualifier);
            cells
        })
    }

    proptest! {
        #[test]
        fn a_crash_after_the_put_leaves_a_row_that_reads_the_same(row in row()) {
            let plan = plan_row_compaction(&key(), &row, MergeRule::Newest).unwrap();
            let crashed = apply(&row, &plan, false);
            let again = plan_row_compaction(&key(), &crashed, MergeRule::Newest).unwrap();
            prop_assert_eq!(
                again.result.as_ref().map(|c| (&c.qualifier, &c.value)),
                plan.result.as_ref().map(|c| (&c.qualifier, &c.value))
            );
            prop_assert!(again.put.is_none());
            let done = apply(&crashed, &again, true);
            prop_assert_eq!(done.len(), 1);
            let nothing = plan_row_compaction(&key(), &done, MergeRule::Newest).unwrap();
            prop_assert!(nothing.is_nothing());
        }

        #[test]
        fn arbitrary_cells_do_not_panic(
            cells in prop::collection::vec(
                (prop::collection::vec(any::<u8>(), 0..10), prop::collection::vec(any::<u8>(), 0..20)),
                0..8,
            ),
        ) {
            let cells: Vec<Cell> = cells
                .into_iter()
                .map(|(qualifier, value)| Cell {
                    family: Family::T,
                    qualifier: qualifier.into(),
                    value: value.into(),
                    timestamp_ms: 0,
                })
                .collect();
            let _ = plan_row_compaction(&key(), &cells, MergeRule::Unanimous);
        }
    }
}
