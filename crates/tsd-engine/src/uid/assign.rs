//! Assigns UIDs to a batch of names of one kind, by OpenTSDB's protocol.
//!
//! For each name, it takes a number from the counter (or a random one), writes the mapping from the UID, then the
//! mapping from the name. Each write is a compare-and-set against an absent cell. A crash in between leaves at worst
//! an orphaned UID, never a name whose UID has no name. If another process has assigned a UID to the name first, the
//! mapping from our UID is deleted again; OpenTSDB leaves it. A batch takes its numbers with one increment; its names
//! are then assigned independently.
//!
//! For many tags, one put writes the mappings from all UIDs, after a read shows that they are absent. That is safe
//! because a number of the counter belongs to one process only. UIDs of metrics may be random numbers that another
//! process picks too, so each mapping takes its own compare-and-set.

use bytes::Bytes;
use futures_util::StreamExt;
use tsd_meta::UidError;
use tsd_model::{Family, Uid, UidKind, UidMeta, decode_latin1};
use tsd_storage::{CellBatch, CellRef, Column, StorageError, StorageExt};

use super::UidTable;

/// Attempts per name. As many as OpenTSDB's, so that a damaged table fails in the same way.
const ATTEMPTS: u32 = 2;
/// Attempts per name with random numbers. OpenTSDB reports one more attempt than it makes.
const RANDOM_ATTEMPTS: u32 = 9;

/// Names of a batch that are assigned concurrently.
const CONCURRENT_NAMES: usize = 256;
/// From this number of names on, one put writes the mappings from their UIDs. It needs one more call, for the read.
const MANY_NAMES: usize = 8;

/// How the numbers of UIDs are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UidAllocation {
    /// Consecutive, by the counter.
    Counter,
    /// By a cryptographic random number generator.
    Random,
}

/// Result of one attempt to assign a UID.
enum Attempt {
    Done(Result<Uid, UidError>),
    Taken,
    Failed(StorageError),
}

/// Results of a batch.
pub(crate) struct AssignedBatch {
    /// One result per name, in order.
    pub(crate) results: Vec<Result<Uid, UidError>>,
    /// Random UIDs that were taken already.
    pub(crate) collisions: u64,
    /// Highest number taken from the counter.
    pub(crate) highest: Option<i64>,
}

impl AssignedBatch {
    /// Results of a batch that failed before its first attempt.
    pub(crate) fn failed(names: usize, error: &StorageError) -> Self {
        let results = vec![Err(UidError::Storage(error.clone())); names];
        Self { results, collisions: 0, highest: None }
    }
}

impl UidTable {
    /// Returns the UIDs of names, in order. Assigns consecutive UIDs to names without one.
    ///
    /// # Errors
    ///
    /// The error of the first name without a UID.
    pub async fn get_or_assign(
        &self,
        kind: UidKind,
        names: &[Bytes],
    ) -> Result<Vec<Uid>, UidError> {
        let mut found = self.uids(kind, names).await?.into_iter().collect::<Result<Vec<_>, _>>()?;
        let missing = names.iter().zip(&found).filter(|(_, uid)| uid.is_none());
        let missing: Vec<Bytes> = missing.map(|(name, _)| name.clone()).collect();
        let assigned = assign(self, kind, &missing, UidAllocation::Counter).await;
        let mut assigned = assigned.results.into_iter();
        for uid in found.iter_mut().filter(|uid| uid.is_none()) {
            *uid = assigned.next().transpose()?;
        }
        Ok(found.into_iter().flatten().collect())
    }
}

