//! A node with its own rows and membership, on loopback, for the tests.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
    time::Instant,
};
use tsd_cluster::{
    Assignment, ClusterId, Link, Member, MemberState, Membership, MembershipFuture, ProofError,
    Settlement, SlotSet, unreachable_nodes,
};
use tsd_model::{Family, Uid, UidKind};
use tsd_storage::{
    BoxFuture, HeldColumn, HeldRow, HeldRowBatches, HeldRowReader, KeyRange, RowFilter,
    StorageError, Table,
};

use crate::{
    ForgottenNames, NetConfig, NodeControl, NodeIdentity, NodeReport, PeerClient, PeerServer,
    PeerService, ReadMemory, ReadSlots, peers::now_ms,
};

pub(crate) const CLUSTER: ClusterId = ClusterId::new([7; 16]);

/// Rows that a node holds.
#[derive(Debug, Default)]
pub(crate) struct FakeRows {
    rows: Mutex<BTreeMap<Bytes, HeldRow>>,
    /// Rows of a batch; 0: all of them.
    pub(crate) batch_rows: AtomicUsize,
    /// Number of requests for rows.
    pub(crate) requests: AtomicUsize,
}

impl FakeRows {
    pub(crate) fn put(
        &self,
        key: &[u8],
        qualifier: &[u8],
        value: Option<&[u8]>,
        timestamp_ms: i64,
    ) {
        let column = HeldColumn {
            family: Family::T,
            qualifier: Bytes::copy_from_slice(qualifier),
            value: value.map(Bytes::copy_from_slice),
            timestamp_ms,
        };
        self.change(key, |row| {
            let found = row.columns.binary_search_by(|c| c.qualifier.cmp(&column.qualifier));
            match found {
                Ok(at) => row.columns[at] = column,
                Err(at) => row.columns.insert(at, column),
            }
        });
    }

    pub(crate) fn delete_row(&self, key: &[u8], timestamp_ms: i64) {
        self.change(key, |row| {
            row.columns.clear();
            row.delete_row_ms = Some(timestamp_ms);
        });
    }

    fn change(&self, key: &[u8], change: impl FnOnce(&mut HeldRow)) {
        let key = Bytes::copy_from_slice(key);
        let new = HeldRow { key: key.clone(), ..HeldRow::default() };
        change(self.rows.lock().entry(key).or_insert(new));
    }

    pub(crate) fn take(&self) -> Vec<HeldRow> {
        std::mem::take(&mut *self.rows.lock()).into_values().collect()
    }

    pub(crate) fn has_deletes(&self) -> bool {
        let rows = self.rows.lock();
        rows.values().any(|row| {
            row.delete_row_ms.is_some() || row.columns.iter().any(|column| column.value.is_none())
        })
    }
}

impl HeldRowReader for FakeRows {
    fn held_rows(
        &self,
        _: &Table,
        ranges: Vec<KeyRange>,
        filter: Option<RowFilter>,
    ) -> HeldRowBatches {
        let matches = |key: &[u8]| filter.as_ref().is_none_or(|filter| filter.matches(key));
        self.requests.fetch_add(1, Ordering::Relaxed);
        let rows = self.rows.lock();
        let found = ranges.iter().flat_map(|range| {
            let is_found = |row: &&HeldRow| range.contains(&row.key) && matches(&row.key);
            rows.values().filter(is_found).cloned().collect::<Vec<_>>()
        });
        let found: Vec<HeldRow> = found.collect();
        let size = match self.batch_rows.load(Ordering::Relaxed) {
            0 => found.len().max(1),
            size => size,
        };
        let batches: Vec<Vec<HeldRow>> = found.chunks(size).map(<[HeldRow]>::to_vec).collect();
        Box::new(batches.into_iter())
    }
}

/// A list of members, and the outcome of proofs.
#[derive(Debug)]
pub(crate) struct FakeMembership {
    pub(crate) this: u64,
    pub(crate) members: Mutex<Vec<Member>>,
    /// Members that a look at the log table finds; `None` means `members`.
    pub(crate) newer: Mutex<Option<Vec<Member>>>,
    /// Error of a look; `None` if it succeeds.
    pub(crate) look_fails: Mutex<Option<ProofError>>,
    pub(crate) proof: watch::Sender<Option<Result<(), ProofError>>>,
    pub(crate) settlement: watch::Sender<Option<Settlement>>,
    pub(crate) suspected: Mutex<Vec<u64>>,
    pub(crate) other_beats: AtomicUsize,
    /// What was reported last.
    pub(crate) unreached: Mutex<BTreeSet<u64>>,
}

impl FakeMembership {
    pub(crate) fn new(this: u64) -> Arc<Self> {
        Arc::new(Self {
            this,
            members: Mutex::default(),
            newer: Mutex::default(),
            look_fails: Mutex::default(),
            proof: watch::Sender::new(Some(Ok(()))),
            settlement: watch::Sender::new(None),
            suspected: Mutex::default(),
            other_beats: AtomicUsize::new(0),
            unreached: Mutex::default(),
        })
    }
}

