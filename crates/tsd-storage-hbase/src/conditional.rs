//! Changes under a condition, and counters.
//!
//! The client never repeats a conditional change whose answer was lost: the second time the condition
//! would meet what the first left behind. Here the row decides:
//!
//! | after a lost answer the column | means |
//! |---|---|
//! | has the new value (or is gone, for a delete) | it was done |
//! | has the expected value | it was not done, or not yet: it is done again; a first attempt that arrives later finds nothing to do |
//! | has another value | it was not done, as far as can be told: somebody else's change came first, or came on top |
//!
//! A column that was gone before cannot be told from one that is gone now, so a delete looks first whether
//! there is something to delete. A new value that was there before counts as set: the column is as it was
//! to be.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hbase_rs::{
    Comparator, CompareOp, Condition, Delete, Filter, Get, Increment, Mutation, OperationError,
    Put, SERVER_TIME, Selection, Table as HBaseTable,
};
use tokio::time::sleep;
use tsd_model::Family;
use tsd_storage::{Column, StorageError, Table};

use crate::{
    error::{refused, storage_error},
    request::{family_name, timestamp},
};

/// Before a change is tried again.
const PAUSE: Duration = Duration::from_millis(20);

/// A conditional change of one column.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) column: Column,
    /// `None`: there is no such column.
    pub(crate) expected: Option<Bytes>,
    /// `None`: the column goes.
    pub(crate) new: Option<Bytes>,
    /// Time of the new cell; the server's where none is said.
    pub(crate) timestamp_ms: Option<i64>,
}

impl Change {
    /// Does it if the column is as expected, and says whether it did.
    pub(crate) async fn run(
        self,
        rows: &HBaseTable,
        table: &Table,
        patience: Duration,
    ) -> Result<bool, StorageError> {
        let started = Instant::now();
        let failed = |error: OperationError| storage_error(table, &error);
        let Column { row, family, qualifier } = &self.column;
        if self.new.is_none() && self.read(rows).await.map_err(failed)? != self.expected {
            return Ok(false);
        }
        let condition = match &self.expected {
            // HBase takes an empty value for an absent column. Values of the UID table are never empty.
            None => {
                if *family == Family::T && self.read(rows).await.map_err(failed)?.is_some() {
                    return Ok(false);
                }
                Condition::absent(family_name(*family), qualifier.clone())
            }
            Some(empty) if empty.is_empty() => Condition::filter(Filter::column_value(
                family_name(*family),
                qualifier.clone(),
                CompareOp::Equal,
                Comparator::binary(Bytes::new()),
            )),
            Some(value) => {
                Condition::equals(family_name(*family), qualifier.clone(), value.clone())
            }
        };
        let family = family.as_str().as_bytes();
        let mutation: Mutation = match &self.new {
            Some(value) => {
                let at = self.timestamp_ms.map_or(Ok(SERVER_TIME), timestamp)?;
                let put =
                    Put::try_new(row.clone()).and_then(|p| p.cell(family, qualifier, at, value));
                put.map_err(|error| refused(&error))?.into()
            }
            None => Delete::try_new(row.clone())
                .and_then(|delete| delete.column(family, qualifier, SERVER_TIME))
                .map_err(|error| refused(&error))?
                .into(),
        };
        loop {
            let error = match rows.check_and_mutate(&condition, mutation.clone()).await {
                Ok(done) => return Ok(done),
                Err(error) if !error.in_doubt => return Err(failed(error)),
                Err(error) => error,
            };
            tracing::debug!(%table, error = crate::error::text(&error), "a conditional change is in doubt");
            let now = self.read(rows).await.map_err(failed)?;
            if now == self.new {
                return Ok(true);
            }
            if now != self.expected {
                return Ok(false);
            }
            if started.elapsed() >= patience {
                return Err(failed(error));
            }
            sleep(PAUSE).await;
        }
    }

    async fn read(&self, rows: &HBaseTable) -> Result<Option<Bytes>, OperationError> {
        read(rows, &self.column).await
    }
}

/// Value of a column. A key or a column that HBase does not take is absent.
async fn read(rows: &HBaseTable, column: &Column) -> Result<Option<Bytes>, OperationError> {
    let Ok(get) = Get::try_new(column.row.clone()) else { return Ok(None) };
    let selection =
        Selection::all().columns(family_name(column.family), [column.qualifier.clone()]);
    let row = rows.get(&get.select(selection)).await?;
    let value = row.value(column.family.as_str().as_bytes(), &column.qualifier);
    Ok(value.map(Bytes::copy_from_slice))
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
        .map_err(|error| refused(&error))?;
    let error = match rows.mutate(increment).await {
        Ok(row) => {
            let sum = row.value(family, &column.qualifier).and_then(|value| value.try_into().ok());
            return sum.map(i64::from_be_bytes).ok_or_else(|| {
                StorageError::Backend("the answer to an increment holds no sum".into())
            });
        }
        Err(error) => storage_error(table, &error),
    };
    // The server only says that it is no counter, in words that differ from release to release.
    if matches!(error, StorageError::Backend(_))
        && let Ok(Some(value)) = read(rows, column).await
        && value.len() != 8
    {
        return Err(StorageError::NotACounter { length: value.len() });
    }
    Err(error)
}
