//! The thread that applies the retention of a store, and the time that it takes for now.
//!
//! A clock that is set forward by years must not delete the store. So the *seen time* follows the clock by at
//! most twice the time that has passed while the store was open, and now is the clock's time, but at most
//! the seen time and a bound (a tenth of the shortest retention, at most a day). After a long stop the
//! clock is right and ahead: retention keeps more than it must until the seen time has caught up. The
//! commit times of the log do not serve as the seen time: they follow the clock at the first commit. An operator who
//! knows that the clock is right says so at a start.
//!
//! ```text
//! retention  text with checksum: seen time, floor of the cut-offs (epoch seconds)
//! ```
//!
//! The floor is recorded before anything older than it is discarded.

use std::{
    cmp, io,
    ops::Range,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tsd_storage::{
    ClockMs, FlushRow, FlushRows, HealthImpact, HealthProblem, PinnedFile, RepairAction, Retention,
    StorageError, StoreDir, StorePart, UnknownVersion, VerifyFinding, VerifyRun, error_chain,
    first_base, spawn_critical,
};

use crate::{
    layout::PartLayout,
    series::{TableSeries, seal, unseal},
    store::PartStore,
};

const FILE: &str = "retention";
const NEW_FILE: &str = "retention.new";
const VERSION_LINE: &str = "saltern retention 1";
const DAMAGED: &str = "its checksum is wrong";
const LOST_RECORD: &str = "a start without it reads what was expired of the oldest span, if the retention was made longer";
/// Most that now is ahead of the seen time, seconds.
const MAX_BOUND_SECS: u64 = 86_400;
/// Part of the shortest retention that now is ahead of the seen time at most.
const BOUND_PART: u64 = 10;
/// The seen time follows the clock so many times as fast as time passes.
const CATCH_UP: i64 = 2;
/// How far the clock is ahead when it is a problem, seconds.
const AHEAD_SECS: i64 = 3_600;
/// The seen time is saved when it has advanced so far, seconds.
const SAVE_SECS: i64 = 600;
/// Pause between two looks at the clock.
const PAUSE: Duration = Duration::from_secs(5);
/// Pause between two edits of a manifest.
const EDIT_PAUSE: Duration = Duration::from_millis(10);
/// Pause between two steps of removing series from an index.
const INDEX_PAUSE: Duration = Duration::from_millis(1);

/// A table and the seconds of its rows.
#[derive(Clone, Debug)]
pub(crate) struct RetainedTable {
    pub(crate) store: Arc<PartStore>,
    pub(crate) series: Option<Arc<TableSeries>>,
    pub(crate) row_secs: u32,
}

/// Applies a retention to the tables of a store.
#[derive(Debug)]
pub(crate) struct RetentionKeeper {
    retention: Arc<Retention>,
    dir: Arc<dyn StoreDir>,
    clock: ClockMs,
    tables: Vec<RetainedTable>,
    /// Owned while the retention is applied.
    seen: Mutex<Seen>,
    /// How far the clock is ahead, seconds.
    ahead_secs: AtomicI64,
    /// What fails now of each step.
    failures: Mutex<[Option<String>; 3]>,
}

/// What can fail.
#[derive(Clone, Copy, Debug)]
enum RetentionStep {
    Record,
    Drop,
    Reclaim,
}

/// The time that the store has seen.
#[derive(Debug)]
struct Seen {
    /// Epoch milliseconds; `None` before the first look at the clock.
    ms: Option<i64>,
    /// [`Retention::changes`] when merges were requested.
    changes: u64,
    /// The floor for which series were removed from the indexes.
    reclaimed: u32,
    at: Instant,
    saved: Saved,
    was_ahead: bool,
}

/// What the file has, epoch seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Saved {
    seen: i64,
    floor: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn epoch_secs(secs: i64) -> u32 {
    u32::try_from(secs.max(0)).unwrap_or(u32::MAX)
}

impl RetainedTable {
    /// Drops the spans that are before a floor. Returns false if it was stopped.
    fn drop_expired(
        &self,
        floor: u32,
        retention: &Retention,
        is_stopped: &dyn Fn(Duration) -> bool,
    ) -> Result<bool, String> {
        let first_base = first_base(floor, self.row_secs);
        loop {
            let dropped =
                self.store.drop_expired(first_base).map_err(|error| error_chain(&error))?;
            retention.note_dropped(dropped.spans as u64, dropped.bytes);
            if !dropped.more {
                return Ok(true);
            }
            if is_stopped(EDIT_PAUSE) {
                return Ok(false);
            }
        }
    }

    /// The times of which nothing is left after [`Self::drop_expired`]; the first span always stays.
    fn dropped(&self, floor: u32) -> Range<u32> {
        let (end, span_secs) = (first_base(floor, self.row_secs), self.store.layout().span_secs());
        span_secs..end - end % span_secs.max(1)
    }
}

impl RetentionKeeper {
    /// Reads what was recorded. Cut-offs apply when this returns.
    pub(crate) fn open(
        retention: Arc<Retention>,
        dir: Arc<dyn StoreDir>,
        clock: ClockMs,
        tables: Vec<RetainedTable>,
    ) -> Result<Self, StorageError> {
        for table in &tables {
            retention.add_table(table.store.table().clone(), table.row_secs);
        }
        let failed = |source| StorageError::io(format!("reading {FILE} of the store"), source);
        let saved = match load(&*dir).map_err(failed)? {
            Loaded::Missing => None,
            Loaded::Saved(saved) => {
                // Its name may be in memory only, after a sync that failed.
                dir.sync().map_err(failed)?;
                Some(saved)
            }
            Loaded::UnknownVersion(unknown) => return Err(unknown.into()),
            Loaded::Damaged => {
                tracing::error!(
                    file = FILE,
                    "the file is damaged: the seen time and the floor of retention follow from the spans"
                );
                let oldest = tables.iter().filter_map(|t| Some(t.store.span_range(u32::MAX)?.1));
                Some(Saved { seen: i64::MIN, floor: oldest.min().unwrap_or_default() })
            }
        };
        let seen = saved.map(|saved| saved.seen).filter(|seen| *seen != i64::MIN);
        let saved = saved.unwrap_or_default();
        let seen = Seen {
            ms: seen.map(|secs| secs.saturating_mul(1_000)),
            changes: 0,
            reclaimed: 0,
            at: Instant::now(),
            saved: Saved { seen: seen.unwrap_or_default(), ..saved },
            was_ahead: false,
        };
        let keeper = Self {
            retention,
            dir,
            clock,
            tables,
            seen: Mutex::new(seen),
            ahead_secs: AtomicI64::new(0),
            failures: Mutex::default(),
        };
        keeper.retention.advance(0, saved.floor);
        keeper.look();
        Ok(keeper)
    }

    /// Looks at the clock, and moves the cut-offs.
    fn look(&self) {
        let passed = lock(&self.seen).at.elapsed();
        self.look_after(passed);
    }

    /// As [`Self::look`]; so much time has passed since the last look.
    pub(crate) fn look_after(&self, passed: Duration) {
        let rules = self.retention.rules();
        let Some(shortest) = rules.shortest_secs() else {
            // What may be discarded stays hidden.
            self.ahead_secs.store(0, Ordering::Relaxed);
            self.retention.note_clock_ahead(0);
            return;
        };
        let mut seen = lock(&self.seen);
        let clock_ms = (self.clock)();
        let passed = i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
        let mut last = seen.ms.unwrap_or_else(|| self.first_seen_ms(clock_ms));
        if self.retention.take_accepted_clock() {
            last = last.max(clock_ms);
        }
        let reached = last.saturating_add(passed.saturating_mul(CATCH_UP)).min(clock_ms);
        let seen_ms = last.max(reached);
        (seen.ms, seen.at) = (Some(seen_ms), Instant::now());
        let bound = MAX_BOUND_SECS.min(shortest / BOUND_PART) as i64;
        let (clock_secs, seen_secs) = (clock_ms.div_euclid(1_000), seen_ms.div_euclid(1_000));
        let latest = seen_secs.saturating_add(bound);
        let ahead = clock_secs.saturating_sub(latest).max(0);
        self.ahead_secs.store(ahead, Ordering::Relaxed);
        self.retention.note_clock_ahead(ahead);
        let is_ahead = ahead > AHEAD_SECS;
        if is_ahead && !seen.was_ahead {
            tracing::warn!(clock_secs, seen_secs, ahead, "{}", ahead_text(ahead));
        }
        seen.was_ahead = is_ahead;
        let now = epoch_secs(clock_secs.min(latest));
        // The cut-offs with this time, before the floor is moved.
        self.retention.advance(now, seen.saved.floor);
        let floor = match rules.longest_secs() {
            Some(_) => self.retention.cutoffs().oldest().max(seen.saved.floor),
            None => seen.saved.floor,
        };
        if floor > seen.saved.floor || seen_secs >= seen.saved.seen.saturating_add(SAVE_SECS) {
            let saved = Saved { seen: seen_secs, floor };
            match save(&*self.dir, saved) {
                Ok(()) => {
                    seen.saved = saved;
                    self.retention.advance(now, floor);
                    self.set_failure(RetentionStep::Record, None);
                }
                Err(error) => {
                    let text = format!("writing {FILE} of the store: {error}");
                    self.set_failure(RetentionStep::Record, Some(text));
                }
            }
        }
    }

    /// The time that the store has seen if none is recorded: that of its newest span, or the clock's if it is
    /// empty.
    fn first_seen_ms(&self, clock_ms: i64) -> i64 {
        let before = epoch_secs(clock_ms.div_euclid(1_000).saturating_add(1));
        let end = |table: &RetainedTable| {
            let (newest, _) = table.store.span_range(before)?;
            Some(i64::from(newest) + i64::from(table.store.layout().span_secs()))
        };
        let newest = self.tables.iter().filter_map(end).max();
        newest.map_or(clock_ms, |end| clock_ms.min(end.saturating_mul(1_000)))
    }

    /// Moves the cut-offs, and drops the spans that are expired. Returns false if it was stopped.
    pub(crate) fn apply(&self, is_stopped: &dyn Fn(Duration) -> bool) -> bool {
        self.look();
        let changes = self.retention.changes();
        if std::mem::replace(&mut lock(&self.seen).changes, changes) != changes {
            // Other series may be expired.
            self.tables.iter().for_each(|table| table.store.request_merges());
        }
        let floor = self.retention.floor();
        if floor == 0 {
            return true;
        }
        for table in &self.tables {
            match table.drop_expired(floor, &self.retention, is_stopped) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) => {
                    let text = format!("dropping spans of table {}: {error}", table.store.table());
                    self.set_failure(RetentionStep::Drop, Some(text));
                    return true;
                }
            }
        }
        self.set_failure(RetentionStep::Drop, None);
        self.reclaim(floor, is_stopped)
    }

    /// Removes from the indexes what was dropped, until it has succeeded once for each floor. Returns false if
    /// it was stopped.
    fn reclaim(&self, floor: u32, is_stopped: &dyn Fn(Duration) -> bool) -> bool {
        if lock(&self.seen).reclaimed == floor {
            return true;
        }
        let (mut is_running, mut failure) = (true, None);
        for table in &self.tables {
            let Some(series) = &table.series else { continue };
            let mut checkpoint = || {
                is_running &= !is_stopped(INDEX_PAUSE);
                is_running
            };
            let done = series.reclaim(table.dropped(floor), &mut checkpoint);
            if let Err(error) = done {
                let table = table.store.table();
                failure = Some(format!("removing series of table {table}: {error}"));
            }
        }
        if is_running && failure.is_none() {
            lock(&self.seen).reclaimed = floor;
        }
        self.set_failure(RetentionStep::Reclaim, failure);
        is_running
    }

    fn set_failure(&self, step: RetentionStep, text: Option<String>) {
        let mut failures = lock(&self.failures);
        let [record, dropping, reclaiming] = &mut *failures;
        let failure = match step {
            RetentionStep::Record => record,
            RetentionStep::Drop => dropping,
            RetentionStep::Reclaim => reclaiming,
        };
        if let Some(text) = text.as_deref().filter(|text| failure.as_deref() != Some(*text)) {
            tracing::warn!("retention: {text}");
        }
        *failure = text;
    }

    /// What keeps the retention from being applied.
    pub(crate) fn health(&self) -> Vec<HealthProblem> {
        let problem = |text| HealthProblem::new(StorePart::Retention, HealthImpact::Degraded, text);
        let ahead = self.ahead_secs.load(Ordering::Relaxed);
        let ahead = (ahead > AHEAD_SECS).then(|| problem(ahead_text(ahead)));
        let failures = lock(&self.failures).clone().into_iter().flatten();
        ahead
            .into_iter()
            .chain(failures.map(|text| problem(format!("retention: {text}"))))
            .collect()
    }

    /// What is recorded, for a snapshot of files that were pinned before. `None` if nothing is.
    pub(crate) fn pinned_record(&self) -> Option<PinnedFile> {
        let saved = lock(&self.seen).saved;
        (saved != Saved::default()).then(|| PinnedFile::rendered(FILE, render(saved).into_bytes()))
    }

    /// Compares the file with what it must have.
    pub(crate) fn verify(&self, run: &VerifyRun) -> io::Result<()> {
        // Nothing is written meanwhile.
        let seen = lock(&self.seen);
        let what = match load(&*self.dir)? {
            Loaded::Missing if seen.saved == Saved::default() => return Ok(()),
            Loaded::Saved(saved) if saved == seen.saved => return Ok(()),
            Loaded::Saved(_) => "it was replaced by another one",
            Loaded::Missing => "the file is missing",
            Loaded::UnknownVersion(unknown) => return Err(unknown.into()),
            Loaded::Damaged => DAMAGED,
        };
        let cost = format!("nothing while the daemon runs; {LOST_RECORD}");
        report(&*self.dir, run, what, cost, Some(RepairAction::RewriteRetention));
        Ok(())
    }

    /// Writes the file anew.
    pub(crate) fn rewrite(&self) -> io::Result<()> {
        save(&*self.dir, lock(&self.seen).saved)
    }

    /// Metrics without labels, as (name, value).
    pub(crate) fn gauges(&self) -> [(&'static str, f64); 2] {
        let ahead = self.ahead_secs.load(Ordering::Relaxed) as f64;
        let cutoff = f64::from(self.retention.cutoffs().oldest());
        [
            ("tsd_parts_retention_clock_ahead_seconds", ahead),
            ("tsd_parts_retention_cutoff_timestamp_seconds", cutoff),
        ]
    }
}

