//! Writers that run until the workload stops: batches, single puts, and atomic updates, which must
//! take effect exactly once.
//!
//! A failed write is repeated until it is acknowledged, so a writer's rows have no gaps. The client
//! should retry by itself: errors that reach the writers are counted.

use std::sync::Arc;

use hbase_rs::{
    Action, Append, Get, Increment, Mutation, OperationError, Put, Table, condition::Condition,
    errors::RequestError,
};
use tokio::time::sleep;

use super::{
    ack_tracker::{FAMILY, TIMESTAMP, cells, key},
    state::{ROW_WRITERS, WorkloadState},
};

/// Rows of a batch.
const BATCH_ROWS: u64 = 10;
/// Rows of each kind of atomic update.
const UPDATED_ROWS: u64 = 8;
/// Column of updated rows.
const COLUMN: &[u8] = b"q";

fn put(writer: usize, number: u64) -> Put {
    let put = Put::try_new(key(writer, number)).expect("a key");
    cells(writer, number).fold(put, |put, (qualifier, value)| {
        put.cell(FAMILY, qualifier.as_bytes(), TIMESTAMP, value.as_bytes()).expect("a cell")
    })
}

/// Puts batches of rows.
pub(super) async fn write_batches(state: Arc<WorkloadState>, table: Table, writer: usize) {
    let mut number = 0;
    while !state.is_stopped() {
        let end = number + BATCH_ROWS;
        state.rows.record_sent(writer, end);
        state.stats.record_wait(writer);
        let mut rows: Vec<u64> = (number..end).collect();
        while !rows.is_empty() {
            let actions = rows.iter().map(|&row| Action::from(put(writer, row))).collect();
            let results = table.batch(actions).await;
            let failed = rows.iter().zip(&results).filter_map(|(row, result)| {
                let error = result.as_ref().err()?;
                state.record_failed_write("batch", error);
                Some(*row)
            });
            rows = failed.collect();
        }
        state.stats.record_acknowledgement(writer);
        number = end;
        state.rows.record_acknowledged(writer, number);
        sleep(state.pause).await;
    }
}

/// Puts single rows.
pub(super) async fn write_rows(state: Arc<WorkloadState>, table: Table, writer: usize) {
    let mut number = 0;
    while !state.is_stopped() {
        state.rows.record_sent(writer, number + 1);
        state.stats.record_wait(writer);
        while let Err(error) = table.mutate(put(writer, number)).await {
            state.record_failed_write("put", &error);
        }
        state.stats.record_acknowledgement(writer);
        number += 1;
        state.rows.record_acknowledged(writer, number);
        sleep(state.pause / 4).await;
    }
}

/// Kinds of atomic updates, each on separate rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtomicUpdate {
    /// Increments a counter by one.
    Increment,
    /// Appends a byte to a value.
    Append,
    /// Replaces a number by its successor if it has the expected value, like the assignment of
    /// UIDs. After a failure in doubt the row is read.
    CheckAndPut,
}

impl AtomicUpdate {
    /// All kinds, in the order of their writers.
    pub(super) const ALL: [Self; 3] = [Self::Increment, Self::Append, Self::CheckAndPut];

    /// Row `at` of this kind; the rows are distributed over all regions.
    fn row(self, at: u64) -> String {
        format!("{:02x}-{self:?}", at * 256 / UPDATED_ROWS)
    }
}

/// Updates the rows of a kind in turn.
pub(super) async fn update_repeatedly(state: Arc<WorkloadState>, table: Table, kind: AtomicUpdate) {
    let writer = kind as usize;
    let mut number = 0;
    while !state.is_stopped() {
        let (at, count) = (number % UPDATED_ROWS, number / UPDATED_ROWS);
        let row = kind.row(at);
        state.updates.record_sent(writer, number + 1);
        state.stats.record_wait(ROW_WRITERS + writer);
        match kind {
            AtomicUpdate::CheckAndPut => check_and_put(&state, &table, &row, count).await,
            AtomicUpdate::Increment | AtomicUpdate::Append => {
                mutate(&state, &table, kind, &row).await;
            }
        }
        state.stats.record_acknowledgement(ROW_WRITERS + writer);
        number += 1;
        state.updates.record_acknowledged(writer, number);
        sleep(state.pause).await;
    }
}

