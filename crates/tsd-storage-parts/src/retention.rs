//! Applies the retention of a store in a thread, and determines the time that counts as now.
//!
//! A clock that is set forward by years must not delete the store. So now is the lesser of the clock's time and
//! the *seen time* plus a day. The seen time is the time of the newest row that the store has taken.
//!
//! After a long stop, the clock is right but ahead: retention keeps expired points until the next point arrives.
//! An operator who knows that the clock is right can say so at the start. The commit times of the log cannot
//! serve as seen time, because they follow the clock.
//!
//! ```text
//! retention  text with checksum: seen time, floor of the cut-offs (epoch seconds)
//! ```
//!
//! The floor is recorded before any older row is discarded.

use parking_lot::{Condvar, Mutex};
use std::{
    cmp, io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use tsd_files::{StoreDir, spawn_critical};
use tsd_storage::{
    ClockMs, FlushRow, FlushRows, HealthImpact, HealthProblem, PinnedFile, RepairAction, Retention,
    StorageError, StoreComponent, UnknownVersion, VerifyFinding, VerifyRun, error_chain,
    first_base,
};

use crate::{
    error::PartError,
    layout::PartLayout,
    series::{TableSeries, seal, unseal},
    store::PartStore,
};

const FILE: &str = "retention";
const NEW_FILE: &str = "retention.new";
const VERSION_LINE: &str = "saltern retention 1";
const DAMAGED: &str = "its checksum is wrong";
const LOST_RECORD: &str = "a start without it reads what was expired of the oldest span, if the retention was made longer";
/// How far now may be after the seen time, seconds.
const SEEN_BOUND_SECS: i64 = 86_400;
/// Clock lead above which it is a health problem, seconds.
const AHEAD_SECS: i64 = 3_600;
/// Progress of the seen time after which it is saved, seconds.
const SAVE_SECS: i64 = 600;
/// Interval between two readings of the clock.
const PAUSE: Duration = Duration::from_secs(5);
/// Pause between two edits of a manifest.
const EDIT_PAUSE: Duration = Duration::from_millis(10);
/// Pause between two steps of removing series from an index.
const INDEX_PAUSE: Duration = Duration::from_millis(1);

/// A table and the length of its rows in seconds.
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
    /// State that changes when the retention is applied.
    seen: Mutex<Seen>,
    /// How far the clock is ahead, seconds.
    ahead_secs: AtomicI64,
    /// Current failure of each step.
    failures: Mutex<[Option<String>; 3]>,
}

/// Steps that can fail.
#[derive(Clone, Copy, Debug)]
enum RetentionStep {
    Record,
    Drop,
    Reclaim,
}

/// The time that the store has seen.
#[derive(Debug)]
struct Seen {
    /// Epoch seconds; `None` before the first reading of the clock.
    secs: Option<i64>,
    /// Value of [`Retention::changes`] at the last request for merges.
    changes: u64,
    /// Floor up to which series were removed from the indexes.
    reclaimed: u32,
    saved: Saved,
    was_ahead: bool,
}

/// Contents of the retention file, epoch seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Saved {
    seen: i64,
    floor: u32,
}

fn epoch_secs(secs: i64) -> u32 {
    u32::try_from(secs.max(0)).unwrap_or(u32::MAX)
}

impl RetainedTable {
    /// Drops the spans before a floor. Returns false if it was stopped.
    fn drop_expired(
        &self,
        floor: u32,
        retention: &Retention,
        is_stopped: &dyn Fn(Duration) -> bool,
    ) -> Result<bool, PartError> {
        let first_base = first_base(floor, self.row_secs);
        loop {
            let dropped = self.store.drop_expired(first_base)?;
            retention.note_dropped(dropped.spans as u64, dropped.bytes);
            if !dropped.more {
                return Ok(true);
            }
            if is_stopped(EDIT_PAUSE) {
                return Ok(false);
            }
        }
    }

    /// Times without rows after [`Self::drop_expired`]. The first span always stays.
    fn dropped(&self, floor: u32) -> Range<u32> {
        let (end, span_secs) = (first_base(floor, self.row_secs), self.store.layout().span_secs());
        span_secs..end - end % span_secs.max(1)
    }
}

impl RetentionKeeper {
    /// Reads the recorded state. Cut-offs apply when this returns.
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
                // After a failed sync, the name of the file may be in memory only.
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
            secs: seen,
            changes: 0,
            reclaimed: 0,
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

