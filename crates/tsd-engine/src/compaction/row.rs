//! Compaction of one row: reads it, plans, and executes the plan.

use bytes::Bytes;
use tsd_model::{
    AppendedPoints, Cell, ColumnKind, Family, MergeRule, Qualifier, Row, RowCompaction, RowError,
    RowKey, RunShape, TableSchema, plan_row_compaction,
};
use tsd_storage::{
    Column, Get, NewValue, Recovery, RowRewrite, Storage, StorageError, StorageExt, Table,
};

/// Rules for interpreting the cells of a row.
#[derive(Clone, Debug)]
pub(crate) struct RowRules {
    pub(crate) schema: TableSchema,
    pub(crate) merge: MergeRule,
    /// Out-of-order append columns are rewritten in order.
    pub(crate) repair_appends: bool,
}

/// Result of compacting a row.
#[derive(Debug)]
pub(crate) enum CompactionOutcome {
    /// The row is compacted, now or since before.
    Done { put: bool, deleted: usize, identical: u64, variant: u64 },
    /// The storage is overloaded or unavailable: retry later.
    RetryLater,
    /// Reading failed.
    ReadFailed(StorageError),
    /// Rewriting failed.
    WriteFailed(StorageError),
    /// The cells conflict.
    Invalid(RowError),
}

/// Most attempts for a row that is written meanwhile; after these it is left to a later round.
const MAX_PLANS: usize = 3;

const NOTHING: CompactionOutcome =
    CompactionOutcome::Done { put: false, deleted: 0, identical: 0, variant: 0 };

/// Compacts a row if its hour is over at `now_secs`.
pub(crate) async fn compact(
    storage: &dyn Storage,
    table: &Table,
    key: &Bytes,
    rules: &RowRules,
    now_secs: i64,
) -> CompactionOutcome {
    if !is_due(rules.schema, key, now_secs) {
        return NOTHING;
    }
    for _ in 0..MAX_PLANS {
        if let Some(outcome) = compact_once(storage, table, key, rules).await {
            return outcome;
        }
    }
    CompactionOutcome::RetryLater
}

/// Makes a plan and executes it; `None` if the row was changed in between.
async fn compact_once(
    storage: &dyn Storage,
    table: &Table,
    key: &Bytes,
    rules: &RowRules,
) -> Option<CompactionOutcome> {
    let read = storage.read_version(table);
    let get = Get { family: Some(Family::T), ..Get::row(key.clone()) };
    let row = match storage.get(table, get).await {
        Ok(Some(row)) if is_fragmented(&row) => row,
        Ok(Some(row)) if rules.repair_appends => {
            return Some(repair_appends(storage, table, key, &row).await);
        }
        Ok(_) => return Some(NOTHING),
        Err(error) if is_transient(&error) => return Some(CompactionOutcome::RetryLater),
        Err(error) => return Some(CompactionOutcome::ReadFailed(error)),
    };
    let plan = match plan(key, row, rules) {
        Ok(plan) => plan,
        Err(error) => return Some(CompactionOutcome::Invalid(error)),
    };
    let done = CompactionOutcome::Done {
        put: plan.put.is_some(),
        deleted: plan.delete.len(),
        identical: plan.dropped.identical,
        variant: plan.dropped.variant,
    };
    if plan.is_nothing() {
        return Some(done);
    }
    let rewrite = RowRewrite {
        row: key.clone(),
        put: plan.put,
        superseded_ms: plan.superseded_ms,
        delete: plan.delete,
        read,
        whole_row: false,
    };
    Some(match storage.rewrite_row(table, rewrite).await {
        Ok(()) => done,
        Err(StorageError::Changed) => return None,
        Err(error) if is_transient(&error) => CompactionOutcome::RetryLater,
        Err(error) => CompactionOutcome::WriteFailed(error),
    })
}

/// True if a later round may succeed because the storage is only overloaded or unavailable.
fn is_transient(error: &StorageError) -> bool {
    error.recovery() == Recovery::RetryLater
}

