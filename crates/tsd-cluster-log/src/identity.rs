//! The identity of a log table: the cluster, the number of stripes, and a number that the table keeps from its first
//! start on.
//!
//! It is in a row whose key is the same in every table. So a start finds all other rows without the attributes of the
//! table, which only HBase's master can read. The number differs after the table was emptied or created anew, when the
//! attributes may be the same as before.

use bytes::Bytes;
use hbase_rs::{
    Get, Put, Table,
    errors::{ExceptionClass, Failure},
};
use tokio::time::Instant;
use tsd_cluster::{ClusterId, LogKeys};
use tsd_storage::{StorageError, system_clock_ms};

use crate::{
    calls::{CallFailure, STATE, damaged, failure, invalid, is_expected, state},
    incarnation::random,
};

const IDENTITY: &[u8] = b"i";

/// Identity of a log table. Its cell is `cluster 16 | stripes u8 | birth u128 | checked i64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableIdentity {
    pub(crate) keys: LogKeys,
    /// Random number of the table.
    pub(crate) birth: u128,
    /// Time of the last check of the table's attributes, epoch milliseconds.
    pub(crate) checked_ms: i64,
}

/// Result of reading an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoundIdentity {
    /// The table does not exist.
    NoTable,
    /// The table has no identity: no node has ever used it.
    NoRow,
    Row(TableIdentity),
}

impl TableIdentity {
    fn encode(&self) -> Bytes {
        let cluster = self.keys.cluster().bytes();
        let (birth, checked_ms) = (self.birth.to_be_bytes(), self.checked_ms.to_be_bytes());
        [&cluster[..], &[self.keys.stripes()], &birth, &checked_ms].concat().into()
    }

    fn decode(cell: &[u8]) -> Option<Self> {
        let (cluster, rest) = cell.split_first_chunk::<16>()?;
        let (stripes, rest) = rest.split_first()?;
        let (birth, rest) = rest.split_first_chunk::<16>()?;
        Some(Self {
            keys: LogKeys::new(ClusterId::new(*cluster), *stripes),
            birth: u128::from_be_bytes(*birth),
            checked_ms: i64::from_be_bytes(rest.try_into().ok()?),
        })
    }
}

/// Reads the identity of a table, without the master.
pub(crate) async fn read(table: &Table, deadline: Instant) -> Result<FoundIdentity, StorageError> {
    let left = deadline.saturating_duration_since(Instant::now());
    let get = Get::try_new(LogKeys::identity()).map_err(|error| StorageError::backend(&error))?;
    let row = match table.clone().with_timeout(left).get(&get.select(state())).await {
        Ok(row) => row,
        Err(error) if matches!(&*error.cause, Failure::NoTable(_)) => {
            return Ok(FoundIdentity::NoTable);
        }
        // The table is no log.
        Err(error) if error.class() == Some(ExceptionClass::NoSuchFamily) => {
            return Ok(FoundIdentity::NoRow);
        }
        Err(error) => return Err(error_of(table, failure(error))),
    };
    let Some(cell) = row.value(STATE, IDENTITY) else { return Ok(FoundIdentity::NoRow) };
    let what = || error_of(table, damaged(format!("the identity of table {}", table.name())));
    TableIdentity::decode(cell).map(FoundIdentity::Row).ok_or_else(what)
}

/// Records that the attributes of a table were checked now, and returns its identity. `None` means that its row has
/// other keys than `keys`, which the attributes have.
pub(crate) async fn record(
    table: &Table,
    keys: LogKeys,
    deadline: Instant,
) -> Result<Option<TableIdentity>, StorageError> {
    loop {
        let (before, birth) = match read(table, deadline).await? {
            FoundIdentity::Row(found) if found.keys != keys => return Ok(None),
            FoundIdentity::Row(found) => (Some(found), found.birth),
            FoundIdentity::NoTable | FoundIdentity::NoRow => (None, random()),
        };
        // The time is also the timestamp, which grows with each change.
        let least_ms = before.map_or(0, |before| before.checked_ms + 1);
        let new = TableIdentity { keys, birth, checked_ms: system_clock_ms().max(least_ms) };
        let text = match swap(table, before, &new, deadline).await {
            Ok(true) => return Ok(Some(new)),
            Ok(false) => "other nodes write its identity".to_owned(),
            Err(CallFailure::Repeat(text)) => text,
            Err(failure) => return Err(error_of(table, failure)),
        };
        if Instant::now() >= deadline {
            return Err(error_of(table, CallFailure::Repeat(text)));
        }
    }
}

async fn swap(
    table: &Table,
    before: Option<TableIdentity>,
    new: &TableIdentity,
    deadline: Instant,
) -> Result<bool, CallFailure> {
    let put = Put::try_new(LogKeys::identity())
        .and_then(|put| put.cell(STATE, IDENTITY, new.checked_ms as u64, &new.encode()));
    let condition = is_expected(IDENTITY, before.map(|before| before.encode()));
    let left = deadline.saturating_duration_since(Instant::now());
    let table = table.clone().with_timeout(left);
    table.check_and_mutate(&condition, put.map_err(invalid)?).await.map_err(failure)
}

fn error_of(table: &Table, failure: CallFailure) -> StorageError {
    match failure {
        CallFailure::Fail(error) => error,
        CallFailure::Repeat(text) => {
            let text = format!("table {} does not answer: {text}", table.name());
            StorageError::Unavailable(text.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_decoded_as_it_is_encoded() {
        let keys = LogKeys::new(ClusterId::new([7; 16]), 4);
        let identity = TableIdentity { keys, birth: u128::MAX - 5, checked_ms: 1_600_000_000_000 };
        let cell = identity.encode();
        assert_eq!(cell.len(), 41);
        assert_eq!(TableIdentity::decode(&cell), Some(identity));
        for length in 0..cell.len() {
            assert_eq!(TableIdentity::decode(&cell.slice(..length)), None, "{length}");
        }
    }
}
