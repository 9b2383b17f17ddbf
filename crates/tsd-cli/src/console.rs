//! Progress, findings, signals and result of a long command.
//!
//! A terminal gets a bar, other readers of standard error get a line every ten seconds; both have the same text. A
//! command prints its result last.

mod pace;
mod stop;

use std::{
    io::stderr,
    time::{Duration, Instant},
};

use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::sleep;

use self::pace::Pace;
pub use self::stop::StopSignal;
pub(crate) use self::{
    pace::{Amount, BYTES},
    stop::{StopRequest, StopSignals, Stopped},
};
use crate::{
    output::{CannotWrite, print_lines, tell, write_error},
    terminal::has_cursor,
};

/// Time between two lines without a terminal, and between two writes of a file with the progress.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// Time between two reads of the progress of other tasks and processes.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Length of the bar.
const STEPS: u64 = 10_000;
/// The bar of work whose share is known.
const BAR: &str = "{prefix} {bar:30} {percent:>3} %  {msg}";
/// The bar of other work.
const SPINNER: &str = "{prefix} {spinner} {msg}  {elapsed}";

/// The output of a command on the terminal or on standard error.
#[derive(Debug)]
pub(crate) struct Console {
    /// Signals that stop the command.
    pub(crate) stop: StopRequest,
    /// True if standard output has the result as JSON.
    is_json: bool,
    bar: ProgressBar,
    /// The pace of the current stage.
    pace: Mutex<Pace>,
    /// The first failed write.
    failure: Mutex<Option<anyhow::Error>>,
}

impl Console {
    /// The console of a command. If it `listens`, the first signal from now on is a request to stop; otherwise the
    /// program around the work handles signals.
    pub(crate) fn new(name: &'static str, is_json: bool, listens: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::hidden());
        if has_cursor(&stderr()) {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        let stop = if listens { StopRequest::listen(bar.clone()) } else { StopRequest::default() };
        let console =
            Self { stop, is_json, bar, pace: Mutex::default(), failure: Mutex::default() };
        console.begin(name);
        console
    }

    /// Begins a stage of the command.
    pub(crate) fn begin(&self, name: &'static str) {
        *self.pace.lock() = Pace::default();
        self.bar.reset();
        self.bar.set_prefix(name);
        self.show_on_bar(None, String::new());
        if !self.bar.is_hidden() {
            self.bar.enable_steady_tick(POLL_INTERVAL);
        }
    }

    fn show_on_bar(&self, share: Option<f64>, text: String) {
        let template = if share.is_some() { BAR } else { SPINNER };
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
        self.bar.set_position((share.unwrap_or_default() * STEPS as f64) as u64);
        self.bar.set_message(text);
    }

    /// Shows what is done: the share from 0 to 1 if it is known, amounts, and a note that follows them as it is. Returns
    /// true every ten seconds, for work that saves its progress.
    pub(crate) fn show(&self, share: Option<f64>, amounts: &[Amount], note: &str) -> bool {
        let pace = &mut *self.pace.lock();
        let now = Instant::now();
        let text = pace.text(now, share, amounts, note);
        let line_at = pace.line_at.get_or_insert(now);
        let is_due = now - *line_at >= LINE_INTERVAL;
        if is_due {
            *line_at = now;
        }
        if !self.bar.is_hidden() {
            self.show_on_bar(share, text);
        } else if is_due {
            let share = share.map_or_else(String::new, |share| format!("{:.1}%, ", share * 100.0));
            tell!("tsdb: {}: {share}{text}", self.bar.prefix());
        }
        is_due
    }

    /// As [`Self::show`], for bytes of a total.
    pub(crate) fn show_bytes(&self, bytes: u64, total: u64, note: &str) {
        let share = (total > 0).then(|| bytes.min(total) as f64 / total as f64);
        self.show(share, &[(bytes, BYTES)], &format!(" of {}{note}", HumanBytes(total)));
    }

    /// Waits for work that may be dropped at any moment, and calls `show` until it ends. The signal drops the work.
    pub(crate) async fn watch<T>(
        &self,
        work: impl Future<Output = T>,
        mut show: impl AsyncFnMut(),
        hint: &'static str,
    ) -> Result<T, Stopped> {
        let stopped = async {
            loop {
                tokio::select! {
                    signal = self.stop.requested() => return signal,
                    () = sleep(POLL_INTERVAL) => show().await,
                }
            }
        };
        tokio::select! {
            biased;
            done = work => Ok(done),
            signal = stopped => Err(Stopped { signal, hint }),
        }
    }

    /// Runs `print` without the bar.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// Prints lines of the result; to standard error if standard output has the result as JSON.
    pub(crate) fn print(&self, lines: &str) {
        self.keep(self.suspend(|| {
            if self.is_json {
                write_error(format_args!("{lines}"));
                return Ok(());
            }
            print_lines(lines)
        }));
    }

    /// Keeps the first failure of a write in the middle of the work.
    pub(crate) fn keep(&self, written: Result<(), impl Into<anyhow::Error>>) {
        if let Err(error) = written {
            self.failure.lock().get_or_insert(error.into());
        }
    }

    /// Removes the bar. Fails if a write has failed since the last call.
    pub(crate) fn close(&self) -> anyhow::Result<()> {
        self.bar.finish_and_clear();
        self.failure.lock().take().map_or(Ok(()), Err)
    }

    /// Removes the bar and prints the result: as JSON, or as text.
    pub(crate) fn end(&self, result: &Value, text: &str) -> Result<(), CannotWrite> {
        self.bar.finish_and_clear();
        if self.is_json { print_lines(&format!("{result:#}\n")) } else { print_lines(text) }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
