//! OpenTSDB's protocol of assignment, for a batch of names of one kind.
//!
//! A number from the counter (or a random one), then the mapping from the UID, then the one from
//! the name, each by compare-and-set against an absent cell. A crash in between leaves at worst a
//! UID whose name does not know it, never a name with a UID that has no name. A batch takes its
//! numbers with one increment; each name then goes its own way.

use bytes::Bytes;
use futures_util::StreamExt;
use tsd_model::{Family, Uid, UidKind, UidMeta, decode_latin1};
use tsd_storage::{Column, StorageError};

use super::{UidError, UidTable};

/// Full tries of a name, counted or random. Those of OpenTSDB, so that a damaged table fails alike.
const TRIES: u32 = 2;
// OpenTSDB counts one more than it makes.
const RANDOM_TRIES: u32 = 9;

/// Names of a batch in work at the store at once.
const CONCURRENT_NAMES: usize = 256;

/// How numbers are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UidAllocation {
    /// One after the other, by the counter.
    Counter,
    /// By a secure generator.
    Random,
}

/// A name's outcome, or why it has to be tried again.
enum Try {
    Done(Result<Uid, UidError>),
    Taken,
    Failed(StorageError),
}

/// What a batch came to.
pub(crate) struct Assigned {
    /// One result a name, in order.
    pub(crate) results: Vec<Result<Uid, UidError>>,
    /// Random numbers that were taken already.
    pub(crate) collisions: u64,
}

/// Assigns UIDs to names that have none.
pub(crate) async fn assign(
    table: &UidTable,
    kind: UidKind,
    names: &[Bytes],
    allocation: UidAllocation,
) -> Assigned {
    let mut results: Vec<Option<Result<Uid, UidError>>> = vec![None; names.len()];
    let mut open: Vec<usize> = (0..names.len()).collect();
    let mut collisions = 0;
    let tries = if allocation == UidAllocation::Random { RANDOM_TRIES } else { TRIES };
    for left in (0..tries).rev() {
        if open.is_empty() {
            break;
        }
        let attempts = attempt(table, kind, names, &open, allocation).await;
        open.clear();
        for (i, attempt) in attempts {
            let result = match attempt {
                Try::Done(result) => result,
                Try::Taken if left > 0 => {
                    collisions += 1;
                    open.push(i);
                    continue;
                }
                Try::Failed(error) if left > 0 => {
                    tracing::debug!(%kind, %error, "a UID assignment is tried again");
                    open.push(i);
                    continue;
                }
                failed => Err(exhausted(kind, names.get(i), failed, allocation)),
            };
            if let Some(slot) = results.get_mut(i) {
                *slot = Some(result);
            }
        }
        open.sort_unstable();
    }
    Assigned {
        results: results.into_iter().map(|r| r.unwrap_or(Err(UidError::Lost))).collect(),
        collisions,
    }
}

/// Writes the meta objects of new names. What fails is logged: a name does not need one.
pub(super) async fn create_meta_objects(
    table: &UidTable,
    kind: UidKind,
    assigned: &Assigned,
    now_secs: i64,
) {
    let json = Bytes::from(UidMeta::new(kind, now_secs).to_json());
    futures_util::stream::iter(assigned.results.iter().flatten())
        .for_each_concurrent(CONCURRENT_NAMES, |uid| {
            let json = json.clone();
            async move {
                let column = Column {
                    row: Bytes::copy_from_slice(uid.as_bytes()),
                    family: Family::Name,
                    qualifier: Bytes::from_static(kind.meta_qualifier().as_bytes()),
                };
                // Absent before: where another process gave the name its UID, the object is its own.
                let put = table.storage.compare_and_set(&table.table, column, None, json).await;
                if let Err(error) = put {
                    tracing::warn!(%kind, %error, "a name got no meta object");
                }
            }
        })
        .await;
}