fn ahead_text(ahead_secs: i64) -> String {
    let hours = ahead_secs / 3_600;
    format!(
        "the clock is {hours} hours ahead of the time that the store has seen, so retention keeps more than it \
         must: either the clock is wrong, or the store was stopped, and retention follows within {hours} hours, or at once after a start with \
         tsd.storage.accept_clock"
    )
}

enum Loaded {
    Missing,
    Saved(Saved),
    /// Another release has written it.
    UnknownVersion(UnknownVersion),
    Damaged,
}

fn load(dir: &dyn StoreDir) -> io::Result<Loaded> {
    let text = match dir.read(FILE, 0, 4_096) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Loaded::Missing),
        text => text?,
    };
    let text = String::from_utf8(text).ok();
    let text = text.as_deref().and_then(unseal);
    let unknown = text.and_then(|text| {
        UnknownVersion::of_text(dir.path().join(FILE).display(), text, VERSION_LINE)
    });
    let saved = text.and_then(parse);
    Ok(match unknown {
        Some(unknown) => Loaded::UnknownVersion(unknown),
        None => saved.map_or(Loaded::Damaged, Loaded::Saved),
    })
}

fn parse(text: &str) -> Option<Saved> {
    let mut lines = text.lines();
    lines.next().filter(|line| *line == VERSION_LINE)?;
    let seen = lines.next()?.strip_prefix("seen ")?.parse().ok()?;
    let floor = lines.next()?.strip_prefix("floor ")?.parse().ok()?;
    Some(Saved { seen, floor })
}

