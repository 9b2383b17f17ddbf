//! Held rows into HBase.
//!
//! What HBase costs is cells, not bytes, so the points of a row leave as one compacted column. Puts
//! travel in batches, several at a time. Deletes of a row follow when the answers to its puts are
//! there; they reach up to their own times, so that the order does no harm, and a reader in between
//! finds too much rather than too little. Every cell carries its time, so doing it again changes nothing.

use std::collections::VecDeque;

use bytes::Bytes;
use hbase_rs::{Delete, MutationBatch, Receipt, SERVER_TIME};
use tsd_storage::{CellRef, FlushRow, FlushRows, StorageError, Table};

use crate::{
    coalesce::Coalescer,
    error::{refused, storage_error},
    mutations::put,
    request::timestamp,
    shared::OpenTable,
    storage::{batch_error, write},
};

/// Bytes of cells in one batch.
const BATCH_BYTES: usize = 1 << 20;
/// Batches under way.
const BATCHES: usize = 8;
/// Rows whose deletes wait for their puts at most.
const WAITING_DELETES: usize = 4096;

/// Applies the rows and returns when all of them are durable.
pub(crate) async fn ingest(
    to: &OpenTable,
    table: &Table,
    mut rows: Box<dyn FlushRows>,
) -> Result<(), StorageError> {
    let mut coalescer = Coalescer::default();
    let mut under_way: VecDeque<Receipt> = VecDeque::new();
    let mut deletes = MutationBatch::default();
    loop {
        let mut puts = to.writer.batch(0, BATCH_BYTES + BATCH_BYTES / 4);
        let mut over = false;
        while puts.size() < BATCH_BYTES && deletes.len() < WAITING_DELETES {
            let Some(row) = rows.next_row() else {
                over = true;
                break;
            };
            add_row(&row, &mut coalescer, &mut puts, &mut deletes).map_err(unfit)?;
        }
        if !puts.is_empty() {
            while under_way.len() >= BATCHES {
                settle(table, under_way.pop_front()).await?;
            }
            let receipt = to.writer.submit(puts).await;
            under_way.push_back(receipt.map_err(|error| storage_error(table, &error))?);
        }
        if over || deletes.len() >= WAITING_DELETES {
            while let Some(receipt) = under_way.pop_front() {
                settle(table, Some(receipt)).await?;
            }
            write(to, table, std::mem::take(&mut deletes)).await?;
        }
        if over {
            return Ok(());
        }
    }
}

/// A row of which no request can be made: that depends on its bytes alone.
fn unfit(error: StorageError) -> StorageError {
    match error {
        StorageError::Backend(why) => StorageError::Rejected(why),
        other => other,
    }
}

async fn settle(table: &Table, receipt: Option<Receipt>) -> Result<(), StorageError> {
    match receipt {
        Some(receipt) => receipt.await.map_err(|error| batch_error(table, &error)),
        None => Ok(()),
    }
}

fn add_row(
    row: &FlushRow<'_>,
    coalescer: &mut Coalescer,
    puts: &mut MutationBatch,
    deletes: &mut MutationBatch,
) -> Result<(), StorageError> {
    let deleted_until = delete_time(row);
    puts.begin();
    coalescer.columns(&row.cells, |family, qualifier, value, timestamp_ms| {
        // What the row holds after its delete is there, whatever time it was given.
        let after = deleted_until.map_or(i64::MIN, |until| until.saturating_add(1));
        let timestamp_ms = Some(timestamp_ms.max(after));
        put(puts, row.key, CellRef { family, qualifier, value, timestamp_ms })
    })?;
    if let Some(until) = deleted_until {
        let mut delete =
            Delete::try_new(Bytes::copy_from_slice(row.key)).map_err(|error| refused(&error))?;
        if until != i64::MAX {
            delete = delete.up_to(timestamp(until)?);
        }
        deletes.push(delete).map_err(|error| refused(&error))?;
    } else if !row.deletes.is_empty() {
        deletes.begin();
        for &(family, qualifier, until) in &row.deletes {
            let until = if until == i64::MAX { SERVER_TIME } else { timestamp(until)? };
            deletes
                .delete_column(row.key, family.as_str().as_bytes(), qualifier, until)
                .map_err(|error| refused(&error))?;
        }
    }
    Ok(())
}

/// Up to which time the row goes. Everything means everything before the cells that were put later.
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
    use hbase_rs::MutationBatch;
    use tsd_model::Family;
    use tsd_storage::FlushCell;

    use super::*;

    fn held(delete_row: Option<i64>, times: &[i64]) -> (Option<i64>, usize, usize) {
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
        assert!(add_row(&row, &mut Coalescer::default(), &mut puts, &mut deletes).is_ok());
        (delete_time(&row), puts.len(), deletes.len())
    }

    #[test]
    fn a_delete_reaches_up_to_its_time_and_never_over_what_came_after() {
        assert_eq!(held(None, &[5]), (None, 1, 0));
        assert_eq!(held(Some(4), &[5, 6]), (Some(4), 1, 1));
        assert_eq!(held(Some(4), &[]), (Some(4), 0, 1));
        assert_eq!(held(Some(i64::MAX), &[]), (Some(i64::MAX), 0, 1));
        assert_eq!(held(Some(i64::MAX), &[7, 9]), (Some(6), 1, 1));
    }
}
