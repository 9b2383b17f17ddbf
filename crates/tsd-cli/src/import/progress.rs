//! Progress bar of an import.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use indicatif::{ProgressBar, ProgressState};

use crate::progress_bar::progress_bar;

/// A progress bar with rate and remaining time on a terminal; hidden otherwise.
pub(super) struct Progress {
    bar: ProgressBar,
    read: Arc<AtomicU64>,
    points: Arc<AtomicU64>,
}

impl Progress {
    /// Creates a bar for `total_bytes` of input, or a spinner if the size is unknown.
    pub(super) fn new(total_bytes: Option<u64>) -> Self {
        let template = match total_bytes {
            Some(_) => "{bar:30} {percent:>3} %  {points}  {eta} left",
            None => "{spinner} {points}  {elapsed}",
        };
        let bar = progress_bar(total_bytes, template);
        let points = Arc::new(AtomicU64::new(0));
        let shown = Arc::clone(&points);
        bar.set_style(bar.style().with_key(
            "points",
            move |state: &ProgressState, text: &mut dyn std::fmt::Write| {
                let points = shown.load(Ordering::Relaxed);
                let secs = state.elapsed().as_secs_f64().max(0.001);
                let _ = write!(text, "{points} points  {:.0} points/s", points as f64 / secs);
            },
        ));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar, read: Arc::new(AtomicU64::new(0)), points }
    }

    /// Counter of bytes read.
    pub(super) fn read(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.read)
    }

    /// Adds imported points.
    pub(super) fn add(&self, points: u64) {
        self.points.fetch_add(points, Ordering::Relaxed);
        self.bar.set_position(self.read.load(Ordering::Relaxed));
    }

    /// Hides the bar while `write` prints lines.
    pub(super) fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