/// Rewrites append columns with their points in order, each instant once. A column that is appended to meanwhile stays
/// unchanged, so no point is lost. The cell keeps its timestamp: this process's clock may be ahead of HBase's, and
/// then the marker of a delete would hide later appends.
async fn repair_appends(
    storage: &dyn Storage,
    table: &Table,
    key: &Bytes,
    row: &Row,
) -> CompactionOutcome {
    let mut put = false;
    for cell in append_cells(row) {
        let Ok(points) = AppendedPoints::decode(&cell.value) else { continue };
        if !points.needs_repair() {
            continue;
        }
        let (row, qualifier) = (key.clone(), cell.qualifier.clone());
        let column = Column { row, family: cell.family, qualifier };
        let (old, new) = (Some(cell.value.clone()), points.repaired_value().into());
        match storage
            .compare_and_set_at(table, column, old, NewValue::at(new, cell.timestamp_ms))
            .await
        {
            Ok(swapped) => put |= swapped,
            Err(error) if is_transient(&error) => return CompactionOutcome::RetryLater,
            Err(error) => return CompactionOutcome::WriteFailed(error),
        }
    }
    CompactionOutcome::Done { put, deleted: 0, identical: 0, variant: 0 }
}

fn append_cells(row: &Row) -> impl Iterator<Item = &Cell> {
    row.cells.iter().filter(|cell| {
        cell.family == Family::T && ColumnKind::of(&cell.qualifier) == ColumnKind::Append
    })
}

fn plan(key: &Bytes, row: Row, rules: &RowRules) -> Result<RowCompaction, RowError> {
    let cells = row.into_cells().map_err(|source| RowError::Run { key: key.clone(), source })?;
    plan_row_compaction(key, &cells, rules.merge)
}

/// True if the row of this key is old enough to be compacted.
pub(crate) fn is_due(schema: TableSchema, key: &[u8], now_secs: i64) -> bool {
    RowKey::decode(&schema, key).is_ok_and(|key| RowCompaction::is_due(key.base_time(), now_secs))
}

/// True if a row must be reported to its compactor.
pub(crate) fn needs_compaction(row: &Row, repair_appends: bool) -> bool {
    is_fragmented(row)
        || (repair_appends
            && append_cells(row).any(|cell| {
                AppendedPoints::decode(&cell.value).is_ok_and(|points| points.needs_repair())
            }))
}

/// True if compaction could change a row, judged by its columns without decoding values.
///
/// True for every row to which a plan would write, and for few others.
fn is_fragmented(row: &Row) -> bool {
    let mut columns = row.runs.len();
    let mut compacted =
        row.runs.iter().all(|run| run.shape() == RunShape::Compacted || run.point_count() == 1);
    for cell in row.cells.iter().filter(|cell| cell.family == Family::T) {
        match ColumnKind::of(&cell.qualifier) {
            ColumnKind::Append => return false,
            kind if kind.is_points() => {
                columns += 1;
                compacted &= is_compacted(kind, cell);
            }
            _ => {}
        }
    }
    columns > 1 || (columns == 1 && !compacted)
}

/// True if compaction would leave the column unchanged.
fn is_compacted(kind: ColumnKind, cell: &Cell) -> bool {
    let mut qualifiers = &*cell.qualifier;
    let (mut length, mut seconds, mut millis, mut last) = (0, false, false, None);
    while let Some((qualifier, rest)) = Qualifier::split_first(qualifiers) {
        length += qualifier.flags().value_len();
        *(if qualifier.is_millis() { &mut millis } else { &mut seconds }) = true;
        if last.replace(qualifier.offset_ms()) == Some(qualifier.offset_ms()) {
            return false;
        }
        qualifiers = rest;
    }
    if kind == ColumnKind::Point {
        return cell.value.len() == length;
    }
    cell.value.len() == length + 1 && cell.value.last() == Some(&u8::from(seconds && millis))
}