    /// Reads the clock and moves the cut-offs.
    pub(crate) fn look(&self) {
        let rules = self.retention.rules();
        if rules.shortest_secs().is_none() {
            // Rows that may be discarded already stay hidden.
            self.ahead_secs.store(0, Ordering::Relaxed);
            self.retention.note_clock_ahead(0);
            return;
        }
        let mut seen = self.seen.lock();
        let clock_secs = (self.clock)().div_euclid(1_000);
        let newest_put = i64::from(self.retention.newest_put(epoch_secs(clock_secs)));
        let last = seen.secs.unwrap_or_else(|| self.first_seen_secs(clock_secs));
        let seen_secs = last.max(newest_put);
        seen.secs = Some(seen_secs);
        let latest = if self.retention.accepts_clock() {
            clock_secs
        } else {
            seen_secs.saturating_add(SEEN_BOUND_SECS)
        };
        let ahead = clock_secs.saturating_sub(latest).max(0);
        self.ahead_secs.store(ahead, Ordering::Relaxed);
        self.retention.note_clock_ahead(ahead);
        let is_ahead = ahead > AHEAD_SECS;
        if is_ahead && !seen.was_ahead {
            tracing::warn!(clock_secs, seen_secs, ahead, "{}", ahead_text(ahead));
        }
        seen.was_ahead = is_ahead;
        let now = epoch_secs(clock_secs.min(latest));
        // Cut-offs of the new time, before the floor moves.
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

    /// The seen time if none is recorded: the start of the newest span that is not in the future. For an empty
    /// store, it is the clock's time.
    fn first_seen_secs(&self, clock_secs: i64) -> i64 {
        let before = epoch_secs(clock_secs.saturating_add(1));
        let newest = |table: &RetainedTable| Some(i64::from(table.store.span_range(before)?.0));
        self.tables.iter().filter_map(newest).max().unwrap_or(clock_secs)
    }

    /// Moves the cut-offs and drops expired spans. Returns false if it was stopped.
    pub(crate) fn apply(&self, is_stopped: &dyn Fn(Duration) -> bool) -> bool {
        self.look();
        let changes = self.retention.changes();
        if std::mem::replace(&mut self.seen.lock().changes, changes) != changes {
            // Other series may have expired.
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
                    let table = table.store.table();
                    let text = format!("dropping spans of table {table}: {}", error_chain(&error));
                    self.set_failure(RetentionStep::Drop, Some(text));
                    return true;
                }
            }
        }
        self.set_failure(RetentionStep::Drop, None);
        self.reclaim(floor, is_stopped)
    }

    /// Removes dropped series from the indexes, until it has succeeded once for each floor. Returns false if it
    /// was stopped.
    fn reclaim(&self, floor: u32, is_stopped: &dyn Fn(Duration) -> bool) -> bool {
        if self.seen.lock().reclaimed == floor {
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
            self.seen.lock().reclaimed = floor;
        }
        self.set_failure(RetentionStep::Reclaim, failure);
        is_running
    }

    fn set_failure(&self, step: RetentionStep, text: Option<String>) {
        let mut failures = self.failures.lock();
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

    /// Problems that prevent the retention from being applied.
    pub(crate) fn health(&self) -> Vec<HealthProblem> {
        let problem =
            |text| HealthProblem::new(StoreComponent::Retention, HealthImpact::Degraded, text);
        let ahead = self.ahead_secs.load(Ordering::Relaxed);
        let ahead = (ahead > AHEAD_SECS).then(|| problem(ahead_text(ahead)));
        let failures = self.failures.lock().clone().into_iter().flatten();
        ahead
            .into_iter()
            .chain(failures.map(|text| problem(format!("retention: {text}"))))
            .collect()
    }

    /// The recorded state, for a snapshot of files that were pinned before; `None` if nothing is recorded.
    pub(crate) fn pinned_record(&self) -> Option<PinnedFile> {
        let saved = self.seen.lock().saved;
        (saved != Saved::default()).then(|| PinnedFile::rendered(FILE, render(saved).into_bytes()))
    }

    /// Compares the file with its expected contents.
    pub(crate) fn verify(&self, run: &VerifyRun) -> io::Result<()> {
        // The lock prevents writes meanwhile.
        let seen = self.seen.lock();
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

    /// Rewrites the file.
    pub(crate) fn rewrite(&self) -> io::Result<()> {
        save(&*self.dir, self.seen.lock().saved)
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
        "the clock is {hours} hours ahead of the newest point plus a day, so retention keeps more than it must: correct \
         the clock; if it is right, retention follows the next point, or the clock after a start with \
         tsd.storage.accept_clock"
    )
}

enum Loaded {
    Missing,
    Saved(Saved),
    /// Written by a release with another format.
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

/// The error of a record in a directory that another release has written.
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

/// Replaces the recorded state durably.
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

/// Runs the retention. Dropping it stops the thread.
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
    /// Waits for a pause; returns true as soon as the thread must stop.
    fn wait(&self, pause: Duration) -> bool {
        let mut waiting = self.waiting.lock();
        if !self.stopped.load(Ordering::Acquire) {
            self.changed.wait_for(&mut waiting, pause);
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
            let _waiting = self.stop.waiting.lock();
            self.stop.stopped.store(true, Ordering::Release);
        }
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread ends the process.
            let _ = thread.join();
        }
    }
}

/// Passes the rows of a flush on, expired ones without content.
pub(crate) struct LiveRows<'a> {
    rows: &'a mut dyn FlushRows,
    layout: PartLayout,
    first_base: u32,
    series: Vec<u8>,
}

impl<'a> LiveRows<'a> {
    /// Treats rows with base times before `first_base` as expired.
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
