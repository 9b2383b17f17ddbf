//! Measures a write-ahead log in a table of HBase alone, to find the cost of acknowledging by it. Decision 015
//! has the figures and the conclusions.
//!
//! A segment is a row, and a record one cell of it, which holds a group commit. A record is put under the
//! condition that the segment still has the token of its writer, so a segment whose token was overwritten (a
//! fence) takes no more records. A stream has one append in flight. Segments whose points are stored elsewhere
//! are removed whole, after the watermark of their stream has advanced. Left out: hedged appends, HDFS (files
//! are local), and the encoding of records, whose size is assumed.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;
use cluster::Node;
use hbase_rs::{
    Client, Delete, Put, Scan, Table, TableName,
    admin::{FamilyDescriptor, TableDescriptor},
    condition::Condition,
};
use tokio::task::JoinSet;
use tsd_testkit::{SplitMix64, process};

use crate::{
    bench_cluster::{BenchCluster, SERVERS},
    report::{self, percentile, thousands},
    table::recreate,
};

const NAME: &str = "bench-log";
/// Records.
const RECORDS: &[u8] = b"l";
/// Tokens, fences and watermarks.
const STATE: &[u8] = b"s";
const OPEN: &[u8] = b"open";
/// Regions a region server.
const REGIONS: usize = 2;
const SEGMENT_BYTES: usize = 16 << 20;
const RECORD_BYTES: usize = 96 << 10;
/// Bytes of a point in a record: the log on disk has 5 to 18.
const POINT_BYTES: usize = 12;
/// Checksum, sequence and length.
const HEADER_BYTES: usize = 16;
/// Streams of a node at full load.
const STREAMS: usize = 4;
/// Time until the Java code is compiled, and a run at light load.
const WARM_UP: Duration = Duration::from_secs(20);
const LIGHT_RUN: Duration = Duration::from_secs(40);
/// Time of measuring at full load, once the log has its size.
const FULL_RUN: Duration = Duration::from_secs(40);

/// Arrival of records.
#[derive(Clone, Copy)]
enum Arrival {
    /// As fast as they are acknowledged, each of the largest size.
    Full,
    /// This many points a second, gathered for this long.
    Light { points_per_second: u32, linger: Duration },
}

/// One writer of a segment after the other.
struct Stream {
    table: Table,
    number: usize,
    token: [u8; 8],
    segment: u32,
    segment_bytes: usize,
    /// Sequence of the next record.
    next: u64,
    /// Segments with their number of records and their bytes, oldest first; the last one is open.
    segments: VecDeque<(u32, u64, usize)>,
    /// Records below it are not needed.
    watermark: u64,
}

/// Acknowledged appends of a stream.
#[derive(Default)]
struct Appended {
    points: u64,
    times_ms: Vec<f64>,
}

/// All figures of a run.
struct Figures {
    points: u64,
    seconds: f64,
    times_ms: Vec<f64>,
    hbase_cpu: f64,
    own_cpu: f64,
    hbase_bytes: u64,
}

/// Counters of the region servers and of this process.
struct Counters {
    at: Instant,
    hbase_cpu: f64,
    own_cpu: f64,
    hbase_bytes: u64,
}

/// All loads; prints the table.
pub(crate) fn run(cluster: &BenchCluster) {
    create(cluster);
    let warm = cluster.block_on(streams(&cluster.client, STREAMS));
    let (warm, _) = cluster.block_on(append_for(warm, Arrival::Full, usize::MAX, WARM_UP));
    drop(warm);
    report::print_head(&[
        "load",
        "log kept, MB",
        "points/s",
        "appends/s",
        "p50, ms",
        "p99, ms",
        "HBase cpu-s per M",
        "HBase cpu-s per s",
        "bench cpu-s per M",
        "bytes written by HBase, a point",
    ]);
    // Bytes of a minute of 600 000 points/s, and 1 GB, the limit of a node's log.
    for kept in [60 * 600_000 * POINT_BYTES, 1 << 30] {
        full(cluster, kept);
    }
    for linger_ms in [2, 5] {
        light(cluster, Duration::from_millis(linger_ms));
    }
}

fn full(cluster: &BenchCluster, kept: usize) {
    create(cluster);
    let mut all = cluster.block_on(streams(&cluster.client, STREAMS));
    // Runs until segments are removed as fast as they are written.
    while all.iter().all(|stream| stream.watermark == 0) {
        let more = append_for(all, Arrival::Full, kept / STREAMS, Duration::from_secs(5));
        all = cluster.block_on(more).0;
    }
    let before = Counters::now(cluster);
    let (all, appended) =
        cluster.block_on(append_for(all, Arrival::Full, kept / STREAMS, FULL_RUN));
    before.until_now(cluster, appended).print("full, 1 node, 4 streams", kept);
    cluster.block_on(verify(&cluster.client, all));
}

