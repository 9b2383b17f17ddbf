//! Executes a history.

use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    future::Future,
    sync::Arc,
};

use futures_util::future::join;
use tsd_model::{
    BaseTime, Family, MergeRule, PointColumns, Row, RowError, RowExtras, TableSchema, Value,
    decode_row,
};
use tsd_storage::{
    BoxFuture, CellBatch, CellRef, Delete, Get, HookedStorage, Operation, OperationHook, Scan,
    Storage, StorageError, StorageExt, Table,
};

use super::{
    Ending, Mode, TestStores,
    history::{Gap, HOUR, History, HistoryStep, Point, ShortStep},
    model::Model,
};
use crate::compaction::testing::{CompactionOutcome, RowRules, compact};

/// The table of all points.
pub(crate) fn table() -> Table {
    Table::new("tsdb")
}

/// Longest time until OpenTSDB has sent all buffers of a compaction.
const MAX_COMPACTION_MS: i64 = 700;

type SharedModel = Arc<Mutex<Model>>;

pub(crate) struct Run<S> {
    stores: S,
    mode: Mode,
    model: SharedModel,
    context: String,
}

impl<S: TestStores> Run<S> {
    pub(crate) fn new(stores: S, mode: Mode, context: String) -> Self {
        let has_opentsdb = (0..stores.daemons()).any(|daemon| stores.is_opentsdb(daemon));
        let model = Arc::new(Mutex::new(Model::new(stores.max_skew_ms(), has_opentsdb)));
        Self { stores, mode, model, context }
    }

    /// Executes a history, and compares after each step. Returns the number of rewrites.
    pub(crate) async fn all(mut self, history: History) -> usize {
        let mut rewritten = 0;
        for (at, step) in history.0.iter().enumerate() {
            rewritten += usize::from(self.step(step.clone()).await);
            if let Err(what) = self.compare().await {
                let context = &self.context;
                let done = history.0.get(..=at).unwrap();
                panic!("{context}, step {at}: {what}\nafter {done:#?}");
            }
        }
        self.stores.end().await;
        rewritten
    }

    async fn step(&mut self, step: HistoryStep) -> bool {
        match step {
            HistoryStep::Short(daemon, step) => {
                self.writer(daemon).step(step).await;
                false
            }
            HistoryStep::Compact(daemon, series, inside) => {
                self.compact(daemon, series, inside).await
            }
            HistoryStep::BeginCompaction(series) => {
                self.stores.begin_compaction(Point::row(series)).await;
                self.count_compactions();
                false
            }
            HistoryStep::SendCompactions => self.send_compactions().await,
            HistoryStep::FlushRegions(compacts) => {
                self.stores.flush_regions(compacts);
                self.model.lock().forget_deleted(self.stores.now_ms());
                false
            }
            HistoryStep::Restart(daemon, how) => {
                if how == Ending::Clean {
                    self.writer(daemon).step(ShortStep::Flush).await;
                }
                self.model.lock().end(daemon);
                self.stores.restart(daemon, how).await;
                let now_ms = self.stores.now_ms();
                self.model.lock().apply(daemon, now_ms, false, &ShortStep::Flush);
                false
            }
            HistoryStep::MoveClock(by_ms) => {
                let now_ms = self.stores.now_ms();
                while self
                    .stores
                    .compacting_since()
                    .is_some_and(|begun_ms| begun_ms + MAX_COMPACTION_MS < now_ms + by_ms)
                {
                    self.send_compactions().await;
                }
                for daemon in 0..self.stores.daemons() {
                    let held_since = self.model.lock().held_since(daemon);
                    let flush_at =
                        held_since.zip(self.stores.max_hold_ms(daemon)).map(|(at, hold)| at + hold);
                    if flush_at.is_some_and(|flush_at| flush_at < now_ms + by_ms) {
                        self.writer(daemon).step(ShortStep::Flush).await;
                    }
                }
                self.stores.move_clock(by_ms);
                self.stores.do_due().await;
                false
            }
            HistoryStep::Skew(daemon, by_ms) => {
                self.stores.set_skew(daemon, by_ms);
                false
            }
            HistoryStep::Settle => {
                for daemon in 0..self.stores.daemons() {
                    self.writer(daemon).step(ShortStep::Flush).await;
                }
                while self.stores.open_compactions() != [0, 0] {
                    self.send_compactions().await;
                }
                self.stores.settle().await;
                self.model.lock().settle();
                false
            }
        }
    }

    async fn send_compactions(&mut self) -> bool {
        let rewritten = self.stores.send_compactions().await;
        self.count_compactions();
        rewritten
    }

