//! Takes the held rows of the slots that a read touches.
//!
//! The read asks the owner of each slot, by the assignment that this node has adopted. An owner responds for the slots
//! that it owns, with a proof that it was not fenced when it took the view of its rows, and names the other slots. For
//! those the read reads the assignment again, after that response, and asks anew. It is complete when each slot is
//! covered. So all points that were acknowledged before the read are in the rows, or stored when the caller opens its
//! scans.
//!
//! This node covers its own slots in the same way.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout_at};
use tsd_cluster::{Assignment, Member, MemberState, ProofError, Slot, SlotSet};
use tsd_storage::{HeldRow, HeldRowReader, KeyRange, StorageError, Table};

use super::{
    config::{ReadConfig, ReadMemory},
    proof_failures::{ProofCall, ProofFailures},
};
use crate::{
    client::ProvenRows,
    error::PeerError,
    held_query::HeldQuery,
    metrics::NetMetrics,
    narrow::slots_of,
    peers::{Peers, RETRY_PAUSE, SILENCE},
    row_merge::{merge, merge_rows},
};

/// Unit of memory reservations, bytes.
const RESERVE_BYTES: usize = 256 << 10;
/// Pause before the owners of slots that no node has covered are asked anew.
const ASK_PAUSE: Duration = Duration::from_millis(20);
/// Longest of these pauses.
const LONGEST_ASK_PAUSE: Duration = Duration::from_millis(300);

/// Takes held rows.
#[derive(Debug)]
pub(super) struct HeldFetch {
    rows: Arc<dyn HeldRowReader>,
    peers: Arc<Peers>,
    config: ReadConfig,
    failures: ProofFailures,
    /// The owners of all slots, with the generation of their assignment.
    owners: Mutex<(u64, SlotOwners)>,
}

/// A read that waits for the owners of slots.
struct PendingRead<'a> {
    query: &'a HeldQuery,
    /// Maximum bytes of rows of an owner; 0 means unlimited.
    max_bytes: usize,
    deadline: Instant,
    /// The owners that the read waits for: their names, and why they did not respond.
    awaited: Mutex<BTreeMap<u64, AwaitedOwner>>,
}

/// The owners of all slots in one assignment.
type SlotOwners = Arc<Vec<(Option<u64>, SlotSet)>>;

/// Name of an owner, and its last failure.
type AwaitedOwner = (String, Option<PeerError>);

/// Merged held rows of all owners, in key order. Rows that only this node holds are left out.
pub(super) struct TakenRows {
    rows: Vec<HeldRow>,
    /// Index of the next row.
    at: usize,
    /// The key from which on rows were not taken, because there were too many.
    stopped_at: Option<Bytes>,
    memory: Arc<Vec<ReservedMemory>>,
}

/// Rows of one owner, with their memory.
struct MemberRows {
    rows: Vec<HeldRow>,
    /// The key from which on the owner has sent no rows.
    stopped_at: Option<Bytes>,
    memory: ReservedMemory,
}

struct ReservedMemory {
    source: Arc<dyn ReadMemory>,
    permits: Vec<Box<dyn Send + Sync>>,
    reserved: usize,
    used: usize,
}

impl HeldFetch {
    pub(super) fn new(rows: Arc<dyn HeldRowReader>, peers: Arc<Peers>, config: ReadConfig) -> Self {
        let owners = Mutex::new((0, SlotOwners::default()));
        Self { rows, peers, config, failures: ProofFailures::default(), owners }
    }

    pub(super) fn tables(&self) -> &[Table] {
        &self.config.tables
    }

    /// Takes all rows of all owners, as new as the call.
    pub(super) async fn fetch(&self, query: &HeldQuery) -> Result<TakenRows, StorageError> {
        self.fetch_up_to(query, 0).await
    }

    /// Takes the first rows of all owners. If there are too many, stops at [`TakenRows::stopped_at`].
    pub(super) async fn fetch_chunk(&self, query: &HeldQuery) -> Result<TakenRows, StorageError> {
        self.fetch_up_to(query, self.peers.config().chunk_bytes).await
    }

