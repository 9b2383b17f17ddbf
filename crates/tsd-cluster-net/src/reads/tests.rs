//! Compares reads through a node with a map of all acknowledged points, whichever node holds them.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::{collections::BTreeMap, sync::atomic::Ordering, time::Duration};

use futures_util::future::join_all;
use parking_lot::Mutex;
use proptest::{collection::vec, prelude::*};
use tsd_cluster::{
    Assignment, KeyWidths, Member, Membership, ProofError, Slot, SlotOwner, SlotRule,
};
use tsd_model::Family;
use tsd_storage::{CellBatch, CellRef, Delete, HeldRow, MemoryStorage, ScanGroup, StorageExt};

use super::*;
use crate::{
    NetConfig,
    fakes::{FakeMembership, FakeMemory, FakeNode, FakeRows, FakeSlots, identity, member, patient},
};

fn table() -> Table {
    Table::new("tsdb")
}

const WIDTHS: KeyWidths = KeyWidths { salt: 0, metric: 1, tagk: 1, tagv: 1 };

fn rule() -> SlotRule {
    SlotRule::try_new(WIDTHS, &[[0; 1]; 0]).unwrap()
}

/// Three nodes own a third of the slots each.
fn assignment() -> Assignment {
    let mut of = Assignment::default();
    of.generation = 1;
    for slot in Slot::all() {
        of.set(slot, SlotOwner { owner: Some(1 + slot.number() as u64 % 3), next: None });
    }
    of
}

/// Returns the number of the node that owns a row: 0 is the node that reads.
fn owner_of(key: &[u8]) -> usize {
    rule().slot_of(key).number() % 3
}

/// Returns the key of a row that this node owns.
fn key_of(node: usize) -> [u8; 1] {
    [(0..=255).find(|key| owner_of(&[*key]) == node).unwrap()]
}

/// A node that reads, two nodes that hold rows, and a store. The store is the one below the reads. It includes
/// the rows that the reading node holds, because that node's log is below the reads, too.
struct ReadFixture {
    store: Arc<MemoryStorage>,
    own: Arc<FakeRows>,
    membership: Arc<FakeMembership>,
    slots: Arc<FakeSlots>,
    peers: Vec<FakeNode>,
    reads: ClusterReads<MemoryStorage>,
}

impl ReadFixture {
    async fn start(patience: Duration, memory: usize) -> Self {
        let store = Arc::new(MemoryStorage::new([table()]));
        let own = Arc::<FakeRows>::default();
        let membership = FakeMembership::new(1);
        let mut peers = Vec::new();
        let stored = Arc::new(Mutex::new(Arc::new(assignment())));
        for incarnation in [2, 3] {
            let slots = FakeSlots::new(incarnation, &stored);
            peers.push(FakeNode::start_with("127.0.0.1:0", slots, patient()).await);
        }
        let slots = FakeSlots::new(1, &stored);
        let members: Vec<Member> = peers.iter().map(FakeNode::member).collect();
        *membership.members.lock() = members;
        membership.members.lock().push(member(1, "127.0.0.1:1"));
        let dyn_membership: Arc<dyn Membership> = Arc::<FakeMembership>::clone(&membership);
        // A few rows of the model.
        let net_config = NetConfig { chunk_bytes: 100, ..patient() };
        let net = Arc::new(Peers::new(identity(1), net_config, dyn_membership));
        let config = ReadConfig {
            tables: vec![table()],
            slots: Arc::<FakeSlots>::clone(&slots),
            rule: Arc::new(rule()),
            patience,
            memory: Arc::new(FakeMemory::new(memory)),
        };
        let rows = Arc::<FakeRows>::clone(&own);
        let reads = ClusterReads::new(Arc::clone(&store), rows, net, config);
        Self { store, own, membership, slots, peers, reads }
    }

    async fn new() -> Self {
        Self::start(Duration::from_mins(1), 1 << 30).await
    }

    fn rows(&self, node: usize) -> &FakeRows {
        match node {
            0 => &self.own,
            peer => &self.peers[peer - 1].rows,
        }
    }

