//! Shows progress and findings of a copy, and writes its state file every ten seconds.

use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufWriter, Write as _},
    time::{Duration, Instant},
};

use anyhow::Context;
use indicatif::{HumanBytes, HumanCount, HumanDuration, ProgressBar};
use tsd_storage::Table;
use tsd_tools::{CopiedRange, CopiedRows, CopyObserver};

use super::state_file::{CopyState, StateFile};
use crate::{
    args::CopyArgs,
    progress_bar::{progress_bar, set_template},
    tell,
};

/// Time between two writes of the state, and two lines of progress without a terminal.
const INTERVAL: Duration = Duration::from_secs(10);
/// Maximum printed findings of a table; all findings are counted.
const MAX_PRINTED: u64 = 20;
/// Longest printed estimate of the time left; longer estimates are meaningless.
const MAX_LEFT: Duration = Duration::from_hours(24 * 365);
/// Steps of the bar.
const STEPS: u64 = 10_000;

/// Estimates the time left from the rate since the share of this process began to grow. Rows copied by an earlier run
/// and the names, which come first and do not count, are excluded from the rate.
#[derive(Debug, Default)]
struct TimeLeft {
    begun: Option<(Instant, f64)>,
}

impl TimeLeft {
    /// The time left, from the share that is done (0 to 1).
    fn estimate(&mut self, now: Instant, done: f64) -> Option<Duration> {
        let (since, from) = self.begun.filter(|(_, from)| done > *from).or_else(|| {
            self.begun = Some((now, done));
            None
        })?;
        let seconds = (now - since).as_secs_f64() * (1.0 - done) / (done - from);
        Duration::try_from_secs_f64(seconds).ok()
    }
}

/// Prints findings and progress, and writes the state.
pub(super) struct Console {
    bar: ProgressBar,
    started: Instant,
    inner: Mutex<ConsoleInner>,
}

struct ConsoleInner {
    state: CopyState,
    file: Option<StateFile>,
    findings_file: Option<BufWriter<File>>,
    /// Findings by table.
    found: BTreeMap<String, u64>,
    time_left: TimeLeft,
    /// Copied by this process.
    cells: u64,
    bytes: u64,
    written: Instant,
    failure: Option<anyhow::Error>,
}

impl Console {
    /// The console of a copy with its state in `file`, or of a comparison.
    pub(super) fn new(
        args: &CopyArgs,
        state: Option<CopyState>,
        file: Option<StateFile>,
    ) -> anyhow::Result<Self> {
        let findings = args.findings.as_ref().map(|path| {
            File::create(path).with_context(|| format!("the findings {}", path.display()))
        });
        let bar = progress_bar(Some(STEPS), "copy {bar:30} {percent}%  {msg}");
        bar.enable_steady_tick(Duration::from_millis(200));
        let state = state.unwrap_or_default();
        if let Some(file) = &file {
            file.write(&state)?;
        }
        let inner = ConsoleInner {
            state,
            file,
            findings_file: findings.transpose()?.map(BufWriter::new),
            found: BTreeMap::new(),
            time_left: TimeLeft::default(),
            cells: 0,
            bytes: 0,
            written: Instant::now(),
            failure: None,
        };
        Ok(Self { bar, started: Instant::now(), inner: Mutex::new(inner) })
    }

