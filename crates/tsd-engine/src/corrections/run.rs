//! Execution of a history.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    future::Future,
    sync::{Arc, Mutex},
};

use futures_util::future::join;
use tsd_model::{
    BaseTime, Family, MergeRule, PointColumns, Row, RowError, RowExtras, TableSchema, Value,
    decode_row,
};
use tsd_storage::{
    BoxFuture, CellBatch, CellRef, Delete, Get, HookedStorage, Operation, OperationHook, Scan,
    Storage, StorageError, Table,
};

use super::{
    Mode, TestStores,
    history::{Gap, HOUR, History, HistoryStep, Point, ShortStep},
    model::Model,
};
use crate::compaction::testing::{CompactionOutcome, RowRules, compact};

/// The table of all points.
pub(crate) fn table() -> Table {
    Table::new("tsdb")
}

type SharedModel = Arc<Mutex<Model>>;

pub(crate) struct Run<S> {
    stores: S,
    mode: Mode,
    model: SharedModel,
    context: String,
}

impl<S: TestStores> Run<S> {
    pub(crate) fn new(stores: S, mode: Mode, context: String) -> Self {
        Self { stores, mode, model: SharedModel::default(), context }
    }

    /// Executes a history and compares after each step. Returns the number of rewrites.
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
                short_step(self.stores.store(daemon), self.mode, &self.model, step).await;
                false
            }
            HistoryStep::Compact(daemon, series, inside) => {
                self.compact(daemon, series, inside).await
            }
            HistoryStep::Restart(daemon, how) => {
                self.stores.restart(daemon, how).await;
                false
            }
            HistoryStep::MoveClock(by_ms) => {
                self.stores.move_clock(by_ms);
                false
            }
        }
    }

    /// Compacts a row. Returns true if it was rewritten.
    async fn compact(
        &self,
        daemon: usize,
        series: u8,
        inside: Vec<(Gap, usize, ShortStep)>,
    ) -> bool {
        let mut steps: HashMap<Gap, Vec<(Arc<dyn Storage>, ShortStep)>> = HashMap::new();
        for (gap, daemon, step) in inside {
            steps.entry(gap).or_default().push((self.stores.store(daemon), step));
        }
        let action = |(gap, steps): (Gap, Vec<(Arc<dyn Storage>, ShortStep)>)| {
            let (mode, model) = (self.mode, Arc::clone(&self.model));
            let action: BoxFuture<'static, ()> = Box::pin(async move {
                for (store, step) in steps {
                    short_step(store, mode, &model, step).await;
                }
            });
            (gap, action)
        };
        let gaps = Gaps { actions: Mutex::new(steps.into_iter().map(action).collect()) };
        let storage = HookedStorage::with_hook(gaps, self.stores.store(daemon));
        let rules = RowRules {
            schema: TableSchema::opentsdb_default(),
            merge: self.rule(),
            keep_cell_times: matches!(self.mode, Mode::Largest | Mode::Smallest),
            repair_appends: self.mode == Mode::Appends,
        };
        let now_secs = i64::from(HOUR) + 7_200;
        match compact(&storage, &table(), &Point::row(series), &rules, now_secs).await {
            CompactionOutcome::Done { put, deleted, .. } => put || deleted > 0,
            CompactionOutcome::RetryLater => false,
            CompactionOutcome::Invalid(RowError::Duplicate { .. }) if self.mode == Mode::Refuse => {
                false
            }
            other => panic!("{}: {other:?}", self.context),
        }
    }

    const fn rule(&self) -> MergeRule {
        match self.mode {
            Mode::Newest | Mode::Appends => MergeRule::Newest,
            Mode::Refuse => MergeRule::Unanimous,
            Mode::Largest => MergeRule::Largest,
            Mode::Smallest => MergeRule::Smallest,
        }
    }

    /// Compares what each daemon reads, by key and by scan, with the model.
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
                    let compared = self.compare_row(series, row.as_ref());
                    compared.map_err(|what| format!("daemon {daemon}, {how}: {what}: {row:?}"))?;
                }
            }
        }
        Ok(())
    }

    fn compare_row(&self, series: u8, row: Option<&Row>) -> Result<(), String> {
        let model = self.model.lock().unwrap();
        let read = |rule| match row {
            Some(row) => points(row, rule),
            None => Ok(BTreeMap::new()),
        };
        match read(self.rule()) {
            Ok(read) => model.compare(series, self.mode, &read)?,
            Err(RowError::Duplicate { .. })
                if self.mode == Mode::Refuse && model.has_corrections(series) => {}
            Err(error) => return Err(format!("series {series}: {error}")),
        }
        if self.mode == Mode::Refuse {
            // Nothing is lost while it is refused.
            let newest = read(MergeRule::Newest).map_err(|error| error.to_string())?;
            model.compare(series, self.mode, &newest)?;
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

/// Executes a step and tells the model when it is acknowledged.
async fn short_step(store: Arc<dyn Storage>, mode: Mode, model: &SharedModel, step: ShortStep) {
    let table = table();
    let result: Result<(), StorageError> = match &step {
        ShortStep::Put(points) if mode == Mode::Appends => {
            store.append(&table, batch(points, mode)).await
        }
        ShortStep::Put(points) => store.put(&table, batch(points, mode)).await,
        ShortStep::Delete(series) => store.delete(&table, Delete::Row(Point::row(*series))).await,
        ShortStep::Flush => store.flush().await,
    };
    result.unwrap();
    model.lock().unwrap().apply(&step);
}

fn batch(points: &[Point], mode: Mode) -> CellBatch {
    let mut batch = CellBatch::new();
    for point in points {
        batch.begin_row(&Point::row(point.series)).unwrap();
        let (qualifier, value) = point.cell(mode);
        let time_ms = i64::from(HOUR) * 1_000 + i64::from(point.offset_ms);
        let is_otsdb = matches!(mode, Mode::Largest | Mode::Smallest);
        let cell = CellRef {
            family: Family::T,
            qualifier: &qualifier,
            value: &value,
            timestamp_ms: is_otsdb.then_some(time_ms),
        };
        batch.push(cell).unwrap();
    }
    batch
}

/// Runs steps where a row compaction waits, each once.
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
        let action = self.actions.lock().unwrap().remove(&gap);
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