    /// Tells the model which compactions of OpenTSDB are open.
    fn count_compactions(&self) {
        let (open, now_ms) = (self.stores.open_compactions(), self.stores.now_ms());
        self.model.lock().set_compactions(open, now_ms);
    }

    fn writer(&self, daemon: usize) -> Writer {
        Writer {
            daemon,
            store: self.stores.store(daemon),
            mode: self.mode,
            model: Arc::clone(&self.model),
            now_ms: self.stores.now_ms(),
            is_holding: self.stores.max_hold_ms(daemon).is_some(),
            is_opentsdb: self.stores.is_opentsdb(daemon),
            can_delete: self.stores.can_delete() && !self.stores.is_opentsdb(daemon),
            tick: self.stores.tick(),
        }
    }

    /// Compacts a row. Returns true if it was rewritten.
    async fn compact(
        &self,
        daemon: usize,
        series: u8,
        inside: Vec<(Gap, usize, ShortStep)>,
    ) -> bool {
        if self.stores.is_opentsdb(daemon) {
            return self.compact_as_opentsdb(series, inside).await;
        }
        if !self.stores.can_delete() {
            return false;
        }
        let mut steps: HashMap<Gap, Vec<(Writer, ShortStep)>> = HashMap::new();
        for (gap, daemon, step) in inside {
            steps.entry(gap).or_default().push((self.writer(daemon), step));
        }
        let action = |(gap, steps): (Gap, Vec<(Writer, ShortStep)>)| {
            let action: BoxFuture<'static, ()> = Box::pin(async move {
                for (writer, step) in steps {
                    writer.step(step).await;
                }
            });
            (gap, action)
        };
        let gaps = Gaps { actions: Mutex::new(steps.into_iter().map(action).collect()) };
        let storage = HookedStorage::with_hook(gaps, self.stores.store(daemon));
        let rules = RowRules {
            schema: TableSchema::opentsdb_default(),
            merge: self.rule(),
            repair_appends: self.mode == Mode::Appends,
        };
        let now_secs = match self.stores.now_ms() {
            0 => i64::from(HOUR) + 7_200,
            now_ms => now_ms / 1_000,
        };
        match compact(&storage, &table(), &Point::row(series), &rules, now_secs).await {
            CompactionOutcome::Done { put, deleted, .. } => put || deleted > 0,
            CompactionOutcome::RetryLater => false,
            CompactionOutcome::Invalid(RowError::Duplicate { .. }) if self.mode == Mode::Refuse => {
                false
            }
            other => panic!("{}: {other:?}", self.context),
        }
    }

    async fn compact_as_opentsdb(&self, series: u8, inside: Vec<(Gap, usize, ShortStep)>) -> bool {
        let is_before_put = |(gap, ..): &(Gap, usize, ShortStep)| *gap != Gap::WhileWriting;
        let (before_put, before_delete): (Vec<_>, Vec<_>) =
            inside.into_iter().partition(is_before_put);
        let write = async |steps: Vec<(Gap, usize, ShortStep)>| {
            let (mut open, now_ms) = (self.stores.open_compactions(), self.stores.now_ms());
            open[usize::from(series)] += 1;
            self.model.lock().set_compactions(open, now_ms);
            for (_, daemon, step) in steps {
                self.writer(daemon).step(step).await;
            }
        };
        let (before_put, before_delete) = (write(before_put), write(before_delete));
        let row = Point::row(series);
        let rewritten = self.stores.compact_as_opentsdb(row, before_put, before_delete).await;
        self.count_compactions();
        rewritten
    }

    const fn rule(&self) -> MergeRule {
        match self.mode {
            Mode::Newest | Mode::Appends => MergeRule::Newest,
            Mode::Refuse => MergeRule::Unanimous,
            Mode::Largest => MergeRule::Largest,
            Mode::Smallest => MergeRule::Smallest,
        }
    }

    /// Compares the values that each daemon reads, by key and by scan, with the model.
    async fn compare(&self) -> Result<(), String> {
        for daemon in 0..self.stores.daemons() {
            let store = self.stores.store(daemon);
            let mut scanned = HashMap::new();
            let mut scan = store.scan(&table(), Scan::default());
            while let Some(rows) = scan.next_rows().await.unwrap() {
                scanned.extend(rows.into_iter().map(|row| (row.key.clone(), row)));
            }
            for series in 0..2 {
                let key = Point::row(series);
                let by_key = store.get(&table(), Get::row(key.clone())).await.unwrap();
                for (how, row) in [("by key", by_key), ("by scan", scanned.remove(&key))] {
                    let compared = self.compare_row(daemon, series, row.as_ref());
                    compared.map_err(|what| format!("daemon {daemon}, {how}: {what}: {row:?}"))?;
                }
            }
        }
        Ok(())
    }

    fn compare_row(&self, reader: usize, series: u8, row: Option<&Row>) -> Result<(), String> {
        let model = self.model.lock();
        let read = |rule| match row {
            Some(row) => points(row, rule),
            None => Ok(BTreeMap::new()),
        };
        match read(self.rule()) {
            Ok(read) => model.compare(reader, series, self.mode, &read)?,
            Err(RowError::Duplicate { .. })
                if self.mode == Mode::Refuse && model.has_corrections(series) => {}
            Err(error) => return Err(format!("series {series}: {error}")),
        }
        if self.mode == Mode::Refuse {
            // A refused read loses nothing.
            let newest = read(MergeRule::Newest).map_err(|error| error.to_string())?;
            model.compare(reader, series, self.mode, &newest)?;
        }
        Ok(())
    }
}

