//! Nodes on loopback, each with a store, and one assignment: tests which node writes, and which writes
//! wait.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod drains;
mod outdated;
mod rewrites;

use parking_lot::Mutex;
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::net::TcpListener;
use tsd_cluster::{
    Assignment, KeyWidths, Member, MemberState, Membership, MembershipFuture, ProofError, Revision,
    Settlement, Slot, SlotTable,
};
use tsd_model::Family;
use tsd_storage::{
    BoxFuture, BytePermit, CellBatch, CellRef, Column, Delete, Epoch, Fault, FaultyStorage, Get,
    MemoryStorage, NewValue, Operation, Receipt, Standstills, StorageError, StorageExt, Write,
    boot_ms,
};

use super::*;
use crate::{
    NetConfig, PeerServer, PeerService,
    fakes::{FakeControl, FakeMembership, FakeRows, identity, member},
};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Whole series are placed.
fn rule() -> Arc<SlotRule> {
    let widths = KeyWidths { salt: 0, metric: 3, tagk: 3, tagv: 3 };
    Arc::new(SlotRule::try_new(widths, &[[0_u8; 3]; 0]).unwrap())
}

fn table() -> Table {
    Table::new("tsdb")
}

/// A row of a series.
fn row(series: u16) -> Vec<u8> {
    let [high, low] = series.to_be_bytes();
    vec![0, 0, 1, 9, 9, 9, 9, 0, 0, 1, 0, high, low]
}

fn cell(value: &[u8]) -> CellRef<'_> {
    CellRef { family: Family::T, qualifier: b"q1", value, timestamp_ms: None }
}

/// The column of a series' cell.
fn column(series: u16) -> Column {
    Column { row: row(series).into(), family: Family::T, qualifier: "q1".into() }
}

fn batch(series: impl IntoIterator<Item = u16>, value: &[u8]) -> CellBatch {
    let mut batch = CellBatch::new();
    for series in series {
        batch.begin_row(&row(series)).unwrap();
        batch.push(cell(value)).unwrap();
    }
    batch
}

/// The row of the log table that all nodes share.
#[derive(Debug, Default)]
pub(crate) struct SharedRow {
    pub(crate) assignment: Mutex<Option<Assignment>>,
    /// Number of changes whose responses are lost.
    lost: AtomicUsize,
    /// True if reads fail.
    is_unreachable: AtomicBool,
    /// True if logs are not trimmed.
    is_untrimmed: AtomicBool,
}

#[derive(Debug)]
struct FakeSlotTable {
    row: Arc<SharedRow>,
    commit_ms: Arc<AtomicI64>,
}

