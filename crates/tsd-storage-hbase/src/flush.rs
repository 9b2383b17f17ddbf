//! Flushes memtable rows to HBase.
//!
//! The cost in HBase is per cell, not per byte, so the points of a row are written as one compacted column. Puts are
//! sent in concurrent batches. The deletes of a row are sent after its puts are acknowledged. They have timestamps,
//! so the order is safe, and a reader in between sees surplus cells rather than missing ones. Every cell has a
//! timestamp, so a repeated flush changes nothing.
//!
//! Two kinds of rows are read back, and points that an older value supersedes are put again (see
//! [`superseded`](crate::superseded)):
//!
//! * Rows with a column of points of several commits. The column has the time of the first point, and another daemon
//!   may have written one of the other points in between. Only cells from that time on are read.
//! * Rows whose hour is over. Another daemon or OpenTSDB may have compacted them while their points were in the log.
//!   They are read back a second time later (see [`read_back`](crate::read_back)).

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use hbase_rs::{
    Delete, SERVER_TIME,
    buffer::{MutationBatch, Receipt},
};
use tsd_storage::{CellRef, FlushRow, FlushRows, StorageError, Table};

use crate::{
    compacted_column::ColumnCompactor,
    context::{OpenTable, StoreContext},
    error::{invalid, storage_error},
    mutations::{batch_error, put, write_batch},
    read_back::{UnverifiedRow, restore_superseded},
    request::timestamp,
    series_registry::SeriesRegistry,
    superseded::flush_mark,
};

/// Size in bytes at which a batch is sent.
const BATCH_BYTES: usize = 1 << 20;
/// Limit on batches in flight.
const MAX_BATCHES: usize = 8;
/// Limit on rows whose deletes wait for their puts.
const MAX_PENDING_DELETES: usize = 4096;
/// Limit on rows that wait for their verification.
const MAX_UNVERIFIED_ROWS: usize = 1024;
/// Writes the rows and returns when all of them are durable. With a registry, registers their series before.
pub(crate) async fn flush_rows(
    to: &OpenTable,
    table: &Table,
    mut rows: Box<dyn FlushRows>,
    registry: Option<(&Arc<StoreContext>, &SeriesRegistry)>,
) -> Result<(), StorageError> {
    let mut compactor = ColumnCompactor::default();
    let mut in_flight: VecDeque<Receipt> = VecDeque::new();
    let mut deletes = MutationBatch::default();
    let mut unverified: Vec<UnverifiedRow> = Vec::new();
    let now_ms = to.clock.system_ms();
    loop {
        let mut puts = to.writer.batch(0, BATCH_BYTES + BATCH_BYTES / 4);
        let mut last = false;
        let mut keys: Vec<Bytes> = Vec::new();
        while puts.size() < BATCH_BYTES
            && deletes.len() < MAX_PENDING_DELETES
            && unverified.len() < MAX_UNVERIFIED_ROWS
        {
            let Some(row) = rows.next_row() else {
                last = true;
                break;
            };
            if row.delete_row.is_some() || !row.deletes.is_empty() {
                to.read_backs.forget(row.key);
            }
            if registry.is_some() {
                keys.push(Bytes::copy_from_slice(row.key));
            }
            let compactible_since_ms = to.compactible_since_ms(row.key);
            let mut columns = (compactible_since_ms <= now_ms).then(Vec::new);
            let batches = (&mut puts, &mut deletes);
            add_row(&row, &mut compactor, batches, columns.as_mut(), compactible_since_ms)
                .map_err(rejected)?;
            unverified.extend(UnverifiedRow::of_flush(&row, compactor.placed(), columns));
        }
        if let Some((context, registry)) = registry {
            registry.register(context, keys.iter().map(AsRef::as_ref)).await?;
        }
        if !puts.is_empty() {
            while in_flight.len() >= MAX_BATCHES {
                settle(table, in_flight.pop_front()).await?;
            }
            let receipt = to.writer.submit(puts).await;
            in_flight.push_back(receipt.map_err(|error| storage_error(table, &error))?);
        }
        if last || deletes.len() >= MAX_PENDING_DELETES || unverified.len() >= MAX_UNVERIFIED_ROWS {
            while let Some(receipt) = in_flight.pop_front() {
                settle(table, Some(receipt)).await?;
            }
            write_batch(&to.writer, table, std::mem::take(&mut deletes)).await?;
            restore_superseded(to, table, std::mem::take(&mut unverified)).await?;
        }
        if last {
            return Ok(());
        }
    }
}