    fn requests(&self) -> [usize; 2] {
        [1, 2].map(|node| self.rows(node).requests.load(Ordering::Relaxed))
    }

    /// Gives the slot of a row to another node, in the log table.
    fn move_row(&self, key: &[u8], to: u64) {
        let mut stored = self.slots.stored.lock();
        let mut next = Assignment::clone(&stored);
        next.generation += 1;
        next.set(rule().slot_of(key), SlotOwner { owner: Some(to), next: None });
        *stored = Arc::new(next);
    }

    async fn has(&self, key: &[u8]) -> bool {
        let get = Get::row(Bytes::copy_from_slice(key));
        self.reads.get(&table(), get).await.unwrap().is_some()
    }

    async fn scan(&self, scan: Scan) -> Result<Vec<Row>, StorageError> {
        let mut scanner = self.reads.scan(&table(), scan);
        let mut all = Vec::new();
        while let Some(rows) = scanner.next_rows().await? {
            assert!(!rows.is_empty());
            all.extend(rows);
        }
        Ok(all)
    }

    /// Writes the held rows of a node to the store, as a flush does.
    async fn flush(&self, rows: Vec<HeldRow>) {
        for HeldRow { key, delete_row_ms, columns } in rows {
            let stored = self.store.get(&table(), Get::row(key.clone())).await.unwrap();
            let cells = stored.map_or_else(Vec::new, |row| row.into_cells().unwrap());
            let hidden = |time: i64, at: Option<i64>| at.is_some_and(|at| time <= at);
            let mut deletes = Vec::new();
            for cell in &cells {
                let same = columns.iter().find(|column| column.qualifier == cell.qualifier);
                let column_ms = same.filter(|c| c.value.is_none()).map(|c| c.timestamp_ms);
                if hidden(cell.timestamp_ms, delete_row_ms) || hidden(cell.timestamp_ms, column_ms)
                {
                    deletes.push((Family::T, cell.qualifier.clone()));
                }
            }
            if !deletes.is_empty() {
                let delete = Delete::Columns { row: key.clone(), columns: deletes };
                self.store.delete(&table(), delete).await.unwrap();
            }
            for column in columns {
                let newer = cells.iter().any(|cell| {
                    cell.qualifier == column.qualifier && cell.timestamp_ms > column.timestamp_ms
                });
                if let (Some(value), false) = (&column.value, newer) {
                    let cell = CellRef {
                        family: Family::T,
                        qualifier: &column.qualifier,
                        value,
                        timestamp_ms: Some(column.timestamp_ms),
                    };
                    let batch = CellBatch::single(&key, cell).unwrap();
                    self.store.put(&table(), batch).await.unwrap();
                }
            }
        }
    }

    /// Lets a node acknowledge a change of a row.
    async fn change(&self, node: usize, change: impl Fn(&FakeRows)) {
        change(self.rows(node));
        if node == 0 {
            let below = FakeRows::default();
            change(&below);
            self.flush(below.take()).await;
        }
    }

    /// Flushes all nodes, oldest first: a stored delete hides no cell that another node still holds.
    async fn flush_node(&self, node: usize) {
        if !self.rows(node).has_deletes() && !self.own.has_deletes() {
            return self.flush(self.rows(node).take()).await;
        }
        let mut all: Vec<HeldRow> = (0..3).flat_map(|node| self.rows(node).take()).collect();
        crate::row_merge::merge_rows(&mut all);
        self.flush(all).await;
    }
}

/// A step of the model: a change that a node acknowledges, a flush, or a read.
#[derive(Clone, Debug)]
enum ModelStep {
    Put { row: u8, column: u8, value: u8 },
    DeleteColumn { row: u8, column: u8 },
    DeleteRow { row: u8 },
    Flush { node: usize },
    Read { from: u8, to: u8, limit: Option<usize> },
}