/// One try of the open names.
async fn attempt(
    table: &UidTable,
    kind: UidKind,
    names: &[Bytes],
    open: &[usize],
    allocation: UidAllocation,
) -> Vec<(usize, Try)> {
    let drawn = match draw(table, kind, open.len(), allocation).await {
        Ok(drawn) => drawn,
        Err(error) => return open.iter().map(|&i| (i, Try::Failed(error.clone()))).collect(),
    };
    let width = kind.width(&table.schema);
    futures_util::stream::iter(open.iter().copied().zip(drawn))
        .map(|(i, number)| async move {
            let name = names.get(i).cloned().unwrap_or_default();
            let attempt = match u64::try_from(number).map(|n| Uid::from_number(n, width)) {
                Ok(Ok(uid)) => map_both_ways(table, kind, name, uid).await,
                _ => Try::Done(Err(UidError::AllAssigned { kind, width })),
            };
            (i, attempt)
        })
        .buffer_unordered(CONCURRENT_NAMES)
        .collect()
        .await
}

/// UidAllocation for `count` names, in order.
async fn draw(
    table: &UidTable,
    kind: UidKind,
    count: usize,
    allocation: UidAllocation,
) -> Result<Vec<i64>, StorageError> {
    match allocation {
        UidAllocation::Counter => {
            let amount = count as i64;
            let last =
                table.storage.increment(&table.table, UidTable::counter(kind), amount).await?;
            Ok((1..=amount).map(|n| last.wrapping_sub(amount).wrapping_add(n)).collect())
        }
        UidAllocation::Random => (0..count)
            .map(|_| {
                random_number(kind.width(&table.schema)).map_err(|error| {
                    StorageError::Backend(format!("no random numbers: {error}").into())
                })
            })
            .collect(),
    }
}

fn random_number(width: usize) -> Result<i64, getrandom::Error> {
    let mut bytes = [0_u8; 8];
    if let Some(low) = bytes.get_mut(8_usize.saturating_sub(width)..) {
        getrandom::fill(low)?;
    }
    // Eight bytes would not fit Java's long.
    Ok((i64::from_be_bytes(bytes) & i64::MAX).max(1))
}

/// Reverse mapping first, then the forward one.
async fn map_both_ways(table: &UidTable, kind: UidKind, name: Bytes, uid: Uid) -> Try {
    let value = Bytes::copy_from_slice(uid.as_bytes());
    let UidTable { storage, table: uid_table, .. } = table;
    match storage.compare_and_set(uid_table, UidTable::reverse(kind, uid), None, name.clone()).await
    {
        Ok(true) => {}
        Ok(false) => return Try::Taken,
        Err(error) => return Try::Failed(error),
    }
    match storage.compare_and_set(uid_table, UidTable::forward(kind, &name), None, value).await {
        Ok(true) => Try::Done(Ok(uid)),
        // Another process was first. Its UID counts; ours stays behind as an orphan.
        Ok(false) => match table.uid(kind, &name).await {
            Ok(Some(winner)) => Try::Done(Ok(winner)),
            Ok(None) => Try::Failed(StorageError::Backend("a mapping came and went".into())),
            Err(UidError::Storage(error)) => Try::Failed(error),
            Err(error) => Try::Done(Err(error)),
        },
        Err(error) => Try::Failed(error),
    }
}

/// The error of a name that used up its tries.
fn exhausted(
    kind: UidKind,
    name: Option<&Bytes>,
    failed: Try,
    allocation: UidAllocation,
) -> UidError {
    let name = decode_latin1(name.map_or(&[][..], |name| name));
    match (failed, allocation) {
        (_, UidAllocation::Random) => {
            UidError::RandomExhausted { kind, name, attempts: RANDOM_TRIES + 1 }
        }
        (Try::Failed(error), UidAllocation::Counter) => UidError::Storage(error),
        _ => UidError::NumbersTaken { kind, name },
    }
}
