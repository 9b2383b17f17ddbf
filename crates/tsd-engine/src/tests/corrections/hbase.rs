//! Histories on HBase: two daemons of Saltern and an OpenTSDB over one cluster.
//!
//! The daemons acknowledge a write when HBase has it, or when their logs have it. A log flushes at a step of the
//! history, and when its writes get too old. The OpenTSDB puts cells with the time of the server and compacts rows: it
//! puts the compacted column with the time of the server, and deletes the columns that it read, up to that time.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use hbase_fake::FakeCluster;
use hbase_rs::{Action, Client, ClientConfig, Mutation, SERVER_TIME};
use tempfile::TempDir;
use tsd_model::{Cell, MergeRule, ReplacedColumn, RowCompaction, TableSchema, plan_row_compaction};
use tsd_storage::{CellBatch, CellRef, ClockMs, Get, Storage, StorageExt};
use tsd_storage_hbase::{HBaseConfig, HBaseStorage};
use tsd_storage_wal::{BackendSharing, WalConfig, WalStorage};

use super::{
    Ending, Mode, TestStores, check_seeds,
    history::{HOUR, Point, Rng},
    log_segments,
    model::OPENTSDB,
    run::table,
};

/// The current time. Histories run one after the other.
static NOW_MS: AtomicI64 = AtomicI64::new(0);
/// Differences of the daemons' clocks.
static SKEWS: [AtomicI64; 2] = [AtomicI64::new(0), AtomicI64::new(0)];
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// How long a log holds writes.
const HOLD_MS: i64 = 2_000;
/// Longest duration of a compaction of OpenTSDB.
pub(super) const READ_BACK_DELAY: Duration = Duration::from_secs(2);

fn now_ms() -> i64 {
    NOW_MS.load(Ordering::Relaxed)
}

fn first_clock() -> i64 {
    now_ms() + SKEWS[0].load(Ordering::Relaxed)
}

fn second_clock() -> i64 {
    now_ms() + SKEWS[1].load(Ordering::Relaxed)
}

const CLOCKS: [ClockMs; 3] = [first_clock, second_clock, now_ms];

/// Where a daemon has a write when it acknowledges it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ack {
    Storage,
    Log,
}

struct TestDaemon {
    ack: Ack,
    directory: TempDir,
    config: HBaseConfig,
    client: Client,
    hbase: Arc<HBaseStorage>,
    log: Option<Arc<WalStorage<HBaseStorage>>>,
}

impl TestDaemon {
    async fn start(ack: Ack, client: &Client, config: HBaseConfig) -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let hbase = HBaseStorage::with_client(client.clone(), config.clone()).unwrap();
        let hbase = Arc::new(hbase);
        let mut daemon = Self { ack, directory, config, client: client.clone(), hbase, log: None };
        daemon.open_log().await;
        daemon
    }

    async fn open_log(&mut self) {
        if self.ack == Ack::Storage {
            return;
        }
        let config = WalConfig {
            backend: BackendSharing::MultiWriter,
            clock: self.config.clock,
            max_age: Duration::from_hours(1_000),
            ..WalConfig::new(self.directory.path().join("log"))
        };
        let log = WalStorage::open(config, Arc::clone(&self.hbase)).await.unwrap().0;
        self.log = Some(Arc::new(log));
    }

    fn store(&self) -> Arc<dyn Storage> {
        match &self.log {
            Some(log) => Arc::<WalStorage<HBaseStorage>>::clone(log),
            None => Arc::<HBaseStorage>::clone(&self.hbase),
        }
    }

    async fn restart(&mut self, how: Ending) {
        if let Some(log) = self.log.take() {
            match how {
                Ending::Clean => log.flush().await.unwrap(),
                Ending::Kill => {}
                Ending::KillAfterFlush => {
                    let segments = log_segments(&self.directory.path().join("log"));
                    log.flush().await.unwrap();
                    log.stop().await;
                    for (path, bytes) in segments {
                        fs::write(path, bytes).unwrap();
                    }
                }
            }
            log.stop().await;
        }
        let hbase = HBaseStorage::with_client(self.client.clone(), self.config.clone()).unwrap();
        self.hbase = Arc::new(hbase);
        self.open_log().await;
        // A daemon flushes the rows of the replayed log at once; here before the next step.
        self.store().flush().await.unwrap();
    }
}