fn points(row: &Row, rule: MergeRule) -> Result<BTreeMap<u32, Value>, RowError> {
    let (mut columns, mut extras) = (PointColumns::default(), RowExtras::default());
    let base = BaseTime::containing(HOUR);
    decode_row(row, base, rule, &mut columns, &mut extras)?;
    let times = columns.times_ms.iter().enumerate();
    Ok(times
        .map(|(at, time_ms)| {
            let offset = u32::try_from(time_ms - base.as_millis()).unwrap();
            (offset, columns.value(at).unwrap())
        })
        .collect())
}

/// A daemon that writes.
struct Writer {
    daemon: usize,
    store: Arc<dyn Storage>,
    mode: Mode,
    model: SharedModel,
    now_ms: i64,
    is_holding: bool,
    is_opentsdb: bool,
    can_delete: bool,
    tick: fn(),
}

impl Writer {
    /// Executes a step, and tells the model when it is acknowledged.
    async fn step(&self, step: ShortStep) {
        let (table, mode, store) = (table(), self.mode, &self.store);
        let step = match step {
            // If one call had two points, readers would decide by value or type.
            ShortStep::Put(mut points) if self.is_opentsdb => {
                points.truncate(1);
                ShortStep::Put(points)
            }
            ShortStep::Delete(_) if !self.can_delete => ShortStep::Flush,
            step => step,
        };
        let result: Result<(), StorageError> = match &step {
            ShortStep::Put(points) if mode == Mode::Appends => {
                store.append(&table, batch(points, mode, self.is_opentsdb)).await
            }
            ShortStep::Put(points) => {
                store.put(&table, batch(points, mode, self.is_opentsdb)).await
            }
            ShortStep::Delete(series) => {
                store.delete(&table, Delete::Row(Point::row(*series))).await
            }
            ShortStep::Flush => store.flush().await,
        };
        result.unwrap();
        // The delete marker would hide cells that the server stamps in the same millisecond.
        if self.is_opentsdb || matches!(step, ShortStep::Delete(_)) {
            (self.tick)();
        }
        let mut model = self.model.lock();
        model.apply(self.daemon, self.now_ms, self.is_holding, &step);
    }
}

fn batch(points: &[Point], mode: Mode, is_opentsdb: bool) -> CellBatch {
    let mut batch = CellBatch::new();
    for point in points {
        batch.begin_row(&Point::row(point.series)).unwrap();
        let (qualifier, value) = point.cell(mode);
        let time_ms = i64::from(HOUR) * 1_000 + i64::from(point.offset_ms);
        let timestamp_ms = match mode {
            Mode::Largest | Mode::Smallest => Some(time_ms),
            // The server's time.
            _ => is_opentsdb.then_some(i64::MAX),
        };
        let cell =
            CellRef { family: Family::T, qualifier: &qualifier, value: &value, timestamp_ms };
        batch.push(cell).unwrap();
    }
    batch
}

/// Runs each step once where a row compaction waits.
struct Gaps {
    actions: Mutex<HashMap<Gap, BoxFuture<'static, ()>>>,
}

impl fmt::Debug for Gaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gaps").finish_non_exhaustive()
    }
}

impl Gaps {
    async fn run(&self, gap: Gap) {
        let action = self.actions.lock().remove(&gap);
        if let Some(action) = action {
            action.await;
        }
    }
}

impl OperationHook for Gaps {
    async fn around<T: Send>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, StorageError>> + Send,
    ) -> Result<T, StorageError> {
        match operation {
            Operation::Get => {
                self.run(Gap::BeforeRead).await;
                let (read, ()) = join(call, self.run(Gap::WhileReading)).await;
                self.run(Gap::AfterRead).await;
                read
            }
            Operation::RewriteRow | Operation::CompareAndSet => {
                join(call, self.run(Gap::WhileWriting)).await.0
            }
            _ => call.await,
        }
    }
}
