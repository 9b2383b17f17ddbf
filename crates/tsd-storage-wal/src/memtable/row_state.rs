//! State of a row after its operations: the last operation on each column.
//!
//! Only the timestamps of cells show which of two points of one instant was written last. Such points may be in
//! different columns: `1`, `1.5` and `300` at one second, or one second in seconds and in milliseconds. Commits
//! of the same millisecond have the same time, as do commits while the clock stands still.
//!
//! So the state gives such points times that increase in commit order, by up to [`MAX_ADDED_MS`] above the commit
//! time. Flushes keep the order: the commit times of a memtable begin that much after the last commit time of the
//! previous memtable.

use std::cmp::Ordering;

use tsd_model::{ColumnKind, Family, Qualifier};

use super::row_op::{MIN_POINT_BYTES, RowOp, RowOpIter};

/// Maximum number of milliseconds by which a point is later than its commit. One instant has at most 32 columns,
/// by unit, type and length.
pub(crate) const MAX_ADDED_MS: i64 = 32;

/// The last operation on a column. A delete has the value `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnState<'a> {
    pub(crate) family: Family,
    pub(crate) qualifier: &'a [u8],
    pub(crate) value: Option<&'a [u8]>,
    /// Time of the put or of the delete.
    pub(crate) timestamp_ms: i64,
    /// True if the writer gave the timestamp.
    pub(crate) is_given: bool,
    /// Number of the operation on the row, in commit order.
    pub(crate) order: u32,
}

impl<'a> ColumnState<'a> {
    /// Value and timestamp of the cell; `None` if the cell is deleted.
    pub(crate) fn cell(&self) -> Option<(&'a [u8], i64)> {
        Some((self.value?, self.timestamp_ms))
    }

    pub(crate) fn cmp_column(&self, family: Family, qualifier: &[u8]) -> Ordering {
        self.family.cmp(&family).then_with(|| self.qualifier.cmp(qualifier))
    }
}

/// State of a row, as far as the operations define it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowState<'a> {
    /// Time of the last delete of the row, which hides all older cells.
    pub(crate) delete_row: Option<i64>,
    /// Sorted by family, then qualifier. Each column is present once.
    pub(crate) columns: Vec<ColumnState<'a>>,
}

