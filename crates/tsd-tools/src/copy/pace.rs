//! The rate limit of a copy, shared by its ranges.

use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// Time between two checks of the request to stop.
const STOP_POLL: Duration = Duration::from_millis(100);

/// Limits on cells and bytes per second.
#[derive(Debug)]
pub(super) struct CopyPace {
    cells_per_sec: Option<f64>,
    bytes_per_sec: Option<f64>,
    /// When the next batch may begin.
    next: Mutex<Instant>,
}

impl CopyPace {
    pub(super) fn new(cells_per_sec: Option<f64>, bytes_per_sec: Option<f64>) -> Self {
        Self { cells_per_sec, bytes_per_sec, next: Mutex::new(Instant::now()) }
    }

    /// Waits until a batch of this many cells and bytes may be written. Earlier batches are paid for first, so a pause
    /// is never followed by a burst. A stop ends the wait.
    pub(super) async fn wait(&self, cells: u64, bytes: u64, stop: &AtomicBool) {
        let time = |count: u64, rate: Option<f64>| rate.map_or(0.0, |rate| count as f64 / rate);
        let seconds = time(cells, self.cells_per_sec).max(time(bytes, self.bytes_per_sec));
        if seconds <= 0.0 {
            return;
        }
        let cost = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let begin = {
            let mut next = self.next.lock();
            let begin = (*next).max(Instant::now());
            *next = begin.checked_add(cost).unwrap_or(begin);
            begin
        };
        while Instant::now() < begin && !stop.load(Ordering::Relaxed) {
            sleep_until(begin.min(Instant::now() + STOP_POLL)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn batches_are_as_far_apart_as_they_are_large() {
        let pace = CopyPace::new(Some(1_000.0), Some(10_000.0));
        let stop = AtomicBool::new(false);
        let started = Instant::now();
        pace.wait(500, 0, &stop).await;
        assert_eq!(started.elapsed(), Duration::ZERO);
        pace.wait(0, 20_000, &stop).await;
        assert_eq!(started.elapsed(), Duration::from_millis(500));
        pace.wait(1, 1, &stop).await;
        assert_eq!(started.elapsed(), Duration::from_millis(2_500));
        stop.store(true, Ordering::Relaxed);
        pace.wait(1, 1, &stop).await;
        assert_eq!(started.elapsed(), Duration::from_millis(2_500), "a stop ends the wait");
        let free = CopyPace::new(None, None);
        free.wait(u64::MAX, u64::MAX, &stop).await;
        free.wait(1, 1, &stop).await;
        assert_eq!(started.elapsed(), Duration::from_millis(2_500));
    }
}
