//! Conditional writes of a column, and increments.
//!
//! The client never retries a conditional write whose response was lost: the retry would check the
//! condition against the effect of the first attempt. Reading the column resolves the doubt:
//!
//! | the column, after a lost response | conclusion |
//! |---|---|
//! | has the new value (or is absent, for a delete) | the write was applied |
//! | has the expected value | not applied, or not yet: retry; a late attempt fails its condition |
//! | has another value | not applied, or overwritten: another writer won |
//!
//! An absent column does not prove that a delete was applied, so a delete reads the column first. A
//! column that had the new value before the write counts as set.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hbase_rs::{
    Delete, Get, Increment, Mutation, OperationError, Put, Selection, Table as HBaseTable,
    condition::Condition,
    filter::{Comparator, CompareOp, Filter},
};
use tokio::time::sleep;
use tsd_model::Family;
use tsd_storage::{Column, StorageError, Swap, Table, error_chain};

use crate::{
    clock::WriteClock,
    error::{invalid, storage_error},
    request::{family_name, timestamp},
};

/// Pause before a retry.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Writes if the column has the expected value; returns true if it did.
///
/// A new cell without a timestamp takes the clock of this process, but at least the millisecond after the replaced
/// cell.
pub(crate) async fn execute_swap(
    swap: &Swap,
    rows: &HBaseTable,
    clock: &WriteClock,
    table: &Table,
    timeout: Duration,
) -> Result<bool, StorageError> {
    let started = Instant::now();
    let failed = |error: OperationError| storage_error(table, &error);
    let Swap { column, expected, new } = swap;
    let timestamp_ms = new.as_ref().and_then(|new| new.timestamp_ms);
    let mut replaced = None;
    if new.is_none() || expected.is_some() && timestamp_ms.is_none() {
        let (found, time) = read_cell(rows, column).await.map_err(failed)?;
        if found != *expected {
            return Ok(false);
        }
        replaced = time;
    }
    // HBase does not distinguish an empty value from an absent column. Values of the UID table are never empty.
    if expected.is_none()
        && column.family == Family::T
        && read(rows, column).await.map_err(failed)?.is_some()
    {
        return Ok(false);
    }
    let condition = condition(column, expected.as_ref());
    let mutation = mutation(swap, clock, replaced)?;
    loop {
        let error = match rows.check_and_mutate(&condition, mutation.clone()).await {
            Ok(done) => return Ok(done),
            Err(error) if !error.in_doubt => return Err(failed(error)),
            Err(error) => error,
        };
        let text = error_chain(&error);
        tracing::debug!(%table, error = text, "result of a conditional write is unknown");
        let now = read(rows, column).await.map_err(failed)?;
        if now.as_ref() == new.as_ref().map(|new| &new.value) {
            return Ok(true);
        }
        if now != *expected {
            return Ok(false);
        }
        // Some exceptions leave the outcome unknown and are permanent nevertheless.
        let permanent =
            error.class().is_some() && matches!(failed(error.clone()), StorageError::Backend(_));
        if permanent || started.elapsed() >= timeout {
            return Err(failed(error));
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// Returns the condition that the column has the expected value.
fn condition(column: &Column, expected: Option<&Bytes>) -> Condition {
    let (family, qualifier) = (family_name(column.family), column.qualifier.clone());
    match expected {
        None => Condition::absent(family, qualifier),
        Some(empty) if empty.is_empty() => {
            let empty = Comparator::binary(Bytes::new());
            Condition::filter(Filter::column_value(family, qualifier, CompareOp::Equal, empty))
        }
        Some(value) => Condition::equals(family, qualifier, value.clone()),
    }
}

/// Returns the mutation of the write. `replaced` is the time of the cell that it replaces.
fn mutation(
    swap: &Swap,
    clock: &WriteClock,
    replaced: Option<i64>,
) -> Result<Mutation, StorageError> {
    let Column { row, family, qualifier } = &swap.column;
    let family = family.as_str().as_bytes();
    let Some(new) = &swap.new else {
        let until = replaced.unwrap_or_default();
        clock.pass(until);
        let delete = Delete::try_new(row.clone())
            .and_then(|delete| delete.column(family, qualifier, until.max(0).unsigned_abs()));
        return Ok(delete.map_err(invalid)?.into());
    };
    let at = match (new.timestamp_ms, replaced) {
        (Some(time), _) => time,
        (None, Some(replaced)) => clock.after_ms(replaced),
        (None, None) => clock.now_ms(),
    };
    let at = timestamp(at)?;
    let put = Put::try_new(row.clone()).and_then(|put| put.cell(family, qualifier, at, &new.value));
    Ok(put.map_err(invalid)?.into())
}

/// Reads the value of a column; absent if HBase does not accept the key.
async fn read(rows: &HBaseTable, column: &Column) -> Result<Option<Bytes>, OperationError> {
    Ok(read_cell(rows, column).await?.0)
}

/// Reads the value and the timestamp of a column.
pub(crate) async fn read_cell(
    rows: &HBaseTable,
    column: &Column,
) -> Result<(Option<Bytes>, Option<i64>), OperationError> {
    let Ok(get) = Get::try_new(column.row.clone()) else { return Ok((None, None)) };
    let selection =
        Selection::all().columns(family_name(column.family), [column.qualifier.clone()]);
    let row = rows.get(&get.select(selection)).await?;
    let cell = row.cells().find(|cell| {
        cell.family == column.family.as_str().as_bytes() && cell.qualifier == column.qualifier
    });
    let time = cell.map(|cell| i64::try_from(cell.timestamp).unwrap_or(i64::MAX - 1));
    Ok((cell.map(|cell| Bytes::copy_from_slice(cell.value)), time))
}

/// Adds to a counter and returns the sum.
pub(crate) async fn increment(
    rows: &HBaseTable,
    table: &Table,
    column: &Column,
    amount: i64,
) -> Result<i64, StorageError> {
    let family = column.family.as_str().as_bytes();
    let increment = Increment::try_new(column.row.clone())
        .and_then(|increment| increment.counter(family, &column.qualifier, amount))
        .map_err(invalid)?;
    let error = match rows.mutate(increment).await {
        Ok(row) => {
            let sum = row.value(family, &column.qualifier).and_then(|value| value.try_into().ok());
            return sum.map(i64::from_be_bytes).ok_or_else(|| {
                StorageError::Backend("the response to an increment has no sum".into())
            });
        }
        Err(error) => storage_error(table, &error),
    };
    // The server reports this as text that differs between releases.
    if matches!(error, StorageError::Backend(_))
        && let Ok(Some(value)) = read(rows, column).await
        && value.len() != 8
    {
        return Err(StorageError::NotACounter { length: value.len() });
    }
    Err(error)
}
