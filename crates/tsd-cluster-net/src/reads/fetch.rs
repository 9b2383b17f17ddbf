//! Takes the held rows of all members for one read.
//!
//! Every member has to respond, or to have its rows stored by a recovery. The read asks all members that were
//! known when it began. Meanwhile it reads the list of members again, and then asks the members that are only
//! in the new list. So a member that is not asked has acknowledged nothing before the read began.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use futures_util::future::try_join_all;
use tokio::time::{Instant, sleep, timeout_at};
use tsd_cluster::{Member, MemberState, ProofError};
use tsd_storage::{HeldRow, HeldRowReader, KeyRange, StorageError, Table};

use super::{
    config::{ReadConfig, ReadMemory},
    proof_failures::{ProofCall, ProofFailures},
};
use crate::{
    error::PeerError,
    held_query::HeldQuery,
    metrics::NetMetrics,
    peers::{Peers, RETRY_PAUSE},
    row_merge::{merge, merge_rows},
};

/// Unit of memory reservations, bytes.
const RESERVE_BYTES: usize = 256 << 10;

/// Takes held rows.
#[derive(Debug)]
pub(super) struct HeldFetch {
    rows: Arc<dyn HeldRowReader>,
    peers: Arc<Peers>,
    config: ReadConfig,
    failures: ProofFailures,
}

/// Merged held rows of all members, in key order. Rows that only this node holds are left out.
pub(super) struct TakenRows {
    rows: Vec<HeldRow>,
    /// Index of the next row.
    at: usize,
    /// The key from which on rows were not taken, because there were too many.
    stopped_at: Option<Bytes>,
    memory: Arc<Vec<ReservedMemory>>,
}

/// Rows of one member, with their memory.
struct MemberRows {
    rows: Vec<HeldRow>,
    /// The key from which on the member has sent no rows.
    stopped_at: Option<Bytes>,
    memory: ReservedMemory,
}

/// Limits of a request to a member.
#[derive(Clone, Copy)]
struct AskLimits {
    /// Maximum bytes of rows; 0 means unlimited.
    max_bytes: usize,
    deadline: Instant,
}

struct ReservedMemory {
    source: Arc<dyn ReadMemory>,
    permits: Vec<Box<dyn Send + Sync>>,
    reserved: usize,
    used: usize,
}

impl HeldFetch {
    pub(super) fn new(rows: Arc<dyn HeldRowReader>, peers: Arc<Peers>, config: ReadConfig) -> Self {
        Self { rows, peers, config, failures: ProofFailures::default() }
    }

    pub(super) fn tables(&self) -> &[Table] {
        &self.config.tables
    }

    /// Takes all rows of all members, as new as the call.
    pub(super) async fn fetch(&self, query: &HeldQuery) -> Result<TakenRows, StorageError> {
        self.fetch_up_to(query, 0).await
    }

    /// Takes the first rows of all members. If there are too many, stops at [`TakenRows::stopped_at`].
    pub(super) async fn fetch_chunk(&self, query: &HeldQuery) -> Result<TakenRows, StorageError> {
        self.fetch_up_to(query, self.peers.config().chunk_bytes).await
    }