fn render(Saved { seen, floor }: Saved) -> String {
    let mut text = format!("{VERSION_LINE}\nseen {seen}\nfloor {floor}\n");
    seal(&mut text);
    text
}

/// The error of the record in a directory, if another release has written it.
pub(crate) fn unknown_record(dir: &dyn StoreDir) -> io::Result<Option<UnknownVersion>> {
    Ok(match load(dir)? {
        Loaded::UnknownVersion(unknown) => Some(unknown),
        _ => None,
    })
}

/// Checks the file in a directory that no process has open.
pub(crate) fn verify_record(dir: &dyn StoreDir, run: &VerifyRun) -> io::Result<()> {
    if matches!(load(dir)?, Loaded::Damaged) {
        report(dir, run, DAMAGED, format!("the next start writes it anew; {LOST_RECORD}"), None);
    }
    Ok(())
}

fn report(
    dir: &dyn StoreDir,
    run: &VerifyRun,
    what: &str,
    cost: String,
    action: Option<RepairAction>,
) {
    let file = dir.path().join(FILE).display().to_string();
    run.report(VerifyFinding { file, what: what.to_owned(), cost, action });
}

/// Records it durably, in place of what was there.
fn save(dir: &dyn StoreDir, saved: Saved) -> io::Result<()> {
    let text = render(saved);
    match dir.remove(NEW_FILE) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = dir.create(NEW_FILE)?;
    file.write_at(0, text.as_bytes())?;
    file.sync_data()?;
    dir.rename(NEW_FILE, FILE)?;
    dir.sync()
}