/// The largest base time whose row is due at `now_secs`.
pub(crate) const fn latest_base(now_secs: i64) -> i64 {
    now_secs - RowCompaction::MIN_AGE_SECS
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use tsd_storage::{CellBatch, CellRef, MemoryStorage};

    use super::*;

    fn cell(qualifier: &[u8], value: &[u8]) -> Cell {
        Cell {
            family: Family::T,
            qualifier: Bytes::copy_from_slice(qualifier),
            value: Bytes::copy_from_slice(value),
            timestamp_ms: 1,
        }
    }

    #[track_caller]
    fn check(cells: &[Cell], expected: bool) {
        let row = Row::from_cells(Bytes::from_static(b"row"), cells.to_vec());
        assert_eq!(is_fragmented(&row), expected, "{cells:?}");
        let plan = plan_row_compaction(&row.key, cells, MergeRule::Newest).unwrap();
        assert!(expected || plan.is_nothing(), "a plan would write: {plan:?}");
    }

    #[test]
    fn row_is_fragmented_where_a_plan_would_write() {
        let point = cell(&[0, 0], &[1]);
        check(std::slice::from_ref(&point), false);
        check(&[point.clone(), cell(&[1, 0, 0], b"{}")], false);
        check(&[point.clone(), cell(&[0, 0x10], &[2])], true);
        check(&[point, cell(&[5, 0, 0], &[0, 0, 1])], false);
        check(&[cell(&[0, 0, 0, 0x10], &[1, 2, 0])], false);
        check(&[cell(&[0, 0, 0, 0x10], &[1, 2])], true);
        check(&[cell(&[0, 0, 0, 0x10], &[1, 2, 1])], true);
        check(&[cell(&[0, 0, 0, 0], &[1, 1, 0])], true);
        check(&[cell(&[0, 0, 0xF0, 0, 1, 0], &[1, 2, 1])], false);
        check(&[cell(&[0, 0x0B], &[0, 0, 0, 0, 1, 2, 3, 4])], true);
        check(&[cell(&[1, 0, 0], b"{}")], false);
    }

    #[tokio::test]
    async fn disordered_append_columns_are_repaired_if_enabled() {
        let table = Table::new("tsdb");
        let store = MemoryStorage::new([table.clone()]);
        let key = Bytes::from_static(&[0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1]);
        let put = async |qualifier: &[u8], value: &[u8]| {
            let cell = CellRef { family: Family::T, qualifier, value, timestamp_ms: Some(7) };
            store.put(&table, CellBatch::single(&key, cell).unwrap()).await.unwrap();
        };
        put(&[5, 0, 0], &[0, 0x10, 2, 0, 0, 1, 0, 0x10, 3]).await;
        put(&[5, 0, 1], &[0, 0, 1]).await;
        put(&[5, 0, 2], &[0]).await;
        let mut rules = RowRules {
            schema: TableSchema::opentsdb_default(),
            merge: MergeRule::Newest,
            repair_appends: false,
        };
        let cells = async || {
            let row = store.get(&table, Get::row(key.clone())).await.unwrap().unwrap();
            row.cells.into_iter().map(|c| (c.value.to_vec(), c.timestamp_ms)).collect::<Vec<_>>()
        };
        let before = cells().await;
        compact(&store, &table, &key, &rules, 3_601).await;
        assert_eq!(cells().await, before);
        rules.repair_appends = true;
        compact(&store, &table, &key, &rules, 3_600).await;
        assert_eq!(cells().await, before, "the hour is not over");
        compact(&store, &table, &key, &rules, 3_601).await;
        assert_eq!(
            cells().await,
            [(vec![0, 0, 1, 0, 0x10, 3], 7), (vec![0, 0, 1], 7), (vec![0], 7)]
        );
        let row = store.get(&table, Get::row(key.clone())).await.unwrap().unwrap();
        assert!(!needs_compaction(&row, true));
    }
}
