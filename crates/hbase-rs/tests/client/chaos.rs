//! Concurrent writers and readers while regions move, split and merge, servers die, connections break.

use parking_lot::Mutex;
use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::TryStreamExt;
use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::{Action, BufferConfig, Scan, Table, buffer::MutationBatch};
use tokio::time::sleep;

use super::{get, put, start, value};

/// Acknowledged rows.
type Acknowledged = Arc<Mutex<BTreeSet<String>>>;

const WRITERS: usize = 4;
const ROWS: usize = 300;

fn row(writer: usize, at: usize) -> String {
    // Distributed over the alphabet.
    let letter = char::from(b'a' + ((at * 7 + writer) % 26) as u8);
    format!("{letter}{writer}-{at:04}")
}

async fn write(table: Table, writer: usize, acknowledged: Acknowledged) {
    let buffer = table.buffered(BufferConfig::default());
    let mut at = 0;
    while at < ROWS {
        if at.is_multiple_of(3) {
            let row = row(writer, at);
            table.mutate(put(&row, &row)).await.unwrap();
            acknowledged.lock().insert(row);
            at += 1;
            continue;
        }
        let rows: Vec<_> = (at..ROWS.min(at + 20)).map(|at| row(writer, at)).collect();
        at += rows.len();
        if writer.is_multiple_of(2) {
            let mut batch = MutationBatch::default();
            for row in &rows {
                batch.put(row.as_bytes(), b"f", b"q", 1, row.as_bytes()).unwrap();
            }
            buffer.write(batch).await.unwrap();
            acknowledged.lock().extend(rows);
            continue;
        }
        let actions: Vec<Action> = rows.iter().map(|row| put(row, row).into()).collect();
        for (row, outcome) in rows.into_iter().zip(table.batch(actions).await) {
            outcome.unwrap();
            acknowledged.lock().insert(row);
        }
        sleep(Duration::from_millis(1)).await;
    }
}

/// Scans repeatedly: each scan returns all rows acknowledged before it started, in order, once.
async fn read(table: Table, acknowledged: Acknowledged, done: Arc<AtomicBool>) -> usize {
    let mut scans = 0;
    while !done.load(Ordering::SeqCst) {
        let before = acknowledged.lock().clone();
        let scan = if scans % 2 == 0 { Scan::all() } else { Scan::all().reversed() };
        let rows: Vec<_> = table.scan(scan).try_collect().await.unwrap();
        let mut keys: Vec<_> = rows.iter().map(|row| value(&row.row).to_owned()).collect();
        if scans % 2 == 1 {
            keys.reverse();
        }
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "out of order or twice");
        let seen: BTreeSet<_> = keys.into_iter().collect();
        let missing: Vec<_> = before.difference(&seen).collect();
        assert!(missing.is_empty(), "{missing:?}");
        scans += 1;
    }
    scans
}

/// Deterministic pseudo-random numbers.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn letter(&mut self) -> String {
        char::from(b'a' + self.below(26) as u8).to_string()
    }
}

/// Faults of calls. After each fault the next call of its method succeeds. Otherwise a client that backs off
/// would make fewer calls than there are faults, and would never get past them.
struct CallFaults<'c> {
    cluster: &'c FakeCluster,
    /// By method: number of its calls at the last fault.
    last: HashMap<&'static str, usize>,
}

impl CallFaults<'_> {
    fn inject(&mut self, method: &'static str, kind: FaultKind) {
        let calls = self.cluster.calls(method);
        if self.last.get(method).is_none_or(|last| calls >= last + 2) {
            self.last.insert(method, calls);
            self.cluster.inject(InjectedFault::once(method, kind));
        }
    }
}

async fn inject_faults(cluster: &FakeCluster, table: &Table, done: &AtomicBool) {
    let mut rng = Rng(0x5eed);
    let mut calls = CallFaults { cluster, last: HashMap::new() };
    while !done.load(Ordering::SeqCst) {
        let row = rng.letter();
        let server = rng.below(2) as usize;
        match rng.below(9) {
            0 | 1 => cluster.move_region(table.name(), &row, server, rng.below(2) == 0),
            2 => cluster.split_at(table.name(), &row),
            3 => cluster.merge_at(table.name(), &row),
            4 => {
                // The regions open elsewhere before the server restarts.
                cluster.kill(1).await;
                cluster.evacuate(1, 0);
                sleep(Duration::from_millis(5)).await;
                cluster.restart(1).await;
            }
            5 => cluster.expire_scanners(),
            6 => calls.inject("Multi", FaultKind::CloseAfter(rng.below(30) as usize)),
            7 => calls.inject("Scan", FaultKind::CloseAfter(rng.below(90) as usize)),
            _ => {
                let (class, text) = [
                    ("RegionTooBusyException", "busy"),
                    ("CallQueueTooBigException", "full"),
                    ("regionserver.RegionServerStoppedException", "bye"),
                ][rng.below(3) as usize];
                let method = ["Mutate", "Multi", "Scan"][rng.below(3) as usize];
                calls.inject(method, FaultKind::Exception { class, text });
            }
        }
        sleep(Duration::from_millis(3)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_acknowledged_write_is_lost_and_no_scan_misses_or_repeats_a_row() {
    let (cluster, table) = start().await;
    cluster.limit_scan_responses(7, 0);
    let acknowledged = Acknowledged::default();
    let done = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(table.clone(), writer, Arc::clone(&acknowledged))))
        .collect();
    let reader = tokio::spawn(read(table.clone(), Arc::clone(&acknowledged), Arc::clone(&done)));
    let work = async {
        for writer in writers {
            writer.await.unwrap();
        }
        done.store(true, Ordering::SeqCst);
    };
    tokio::join!(work, inject_faults(&cluster, &table, &done));
    assert!(reader.await.unwrap() > 0);
    let acknowledged = acknowledged.lock().clone();
    assert_eq!(acknowledged.len(), WRITERS * ROWS);
    let gets = acknowledged.iter().map(|row| get(row)).collect();
    let rows = table.get_many(gets).await.unwrap();
    assert!(rows.iter().map(value).eq(acknowledged.iter()));
}