impl<'a> RowState<'a> {
    /// Applies encoded operations, oldest first, each with its timestamp base.
    pub(crate) fn from_ops(all_ops: impl IntoIterator<Item = (&'a [u8], i64)>) -> Self {
        let mut state = Self::as_committed(all_ops);
        state.separate_times();
        state
    }

    /// As [`Self::from_ops`], but with the commit times.
    pub(crate) fn as_committed(all_ops: impl IntoIterator<Item = (&'a [u8], i64)>) -> Self {
        let mut state = Self::with_all_deletes(all_ops);
        if state.delete_row.is_some() {
            state.columns.retain(|column| column.value.is_some());
        }
        state
    }

    /// As [`Self::from_ops`], but keeps column deletes after the row delete. A flush may store a put between the
    /// two, and only the column delete hides that put.
    pub(crate) fn held(all_ops: impl IntoIterator<Item = (&'a [u8], i64)>) -> Self {
        let mut state = Self::with_all_deletes(all_ops);
        state.separate_times();
        state
    }

    fn with_all_deletes(all_ops: impl IntoIterator<Item = (&'a [u8], i64)>) -> Self {
        let mut state = Self::default();
        let mut order = 0;
        for (ops, base_ms) in all_ops {
            state.columns.reserve(ops.len() / MIN_POINT_BYTES);
            for op in RowOpIter::new(ops, base_ms) {
                order += 1;
                match op {
                    RowOp::Put { family, qualifier, value, timestamp_ms, is_given } => {
                        state.columns.push(ColumnState {
                            family,
                            qualifier,
                            value: Some(value),
                            timestamp_ms,
                            is_given,
                            order,
                        });
                    }
                    RowOp::DeleteColumn { family, qualifier, timestamp_ms } => {
                        state.columns.push(ColumnState {
                            family,
                            qualifier,
                            value: None,
                            timestamp_ms,
                            is_given: false,
                            order,
                        });
                    }
                    RowOp::DeleteRow { timestamp_ms } => {
                        state.delete_row = Some(timestamp_ms);
                        state.columns.clear();
                    }
                }
            }
        }
        state.normalize();
        state
    }

    /// Sorts the columns and keeps the last operation on each.
    fn normalize(&mut self) {
        let by_column =
            |a: &ColumnState<'_>, b: &ColumnState<'_>| a.cmp_column(b.family, b.qualifier);
        if !self.columns.is_sorted_by(|a, b| by_column(a, b) == Ordering::Less) {
            self.columns.sort_by(by_column);
            // The sort is stable, so the last of equal columns is the latest.
            self.columns.dedup_by(|later, kept| {
                let same = by_column(later, kept) == Ordering::Equal;
                if same {
                    *kept = *later;
                }
                same
            });
        }
    }

    /// Makes the times of points of one instant increase in commit order.
    fn separate_times(&mut self) {
        if self.may_share_instants() {
            self.separate_shared();
        }
    }

    /// False if certainly all points have different instants, as in almost all rows.
    fn may_share_instants(&self) -> bool {
        let (mut second, mut milli) = (None, None);
        self.columns.iter().any(|column| {
            if column.family != Family::T {
                return false;
            }
            match *column.qualifier {
                [a, b] if a < 0xF0 => {
                    let at = u16::from_be_bytes([a, b]) >> 4;
                    second.replace(at) == Some(at)
                }
                [a, b, c, d] if a >= 0xF0 => {
                    let at = (u32::from_be_bytes([a, b, c, d]) & 0x0FFF_FFFF) >> 6;
                    milli.replace(at) == Some(at) || (second.is_some() && at.is_multiple_of(1_000))
                }
                _ => column.is_given && ColumnKind::of(column.qualifier) == ColumnKind::Compacted,
            }
        })
    }

    #[cold]
    fn separate_shared(&mut self) {
        let mut points: Vec<(u32, u32, usize)> = Vec::with_capacity(self.columns.len());
        // Compacted columns: a point that was written after one must not be older than it.
        let mut compacted: Vec<(u32, i64)> = Vec::new();
        for (at, column) in self.columns.iter().enumerate() {
            if column.family != Family::T || column.value.is_none() {
                continue;
            }
            match ColumnKind::of(column.qualifier) {
                ColumnKind::Point => {
                    let offset_ms = Qualifier::decode(column.qualifier).map(|q| q.offset_ms());
                    points.extend(offset_ms.map(|offset_ms| (offset_ms, column.order, at)));
                }
                ColumnKind::Compacted if column.is_given => {
                    compacted.push((column.order, column.timestamp_ms));
                }
                _ => {}
            }
        }
        points.sort_unstable();
        compacted.sort_unstable();
        let mut latest = i64::MIN;
        for (_, timestamp_ms) in &mut compacted {
            latest = latest.max(*timestamp_ms);
            *timestamp_ms = latest;
        }
        let mut previous: Option<(u32, i64)> = None;
        for (offset_ms, order, at) in points {
            let Some(column) = self.columns.get_mut(at) else { continue };
            let before = previous.filter(|(other, _)| *other == offset_ms).map(|(_, ms)| ms);
            if !column.is_given {
                let older = compacted.partition_point(|(other, _)| *other < order);
                let older = older.checked_sub(1).and_then(|last| compacted.get(last));
                let least = before.map(|ms| ms.saturating_add(1)).max(older.map(|(_, ms)| *ms));
                column.timestamp_ms =
                    least.map_or(column.timestamp_ms, |ms| ms.max(column.timestamp_ms));
            }
            previous = Some((offset_ms, before.unwrap_or(i64::MIN).max(column.timestamp_ms)));
        }
    }

    pub(crate) fn column(&self, family: Family, qualifier: &[u8]) -> Option<&ColumnState<'a>> {
        let at = self.columns.binary_search_by(|c| c.cmp_column(family, qualifier)).ok()?;
        self.columns.get(at)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::memtable::row_op::encode_op;

    fn put(qualifier: &'static [u8], value: &'static [u8]) -> RowOp<'static> {
        RowOp::Put { family: Family::T, qualifier, value, timestamp_ms: 7, is_given: false }
    }

    fn delete(qualifier: &'static [u8]) -> RowOp<'static> {
        RowOp::DeleteColumn { family: Family::T, qualifier, timestamp_ms: 7 }
    }

    #[track_caller]
    fn check(all_ops: &[&[RowOp<'_>]], delete_row: bool, expected: &[(&[u8], Option<&[u8]>)]) {
        let encoded: Vec<Vec<u8>> = all_ops
            .iter()
            .map(|ops| {
                let mut bytes = Vec::new();
                ops.iter().for_each(|op| encode_op(*op, 0, &mut bytes));
                bytes
            })
            .collect();
        let state = RowState::from_ops(encoded.iter().map(|ops| (ops.as_slice(), 0)));
        assert_eq!(state.delete_row, delete_row.then_some(9));
        let columns: Vec<_> = state.columns.iter().map(|c| (c.qualifier, c.value)).collect();
        assert_eq!(columns, expected);
        for (qualifier, value) in expected {
            let column = state.column(Family::T, qualifier).unwrap();
            assert_eq!(column.value, *value);
        }
        assert!(state.column(Family::Id, b"a").is_none());
    }

    #[test]
    fn last_operation_on_a_column_wins() {
        check(
            &[&[put(b"b", b"1"), put(b"a", b"2"), put(b"b", b"3")]],
            false,
            &[(b"a", Some(b"2")), (b"b", Some(b"3"))],
        );
        check(&[&[put(b"a", b"1"), delete(b"a")]], false, &[(b"a", None)]);
        check(&[&[delete(b"a"), put(b"a", b"1")]], false, &[(b"a", Some(b"1"))]);
    }

    #[test]
    fn later_operations_win() {
        check(
            &[&[put(b"a", b"1"), put(b"b", b"1")], &[delete(b"a"), put(b"c", b"2")]],
            false,
            &[(b"a", None), (b"b", Some(b"1")), (b"c", Some(b"2"))],
        );
    }

    /// Checks the times of the columns after puts of (qualifier, time, given).
    #[track_caller]
    fn check_times(puts: &[(&[u8], i64, bool)], expected: &[i64]) {
        let mut ops = Vec::new();
        for (qualifier, timestamp_ms, is_given) in puts {
            let (family, value) = (Family::T, &[1][..]);
            let (timestamp_ms, is_given) = (*timestamp_ms, *is_given);
            encode_op(RowOp::Put { family, qualifier, value, timestamp_ms, is_given }, 0, &mut ops);
        }
        let state = RowState::from_ops([(&ops[..], 0)]);
        let times: Vec<i64> =
            puts.iter().map(|(q, ..)| state.column(Family::T, q).unwrap().timestamp_ms).collect();
        assert_eq!(times, expected, "{puts:02X?}");
    }

    #[test]
    fn of_two_points_of_one_instant_the_last_committed_is_the_newest() {
        // The fourth second as integer, as float, with two bytes, and in milliseconds.
        let (int, float, wide, milli) =
            (&[0, 0x40][..], &[0, 0x4B][..], &[0, 0x41][..], &[0xF0, 3, 0xE8, 0][..]);
        check_times(&[(int, 5, false), (float, 5, false)], &[5, 6]);
        check_times(&[(float, 5, false), (int, 5, false)], &[5, 6]);
        check_times(&[(milli, 5, false), (wide, 5, false), (int, 5, false)], &[5, 6, 7]);
        check_times(&[(int, 5, false), (milli, 6, false), (float, 9, false)], &[5, 6, 9]);
        // The column that was overwritten last is later than the others.
        check_times(&[(int, 5, false), (float, 5, false), (int, 5, false)], &[6, 5, 6]);
        // Other instants keep their times.
        check_times(&[(&[0, 0x10], 5, false), (&[0, 0x20], 5, false), (milli, 5, false)], &[5; 3]);
        // Given times are kept, and a commit after a given time is later.
        check_times(&[(int, 9, true), (float, 9, true), (wide, 5, false)], &[9, 9, 10]);
        // A point that was written after a compacted column is not older.
        let compacted = &[0, 0x40, 0, 0x50][..];
        check_times(&[(compacted, 7, true), (float, 5, false)], &[7, 7]);
        check_times(&[(float, 5, false), (compacted, 7, true)], &[5, 7]);
    }

    #[test]
    fn row_delete_hides_earlier_operations() {
        let after =
            [put(b"z", b"1"), RowOp::DeleteRow { timestamp_ms: 9 }, delete(b"a"), put(b"b", b"2")];
        check(&[&[put(b"a", b"1")], &after], true, &[(b"b", Some(b"2"))]);
        check(&[&after, &[put(b"a", b"3")]], true, &[(b"a", Some(b"3")), (b"b", Some(b"2"))]);
    }
}