fn light(cluster: &BenchCluster, linger: Duration) {
    const NODES: usize = 10;
    create(cluster);
    let all = cluster.block_on(streams(&cluster.client, NODES));
    let arrival = Arrival::Light { points_per_second: 1_000, linger };
    let before = Counters::now(cluster);
    let (all, appended) = cluster.block_on(append_for(all, arrival, usize::MAX, LIGHT_RUN));
    let name = format!("10 nodes × 1 000 points/s, gathered for {} ms", linger.as_millis());
    before.until_now(cluster, appended).print(&name, 0);
    cluster.block_on(verify(&cluster.client, all));
}

fn name() -> TableName {
    NAME.parse().expect("a name")
}

/// Recreates the table, with regions on each server.
fn create(cluster: &BenchCluster) {
    let descriptor = TableDescriptor::new(name())
        .attribute("SPLIT_ENABLED", "false")
        .attribute("MERGE_ENABLED", "false")
        .family(FamilyDescriptor::new(RECORDS).versions(1))
        .family(FamilyDescriptor::new(STATE).versions(1));
    let splits = (1..SERVERS * REGIONS).map(|region| Bytes::from(vec![region as u8]));
    cluster.block_on(async {
        recreate(&cluster.client, &descriptor, splits).await;
        cluster.client.table(name()).regions().await.expect("regions");
    });
}

async fn streams(client: &Client, count: usize) -> Vec<Stream> {
    let mut all = Vec::new();
    for number in 0..count {
        let mut stream = Stream {
            table: client.table(name()),
            number,
            token: (number as u64 + 1).to_be_bytes(),
            segment: 0,
            segment_bytes: 0,
            next: 1,
            segments: VecDeque::new(),
            watermark: 0,
        };
        stream.open_segment().await;
        all.push(stream);
    }
    all
}

/// Appends for a time; `kept` is the limit of each stream's bytes.
async fn append_for(
    streams: Vec<Stream>,
    arrival: Arrival,
    kept: usize,
    time: Duration,
) -> (Vec<Stream>, Appended) {
    let mut tasks = JoinSet::new();
    for mut stream in streams {
        tasks.spawn(async move {
            let appended = stream.append_until(arrival, kept, Instant::now() + time).await;
            (stream, appended)
        });
    }
    let mut all = (Vec::new(), Appended::default());
    while let Some(done) = tasks.join_next().await {
        let (stream, appended) = done.expect("no panic");
        all.0.push(stream);
        all.1.points += appended.points;
        all.1.times_ms.extend(appended.times_ms);
    }
    all.0.sort_by_key(|stream| stream.number);
    all
}

impl Stream {
    /// Regions take turns.
    fn row(&self, segment: u32) -> Bytes {
        let region = (self.number + segment as usize) % (SERVERS * REGIONS);
        let mut row = vec![region as u8, self.number as u8];
        row.extend(segment.to_be_bytes());
        row.into()
    }

    async fn open_segment(&mut self) {
        self.segment += 1;
        let row = self.row(self.segment);
        let put = Put::try_new(row).and_then(|put| put.cell(STATE, OPEN, 1, &self.token));
        let is_new = Condition::absent(STATE, OPEN);
        let opened = self.table.check_and_mutate(&is_new, put.expect("a put")).await;
        assert!(opened.expect("a segment"), "the segment is new");
        self.segments.push_back((self.segment, 0, 0));
        self.segment_bytes = 0;
    }

    /// Appends a record; false if the segment is fenced.
    async fn append(&self, record: &[u8]) -> bool {
        let put = Put::try_new(self.row(self.segment))
            .and_then(|put| put.cell(RECORDS, &self.next.to_be_bytes(), self.next, record));
        let is_open = Condition::equals(STATE, OPEN, self.token.to_vec());
        let done = self.table.check_and_mutate(&is_open, put.expect("a put")).await;
        done.expect("an append")
    }

    async fn append_until(&mut self, arrival: Arrival, kept: usize, end: Instant) -> Appended {
        let mut appended = Appended::default();
        let mut payload = noise(self.number as u64);
        let mut gathered_from = Instant::now();
        while Instant::now() < end {
            let length = match arrival {
                Arrival::Full => RECORD_BYTES,
                Arrival::Light { points_per_second, linger } => {
                    tokio::time::sleep(linger).await;
                    let points =
                        gathered_from.elapsed().as_secs_f64() * f64::from(points_per_second);
                    gathered_from = Instant::now();
                    (points as usize * POINT_BYTES + HEADER_BYTES).min(RECORD_BYTES)
                }
            };
            let points = (length - HEADER_BYTES) / POINT_BYTES;
            if points == 0 {
                continue;
            }
            if self.segment_bytes + length > SEGMENT_BYTES {
                self.open_segment().await;
                self.trim(kept).await;
            }
            let record = seal(&mut payload[..length], self.next);
            let start = Instant::now();
            assert!(self.append(record).await, "nobody fenced it");
            appended.times_ms.push(start.elapsed().as_secs_f64() * 1e3);
            appended.points += points as u64;
            self.next += 1;
            self.segment_bytes += length;
            let open = self.segments.back_mut().expect("an open segment");
            open.1 += 1;
            open.2 += length;
        }
        appended
    }