    async fn fetch_up_to(
        &self,
        query: &HeldQuery,
        max_bytes: usize,
    ) -> Result<TakenRows, StorageError> {
        let deadline = Instant::now() + self.config.patience;
        let read = PendingRead { query, max_bytes, deadline, awaited: Mutex::default() };
        // A snapshot of the own rows, which stays valid if they are flushed meanwhile. It is read only if
        // another node has rows.
        let own = self.rows.held_rows(&query.table, query.ranges.clone(), query.filter.clone());
        let taking = async {
            // In this order: the own slots are looked up before the proof begins.
            let first = tokio::try_join!(
                self.ask_owners(&read, self.touched(query), false),
                self.prove(&read)
            );
            let ((mut rows, mut left), ()) = first?;
            let mut pause = ASK_PAUSE;
            while !left.is_empty() {
                sleep(pause).await;
                pause = (2 * pause).min(LONGEST_ASK_PAUSE);
                let refreshing = self.config.slots.refresh();
                // HBase may answer a later attempt.
                let looked = self.proven(ProofCall::Assignment, refreshing, deadline).await;
                if let Err(error @ ProofError::Fenced(_)) = looked {
                    return Err(unproven(&error));
                }
                let (more, uncovered) = self.ask_owners(&read, left, looked.is_ok()).await?;
                rows.extend(more);
                if uncovered.is_empty() {
                    // This node may have covered slots.
                    self.prove(&read).await?;
                }
                left = uncovered;
            }
            Ok(rows)
        };
        let rows = timeout_at(deadline, taking).await.unwrap_or_else(|_| Err(read.late()))?;
        let mut taken = TakenRows::merge(rows.into_iter());
        if !taken.is_empty() {
            for rows in own {
                if !taken.add_own(rows) {
                    break;
                }
                // Yields to other tasks between copies of memtables.
                tokio::task::yield_now().await;
            }
        }
        Ok(taken)
    }

    /// Returns the slots of all rows that the query may select.
    fn touched(&self, query: &HeldQuery) -> SlotSet {
        slots_of(&self.config.rule, query).unwrap_or_else(SlotSet::full)
    }

    /// Proves that this node is not fenced.
    async fn prove(&self, read: &PendingRead<'_>) -> Result<(), StorageError> {
        let proving = self.peers.membership().prove();
        let proven = self.proven(ProofCall::Own, proving, read.deadline).await;
        proven.map_err(|error| unproven(&error))
    }

    /// Asks the owners of slots once. Returns their rows, and the slots that are not covered. With `has_looked` this
    /// read has read the assignment, so nobody holds rows of a slot without an owner.
    async fn ask_owners(
        &self,
        read: &PendingRead<'_>,
        slots: SlotSet,
        has_looked: bool,
    ) -> Result<(Vec<MemberRows>, SlotSet), StorageError> {
        let assignment = self.config.slots.assignment();
        let this = self.peers.membership().this();
        let mut uncovered = SlotSet::empty();
        let mut asked = Vec::new();
        for (owner, slots) in self.by_owner(&assignment, &slots) {
            match owner {
                Some(owner) if owner == this => {
                    uncovered = uncovered.union(&slots.without(&self.config.slots.owned()));
                }
                Some(owner) => asked.push((owner, slots)),
                None if has_looked => {}
                None => uncovered = uncovered.union(&slots),
            }
        }
        let ask = |(owner, slots)| self.ask(read, owner, slots, &assignment);
        let mut all = Vec::new();
        for (rows, not_owned) in try_join_all(asked.into_iter().map(ask)).await? {
            all.extend(rows);
            uncovered = uncovered.union(&not_owned);
        }
        Ok((all, uncovered))
    }

    /// Divides slots by their owners.
    fn by_owner(
        &self,
        assignment: &Assignment,
        slots: &SlotSet,
    ) -> impl Iterator<Item = (Option<u64>, SlotSet)> + use<> {
        if !slots.is_full() {
            return divide(assignment, slots.iter()).into_iter();
        }
        let mut known = self.owners.lock();
        if known.0 != assignment.generation || known.1.is_empty() {
            let all = divide(assignment, Slot::all());
            *known = (assignment.generation, Arc::new(all));
        }
        known.1.as_ref().clone().into_iter()
    }

    /// Waits for a call to the log table, and records its result.
    async fn proven<T>(
        &self,
        kind: ProofCall,
        call: impl Future<Output = Result<T, ProofError>>,
        deadline: Instant,
    ) -> Result<T, ProofError> {
        let late = || ProofError::Unavailable("no answer in time".to_owned());
        let result = timeout_at(deadline, call).await.unwrap_or_else(|_| Err(late()));
        self.failures.note(kind, result.as_ref().err());
        result
    }

    /// Failures of the last reads.
    pub(super) const fn failures(&self) -> &ProofFailures {
        &self.failures
    }