fn step() -> impl Strategy<Value = ModelStep> {
    let (node, row, column) = (|| 0..3_usize, || 0..6_u8, || 0..4_u8);
    prop_oneof![
        8 => (row(), column(), any::<u8>())
            .prop_map(|(row, column, value)| ModelStep::Put { row, column, value }),
        2 => (row(), column()).prop_map(|(row, column)| ModelStep::DeleteColumn { row, column }),
        1 => row().prop_map(|row| ModelStep::DeleteRow { row }),
        1 => node().prop_map(|node| ModelStep::Flush { node }),
        3 => (row(), row(), prop::option::of(1..4_usize))
            .prop_map(|(from, to, limit)| ModelStep::Read { from, to, limit }),
    ]
}

type ModelRows = BTreeMap<u8, BTreeMap<u8, u8>>;

fn shown(rows: Vec<Row>) -> Vec<(u8, BTreeMap<u8, u8>)> {
    let cells = |row: Row| row.into_cells().unwrap().into_iter();
    let row = |row: Row| {
        let key = row.key[0];
        (key, cells(row).map(|cell| (cell.qualifier[0], cell.value[0])).collect())
    };
    rows.into_iter().map(row).collect()
}

async fn check(steps: Vec<ModelStep>) {
    let fixture = ReadFixture::new().await;
    for at in 1..3 {
        fixture.rows(at).batch_rows.store(at, Ordering::Relaxed);
    }
    let mut model = ModelRows::new();
    for (at, step) in steps.into_iter().enumerate() {
        let now_ms = 1_000 + at as i64;
        match step {
            ModelStep::Put { row, column, value } => {
                let put = |rows: &FakeRows| rows.put(&[row], &[column], Some(&[value]), now_ms);
                fixture.change(owner_of(&[row]), put).await;
                model.entry(row).or_default().insert(column, value);
            }
            ModelStep::DeleteColumn { row, column } => {
                let delete = |rows: &FakeRows| rows.put(&[row], &[column], None, now_ms);
                fixture.change(owner_of(&[row]), delete).await;
                model.entry(row).or_default().remove(&column);
            }
            ModelStep::DeleteRow { row } => {
                let owner = owner_of(&[row]);
                fixture.change(owner, |rows| rows.delete_row(&[row], now_ms)).await;
                model.remove(&row);
            }
            ModelStep::Flush { node } => fixture.flush_node(node).await,
            ModelStep::Read { from, to, limit } => {
                check_read(&fixture, &model, from..to, limit).await;
            }
        }
    }
    check_read(&fixture, &model, 0..6, None).await;
}

async fn check_read(
    fixture: &ReadFixture,
    model: &ModelRows,
    keys: std::ops::Range<u8>,
    limit: Option<usize>,
) {
    if keys.is_empty() {
        return;
    }
    let expected: Vec<(u8, BTreeMap<u8, u8>)> = model
        .range(keys.clone())
        .filter(|(_, columns)| !columns.is_empty())
        .map(|(key, columns)| (*key, columns.clone()))
        .take(limit.unwrap_or(usize::MAX))
        .collect();
    let (start, stop) = (vec![keys.start].into(), vec![keys.end].into());
    let scan = Scan { start, stop, limit, batch_rows: Some(2), ..Scan::default() };
    assert_eq!(shown(fixture.scan(scan).await.unwrap()), expected);
    if limit.is_none() {
        let gets = keys.clone().map(|key| Get::row(vec![key].into())).collect();
        let rows = fixture.reads.multi_get(&table(), gets).await.unwrap();
        assert_eq!(shown(rows.into_iter().flatten().collect()), expected);
        let rows = scan_as_group(fixture, &keys).await;
        assert_eq!(shown(rows), expected);
    }
}

fn range(from: u8, to: u8) -> KeyRange {
    KeyRange { start: vec![from].into(), stop: vec![to].into() }
}