/// Makes the error of an invalid request permanent: it depends on the bytes of the row alone.
fn rejected(error: StorageError) -> StorageError {
    match error {
        StorageError::Backend(text) => StorageError::Rejected(text),
        other => other,
    }
}

async fn settle(table: &Table, receipt: Option<Receipt>) -> Result<(), StorageError> {
    match receipt {
        Some(receipt) => receipt.await.map_err(|error| batch_error(table, &error)),
        None => Ok(()),
    }
}

/// Adds the mutations of a row. Adds the put columns with their times to `columns`. Columns of several points get a
/// mark if the row was already compactible at their time: see [`flush_mark`]. The mark comes first, so that no
/// daemon reads the column without it.
fn add_row(
    row: &FlushRow<'_>,
    compactor: &mut ColumnCompactor,
    (puts, deletes): (&mut MutationBatch, &mut MutationBatch),
    mut columns: Option<&mut Vec<(Bytes, i64)>>,
    compactible_since_ms: i64,
) -> Result<(), StorageError> {
    let deleted_until = delete_time(row);
    puts.begin();
    compactor.compact(&row.cells, |family, qualifier, value, timestamp_ms| {
        // A cell put after the row's delete must be newer than the delete, whatever timestamp it
        // has.
        let after = deleted_until.map_or(i64::MIN, |until| until.saturating_add(1));
        let at = timestamp_ms.max(after);
        if let Some(columns) = columns.as_deref_mut() {
            columns.push((Bytes::copy_from_slice(qualifier), at));
        }
        if let Some((mark, mark_ms)) = flush_mark(qualifier, at, compactible_since_ms) {
            puts.delete_version(row.key, family.as_str().as_bytes(), &mark, timestamp(mark_ms)?)
                .map_err(invalid)?;
        }
        let timestamp_ms = Some(at);
        put(puts, row.key, CellRef { family, qualifier, value, timestamp_ms })
    })?;
    if let Some(until) = deleted_until {
        let mut delete = Delete::try_new(Bytes::copy_from_slice(row.key)).map_err(invalid)?;
        if until != i64::MAX {
            delete = delete.up_to(timestamp(until)?);
        }
        deletes.push(delete).map_err(invalid)?;
    } else if !row.deletes.is_empty() {
        deletes.begin();
        for &(family, qualifier, until) in &row.deletes {
            let until = if until == i64::MAX { SERVER_TIME } else { timestamp(until)? };
            deletes
                .delete_column(row.key, family.as_str().as_bytes(), qualifier, until)
                .map_err(invalid)?;
        }
    }
    Ok(())
}

/// Returns the timestamp of the row tombstone. An unbounded delete must still be older than the row's new cells.
fn delete_time(row: &FlushRow<'_>) -> Option<i64> {
    let until = row.delete_row?;
    let first = row.cells.iter().map(|cell| cell.timestamp_ms).min();
    Some(match first {
        Some(first) if until == i64::MAX => first.saturating_sub(1),
        _ => until,
    })
}

#[cfg(test)]
mod tests {
    use hbase_rs::buffer::MutationBatch;
    use tsd_model::Family;
    use tsd_storage::FlushCell;

    use super::*;

    fn flushed(delete_row: Option<i64>, times: &[i64]) -> (Option<i64>, usize, usize) {
        let qualifiers: Vec<[u8; 1]> = (0..times.len()).map(|at| [at as u8]).collect();
        let cells = qualifiers
            .iter()
            .zip(times)
            .map(|(qualifier, timestamp_ms)| FlushCell {
                family: Family::T,
                qualifier,
                value: b"",
                timestamp_ms: *timestamp_ms,
            })
            .collect();
        let row = FlushRow { key: b"row", delete_row, deletes: Vec::new(), cells };
        let (mut puts, mut deletes) = (MutationBatch::default(), MutationBatch::default());
        assert!(
            add_row(
                &row,
                &mut ColumnCompactor::default(),
                (&mut puts, &mut deletes),
                None,
                i64::MAX
            )
            .is_ok()
        );
        (delete_time(&row), puts.len(), deletes.len())
    }

    #[test]
    fn row_tombstone_is_older_than_later_cells() {
        assert_eq!(flushed(None, &[5]), (None, 1, 0));
        assert_eq!(flushed(Some(4), &[5, 6]), (Some(4), 1, 1));
        assert_eq!(flushed(Some(4), &[]), (Some(4), 0, 1));
        assert_eq!(flushed(Some(i64::MAX), &[]), (Some(i64::MAX), 0, 1));
        assert_eq!(flushed(Some(i64::MAX), &[7, 9]), (Some(6), 1, 1));
    }
}