/// Two daemons of ours and an OpenTSDB.
struct HBaseStores<'c> {
    cluster: &'c FakeCluster,
    daemons: Vec<TestDaemon>,
    max_skew_ms: i64,
    has_opentsdb: bool,
    /// True if rows are compacted without waiting for the logs of other daemons.
    is_compacted_at_once: bool,
    mode: Mode,
    /// Compactions of OpenTSDB, in the order of their reads.
    compactions: Vec<OpenTsdbCompaction>,
}

/// A compaction of OpenTSDB that has read its row.
struct OpenTsdbCompaction {
    row: Bytes,
    begun_ms: i64,
    /// Not sent yet.
    put: Option<Cell>,
    delete: Vec<ReplacedColumn>,
}

impl<'c> HBaseStores<'c> {
    async fn new(
        cluster: &'c FakeCluster,
        client: &Client,
        mode: Mode,
        acks: [Ack; 2],
        rng: &mut Rng,
    ) -> Self {
        static HISTORIES: AtomicUsize = AtomicUsize::new(0);
        let hour_ms = i64::from(HOUR) * 1_000;
        // Within the hour of all points, at its end, or long after it.
        NOW_MS.store(hour_ms + rng.pick(&[1_000_000, 3_590_000, 86_400_000]), Ordering::Relaxed);
        for skew in &SKEWS {
            skew.store(0, Ordering::Relaxed);
        }
        let has_cell_times = matches!(mode, Mode::Largest | Mode::Smallest);
        // The delete markers of its compactions hide all later cells with the times of their points.
        let has_opentsdb = rng.chance(50) && !has_cell_times;
        // If only daemons write, a row may be compacted at once, however late other daemons flush.
        let is_compacted_at_once = !has_opentsdb && !has_cell_times && rng.chance(50);
        let time_of = |time: Duration| if is_compacted_at_once { Duration::ZERO } else { time };
        let prefix = format!("h{}.", HISTORIES.fetch_add(1, Ordering::Relaxed));
        cluster.create_table(&format!("{prefix}{}", table()), &[]);
        let mut daemons = Vec::new();
        for (ack, clock) in acks.into_iter().chain([Ack::Storage]).zip(CLOCKS) {
            let config = HBaseConfig {
                table_prefix: prefix.clone(),
                compacted_table: (!has_cell_times)
                    .then(|| (table(), TableSchema::opentsdb_default())),
                max_hold: time_of(Duration::from_millis(2 * HOLD_MS as u64)),
                read_back_delay: time_of(if has_cell_times {
                    Duration::ZERO
                } else {
                    READ_BACK_DELAY
                }),
                clock,
                ..HBaseConfig::new("unused")
            };
            daemons.push(TestDaemon::start(ack, client, config).await);
        }
        // Delete markers of an OpenTSDB hide cells that a slow clock stamps after them. A column that is compacted at
        // once supersedes such cells.
        let is_exact = has_opentsdb || is_compacted_at_once;
        let max_skew_ms = if is_exact { 0 } else { rng.pick(&[0, 0, 20, 500]) };
        Self {
            cluster,
            daemons,
            max_skew_ms,
            has_opentsdb,
            is_compacted_at_once,
            mode,
            compactions: Vec::new(),
        }
    }
}

impl HBaseStores<'_> {
    /// The compaction of a row that OpenTSDB reads; `None` if it does not compact it.
    async fn read_as_opentsdb(&self, row: &Bytes) -> Option<RowCompaction> {
        // With appends, OpenTSDB does not compact.
        if now_ms() <= (i64::from(HOUR) + 3_600) * 1_000 || self.mode == Mode::Appends {
            return None;
        }
        let read = self.daemons[OPENTSDB].hbase.get(&table(), Get::row(row.clone())).await.unwrap();
        let cells = read.map_or_else(Vec::new, |row| row.cells);
        Some(plan_row_compaction(row, &cells, MergeRule::Newest).unwrap())
    }
}