/// Runs scans of two keys each, all at once. The first scan leaves its first key to an additional scan.
async fn scan_as_group(fixture: &ReadFixture, keys: &std::ops::Range<u8>) -> Vec<Row> {
    let chunk = |from: u8| range(from, keys.end.min(from + 2));
    let chunks: Vec<KeyRange> = keys.clone().step_by(2).map(chunk).collect();
    let group = Arc::new(ScanGroup::new(chunks.clone()));
    let mut scanned = chunks;
    scanned[0].start = vec![keys.start + 1].into();
    scanned.insert(0, range(keys.start, keys.start + 1));
    let scan = |KeyRange { start, stop }: KeyRange| {
        let group = Some(Arc::clone(&group));
        fixture.scan(Scan { start, stop, group, batch_rows: Some(2), ..Scan::default() })
    };
    let scanned = scanned.into_iter().filter(|range| range.start < range.stop);
    join_all(scanned.map(scan)).await.into_iter().flat_map(Result::unwrap).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_acknowledged_change_is_read_whoever_holds_it(steps in vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check(steps));
    }
}

#[tokio::test]
async fn a_read_of_a_row_asks_only_its_owner_and_not_the_log_table() {
    let fixture = ReadFixture::new().await;
    fixture.rows(2).put(&key_of(2), b"q", Some(b"1"), 10);
    assert!(fixture.has(&key_of(2)).await && !fixture.has(&key_of(0)).await);
    assert_eq!((fixture.requests(), fixture.slots.looks.load(Ordering::Relaxed)), ([0, 1], 0));
}