    fn inner(&self) -> MutexGuard<'_, ConsoleInner> {
        self.inner.lock()
    }

    /// Writes the state at the end of the copy.
    pub(super) fn end(&self, is_whole: bool) -> anyhow::Result<()> {
        let inner = &mut *self.inner();
        inner.state.is_complete = is_whole;
        inner.write_state();
        inner.failure.take().map_or(Ok(()), Err)
    }

    /// Shows from now on that the places are compared.
    pub(super) fn compares(&self) {
        set_template(&self.bar, "{spinner} comparing");
    }

    /// Ends the bar and the file of findings.
    pub(super) fn close(&self) -> anyhow::Result<()> {
        self.bar.finish_and_clear();
        let inner = &mut *self.inner();
        if let Some(mut file) = inner.findings_file.take() {
            file.flush().context("the findings")?;
        }
        inner.failure.take().map_or(Ok(()), Err)
    }

    /// Copied rows by table, including earlier runs.
    pub(super) fn tables(&self) -> BTreeMap<String, CopiedRows> {
        self.inner().state.tables.clone()
    }

    /// Numbers of findings by table.
    pub(super) fn findings(&self) -> BTreeMap<String, u64> {
        self.inner().found.clone()
    }

    fn print(&self, line: &str) {
        self.bar.suspend(|| {
            tell!("tsdb: {line}");
        });
    }

    fn rates(&self, inner: &ConsoleInner) -> String {
        let seconds = self.started.elapsed().as_secs_f64().max(0.001);
        let cells = HumanCount((inner.cells as f64 / seconds) as u64);
        let bytes = HumanBytes((inner.bytes as f64 / seconds) as u64);
        format!("{} cells  {cells} cells/s  {bytes}/s", HumanCount(inner.cells))
    }
}

impl ConsoleInner {
    fn write_state(&mut self) {
        self.written = Instant::now();
        if let Some(file) = &self.file
            && let Err(error) = file.write(&self.state)
        {
            self.failure.get_or_insert(error);
        }
    }
}

impl CopyObserver for Console {
    fn found(&self, table: &Table, text: &str) {
        let count = {
            let inner = &mut *self.inner();
            if let Some(file) = &mut inner.findings_file
                && let Err(error) = writeln!(file, "{table}: {text}")
            {
                inner.failure.get_or_insert(anyhow::Error::new(error).context("the findings"));
            }
            let count = inner.found.entry(table.to_string()).or_default();
            *count += 1;
            *count
        };
        if count <= MAX_PRINTED {
            self.print(&format!("{table}: {text}"));
        }
        if count == MAX_PRINTED + 1 {
            self.print(&format!(
                "{table}: further findings are only counted; --findings FILE gets all"
            ));
        }
    }

    fn advanced(&self, range: &CopiedRange<'_>, copied: &CopiedRows, done: f64) {
        let inner = &mut *self.inner();
        inner.cells += copied.cells;
        inner.bytes += copied.bytes;
        inner.state.tables.entry(range.table.to_string()).or_default().add(copied);
        inner.state.ranges.insert(range.name.to_owned(), range.progress.clone());
        let left = inner.time_left.estimate(Instant::now(), done).filter(|left| *left < MAX_LEFT);
        let left =
            left.map_or_else(String::new, |left| format!("  about {} left", HumanDuration(left)));
        let text = format!("{}{left}", self.rates(inner));
        self.bar.set_position((done * STEPS as f64) as u64);
        self.bar.set_message(text.clone());
        if inner.written.elapsed() < INTERVAL {
            return;
        }
        if self.bar.is_hidden() {
            tell!("tsdb: {:.1}%  {text}", done * 100.0);
        }
        inner.write_state();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the estimate after the last of several shares, each with its second.
    #[track_caller]
    fn check(shares: &[(u64, f64)], expected: Option<u64>) {
        let (start, mut time_left) = (Instant::now(), TimeLeft::default());
        let estimates = shares
            .iter()
            .map(|(second, done)| time_left.estimate(start + Duration::from_secs(*second), *done));
        let left = estimates.last().flatten().map(|left| left.as_secs_f64().round() as u64);
        assert_eq!(left, expected, "{shares:?}");
    }

    #[test]
    fn time_left_is_that_of_the_pace_of_this_process() {
        check(&[(0, 0.0)], None);
        check(&[(0, 0.0), (10, 0.1)], Some(90));
        check(&[(0, 0.0), (10, 0.1), (20, 1.0)], Some(0));
        // An earlier run copied half of it.
        check(&[(0, 0.5), (10, 0.75)], Some(10));
        // The names took a minute.
        check(&[(0, 0.0), (60, 0.0), (70, 0.1)], Some(90));
    }
}