async fn given<T: Clone>(source: &watch::Sender<Option<T>>) -> T {
    let mut values = source.subscribe();
    let value = values.wait_for(Option::is_some).await.unwrap();
    value.clone().unwrap()
}

impl Membership for FakeMembership {
    fn cluster(&self) -> ClusterId {
        CLUSTER
    }

    fn this(&self) -> u64 {
        self.this
    }

    fn members(&self) -> Vec<Member> {
        self.members.lock().clone()
    }

    fn current(&self) -> MembershipFuture<'_, Result<Vec<Member>, ProofError>> {
        let newer = self.newer.lock().clone();
        let members = newer.unwrap_or_else(|| self.members());
        let failure = self.look_fails.lock().clone();
        Box::pin(async { failure.map_or(Ok(members), Err) })
    }

    fn prove(&self) -> MembershipFuture<'_, Result<(), ProofError>> {
        Box::pin(given(&self.proof))
    }

    fn prove_by_append(&self) -> MembershipFuture<'_, Result<(), ProofError>> {
        self.prove()
    }

    fn suspect(&self, incarnation: u64) {
        self.suspected.lock().push(incarnation);
    }

    fn report_unreached(&self, unreached: BTreeSet<u64>) {
        *self.unreached.lock() = unreached;
    }

    fn beats(&self) -> bool {
        true
    }

    fn note_other_beat(&self) {
        self.other_beats.fetch_add(1, Ordering::Relaxed);
    }

    fn to_reach(&self) -> Vec<Member> {
        let mut others = self.members();
        others.retain(|member| member.incarnation != self.this);
        others
    }

    fn unreachable(&self, unreached: &BTreeSet<u64>) -> BTreeSet<u64> {
        let members: BTreeSet<u64> =
            self.to_reach().iter().map(|member| member.incarnation).collect();
        let broken = unreached.iter().map(|other| Link::new(self.this, *other)).collect();
        unreachable_nodes(&members, &[self.this].into(), &broken)
    }

    fn settled(&self, _: u64) -> MembershipFuture<'_, Settlement> {
        Box::pin(given(&self.settlement))
    }
}

/// An assignment, and what a node knows of it.
#[derive(Debug)]
pub(crate) struct FakeSlots {
    this: u64,
    adopted: Mutex<Arc<Assignment>>,
    /// The assignment in the log table, shared by the nodes of a test.
    pub(crate) stored: Arc<Mutex<Arc<Assignment>>>,
    /// Slots that the node has offered to another one.
    pub(crate) offered: Mutex<SlotSet>,
    /// Reads of the log table.
    pub(crate) looks: AtomicUsize,
    changed: watch::Sender<()>,
}

impl FakeSlots {
    pub(crate) fn new(this: u64, stored: &Arc<Mutex<Arc<Assignment>>>) -> Arc<Self> {
        let (adopted, stored) = (Mutex::new(Arc::clone(&stored.lock())), Arc::clone(stored));
        let offered = Mutex::new(SlotSet::empty());
        let (looks, changed) = (AtomicUsize::new(0), watch::Sender::new(()));
        Arc::new(Self { this, adopted, stored, offered, looks, changed })
    }

    pub(crate) fn adopt(&self) {
        *self.adopted.lock() = Arc::clone(&self.stored.lock());
        self.changed.send_replace(());
    }
}

impl ReadSlots for FakeSlots {
    fn assignment(&self) -> Arc<Assignment> {
        Arc::clone(&self.adopted.lock())
    }

    fn refresh(&self) -> MembershipFuture<'_, Result<(), ProofError>> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.adopt();
        Box::pin(async { Ok(()) })
    }

    fn changed(&self, generation: u64) -> MembershipFuture<'_, ()> {
        let mut changed = self.changed.subscribe();
        Box::pin(async move {
            while self.assignment().generation <= generation {
                changed.changed().await.unwrap();
            }
        })
    }

    fn owned(&self) -> SlotSet {
        self.assignment().slots_of(self.this).without(&self.offered.lock())
    }
}

/// Control of a node that flushes nothing and reports little.
#[derive(Debug, Default)]
pub(crate) struct FakeControl {
    clock_ahead_ms: AtomicI64,
    /// True if flushes and assignments of UIDs hang.
    pub(crate) hangs: AtomicBool,
    refusals: Mutex<Vec<String>>,
    pub(crate) forgotten: Mutex<Vec<ForgottenNames>>,
    /// Names for which UIDs were requested. The number of a UID is the length of the name.
    pub(crate) assigned: Mutex<Vec<Bytes>>,
}