#[tokio::test]
async fn a_slot_that_has_moved_is_asked_of_its_next_owner() {
    let fixture = ReadFixture::new().await;
    let key = key_of(1);
    fixture.move_row(&key, 3);
    fixture.peers.iter().for_each(|peer| peer.slots.adopt());
    fixture.rows(2).put(&key, b"q", Some(b"1"), 10);
    assert!(fixture.has(&key).await);
    assert_eq!((fixture.requests(), fixture.slots.looks.load(Ordering::Relaxed)), ([1, 1], 1));
    assert_eq!(fixture.scan(Scan::default()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_read_waits_for_the_end_of_an_offer() {
    let fixture = ReadFixture::new().await;
    let key = key_of(0);
    // The own slot is offered. The next owner does not know that yet.
    fixture.slots.offered.lock().insert(rule().slot_of(&key));
    let reading = fixture.has(&key);
    let moving = async {
        while fixture.slots.looks.load(Ordering::Relaxed) < 3 {
            tokio::task::yield_now().await;
        }
        fixture.rows(1).put(&key, b"q", Some(b"1"), 10);
        fixture.move_row(&key, 2);
    };
    let (is_found, ()) = tokio::join!(reading, moving);
    assert!(is_found);
    // The next owner reads the assignment when it is asked.
    assert_eq!(fixture.requests(), [1, 0]);
}

#[tokio::test]
async fn a_slot_without_an_owner_is_covered_once_the_assignment_was_read() {
    let fixture = ReadFixture::new().await;
    *fixture.slots.stored.lock() = Arc::default();
    fixture.slots.adopt();
    assert!(!fixture.has(&key_of(1)).await);
    assert_eq!((fixture.requests(), fixture.slots.looks.load(Ordering::Relaxed)), ([0, 0], 1));
}

#[tokio::test]
async fn the_scans_of_a_read_ask_each_node_once() {
    let fixture = ReadFixture::new().await;
    for (key, node) in [(3, 1), (7, 2), (12, 1)] {
        fixture.rows(node).put(&[key], b"q", Some(b"1"), 10);
    }
    let rows = scan_as_group(&fixture, &(0..20)).await;
    assert_eq!(rows.iter().map(|row| row.key[0]).collect::<Vec<_>>(), [3, 7, 12]);
    // The scan of a fraction of the first range, and the scan of its rest.
    let requests = |node| fixture.rows(node).requests.load(Ordering::Relaxed);
    assert_eq!((requests(1), requests(2)), (2, 2));
}

#[tokio::test]
async fn a_silent_node_fails_the_read_by_name() {
    let mut fixture = ReadFixture::start(Duration::from_millis(300), 1 << 30).await;
    fixture.peers[0].server = None;
    let error = fixture.scan(Scan::default()).await.unwrap_err().to_string();
    let expected = "node node2 does not answer, and its acknowledged points are not in HBase yet";
    assert!(error.contains(expected), "{error}");
    assert!(fixture.membership.suspected.lock().contains(&2));
    let get = fixture.reads.get(&table(), Get::row(Bytes::from_static(b"a"))).await;
    assert!(get.unwrap_err().to_string().contains(expected));
}

#[tokio::test]
async fn a_dead_owner_is_awaited_until_another_node_owns_its_slots() {
    let mut fixture = ReadFixture::new().await;
    fixture.peers[0].server = None;
    let key = key_of(1);
    fixture.rows(2).put(&key, b"q", Some(b"1"), 10);
    let reading = fixture.has(&key);
    let recovering = async {
        while fixture.membership.suspected.lock().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        fixture.move_row(&key, 3);
        fixture.peers[1].slots.adopt();
        fixture.slots.adopt();
    };
    let (is_found, ()) = tokio::join!(reading, recovering);
    assert!(is_found);
}

#[tokio::test]
async fn a_fenced_node_neither_responds_nor_reads() {
    let fixture = ReadFixture::start(Duration::from_millis(300), 1 << 30).await;
    let fenced = || Some(Err(ProofError::Fenced("fenced by 9".to_owned())));
    fixture.peers[0].membership.proof.send_replace(fenced());
    // The reason is only known after the node has responded.
    let is_named = |error: StorageError| {
        let error = error.to_string();
        assert!(error.contains("node node2 does not answer"), "{error}");
        error.contains("fenced by 9")
    };
    while !is_named(fixture.scan(Scan::default()).await.unwrap_err()) {}
    fixture.peers[0].membership.proof.send_replace(Some(Ok(())));
    fixture.membership.proof.send_replace(fenced());
    let error = fixture.scan(Scan::default()).await.unwrap_err().to_string();
    assert!(error.contains("cannot prove") && error.contains("fenced by 9"), "{error}");
    let problems = fixture.reads.health();
    assert_eq!(problems.first().unwrap().impact, HealthImpact::Unavailable);
    fixture.membership.proof.send_replace(Some(Ok(())));
    while fixture.scan(Scan::default()).await.is_err() {}
    assert_eq!(fixture.reads.health().len(), 0);
}

#[tokio::test]
async fn rows_that_find_no_memory_fail_the_read() {
    let fixture = ReadFixture::start(Duration::from_mins(1), 1 << 20).await;
    let value = vec![1; 2 << 20];
    fixture.peers[0].rows.put(b"a", b"q", Some(&value), 10);
    let error = fixture.scan(Scan::default()).await.unwrap_err();
    assert!(matches!(error, StorageError::Throttled(_)), "{error}");
}

#[tokio::test]
async fn a_scan_takes_more_than_fits_into_memory_in_chunks() {
    // Memory for three of them.
    let fixture = ReadFixture::start(Duration::from_mins(1), 1 << 20).await;
    let value = vec![1; 300 << 10];
    for key in 0..20_u8 {
        fixture.rows(1 + usize::from(key) % 2).put(&[key], b"q", Some(&value), 10);
        fixture.change(0, |rows| rows.put(&[key], b"r", Some(b"1"), 11)).await;
    }
    let rows = fixture.scan(Scan { batch_rows: Some(3), ..Scan::default() }).await.unwrap();
    assert_eq!(shown(rows).len(), 20);
    let limited = fixture.scan(Scan { limit: Some(7), ..Scan::default() }).await.unwrap();
    assert_eq!(limited.len(), 7);
}

#[tokio::test]
async fn the_series_index_is_not_relied_on_for_rows_that_other_nodes_may_hold() {
    let fixture = ReadFixture::new().await;
    assert!(fixture.reads.has_unregistered_series(&table()));
    assert!(!fixture.reads.has_unregistered_series(&Table::new("tsdb-uid")));
}