impl TestStores for HBaseStores<'_> {
    fn daemons(&self) -> usize {
        let has_cell_times = matches!(self.mode, Mode::Largest | Mode::Smallest);
        match &self.daemons[0] {
            // A flush puts a cell with the time of its point over those of other daemons.
            daemon if daemon.ack == Ack::Log && has_cell_times => 1,
            _ if self.has_opentsdb => 3,
            _ => 2,
        }
    }

    fn store(&self, daemon: usize) -> Arc<dyn Storage> {
        self.daemons[daemon].store()
    }

    async fn restart(&mut self, daemon: usize, how: Ending) {
        self.daemons[daemon].restart(how).await;
        // Longer than the lead of its clock.
        self.move_clock(100);
    }

    fn move_clock(&mut self, by_ms: i64) {
        // Time never goes back; clocks may, by their skew.
        NOW_MS.fetch_add(by_ms.max(0), Ordering::Relaxed);
    }

    fn now_ms(&self) -> i64 {
        now_ms()
    }

    fn max_skew_ms(&self) -> i64 {
        self.max_skew_ms
    }

    fn set_skew(&mut self, daemon: usize, ms: i64) {
        if let Some(skew) = SKEWS.get(daemon) {
            skew.store(ms, Ordering::Relaxed);
        }
    }

    fn max_hold_ms(&self, daemon: usize) -> Option<i64> {
        (self.daemons[daemon].ack == Ack::Log).then_some(HOLD_MS)
    }

    fn is_opentsdb(&self, daemon: usize) -> bool {
        daemon == OPENTSDB
    }

    fn can_delete(&self) -> bool {
        // A delete that a log holds does not hide a column that another daemon compacts meanwhile.
        !matches!(self.mode, Mode::Largest | Mode::Smallest) && !self.is_compacted_at_once
    }

    fn tick(&self) -> fn() {
        || {
            NOW_MS.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn compact_as_opentsdb(
        &self,
        row: Bytes,
        before_put: impl Future<Output = ()>,
        before_delete: impl Future<Output = ()>,
    ) -> bool {
        let (daemon, table) = (&self.daemons[OPENTSDB], table());
        let Some(plan) = self.read_as_opentsdb(&row).await else { return false };
        // Its buffers are sent later.
        let pause = || NOW_MS.fetch_add(10, Ordering::Relaxed);
        pause();
        before_put.await;
        pause();
        if let Some(column) = &plan.put {
            let cell = CellRef {
                family: column.family,
                qualifier: &column.qualifier,
                value: &column.value,
                timestamp_ms: Some(SERVER_TIME.cast_signed()),
            };
            let batch = CellBatch::single(&row, cell).unwrap();
            daemon.hbase.put(&table, batch).await.unwrap();
        }
        pause();
        before_delete.await;
        pause();
        if !plan.delete.is_empty() {
            let mut delete = hbase_rs::Delete::try_new(row).unwrap();
            for old in &plan.delete {
                let family = old.family.as_str().as_bytes();
                delete = delete.column(family, &old.qualifier, SERVER_TIME).unwrap();
            }
            let name = format!("{}{table}", daemon.config.table_prefix);
            daemon.client.table(name.parse().unwrap()).mutate(delete).await.unwrap();
        }
        // Nothing else may happen in the same millisecond, because the delete marker would hide it.
        NOW_MS.fetch_add(1, Ordering::Relaxed);
        !plan.is_nothing()
    }

    async fn begin_compaction(&mut self, row: Bytes) {
        let Some(plan) = self.read_as_opentsdb(&row).await else { return };
        if !plan.is_nothing() {
            let (begun_ms, put, delete) = (now_ms(), plan.put, plan.delete);
            self.compactions.push(OpenTsdbCompaction { row, begun_ms, put, delete });
        }
        self.move_clock(1);
    }

    async fn send_compactions(&mut self) -> bool {
        let mut actions: Vec<Action> = Vec::new();
        let mut unsent = Vec::new();
        for mut compaction in std::mem::take(&mut self.compactions) {
            let row = compaction.row.clone();
            if let Some(Cell { family, qualifier, value, .. }) = compaction.put.take() {
                let put = hbase_rs::Put::try_new(row).unwrap();
                let put = put.cell(family.as_str().as_bytes(), &qualifier, SERVER_TIME, &value);
                actions.push(Mutation::from(put.unwrap()).into());
                unsent.push(compaction);
            } else if !compaction.delete.is_empty() {
                let mut delete = hbase_rs::Delete::try_new(row).unwrap();
                for old in &compaction.delete {
                    let family = old.family.as_str().as_bytes();
                    delete = delete.column(family, &old.qualifier, SERVER_TIME).unwrap();
                }
                actions.push(Mutation::from(delete).into());
            }
        }
        self.compactions = unsent;
        let is_rewritten = !actions.is_empty();
        let daemon = &self.daemons[OPENTSDB];
        let name = format!("{}{}", daemon.config.table_prefix, table());
        for result in daemon.client.table(name.parse().unwrap()).batch(actions).await {
            result.unwrap();
        }
        // Nothing else may happen in the same millisecond, because the delete markers would hide it.
        self.move_clock(1);
        is_rewritten
    }

    fn flush_regions(&self, compacts: bool) {
        self.cluster.flush_memstores(compacts);
    }

    fn open_compactions(&self) -> [usize; 2] {
        [0, 1].map(|series| {
            let row = Point::row(series);
            self.compactions.iter().filter(|compaction| compaction.row == row).count()
        })
    }

    fn compacting_since(&self) -> Option<i64> {
        self.compactions.iter().map(|compaction| compaction.begun_ms).min()
    }

    async fn do_due(&self) {
        for daemon in &self.daemons {
            daemon.hbase.read_back().await.unwrap();
        }
    }

    async fn settle(&mut self) {
        // Points that are put again are read back again.
        for _ in 0..3 {
            self.move_clock(READ_BACK_DELAY.as_millis() as i64 + 1);
            self.do_due().await;
        }
    }

    async fn end(self) {
        for daemon in &self.daemons {
            if let Some(log) = &daemon.log {
                log.stop().await;
            }
        }
    }
}

async fn check(mode: Mode, acks: [Ack; 2], default_seeds: u64) {
    let _one = ONE_AT_A_TIME.lock().await;
    let cluster = FakeCluster::start(1).await;
    cluster.set_clock(now_ms);
    let client = Client::new(ClientConfig::new("test"), cluster.discovery());
    check_seeds(mode, default_seeds, async |rng| {
        HBaseStores::new(&cluster, &client, mode, acks, rng).await
    })
    .await;
}

#[tokio::test]
async fn an_acknowledged_correction_is_read_with_two_daemons_that_write_to_hbase() {
    check(Mode::Newest, [Ack::Storage, Ack::Storage], 8).await;
}

#[tokio::test]
async fn an_acknowledged_correction_is_read_with_one_daemon_that_holds_its_writes() {
    check(Mode::Newest, [Ack::Log, Ack::Storage], 8).await;
}

#[tokio::test]
async fn an_acknowledged_correction_is_read_with_two_daemons_that_hold_their_writes() {
    check(Mode::Newest, [Ack::Log, Ack::Log], 8).await;
}

#[tokio::test]
async fn an_acknowledged_correction_is_read_with_daemons_that_append_to_hbase() {
    check(Mode::Appends, [Ack::Storage, Ack::Storage], 8).await;
}

#[tokio::test]
async fn no_smaller_value_hides_a_correction_with_the_time_of_its_point_in_hbase() {
    check(Mode::Largest, [Ack::Storage, Ack::Storage], 4).await;
    check(Mode::Smallest, [Ack::Storage, Ack::Storage], 4).await;
}

#[tokio::test]
async fn no_smaller_value_hides_a_correction_with_the_time_of_its_point_that_a_daemon_holds() {
    check(Mode::Largest, [Ack::Log, Ack::Storage], 2).await;
    check(Mode::Smallest, [Ack::Log, Ack::Storage], 2).await;
}