impl FakeControl {
    pub(crate) fn set_clock_ahead(&self, ms: i64) {
        self.clock_ahead_ms.store(ms, Ordering::Relaxed);
    }

    pub(crate) fn noted_refusals(&self) -> Vec<String> {
        self.refusals.lock().clone()
    }
}

impl NodeControl for FakeControl {
    fn report(&self) -> NodeReport {
        let time_ms = now_ms() + self.clock_ahead_ms.load(Ordering::Relaxed);
        NodeReport { version: "1".to_owned(), rows: 3, time_ms, ..NodeReport::default() }
    }

    fn note_refusal(&self, _: &str, reason: &str) {
        self.refusals.lock().push(reason.to_owned());
    }

    fn forget(&self, names: &ForgottenNames) {
        self.forgotten.lock().push(names.clone());
    }

    fn assign_uids(&self, _: UidKind, names: Vec<Bytes>) -> BoxFuture<'_, Vec<Option<Uid>>> {
        if self.hangs.load(Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        self.assigned.lock().extend(names.iter().cloned());
        // The empty name gets no UID.
        let uid = |name: &Bytes| Uid::from_number(name.len() as u64, 3).ok();
        let uids = names.iter().map(uid).collect();
        Box::pin(async { uids })
    }

    fn queries(&self) -> BoxFuture<'_, String> {
        Box::pin(async { r#"[{"id":7}]"#.to_owned() })
    }

    fn cancel_query(&self, id: u64) -> bool {
        id == 7
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        if self.hangs.load(Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        Box::pin(async { Err(StorageError::Backend("the disk of HBase is full".into())) })
    }
}

/// Memory for a number of bytes.
#[derive(Debug)]
pub(crate) struct FakeMemory(Arc<Semaphore>);

impl FakeMemory {
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes)))
    }
}

impl ReadMemory for FakeMemory {
    fn try_reserve(&self, bytes: usize) -> Option<Box<dyn Send + Sync>> {
        let permit = Arc::clone(&self.0).try_acquire_many_owned(u32::try_from(bytes).ok()?);
        Some(Box::new(permit.ok()?))
    }
}

/// A node that responds to its peers.
pub(crate) struct FakeNode {
    pub(crate) rows: Arc<FakeRows>,
    pub(crate) slots: Arc<FakeSlots>,
    pub(crate) membership: Arc<FakeMembership>,
    pub(crate) control: Arc<FakeControl>,
    pub(crate) server: Option<PeerServer>,
    address: SocketAddr,
}

pub(crate) fn identity(incarnation: u64) -> NodeIdentity {
    NodeIdentity { cluster: CLUSTER, name: format!("node{incarnation}"), incarnation }
}

impl FakeNode {
    pub(crate) async fn start(incarnation: u64, config: NetConfig) -> Self {
        Self::start_at("127.0.0.1:0", incarnation, config).await
    }

    pub(crate) async fn start_at(address: &str, incarnation: u64, config: NetConfig) -> Self {
        let slots = FakeSlots::new(incarnation, &Arc::default());
        Self::start_with(address, slots, config).await
    }

    pub(crate) async fn start_with(
        address: &str,
        slots: Arc<FakeSlots>,
        config: NetConfig,
    ) -> Self {
        let incarnation = slots.this;
        let listener = TcpListener::bind(address).await.unwrap();
        let control = Arc::<FakeControl>::default();
        let (rows, membership) = (Arc::<FakeRows>::default(), FakeMembership::new(incarnation));
        let service = PeerService {
            rows: Arc::<FakeRows>::clone(&rows),
            slots: Arc::<FakeSlots>::clone(&slots),
            membership: Arc::<FakeMembership>::clone(&membership),
            writes: None,
            node: Arc::<FakeControl>::clone(&control),
        };
        let server = PeerServer::start(listener, identity(incarnation), config, service).unwrap();
        let address = server.local_addr();
        Self { rows, slots, membership, control, server: Some(server), address }
    }

    pub(crate) fn member(&self) -> Member {
        member(self.membership.this, &self.address.to_string())
    }

    pub(crate) fn client(&self, config: NetConfig) -> PeerClient {
        let address = self.address.to_string();
        PeerClient::new(&address, self.membership.this, Arc::new(identity(99)), config)
    }
}

pub(crate) fn member(incarnation: u64, address: &str) -> Member {
    Member {
        name: format!("node{incarnation}"),
        incarnation,
        address: Some(address.to_owned()),
        state: MemberState::Serving,
        heartbeat_age: Duration::ZERO,
        log_bytes: 0,
        unreached: BTreeSet::new(),
    }
}

/// Limits that no test reaches, even on a busy machine.
pub(crate) fn patient() -> NetConfig {
    NetConfig { connect_timeout: Duration::from_mins(1), ..NetConfig::default() }
}

/// A deadline that no test reaches.
pub(crate) fn far() -> Instant {
    Instant::now() + Duration::from_mins(1)
}