    async fn fetch_up_to(
        &self,
        query: &HeldQuery,
        max_bytes: usize,
    ) -> Result<TakenRows, StorageError> {
        let deadline = Instant::now() + self.config.patience;
        let membership = self.peers.membership();
        let this = membership.this();
        let mut known = membership.members();
        known.retain(|member| needs_asking(member, this));
        // A snapshot of the own rows, which stays valid if they are flushed meanwhile. It is read only if
        // another member has rows.
        let own = self.rows.held_rows(&query.table, query.ranges.clone(), query.filter.clone());
        let limits = AskLimits { max_bytes, deadline };
        let ask_known = self.ask_all(&known, query, limits);
        let listing = async {
            let members = self.proven(ProofCall::Members, membership.current(), deadline).await?;
            let known: HashSet<u64> = known.iter().map(|member| member.incarnation).collect();
            let is_new = |member: &Member| {
                needs_asking(member, this) && !known.contains(&member.incarnation)
            };
            let new: Vec<Member> = members.into_iter().filter(is_new).collect();
            self.ask_all(&new, query, limits).await
        };
        let proving = self.proven(ProofCall::Own, membership.prove(), deadline);
        let (known_rows, new_rows, ()) = tokio::try_join!(ask_known, listing, proving)?;
        let mut taken = TakenRows::merge(known_rows.into_iter().chain(new_rows));
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

    /// Waits for a call to the log table, and records its result.
    async fn proven<T>(
        &self,
        kind: ProofCall,
        call: impl Future<Output = Result<T, ProofError>>,
        deadline: Instant,
    ) -> Result<T, StorageError> {
        let late = || ProofError::Unavailable("no answer in time".to_owned());
        let result = timeout_at(deadline, call).await.unwrap_or_else(|_| Err(late()));
        self.failures.note(kind, result.as_ref().err());
        result.map_err(|error| unproven(&error))
    }

    /// Failures of the last reads.
    pub(super) const fn failures(&self) -> &ProofFailures {
        &self.failures
    }

    async fn ask_all(
        &self,
        members: &[Member],
        query: &HeldQuery,
        limits: AskLimits,
    ) -> Result<Vec<MemberRows>, StorageError> {
        let asking = members.iter().map(|member| self.ask(member, query, limits));
        Ok(try_join_all(asking).await?.into_iter().flatten().collect())
    }

    /// Asks for the rows of a member; `None` if a recovery has stored them.
    async fn ask(
        &self,
        member: &Member,
        query: &HeldQuery,
        limits: AskLimits,
    ) -> Result<Option<MemberRows>, StorageError> {
        let mut last: Option<PeerError> = None;
        let response = async {
            tokio::select! {
                rows = self.ask_again(member, query, limits, &mut last) => rows.map(Some),
                () = self.peers.stored(member) => Ok(None),
            }
        };
        if let Ok(response) = timeout_at(limits.deadline, response).await {
            return response;
        }
        NetMetrics::of_process().failed_reads.increment(1);
        Err(silent(member, last.as_ref()))
    }

    /// Asks until the response is complete. Drops the rows of an interrupted response.
    async fn ask_again(
        &self,
        member: &Member,
        query: &HeldQuery,
        AskLimits { max_bytes, deadline }: AskLimits,
        last: &mut Option<PeerError>,
    ) -> Result<MemberRows, StorageError> {
        loop {
            if matches!(member.state, MemberState::Recovering { .. }) {
                // The member is fenced, and cannot prove that its rows are complete.
                std::future::pending::<()>().await;
            }
            let mut rows = MemberRows::new(Arc::clone(&self.config.memory));
            let mut has_memory = true;
            let mut take = |more: Vec<HeldRow>| {
                let taken = rows.add(more, query);
                has_memory = taken.is_ok();
                taken.map_err(|NoMemory| PeerError::Failed("no memory".into()))
            };
            let client = self.peers.client(member);
            let asked = client.held(query, max_bytes, deadline, &mut take).await;
            match asked {
                Ok(stopped_at) => {
                    rows.stopped_at = stopped_at;
                    return Ok(rows);
                }
                Err(_) if !has_memory => return Err(no_memory()),
                Err(error @ PeerError::TooLarge { .. }) => {
                    return Err(StorageError::Rejected(error.to_string().into()));
                }
                Err(error) => *last = Some(error),
            }
            self.peers.suspect(member);
            sleep(RETRY_PAUSE).await;
        }
    }
}

/// True if a member may hold rows. A joining member has acknowledged nothing yet.
fn needs_asking(member: &Member, this: u64) -> bool {
    member.incarnation != this && !matches!(member.state, MemberState::Joining | MemberState::Left)
}

fn silent(member: &Member, last: Option<&PeerError>) -> StorageError {
    let why = last.map_or_else(String::new, |error| format!(" ({error})"));
    let name = &member.name;
    let text = format!(
        "node {name} does not answer, and its acknowledged points are not in HBase yet{why}"
    );
    StorageError::Unavailable(text.into())
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
