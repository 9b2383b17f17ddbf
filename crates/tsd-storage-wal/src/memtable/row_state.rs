//! State of a row after its operations: the last one on each column.

use std::cmp::Ordering;

use tsd_model::Family;

use super::row_op::{RowOp, RowOpIter};

/// Last operation on a column. Its value is `None` if the column is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnState<'a> {
    pub(crate) family: Family,
    pub(crate) qualifier: &'a [u8],
    pub(crate) value: Option<&'a [u8]>,
    /// Time of the put or of the delete.
    pub(crate) timestamp_ms: i64,
}

impl<'a> ColumnState<'a> {
    /// Value and timestamp of the cell; `None` if it is deleted.
    pub(crate) fn cell(&self) -> Option<(&'a [u8], i64)> {
        Some((self.value?, self.timestamp_ms))
    }

    pub(crate) fn cmp_column(&self, family: Family, qualifier: &[u8]) -> Ordering {
        self.family.cmp(&family).then_with(|| self.qualifier.cmp(qualifier))
    }
}

/// State of a row, as far as operations define it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowState<'a> {
    /// Time of the last deletion of the row, which hides all older cells.
    pub(crate) delete_row: Option<i64>,
    /// Sorted by family, then qualifier; each column once.
    pub(crate) columns: Vec<ColumnState<'a>>,
}

impl<'a> RowState<'a> {
    /// Applies encoded operations, oldest first, each with its timestamp base.
    pub(crate) fn from_ops(all_ops: impl IntoIterator<Item = (&'a [u8], i64)>) -> Self {
        let mut state = Self::default();
        for (ops, base_ms) in all_ops {
            // Most rows are points of about eight bytes.
            state.columns.reserve(ops.len() / 8);
            for op in RowOpIter::new(ops, base_ms) {
                match op {
                    RowOp::Put { family, qualifier, value, timestamp_ms } => {
                        let value = Some(value);
                        state.columns.push(ColumnState { family, qualifier, value, timestamp_ms });
                    }
                    RowOp::DeleteColumn { family, qualifier, timestamp_ms } => {
                        let value = None;
                        state.columns.push(ColumnState { family, qualifier, value, timestamp_ms });
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
    use crate::memtable::row_op::encode_op;

    fn put(qualifier: &'static [u8], value: &'static [u8]) -> RowOp<'static> {
        RowOp::Put { family: Family::T, qualifier, value, timestamp_ms: 7 }
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

    #[test]
    fn row_delete_hides_earlier_operations() {
        let after =
            [put(b"z", b"1"), RowOp::DeleteRow { timestamp_ms: 9 }, delete(b"a"), put(b"b", b"2")];
        check(&[&[put(b"a", b"1")], &after], true, &[(b"b", Some(b"2"))]);
        check(&[&after, &[put(b"a", b"3")]], true, &[(b"a", Some(b"3")), (b"b", Some(b"2"))]);
    }
}
