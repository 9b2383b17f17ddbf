//! What a row's log comes to: the last operation on each column.

use std::cmp::Ordering;

use tsd_model::Family;

use super::row_log::{Op, Ops};

/// A column, and its value or `None` where it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnState<'a> {
    pub(crate) family: Family,
    pub(crate) qualifier: &'a [u8],
    pub(crate) value: Option<&'a [u8]>,
    /// Time of the put or of the delete.
    pub(crate) timestamp_ms: i64,
}

impl<'a> ColumnState<'a> {
    /// Value and timestamp of the cell, if there is one.
    pub(crate) fn cell(&self) -> Option<(&'a [u8], i64)> {
        Some((self.value?, self.timestamp_ms))
    }

    pub(crate) fn cmp_column(&self, family: Family, qualifier: &[u8]) -> Ordering {
        self.family.cmp(&family).then_with(|| self.qualifier.cmp(qualifier))
    }
}

/// State of a row as far as logs tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowState<'a> {
    /// Where the row was deleted: the time of it. What is below these logs does not count.
    pub(crate) delete_row: Option<i64>,
    /// Sorted by family, then qualifier; each column once.
    pub(crate) columns: Vec<ColumnState<'a>>,
}

impl<'a> RowState<'a> {
    /// Follows logs, oldest first; each with the base of its timestamps.
    pub(crate) fn follow(logs: impl IntoIterator<Item = (&'a [u8], i64)>) -> Self {
        let mut state = Self::default();
        for (log, base_ms) in logs {
            // Most rows are points of about eight bytes.
            state.columns.reserve(log.len() / 8);
            for op in Ops::new(log, base_ms) {
                match op {
                    Op::Put { family, qualifier, value, timestamp_ms } => {
                        let value = Some(value);
                        state.columns.push(ColumnState { family, qualifier, value, timestamp_ms });
                    }
                    Op::DeleteColumn { family, qualifier, timestamp_ms } => {
                        let value = None;
                        state.columns.push(ColumnState { family, qualifier, value, timestamp_ms });
                    }
                    Op::DeleteRow { timestamp_ms } => {
                        state.delete_row = Some(timestamp_ms);
                        state.columns.clear();
                    }
                }
            }
        }
        state.settle();
        state
    }

    /// Sorts the columns and keeps the last operation on each.
    fn settle(&mut self) {
        let by_column =
            |a: &ColumnState<'_>, b: &ColumnState<'_>| a.cmp_column(b.family, b.qualifier);
        if !self.columns.is_sorted_by(|a, b| by_column(a, b) == Ordering::Less) {
            self.columns.sort_by(by_column);
            // The sort is stable, so the last of equals is the latest.
            self.columns.dedup_by(|later, kept| {
                let same = by_column(later, kept) == Ordering::Equal;
                if same {
                    *kept = *later;
                }
                same
            });
        }
        if self.delete_row.is_some() {
            self.columns.retain(|column| column.value.is_some());
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
    use crate::memtable::row_log::encode;

    fn put(qualifier: &'static [u8], value: &'static [u8]) -> Op<'static> {
        Op::Put { family: Family::T, qualifier, value, timestamp_ms: 7 }
    }

    fn delete(qualifier: &'static [u8]) -> Op<'static> {
        Op::DeleteColumn { family: Family::T, qualifier, timestamp_ms: 7 }
    }

    #[track_caller]
    fn check(logs: &[&[Op<'_>]], delete_row: bool, expected: &[(&[u8], Option<&[u8]>)]) {
        let encoded: Vec<Vec<u8>> = logs
            .iter()
            .map(|ops| {
                let mut log = Vec::new();
                ops.iter().for_each(|op| encode(*op, 0, &mut log));
                log
            })
            .collect();
        let state = RowState::follow(encoded.iter().map(|log| (log.as_slice(), 0)));
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
    fn the_last_operation_on_a_column_counts() {
        check(
            &[&[put(b"b", b"1"), put(b"a", b"2"), put(b"b", b"3")]],
            false,
            &[(b"a", Some(b"2")), (b"b", Some(b"3"))],
        );
        check(&[&[put(b"a", b"1"), delete(b"a")]], false, &[(b"a", None)]);
        check(&[&[delete(b"a"), put(b"a", b"1")]], false, &[(b"a", Some(b"1"))]);
    }

    #[test]
    fn later_logs_win() {
        check(
            &[&[put(b"a", b"1"), put(b"b", b"1")], &[delete(b"a"), put(b"c", b"2")]],
            false,
            &[(b"a", None), (b"b", Some(b"1")), (b"c", Some(b"2"))],
        );
    }

    #[test]
    fn a_row_delete_forgets_what_was_before() {
        let after =
            [put(b"z", b"1"), Op::DeleteRow { timestamp_ms: 9 }, delete(b"a"), put(b"b", b"2")];
        check(&[&[put(b"a", b"1")], &after], true, &[(b"b", Some(b"2"))]);
        check(&[&after, &[put(b"a", b"3")]], true, &[(b"a", Some(b"3")), (b"b", Some(b"2"))]);
    }
}