    /// Removes the oldest segments: first the watermark, then their rows.
    async fn trim(&mut self, kept: usize) {
        let bytes = |stream: &Self| stream.segments.iter().map(|it| it.2).sum::<usize>();
        while bytes(self) > kept && self.segments.len() > 1 {
            let (segment, records, _) = self.segments.pop_front().expect("a segment");
            self.watermark += records;
            let manifest = [&[0, u8::MAX], &self.number.to_be_bytes()[..]].concat();
            let put = Put::try_new(manifest).and_then(|put| {
                put.cell(STATE, b"watermark", self.watermark, &self.watermark.to_be_bytes())
            });
            self.table.mutate(put.expect("a put")).await.expect("a watermark");
            let delete = Delete::try_new(self.row(segment)).expect("a delete");
            self.table.mutate(delete).await.expect("a removed segment");
        }
    }
}

/// Bytes that do not compress.
fn noise(seed: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    (0..RECORD_BYTES).map(|_| random.below(256) as u8).collect()
}

/// Writes sequence and checksum into a record.
fn seal(record: &mut [u8], sequence: u64) -> &[u8] {
    record[4..12].copy_from_slice(&sequence.to_be_bytes());
    let checksum = crc32c::crc32c(&record[4..]);
    record[..4].copy_from_slice(&checksum.to_be_bytes());
    record
}

/// Reads the log. Each stream must have each record above its watermark, and reject records after its fence.
async fn verify(client: &Client, streams: Vec<Stream>) {
    let table = client.table(name());
    for mut stream in streams {
        let mut expected = stream.watermark + 1;
        for &(segment, records, _) in &stream.segments {
            let row = stream.row(segment);
            let mut rows = table.scan(Scan::prefix(row));
            let mut found = 0;
            while let Some(row) = rows.next().await {
                for cell in row.expect("a row").row.cells().filter(|cell| cell.family == RECORDS) {
                    assert_eq!(cell.qualifier, expected.to_be_bytes());
                    let checksum = cell.value.first_chunk().map(|four| u32::from_be_bytes(*four));
                    assert_eq!(checksum, Some(crc32c::crc32c(&cell.value[4..])));
                    expected += 1;
                    found += 1;
                }
            }
            assert_eq!(found, records, "records of a segment");
        }
        assert_eq!(expected, stream.next, "each acknowledged record");
        let fence = Put::try_new(stream.row(stream.segment));
        let fence = fence.and_then(|put| put.cell(STATE, OPEN, 2, b"fence")).expect("a put");
        table.mutate(fence).await.expect("a fence");
        assert!(!stream.append(b"late").await, "a fenced segment takes nothing");
        stream.open_segment().await;
        assert!(stream.append(b"next").await);
    }
}

impl Counters {
    fn now(cluster: &BenchCluster) -> Self {
        let pid = |index| cluster.processes().pid(Node::RegionServer(index)).expect("it runs");
        Self {
            at: Instant::now(),
            hbase_cpu: cluster.region_server_cpu(),
            own_cpu: process::own_cpu_seconds(),
            hbase_bytes: (0..SERVERS).map(|index| process::written_bytes(pid(index))).sum(),
        }
    }

    fn until_now(&self, cluster: &BenchCluster, appended: Appended) -> Figures {
        let now = Self::now(cluster);
        Figures {
            points: appended.points,
            seconds: (now.at - self.at).as_secs_f64(),
            times_ms: appended.times_ms,
            hbase_cpu: now.hbase_cpu - self.hbase_cpu,
            own_cpu: now.own_cpu - self.own_cpu,
            hbase_bytes: now.hbase_bytes - self.hbase_bytes,
        }
    }
}

impl Figures {
    fn print(mut self, load: &str, kept: usize) {
        let millions = self.points as f64 / 1e6;
        report::print_row(&[
            load.to_owned(),
            format!("{:.0}", kept as f64 / 1e6),
            thousands(self.points as f64 / self.seconds),
            thousands(self.times_ms.len() as f64 / self.seconds),
            format!("{:.1}", percentile(&mut self.times_ms, 0.5)),
            format!("{:.1}", percentile(&mut self.times_ms, 0.99)),
            format!("{:.2}", self.hbase_cpu / millions),
            format!("{:.2}", self.hbase_cpu / self.seconds),
            format!("{:.2}", self.own_cpu / millions),
            format!("{:.1}", self.hbase_bytes as f64 / self.points as f64),
        ]);
    }
}