async fn mutate(state: &WorkloadState, table: &Table, kind: AtomicUpdate, row: &str) {
    let mutation = || -> Result<Mutation, RequestError> {
        Ok(match kind {
            AtomicUpdate::Increment => {
                Increment::try_new(row.to_owned())?.counter(FAMILY, COLUMN, 1)?.into()
            }
            _ => Append::try_new(row.to_owned())?.value(FAMILY, COLUMN, b".")?.into(),
        })
    };
    while let Err(error) = table.mutate(mutation().expect("a mutation")).await {
        state.record_failed_write(row, &error);
        // The expected count is unknown from now on.
        if error.in_doubt {
            state.report(format!("{row}: in doubt"));
            break;
        }
    }
}

async fn check_and_put(state: &WorkloadState, table: &Table, row: &str, old: u64) {
    let condition = match old {
        0 => Condition::absent(FAMILY, COLUMN),
        _ => Condition::equals(FAMILY, COLUMN, old.to_string()),
    };
    let next = (old + 1).to_string();
    loop {
        let put = Put::try_new(row.to_owned()).expect("a key");
        let put = put.cell(FAMILY, COLUMN, TIMESTAMP + old, next.as_bytes()).expect("a cell");
        let result = table.check_and_mutate(&condition, put).await;
        match &result {
            Ok(true) => return,
            Err(error) if !error.in_doubt => {
                state.record_failed_write(row, error);
                continue;
            }
            // A previous attempt may have succeeded.
            Ok(false) | Err(_) => {}
        }
        match value(table, row).await {
            Ok(found) if found == next.as_bytes() => return,
            Ok(found) if result.is_ok() => {
                state.report(format!("{row}: {found:?} instead of {old} or {next}"));
                return;
            }
            Ok(_) => {}
            Err(error) => state.record_failed_read(row, &error),
        }
    }
}

async fn value(table: &Table, row: &str) -> Result<Vec<u8>, OperationError> {
    let get = Get::try_new(row.to_owned()).expect("a key");
    Ok(table.get(&get).await?.value(FAMILY, COLUMN).unwrap_or_default().to_vec())
}

/// Compares updated rows with the acknowledged updates once the writers have ended; returns the
/// differences.
pub(super) async fn check_updates(
    table: &Table,
    kind: AtomicUpdate,
    acknowledged: u64,
) -> Result<Vec<String>, OperationError> {
    let mut wrong = Vec::new();
    for at in 0..UPDATED_ROWS {
        let expected = (acknowledged + UPDATED_ROWS - 1 - at) / UPDATED_ROWS;
        let row = kind.row(at);
        let found = value(table, &row).await?;
        let count = match kind {
            AtomicUpdate::Increment => found.try_into().map_or(0, u64::from_be_bytes),
            AtomicUpdate::Append => found.len() as u64,
            AtomicUpdate::CheckAndPut => String::from_utf8_lossy(&found).parse().unwrap_or(0),
        };
        if count != expected {
            wrong.push(format!("{row} was updated {count} times, acknowledged were {expected}"));
        }
    }
    Ok(wrong)
}

/// Puts and gets rows all over the table, which succeeds when all regions serve writes and reads.
pub(super) async fn touch_all_regions(table: &Table) -> Result<(), OperationError> {
    let rows: Vec<_> =
        (0..=0xff_u32).step_by(4).map(|prefix| format!("{prefix:02x}-touched")).collect();
    let actions = rows.iter().map(|row| {
        let put = Put::try_new(row.clone()).expect("a key");
        Action::from(put.cell(FAMILY, COLUMN, TIMESTAMP, b"").expect("a cell"))
    });
    for result in table.batch(actions.collect()).await {
        result?;
    }
    let gets = rows.into_iter().map(|row| Get::try_new(row).expect("a key"));
    table.get_many(gets.collect()).await?;
    Ok(())
}