    /// Asks an owner until it responds, or has to be asked no more, because `assignment` is outdated. Returns the
    /// slots that it does not cover.
    async fn ask(
        &self,
        read: &PendingRead<'_>,
        owner: u64,
        slots: SlotSet,
        assignment: &Assignment,
    ) -> Result<(Option<MemberRows>, SlotSet), StorageError> {
        let moved = async {
            let mut generation = assignment.generation;
            loop {
                self.config.slots.changed(generation).await;
                let present = self.config.slots.assignment();
                generation = present.generation;
                if !slots.iter().all(|slot| present.slot(slot).owner == Some(owner)) {
                    return;
                }
            }
        };
        let silent = async {
            sleep(SILENCE).await;
            self.suspect(owner);
            std::future::pending().await
        };
        let asked = tokio::select! {
            asked = self.ask_again(read, owner, &slots) => {
                asked.map(|(rows, not_owned)| (Some(rows), not_owned))
            }
            () = moved => Ok((None, slots.clone())),
            asked = silent => asked,
        };
        read.awaited.lock().remove(&owner);
        asked
    }

    /// Asks until the response is complete. Drops the rows of an interrupted response.
    async fn ask_again(
        &self,
        read: &PendingRead<'_>,
        owner: u64,
        slots: &SlotSet,
    ) -> Result<(MemberRows, SlotSet), StorageError> {
        loop {
            let member = self.peers.membership().member(owner);
            // A fenced member cannot prove that its rows are complete.
            let is_asked = |member: &Member| {
                !matches!(member.state, MemberState::Recovering { .. } | MemberState::Left)
            };
            if let Some(member) = &member {
                read.note(member, None);
            }
            let Some(member) = member.filter(is_asked) else {
                sleep(RETRY_PAUSE).await;
                continue;
            };
            let mut rows = MemberRows::new(Arc::clone(&self.config.memory));
            let mut has_memory = true;
            let mut take = |more: Vec<HeldRow>| {
                let taken = rows.add(more, read.query);
                has_memory = taken.is_ok();
                taken.map_err(|NoMemory| PeerError::Failed("no memory".into()))
            };
            let client = self.peers.client(&member);
            let asked =
                client.held((read.query, slots), read.max_bytes, read.deadline, &mut take).await;
            match asked {
                // It covers nothing, and will be asked again.
                Ok(ProvenRows { not_owned, .. }) if slots.without(&not_owned).is_empty() => {
                    return Ok((MemberRows::new(Arc::clone(&self.config.memory)), not_owned));
                }
                Ok(ProvenRows { not_owned, sent_before }) => {
                    rows.stopped_at = sent_before;
                    return Ok((rows, not_owned));
                }
                Err(_) if !has_memory => return Err(no_memory()),
                Err(error @ PeerError::TooLarge { .. }) => {
                    return Err(StorageError::Rejected(error.to_string().into()));
                }
                Err(error) => read.note(&member, Some(error)),
            }
            self.suspect(owner);
            sleep(RETRY_PAUSE).await;
        }
    }

    fn suspect(&self, owner: u64) {
        NetMetrics::of_process().suspicions.increment(1);
        self.peers.membership().suspect(owner);
    }
}

impl PendingRead<'_> {
    /// Notes an owner that the read waits for.
    fn note(&self, member: &Member, failure: Option<PeerError>) {
        let mut awaited = self.awaited.lock();
        let (_, last) =
            awaited.entry(member.incarnation).or_insert_with(|| (member.name.clone(), None));
        *last = failure.or_else(|| last.take());
    }

    /// Returns the error of a read whose deadline has passed.
    fn late(&self) -> StorageError {
        NetMetrics::of_process().failed_reads.increment(1);
        let awaited = std::mem::take(&mut *self.awaited.lock());
        let failed = awaited.values().find(|(_, last)| last.is_some());
        let Some((name, last)) = failed.or_else(|| awaited.values().next()) else {
            let text = "no node answers for some slots, which are being moved";
            return StorageError::Unavailable(text.into());
        };
        let why = last.as_ref().map_or_else(String::new, |error| format!(" ({error})"));
        let text = format!(
            "node {name} does not answer, and its acknowledged points are not in HBase yet{why}"
        );
        StorageError::Unavailable(text.into())
    }
}

/// Divides slots by their owners.
fn divide(
    assignment: &Assignment,
    slots: impl Iterator<Item = Slot>,
) -> Vec<(Option<u64>, SlotSet)> {
    let mut by_owner: HashMap<Option<u64>, SlotSet> = HashMap::new();
    for slot in slots {
        let owner = assignment.slot(slot).owner;
        by_owner.entry(owner).or_insert_with(SlotSet::empty).insert(slot);
    }
    by_owner.into_iter().collect()
}

fn unproven(error: &ProofError) -> StorageError {
    let text = format!("this node cannot prove that it is a member of the cluster: {error}");
    StorageError::Unavailable(text.into())
}

fn no_memory() -> StorageError {
    NetMetrics::of_process().refused_rows.increment(1);
    StorageError::Throttled("there is no memory for the rows that other nodes hold")
}

struct NoMemory;