/// Assigns UIDs to names that have none.
pub(crate) async fn assign(
    table: &UidTable,
    kind: UidKind,
    names: &[Bytes],
    allocation: UidAllocation,
) -> AssignedBatch {
    let mut results: Vec<Option<Result<Uid, UidError>>> = vec![None; names.len()];
    let mut open: Vec<usize> = (0..names.len()).collect();
    let mut collisions = 0;
    let mut highest = None;
    let attempts = if allocation == UidAllocation::Random { RANDOM_ATTEMPTS } else { ATTEMPTS };
    for left in (0..attempts).rev() {
        if open.is_empty() {
            break;
        }
        let tried = match allocate(table, kind, open.len(), allocation).await {
            Ok(numbers) => {
                if allocation == UidAllocation::Counter {
                    highest = numbers.last().copied().max(highest);
                }
                let numbered = open.drain(..).zip(numbers).collect();
                attempt(table, kind, names, numbered).await
            }
            Err(error) => open.drain(..).map(|i| (i, Attempt::Failed(error.clone()))).collect(),
        };
        for (i, attempt) in tried {
            let result = match attempt {
                Attempt::Done(result) => result,
                Attempt::Taken if left > 0 => {
                    collisions += 1;
                    open.push(i);
                    continue;
                }
                Attempt::Failed(error) if left > 0 => {
                    tracing::debug!(%kind, %error, "retrying a UID assignment");
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
    AssignedBatch {
        results: results.into_iter().map(|r| r.unwrap_or(Err(UidError::Lost))).collect(),
        collisions,
        highest,
    }
}

/// Writes meta objects of new names. Failures are only logged, because a name does not need one.
pub(super) async fn create_meta_objects(
    table: &UidTable,
    kind: UidKind,
    assigned: &AssignedBatch,
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
                // Only if absent: the process that assigned the UID may have written the object.
                let put = table.storage.compare_and_set(&table.table, column, None, json).await;
                if let Err(error) = put {
                    tracing::warn!(%kind, %error, "meta object of a UID not written");
                }
            }
        })
        .await;
}

/// One attempt for the names that have no result yet, each with the number of its UID.
async fn attempt(
    table: &UidTable,
    kind: UidKind,
    names: &[Bytes],
    numbered: Vec<(usize, i64)>,
) -> Vec<(usize, Attempt)> {
    let width = kind.width(&table.schema);
    let mut tried = Vec::with_capacity(numbered.len());
    let mut new = Vec::with_capacity(numbered.len());
    for (i, number) in numbered {
        match u64::try_from(number).map(|n| Uid::from_number(n, width)) {
            Ok(Ok(uid)) => {
                new.push(NewName { i, name: names.get(i).cloned().unwrap_or_default(), uid });
            }
            _ => tried.push((i, Attempt::Done(Err(UidError::AllAssigned { kind, width })))),
        }
    }
    let writes_reverse = kind == UidKind::Metric || new.len() < MANY_NAMES;
    if !writes_reverse {
        new = match put_reverse_mappings(table, kind, new, &mut tried).await {
            Ok(new) => new,
            Err((new, error)) => {
                tried.extend(new.into_iter().map(|new| (new.i, Attempt::Failed(error.clone()))));
                return tried;
            }
        };
    }
    let mappings = futures_util::stream::iter(new)
        .map(|NewName { i, name, uid }| async move {
            let reverse =
                if writes_reverse { write_reverse(table, kind, &name, uid).await } else { None };
            let attempt = match reverse {
                Some(failed) => failed,
                None => write_forward(table, kind, name, uid).await,
            };
            (i, attempt)
        })
        .buffer_unordered(CONCURRENT_NAMES);
    tried.extend(mappings.collect::<Vec<_>>().await);
    tried
}

/// A name of a batch, and the UID that it may get.
struct NewName {
    i: usize,
    name: Bytes,
    uid: Uid,
}

/// Writes the mapping of each UID that lacks one, and returns the names of these UIDs. Other UIDs are already in use.
async fn put_reverse_mappings(
    table: &UidTable,
    kind: UidKind,
    new: Vec<NewName>,
    tried: &mut Vec<(usize, Attempt)>,
) -> Result<Vec<NewName>, (Vec<NewName>, StorageError)> {
    let uids: Vec<Uid> = new.iter().map(|new| new.uid).collect();
    let present = match table.names(kind, &uids).await {
        Ok(present) => present,
        Err(error) => return Err((new, error)),
    };
    let mut free = Vec::with_capacity(new.len());
    for (new, present) in new.into_iter().zip(present) {
        if present.is_none() {
            free.push(new);
        } else {
            tried.push((new.i, Attempt::Taken));
        }
    }
    let batch = match reverse_mappings(kind, &free) {
        Ok(batch) => batch,
        Err(error) => return Err((free, error)),
    };
    match table.storage.put(&table.table, batch).await {
        Ok(()) => Ok(free),
        Err(error) => Err((free, error)),
    }
}

fn reverse_mappings(kind: UidKind, new: &[NewName]) -> Result<CellBatch, StorageError> {
    let mut batch = CellBatch::new();
    for NewName { name, uid, .. } in new {
        batch.begin_row(uid.as_bytes())?;
        batch.push(CellRef {
            family: Family::Name,
            qualifier: kind.as_str().as_bytes(),
            value: name,
            timestamp_ms: None,
        })?;
    }
    Ok(batch)
}

/// Allocates `count` numbers, in order.
async fn allocate(
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
    // Eight bytes must fit Java's signed long.
    Ok((i64::from_be_bytes(bytes) & i64::MAX).max(1))
}

/// Writes the mapping from a UID. Returns a failed attempt; `None` means success.
async fn write_reverse(table: &UidTable, kind: UidKind, name: &Bytes, uid: Uid) -> Option<Attempt> {
    let reverse = UidTable::reverse(kind, uid);
    match table.storage.compare_and_set(&table.table, reverse, None, name.clone()).await {
        Ok(true) => None,
        Ok(false) => Some(Attempt::Taken),
        Err(error) => Some(Attempt::Failed(error)),
    }
}

/// Writes the mapping from a name. The mapping from its UID must exist already.
async fn write_forward(table: &UidTable, kind: UidKind, name: Bytes, uid: Uid) -> Attempt {
    let value = Bytes::copy_from_slice(uid.as_bytes());
    let UidTable { storage, table: uid_table, .. } = table;
    match storage.compare_and_set(uid_table, UidTable::forward(kind, &name), None, value).await {
        Ok(true) => Attempt::Done(Ok(uid)),
        // Another process assigned a UID first, or an earlier attempt of this process took effect although it failed.
        Ok(false) => match table.uid(kind, &name).await {
            Ok(Some(winner)) => {
                if winner != uid {
                    delete_unused(table, kind, name, uid).await;
                }
                Attempt::Done(Ok(winner))
            }
            Ok(None) => Attempt::Failed(StorageError::Backend(
                "a UID mapping was deleted concurrently".into(),
            )),
            Err(UidError::Storage(error)) => Attempt::Failed(error),
            Err(error) => Attempt::Done(Err(error)),
        },
        Err(error) => Attempt::Failed(error),
    }
}

/// Deletes the mapping from a UID that no caller has seen. If that fails, the UID stays as a harmless orphan, which
/// `tsdb uid fsck` finds.
async fn delete_unused(table: &UidTable, kind: UidKind, name: Bytes, uid: Uid) {
    let reverse = UidTable::reverse(kind, uid);
    let deleted = table.storage.compare_and_delete(&table.table, reverse, name).await;
    if let Err(error) = deleted {
        tracing::debug!(%kind, %error, "mapping from an unused UID not deleted");
    }
}

/// The error of a name after its last failed attempt.
fn exhausted(
    kind: UidKind,
    name: Option<&Bytes>,
    failed: Attempt,
    allocation: UidAllocation,
) -> UidError {
    let name = decode_latin1(name.map_or(&[][..], |name| name));
    match (failed, allocation) {
        (_, UidAllocation::Random) => {
            UidError::RandomExhausted { kind, name, attempts: RANDOM_ATTEMPTS + 1 }
        }
        (Attempt::Failed(error), UidAllocation::Counter) => UidError::Storage(error),
        _ => UidError::NumbersTaken { kind, name },
    }
}