impl SlotTable for FakeSlotTable {
    fn assignment(
        &self,
        _: Arc<Assignment>,
    ) -> MembershipFuture<'_, Result<Option<Arc<Assignment>>, ProofError>> {
        let found = self.row.assignment.lock().clone().map(Arc::new);
        let unreachable = || ProofError::Unavailable("its region is gone".to_owned());
        let is_unreachable = self.row.is_unreachable.load(Ordering::Relaxed);
        Box::pin(async move { if is_unreachable { Err(unreachable()) } else { Ok(found) } })
    }

    fn swap_assignment<'a>(
        &'a self,
        expected: Option<Revision>,
        new: &'a Assignment,
    ) -> MembershipFuture<'a, Result<bool, ProofError>> {
        let mut row = self.row.assignment.lock();
        let is_expected = row.as_ref().map(Assignment::revision) == expected;
        if is_expected {
            *row = Some(new.clone());
        }
        let lost = self
            .row
            .lost
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        let unavailable = || ProofError::Unavailable("no answer".to_owned());
        let response = if lost.is_ok() { Err(unavailable()) } else { Ok(is_expected) };
        Box::pin(async { response })
    }

    fn trim(&self) -> MembershipFuture<'_, Result<(), ProofError>> {
        let is_untrimmed = self.row.is_untrimmed.load(Ordering::Relaxed);
        let untrimmed = || ProofError::Unavailable("the log is not trimmed".to_owned());
        Box::pin(async move { if is_untrimmed { Err(untrimmed()) } else { Ok(()) } })
    }

    fn former(&self) -> BTreeSet<u64> {
        BTreeSet::new()
    }

    fn last_commit_ms(&self) -> i64 {
        0
    }

    fn raise_commit_time(&self, last_commit_ms: i64) {
        self.commit_ms.fetch_max(last_commit_ms + 1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct FakeLog {
    commit_ms: Arc<AtomicI64>,
    flushes: AtomicUsize,
    /// True if flushes hang.
    hangs: AtomicBool,
}

impl SlotLog for FakeLog {
    fn flush(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        if self.hangs.load(Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        Box::pin(async { Ok(()) })
    }

    fn last_commit_ms(&self) -> i64 {
        self.commit_ms.load(Ordering::Relaxed)
    }
}

pub(crate) struct ForwardNode {
    store: Arc<FaultyStorage<MemoryStorage>>,
    log: Arc<FakeLog>,
    pub(crate) membership: Arc<FakeMembership>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) control: Arc<FakeControl>,
    pub(crate) slots: Arc<ClusterSlots>,
    writes: Arc<ForwardedWrites<FaultyStorage<MemoryStorage>>>,
    pub(crate) server: Option<PeerServer>,
}

/// Nodes 1.. that list each other.
pub(crate) async fn nodes(count: u64, row: &Arc<SharedRow>, timeout: Duration) -> Vec<ForwardNode> {
    let mut listeners = Vec::new();
    for _ in 0..count {
        listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
    }
    let address = |of: &TcpListener| of.local_addr().unwrap().to_string();
    let members: Vec<Member> =
        (1..).zip(&listeners).map(|(node, of)| member(node, &address(of))).collect();
    let start = |(this, listener)| {
        let membership = FakeMembership::new(this);
        *membership.members.lock() = members.clone();
        start_node(this, listener, membership, Arc::clone(row), timeout)
    };
    (1..).zip(listeners).map(start).collect()
}

fn start_node(
    this: u64,
    listener: TcpListener,
    membership: Arc<FakeMembership>,
    row: Arc<SharedRow>,
    timeout: Duration,
) -> ForwardNode {
    let dyn_membership: Arc<dyn Membership> = Arc::<FakeMembership>::clone(&membership);
    let store = Arc::new(FaultyStorage::new(Arc::new(MemoryStorage::new([table()]))));
    let net = NetConfig::default();
    let peers = Arc::new(Peers::new(identity(this), net.clone(), Arc::clone(&dyn_membership)));
    let commit_ms = Arc::new(AtomicI64::new(i64::try_from(this).unwrap() * 100));
    let log = Arc::new(FakeLog {
        commit_ms: Arc::clone(&commit_ms),
        flushes: AtomicUsize::new(0),
        hangs: AtomicBool::new(false),
    });
    let slot_table = Arc::new(FakeSlotTable { row, commit_ms });
    let slot_log = Arc::<FakeLog>::clone(&log);
    let slots = ClusterSlots::start(slot_table, Arc::clone(&dyn_membership), slot_log);
    let config = ForwardConfig { tables: vec![table()], rule: rule(), timeout };
    let writes =
        ForwardedWrites::new(Arc::clone(&store), Arc::clone(&slots), Arc::clone(&peers), config);
    let writes = Arc::new(writes);
    let control = Arc::<FakeControl>::default();
    let service = PeerService {
        rows: Arc::<FakeRows>::default(),
        slots: Arc::<ClusterSlots>::clone(&slots),
        membership: dyn_membership,
        writes: Some(Arc::<ForwardedWrites<_>>::clone(&writes)),
        node: Arc::<FakeControl>::clone(&control),
    };
    let server = PeerServer::start(listener, identity(this), net, service).unwrap();
    ForwardNode { store, log, membership, peers, control, slots, writes, server: Some(server) }
}

/// Waits until each slot has an owner that takes it.
pub(crate) async fn settled(nodes: &[ForwardNode]) {
    loop {
        let counts: Vec<SlotCounts> = nodes.iter().map(|node| node.slots.counts()).collect();
        let owned: usize = counts.iter().map(|counts| counts.owned).sum();
        if owned == tsd_cluster::SLOTS && counts.iter().all(|counts| counts.moving == 0) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn stored(node: &ForwardNode, series: u16) -> Option<Bytes> {
    let get = Get::row(row(series).into());
    let found = node.store.get(&table(), get).await.unwrap()?;
    Some(found.into_cells().unwrap()[0].value.clone())
}

/// Returns the nodes whose stores have the row of a series.
async fn holders(nodes: &[ForwardNode], series: u16) -> Vec<u64> {
    let mut holders = Vec::new();
    for (number, node) in (1..).zip(nodes) {
        if stored(node, series).await.is_some() {
            holders.push(number);
        }
    }
    holders
}

fn owner(row: &SharedRow, series: u16) -> u64 {
    let assignment = row.assignment.lock();
    let slot: Slot = rule().slot_of(&self::row(series));
    assignment.as_ref().unwrap().slot(slot).owner.unwrap()
}

/// Returns a series that a node owns.
fn series_of(shared: &SharedRow, node: u64) -> u16 {
    (0..1_000).find(|series| owner(shared, *series) == node).unwrap()
}

#[tokio::test]
async fn cells_are_written_by_the_owner_of_their_slot_only() {
    let shared = Arc::<SharedRow>::default();
    let nodes = nodes(3, &shared, TIMEOUT).await;
    settled(&nodes).await;
    for node in &nodes {
        node.writes.put(&table(), batch(0..100, b"1")).await.unwrap();
    }
    let mut owners = BTreeSet::new();
    for series in 0..100 {
        let owner = owner(&shared, series);
        assert_eq!(holders(&nodes, series).await, [owner]);
        owners.insert(owner);
    }
    assert_eq!(owners.len(), 3);
}

#[tokio::test]
async fn a_table_without_owners_is_written_here() {
    let nodes = nodes(2, &Arc::default(), TIMEOUT).await;
    let other = Table::new("uid");
    let error = nodes[1].writes.put(&other, batch(0..10, b"1")).await.unwrap_err();
    assert!(matches!(error, StorageError::NoSuchTable(_)), "the store below was asked: {error}");
}

#[tokio::test]
async fn conditional_writes_and_deletes_are_decided_by_the_owner() {
    let shared = Arc::<SharedRow>::default();
    let nodes = nodes(2, &shared, TIMEOUT).await;
    settled(&nodes).await;
    for series in 0..20 {
        let (first, second) = (&nodes[0].writes, &nodes[1].writes);
        let row: Bytes = row(series).into();
        let column = column(series);
        let value = Some(Bytes::from_static(b"a"));
        let table = table();
        let set = first.compare_and_set(&table, column.clone(), None, "a".into());
        assert!(set.await.unwrap());
        let again = second.compare_and_set(&table, column.clone(), None, "b".into());
        assert!(!again.await.unwrap());
        let at =
            second.compare_and_set_at(&table, column.clone(), value, NewValue::at("c".into(), 7));
        assert!(at.await.unwrap());
        let expected = Bytes::from_static(b"c");
        assert_eq!(holders(&nodes, series).await, [owner(&shared, series)]);
        assert!(first.compare_and_delete(&table, column.clone(), expected).await.unwrap());
        let counter = Column { qualifier: "n".into(), ..column };
        assert_eq!(first.increment(&table, counter.clone(), 2).await.unwrap(), 2);
        assert_eq!(second.increment(&table, counter, -5).await.unwrap(), -3);
        second.append(&table, batch([series], b"x")).await.unwrap();
        first.append(&table, batch([series], b"y")).await.unwrap();
        first.delete(&table, Delete::Row(row)).await.unwrap();
        assert!(holders(&nodes, series).await.is_empty());
    }
}

#[tokio::test]
async fn a_conditional_write_of_a_node_that_is_fenced_meanwhile_is_not_acknowledged() {
    let shared = Arc::<SharedRow>::default();
    let nodes = nodes(2, &shared, TIMEOUT).await;
    settled(&nodes).await;
    let series = series_of(&shared, 1);
    let column = column(series);
    for node in &nodes {
        let owner = &nodes[0];
        owner.store.script(Operation::CompareAndSet, [Fault::Delay(Duration::from_millis(100))]);
        let writes = Arc::clone(&node.writes);
        let expected = stored(owner, series).await;
        let value = Bytes::from(format!("of {}", node.membership.this()));
        let (column, new) = (column.clone(), value.clone());
        let write = async move { writes.compare_and_set(&table(), column, expected, new).await };
        let write = tokio::spawn(write);
        // The call has begun: its delay is used up.
        while !owner.store.is_used_up(Operation::CompareAndSet) {
            tokio::task::yield_now().await;
        }
        owner.membership.proof.send_replace(Some(Err(ProofError::Fenced("by node 2".into()))));
        let error = write.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("by node 2"), "{error}");
        assert_eq!(stored(owner, series).await, Some(value), "HBase has executed it");
        owner.membership.proof.send_replace(Some(Ok(())));
    }
}

#[tokio::test]
async fn a_write_without_an_owner_that_responds_fails_after_its_time() {
    let shared = Arc::<SharedRow>::default();
    let mut nodes = nodes(2, &shared, Duration::from_millis(300)).await;
    settled(&nodes).await;
    nodes[1].server = None;
    let series = series_of(&shared, 2);
    let error = nodes[0].writes.put(&table(), batch([series], b"1")).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("node2"), "{error}");
    assert!(nodes[0].membership.suspected.lock().contains(&2));
    assert_eq!(holders(&nodes, series).await, [0; 0]);
}

#[tokio::test]
async fn a_write_goes_on_with_the_next_owner_after_the_recovery() {
    let shared = Arc::<SharedRow>::default();
    let mut nodes = nodes(2, &shared, TIMEOUT).await;
    settled(&nodes).await;
    nodes[1].server = None;
    nodes[1].slots.stop();
    let series = series_of(&shared, 2);
    let first = Arc::clone(&nodes[0].writes);
    let write = tokio::spawn(async move { first.put(&table(), batch([series], b"1")).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!write.is_finished());
    nodes[0].membership.members.lock().pop();
    nodes[0].membership.settlement.send_replace(Some(Settlement::Stored));
    write.await.unwrap().unwrap();
    assert_eq!(holders(&nodes, series).await, [1]);
}

#[tokio::test]
async fn a_write_that_was_not_sent_goes_on_with_the_next_owner_at_once() {
    let shared = Arc::<SharedRow>::default();
    let nodes = nodes(2, &shared, TIMEOUT).await;
    settled(&nodes).await;
    nodes[1].slots.stop();
    let series = series_of(&shared, 2);
    // The listener accepts connections and never responds. The log of the second node does not count as
    // stored, either.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    nodes[0].membership.members.lock()[1].address = Some(address);
    let first = Arc::clone(&nodes[0].writes);
    let write = tokio::spawn(async move { first.put(&table(), batch([series], b"1")).await });
    let (stream, _) = silent.accept().await.unwrap();
    nodes[0].membership.members.lock().pop();
    write.await.unwrap().unwrap();
    assert_eq!(holders(&nodes, series).await, [1]);
    drop(stream);
}

#[tokio::test]
async fn a_write_that_fits_into_no_frame_is_refused_and_leaves_the_others_alone() {
    let shared = Arc::<SharedRow>::default();
    let nodes = nodes(2, &shared, TIMEOUT).await;
    settled(&nodes).await;
    let series = series_of(&shared, 2);
    let column = column(series);
    let table = table();
    let value = |byte, length| Bytes::from(vec![byte; length]);
    let replace =
        |expected, new| nodes[0].writes.compare_and_set(&table, column.clone(), expected, new);
    let (first, second) = (value(1, 10 << 20), value(2, 10 << 20));
    let too_large = replace(Some(value(1, 13 << 20)), value(2, 13 << 20));
    let (stored, refused) = tokio::join!(replace(None, first.clone()), too_large);
    assert!(stored.unwrap());
    let error = refused.unwrap_err();
    assert!(matches!(error, StorageError::Rejected(_)), "{error}");
    assert!(error.to_string().contains("too large"), "{error}");
    // Replaces one of the longest cells by another one.
    assert!(replace(Some(first), second).await.unwrap());
}

#[tokio::test]
async fn errors_of_the_owner_are_those_of_the_write() {
    let shared = Arc::<SharedRow>::default();
    let nodes = nodes(2, &shared, TIMEOUT).await;
    settled(&nodes).await;
    let series = series_of(&shared, 2);
    for (error, expected) in [
        (StorageError::Throttled("full"), "busy"),
        (StorageError::Unavailable("no HBase".into()), "node2: unavailable: no HBase"),
        (StorageError::Rejected("too long".into()), "too long"),
        (StorageError::DiskFull, "no space"),
    ] {
        let is_transient = error.is_transient();
        nodes[1].store.script(Operation::Put, [Fault::Error(error)]);
        let failed = nodes[0].writes.put(&table(), batch([series], b"1")).await.unwrap_err();
        assert_eq!(failed.is_transient(), is_transient);
        assert!(failed.to_string().contains(expected), "{failed}");
    }
}

/// Puts one point of each series through the first node. All puts begin before the first is sent. The
/// second node owns the series.
async fn put_at_once(
    nodes: &[ForwardNode],
    shared: &SharedRow,
) -> Vec<(u16, Result<(), StorageError>)> {
    let of_second = (0..1_000).filter(|series| owner(shared, *series) == 2).take(20);
    let table = table();
    let put = async |series| (series, nodes[0].writes.put(&table, batch([series], b"1")).await);
    join_all(of_second.map(put)).await
}

#[tokio::test]
async fn puts_that_wait_for_one_node_share_a_frame() {
    let shared = Arc::<SharedRow>::default();
    let nodes = nodes(2, &shared, TIMEOUT).await;
    settled(&nodes).await;
    nodes[1].store.script(Operation::Put, [(); 4].map(|()| Fault::Pass));
    for (series, put) in put_at_once(&nodes, &shared).await {
        put.unwrap();
        assert_eq!(holders(&nodes, series).await, [2]);
    }
    assert!(
        !nodes[1].store.is_used_up(Operation::Put),
        "two are sent at once, and all others are one"
    );
}

#[tokio::test]
async fn puts_of_a_frame_that_is_refused_are_sent_one_by_one() {
    let shared = Arc::<SharedRow>::default();
    let nodes = nodes(2, &shared, TIMEOUT).await;
    settled(&nodes).await;
    // The two puts that are sent at once, the frame of all others, and then one of its puts.
    let too_long = || Fault::Error(StorageError::Rejected("too long".into()));
    let faults = [Fault::Pass, Fault::Pass, too_long(), too_long()];
    nodes[1].store.script(Operation::Put, faults);
    let ended = put_at_once(&nodes, &shared).await;
    let refused = ended.iter().filter(|(_, put)| put.is_err()).count();
    assert_eq!(refused, 1, "{ended:?}");
    for (series, put) in ended {
        let expected = if put.is_ok() { vec![2] } else { Vec::new() };
        assert_eq!(holders(&nodes, series).await, expected);
    }
}

#[tokio::test]
async fn a_write_that_may_have_been_made_is_not_sent_again() {
    let shared = Arc::<SharedRow>::default();
    let mut nodes = nodes(2, &shared, TIMEOUT).await;
    settled(&nodes).await;
    let series = series_of(&shared, 2);
    nodes[1].store.script(Operation::Put, [Fault::Delay(TIMEOUT * 10)]);
    let first = Arc::clone(&nodes[0].writes);
    let write = tokio::spawn(async move { first.put(&table(), batch([series], b"1")).await });
    while !nodes[1].store.is_used_up(Operation::Put) {
        tokio::task::yield_now().await;
    }
    // The owner dies before it responds. Its log is stored, and the first node takes its slots.
    nodes[1].slots.stop();
    nodes[1].server = None;
    nodes[0].membership.members.lock().pop();
    nodes[0].membership.settlement.send_replace(Some(Settlement::Stored));
    let error = write.await.unwrap().unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("may have been stored"), "{error}");
    assert_eq!(holders(&nodes, series).await, [0; 0]);
    nodes[0].writes.put(&table(), batch([series], b"2")).await.unwrap();
    assert_eq!(stored(&nodes[0], series).await, Some(Bytes::from_static(b"2")));
}

#[tokio::test]
async fn a_write_to_a_paused_owner_ends_when_its_log_is_taken_over() {
    let shared = Arc::<SharedRow>::default();
    let patience = Duration::from_mins(10);
    let nodes = nodes(2, &shared, patience).await;
    settled(&nodes).await;
    let series = series_of(&shared, 2);
    nodes[1].store.script(Operation::Put, [Fault::Delay(patience * 10)]);
    let first = Arc::clone(&nodes[0].writes);
    let write = tokio::spawn(async move { first.put(&table(), batch([series], b"1")).await });
    while !nodes[1].store.is_used_up(Operation::Put) {
        tokio::task::yield_now().await;
    }
    let recovering = MemberState::Recovering { by: 1 };
    nodes[0].membership.members.lock()[1].state = recovering;
    let error = write.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("taken over its log; the write may have been stored"), "{error}");
}

/// Sends a frame with a put to its owner.
async fn receive(
    node: &ForwardNode,
    series: u16,
    (void_after_ms, epoch): (u64, Option<Epoch>),
) -> Result<(), StorageError> {
    let generation = node.slots.assignment().generation;
    let put = Write::Put(batch([series], b"1"));
    let mut message = wire::ForwardMessage::of(generation, &table(), &put);
    message.void_after_ms = void_after_ms;
    let reply = node.writes.receive(receiver::ForwardFrame { message, epoch }).await;
    match reply.0.into_response("node", &table()) {
        wire::ForwardResponse::Ended(result) => result.map(|_| ()),
        wire::ForwardResponse::NotOwner => panic!("the node owns the slot"),
    }
}

#[tokio::test]
async fn a_frame_is_void_after_its_time_and_after_a_standstill_of_the_owner() {
    let shared = Arc::<SharedRow>::default();
    let nodes = nodes(1, &shared, TIMEOUT).await;
    settled(&nodes).await;
    let node = &nodes[0];
    let detector = Standstills::new(boot_ms());
    let before = detector.epoch();
    let far_ms = boot_ms() + 3_600_000;
    assert!(detector.mark(far_ms).is_some());
    let frames = [(0, None), (boot_ms() - 1, None), (far_ms, Some(before))];
    for (frame, expected) in frames.into_iter().zip(["deadline", "deadline", "stood still"]) {
        let error = receive(node, 1, frame).await.unwrap_err();
        assert!(error.is_transient() && error.to_string().contains(expected), "{error}");
        assert_eq!(stored(node, 1).await, None);
    }
    receive(node, 1, (far_ms, Some(detector.epoch()))).await.unwrap();
    assert_eq!(stored(node, 1).await, Some(Bytes::from_static(b"1")));
}