impl MemberRows {
    fn new(source: Arc<dyn ReadMemory>) -> Self {
        let memory = ReservedMemory { source, permits: Vec::new(), reserved: 0, used: 0 };
        Self { rows: Vec::new(), stopped_at: None, memory }
    }

    /// Adds rows in key order. The fractions of a divided row follow each other.
    fn add(&mut self, rows: Vec<HeldRow>, query: &HeldQuery) -> Result<(), NoMemory> {
        for row in rows.into_iter().filter(|row| query.matches(&row.key)) {
            self.memory.add(memory_bytes(&row))?;
            match self.rows.last_mut() {
                Some(last) if last.key == row.key => last.columns.extend(row.columns),
                _ => self.rows.push(row),
            }
        }
        Ok(())
    }
}

/// Approximate size of a row in memory, bytes.
fn memory_bytes(row: &HeldRow) -> usize {
    size_of::<HeldRow>() + row.byte_len() + row.columns.len() * size_of::<tsd_storage::HeldColumn>()
}

impl ReservedMemory {
    fn add(&mut self, bytes: usize) -> Result<(), NoMemory> {
        self.used += bytes;
        if self.used > self.reserved {
            let more = (self.used - self.reserved).max(RESERVE_BYTES);
            self.permits.push(self.source.try_reserve(more).ok_or(NoMemory)?);
            self.reserved += more;
            NetMetrics::of_process().read_bytes.increment(more as f64);
        }
        Ok(())
    }
}

impl Drop for ReservedMemory {
    fn drop(&mut self) {
        NetMetrics::of_process().read_bytes.decrement(self.reserved as f64);
    }
}

impl TakenRows {
    fn merge(members: impl Iterator<Item = MemberRows>) -> Self {
        let (mut rows, mut memory) = (Vec::new(), Vec::new());
        let mut stopped_at: Option<Bytes> = None;
        for member in members {
            rows.extend(member.rows);
            memory.push(member.memory);
            stopped_at = [stopped_at, member.stopped_at].into_iter().flatten().min();
        }
        if let Some(key) = &stopped_at {
            // Another member may hold columns of later rows.
            rows.retain(|row: &HeldRow| row.key < *key);
        }
        merge_rows(&mut rows);
        Self { rows, at: 0, stopped_at, memory: Arc::new(memory) }
    }

    /// Divides the rows by ranges in order; `None` for a range whose rows were not taken.
    pub(super) fn divide(mut self, ranges: &[KeyRange]) -> Vec<Option<Self>> {
        let mut divided: Vec<Option<Self>> = Vec::with_capacity(ranges.len());
        for range in ranges.iter().rev() {
            let rows = self.rows.split_off(self.rows.partition_point(|row| row.key < range.start));
            let stopped_at = self.stopped_at.take_if(|key| range.contains(key));
            let is_taken = self.stopped_at.as_ref().is_none_or(|key| range.start < *key);
            let memory = Arc::clone(&self.memory);
            divided.push(is_taken.then_some(Self { rows, at: 0, stopped_at, memory }));
        }
        divided.reverse();
        divided
    }

    /// Returns the rows in `range`; `None` if it begins after the taken rows.
    pub(super) fn within(mut self, range: &KeyRange) -> Option<Self> {
        if self.stopped_at.as_ref().is_some_and(|key| *key <= range.start) {
            return None;
        }
        self.stopped_at.take_if(|key| !range.contains(key));
        self.rows.retain(|row| range.contains(&row.key));
        Some(self)
    }

    /// Returns the key from which on rows were not taken.
    pub(super) const fn stopped_at(&self) -> Option<&Bytes> {
        self.stopped_at.as_ref()
    }

    /// Merges rows of this node into rows of other nodes; the store below has the rest. Returns false if later
    /// rows are not needed.
    fn add_own(&mut self, own: Vec<HeldRow>) -> bool {
        for row in own {
            if self.stopped_at.as_ref().is_some_and(|key| row.key >= *key) {
                return false;
            }
            if let Ok(at) = self.index_of(&row.key)
                && let Some(other) = self.rows.get_mut(at)
            {
                merge(other, row);
            }
        }
        true
    }

    fn index_of(&self, key: &[u8]) -> Result<usize, usize> {
        self.rows.binary_search_by(|row| (*row.key).cmp(key))
    }

    pub(super) fn find(&self, key: &[u8]) -> Option<&HeldRow> {
        self.index_of(key).ok().and_then(|at| self.rows.get(at))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the key of the next row.
    pub(super) fn peek(&self) -> Option<&Bytes> {
        self.rows.get(self.at).map(|row| &row.key)
    }

    pub(super) fn next_row(&mut self) -> Option<HeldRow> {
        let row = std::mem::take(self.rows.get_mut(self.at)?);
        self.at += 1;
        Some(row)
    }
}
