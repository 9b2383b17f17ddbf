//! Writers that never stop: batches, single puts, and changes that must happen exactly once.
//!
//! A write that fails is made again until it is acknowledged, so a writer's rows have no gaps. The
//! client should not let it come to that: errors are counted.

use std::sync::Arc;

use hbase_rs::{
    Action, Append, Condition, Get, Increment, Mutation, OperationError, Put, RequestError, Table,
};
use tokio::time::sleep;

use super::{
    ROW_WRITERS, Shared,
    ledger::{FAMILY, TIMESTAMP, cells, key},
};

/// Rows of a batch.
const BATCH: u64 = 10;
/// Rows of each kind that are changed again and again.
const CHANGED: u64 = 8;
/// Column of changed rows.
const COLUMN: &[u8] = b"q";

fn put(writer: usize, number: u64) -> Put {
    let put = Put::try_new(key(writer, number)).expect("a key");
    cells(writer, number).fold(put, |put, (qualifier, value)| {
        put.cell(FAMILY, qualifier.as_bytes(), TIMESTAMP, value.as_bytes()).expect("a cell")
    })
}

/// Puts batches of rows.
pub(crate) async fn write_batches(shared: Arc<Shared>, table: Table, writer: usize) {
    let mut number = 0;
    while !shared.is_over() {
        let until = number + BATCH;
        shared.rows.send(writer, until);
        shared.meter.wait(writer);
        let mut rows: Vec<u64> = (number..until).collect();
        while !rows.is_empty() {
            let actions = rows.iter().map(|&row| Action::from(put(writer, row))).collect();
            let outcomes = table.batch(actions).await;
            let failed = rows.iter().zip(&outcomes).filter_map(|(row, outcome)| {
                let error = outcome.as_ref().err()?;
                shared.write_failed("batch", error);
                Some(*row)
            });
            rows = failed.collect();
        }
        shared.meter.answered(writer);
        number = until;
        shared.rows.acknowledge(writer, number);
        sleep(shared.pause).await;
    }
}

/// Puts row after row.
pub(crate) async fn write_rows(shared: Arc<Shared>, table: Table, writer: usize) {
    let mut number = 0;
    while !shared.is_over() {
        shared.rows.send(writer, number + 1);
        shared.meter.wait(writer);
        while let Err(error) = table.mutate(put(writer, number)).await {
            shared.write_failed("put", &error);
        }
        shared.meter.answered(writer);
        number += 1;
        shared.rows.acknowledge(writer, number);
        sleep(shared.pause / 4).await;
    }
}

/// Rows that are changed again and again, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Counters, incremented by one.
    Counter,
    /// Values that a byte is appended to.
    Journal,
    /// Numbers that are replaced by the next one if they are what they should be, as UIDs are
    /// assigned: a failure that leaves doubt is settled by a look at the row.
    Turn,
}

impl Kind {
    /// All of them, in the order of their writers.
    pub(crate) const ALL: [Self; 3] = [Self::Counter, Self::Journal, Self::Turn];

    /// Row of this kind; they are spread over all regions.
    fn row(self, at: u64) -> String {
        format!("{:02x}-{self:?}", at * 256 / CHANGED)
    }
}

/// Changes rows of a kind, one after the other.
pub(crate) async fn change(shared: Arc<Shared>, table: Table, kind: Kind) {
    let track = kind as usize;
    let mut number = 0;
    while !shared.is_over() {
        let (at, times) = (number % CHANGED, number / CHANGED);
        let row = kind.row(at);
        shared.changes.send(track, number + 1);
        shared.meter.wait(ROW_WRITERS + track);
        match kind {
            Kind::Turn => take_turn(&shared, &table, &row, times).await,
            Kind::Counter | Kind::Journal => add(&shared, &table, kind, &row).await,
        }
        shared.meter.answered(ROW_WRITERS + track);
        number += 1;
        shared.changes.acknowledge(track, number);
        sleep(shared.pause).await;
    }
}

async fn add(shared: &Shared, table: &Table, kind: Kind, row: &str) {
    let change = || -> Result<Mutation, RequestError> {
        Ok(match kind {
            Kind::Counter => Increment::try_new(row.to_owned())?.counter(FAMILY, COLUMN, 1)?.into(),
            _ => Append::try_new(row.to_owned())?.value(FAMILY, COLUMN, b".")?.into(),
        })
    };
    while let Err(error) = table.mutate(change().expect("a change")).await {
        shared.write_failed(row, &error);
        // Nobody knows whether it was done, so the count cannot be told from now on.
        if error.in_doubt {
            shared.complain(format!("{row}: in doubt"));
            break;
        }
    }
}

async fn take_turn(shared: &Shared, table: &Table, row: &str, old: u64) {
    let condition = match old {
        0 => Condition::absent(FAMILY, COLUMN),
        _ => Condition::equals(FAMILY, COLUMN, old.to_string()),
    };
    let next = (old + 1).to_string();
    loop {
        let put = Put::try_new(row.to_owned()).expect("a key");
        let put = put.cell(FAMILY, COLUMN, TIMESTAMP + old, next.as_bytes()).expect("a cell");
        let outcome = table.check_and_mutate(&condition, put).await;
        match &outcome {
            Ok(true) => return,
            Err(error) if !error.in_doubt => {
                shared.write_failed(row, error);
                continue;
            }
            // An attempt before may have won.
            Ok(false) | Err(_) => {}
        }
        match value(table, row).await {
            Ok(found) if found == next.as_bytes() => return,
            Ok(found) if outcome.is_ok() => {
                shared.complain(format!("{row}: {found:?} instead of {old} or {next}"));
                return;
            }
            Ok(_) => {}
            Err(error) => shared.read_failed(row, &error),
        }
    }
}

async fn value(table: &Table, row: &str) -> Result<Vec<u8>, OperationError> {
    let get = Get::try_new(row.to_owned()).expect("a key");
    Ok(table.get(&get).await?.value(FAMILY, COLUMN).unwrap_or_default().to_vec())
}

/// Compares changed rows with what they must be when the writers have ended; says what differs.
pub(crate) async fn check_changed(
    table: &Table,
    kind: Kind,
    acknowledged: u64,
) -> Result<Vec<String>, OperationError> {
    let mut wrong = Vec::new();
    for at in 0..CHANGED {
        let times = (acknowledged + CHANGED - 1 - at) / CHANGED;
        let row = kind.row(at);
        let found = value(table, &row).await?;
        let count = match kind {
            Kind::Counter => found.try_into().map_or(0, u64::from_be_bytes),
            Kind::Journal => found.len() as u64,
            Kind::Turn => String::from_utf8_lossy(&found).parse().unwrap_or(0),
        };
        if count != times {
            wrong.push(format!("{row} was changed {count} times, acknowledged were {times}"));
        }
    }
    Ok(wrong)
}

/// Puts a row in each part of the table and reads it: returns when all regions take writes and reads.
pub(crate) async fn touch_all(table: &Table) -> Result<(), OperationError> {
    let rows: Vec<_> =
        (0..=0xff_u32).step_by(4).map(|place| format!("{place:02x}-touched")).collect();
    let actions = rows.iter().map(|row| {
        let put = Put::try_new(row.clone()).expect("a key");
        Action::from(put.cell(FAMILY, COLUMN, TIMESTAMP, b"").expect("a cell"))
    });
    for outcome in table.batch(actions.collect()).await {
        outcome?;
    }
    let gets = rows.into_iter().map(|row| Get::try_new(row).expect("a key"));
    table.get_many(gets.collect()).await?;
    Ok(())
}