/// The thread. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct RetentionThread {
    stop: Arc<StopSignal>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct StopSignal {
    stopped: AtomicBool,
    waiting: Mutex<()>,
    changed: Condvar,
}

impl StopSignal {
    /// Waits; returns true as soon as the thread is to stop.
    fn wait(&self, pause: Duration) -> bool {
        let waiting = lock(&self.waiting);
        if !self.stopped.load(Ordering::Acquire) {
            drop(self.changed.wait_timeout(waiting, pause));
        }
        self.stopped.load(Ordering::Acquire)
    }
}

impl RetentionThread {
    pub(crate) fn start(keeper: Arc<RetentionKeeper>) -> io::Result<Self> {
        let stop = Arc::new(StopSignal::default());
        let signal = Arc::clone(&stop);
        let thread = spawn_critical("part-retention", move || {
            let is_stopped = |pause| signal.wait(pause);
            while keeper.apply(&is_stopped) && !is_stopped(PAUSE) {}
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for RetentionThread {
    fn drop(&mut self) {
        {
            let _waiting = lock(&self.stop.waiting);
            self.stop.stopped.store(true, Ordering::Release);
        }
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // Its panic ends the process.
            let _ = thread.join();
        }
    }
}

/// Rows of a flush, those that are expired without content.
pub(crate) struct LiveRows<'a> {
    rows: &'a mut dyn FlushRows,
    layout: PartLayout,
    first_base: u32,
    series: Vec<u8>,
}

impl<'a> LiveRows<'a> {
    /// Rows with earlier base times than `first_base` are expired.
    pub(crate) const fn new(
        rows: &'a mut dyn FlushRows,
        layout: PartLayout,
        first_base: u32,
    ) -> Self {
        Self { rows, layout, first_base, series: Vec::new() }
    }
}

impl FlushRows for LiveRows<'_> {
    fn next_row(&mut self) -> Option<FlushRow<'_>> {
        let row = self.rows.next_row()?;
        if self.first_base == 0 {
            return Some(row);
        }
        self.series.clear();
        let base = self.layout.split_key(row.key, &mut self.series);
        if base >= self.first_base || !PartLayout::has_time(&self.series) {
            return Some(row);
        }
        Some(FlushRow { delete_row: None, deletes: Vec::new(), cells: Vec::new(), ..row })
    }

    fn sort_by(&mut self, compare: &dyn Fn(&[u8], &[u8]) -> cmp::Ordering) {
        self.rows.sort_by(compare);
    }

    fn frees_space(&self) -> bool {
        self.rows.frees_space()
    }
}
