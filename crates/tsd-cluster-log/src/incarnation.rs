//! Takes the next incarnation, a number that is unique to this process.
//!
//! The counter's cell also has a random number, so that a process whose answer was lost can tell whether
//! the incarnation in it is its own.

use std::hash::{BuildHasher, Hasher, RandomState};

use tokio::time::Instant;
use tsd_cluster::TableReply;
use tsd_storage::StorageError;

use crate::calls::{CallFailure, INCARNATION, LogTable, damaged};

/// Takes the next incarnation.
pub(crate) async fn take(table: &LogTable, deadline: Instant) -> Result<u64, StorageError> {
    let nonce = random().to_be_bytes();
    let raced = "other processes take incarnations";
    table.repeat_raced(deadline, raced, async || attempt(table, &nonce).await).await
}

async fn attempt(table: &LogTable, nonce: &[u8]) -> Result<Option<u64>, CallFailure> {
    let last = table.state_cell(INCARNATION).await?;
    let (number, of) = match last.as_deref().map(<[u8]>::split_first_chunk::<8>) {
        None => (0, &[][..]),
        Some(Some((number, of))) => (u64::from_be_bytes(*number), of),
        Some(None) => return Err(damaged("the counter of incarnations")),
    };
    if of == nonce {
        // The answer to an earlier attempt was lost.
        return Ok(Some(number));
    }
    let new = [&(number + 1).to_be_bytes()[..], nonce].concat();
    let reply = table.swap_state_cell(INCARNATION, last, (number + 1, &new)).await?;
    Ok((reply == TableReply::Applied(true)).then_some(number + 1))
}

/// A random number.
pub(crate) fn random() -> u128 {
    let random = || u128::from(RandomState::new().build_hasher().finish());
    (random() << 64) | random()
}
