//! Delays reads of connections with few points per read.
//!
//! A collector may write each point separately, and no client waits for a response. Such a connection is read at most
//! once per [`INTERVAL`]: all points that arrive meanwhile need one read, one message to a write actor and one record
//! of the log. The first reads are not delayed, nor any read of at least [`SMALL_READ`] bytes.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep};

/// Time between two small reads. OpenTSDB holds points for up to a second (`tsd.storage.flush_interval`).
const INTERVAL: Duration = Duration::from_millis(50);
/// Minimum size of a read that is worth its cost, bytes.
const SMALL_READ: usize = 16 << 10;
/// Consecutive small reads without a delay, so that a client that connects for a single point does not wait.
const FREE_READS: u32 = 3;

/// Decides when a connection is read again.
#[derive(Debug)]
pub(super) struct ReadPace {
    timer: Pin<Box<Sleep>>,
    waits: bool,
    /// Consecutive small reads that did not wait long for their bytes.
    small_reads: u32,
    /// Time from which on the connection could be read.
    open_since: Instant,
}

impl ReadPace {
    pub(super) fn new() -> Self {
        Self {
            timer: Box::pin(sleep(Duration::ZERO)),
            waits: false,
            small_reads: 0,
            open_since: Instant::now(),
        }
    }

    /// Records that a read at `read_at` returned `bytes` of points only. Returns true if the next read waits.
    pub(super) fn after_points(&mut self, bytes: usize, read_at: Instant) -> bool {
        let is_one_of_many = bytes < SMALL_READ && read_at - self.open_since < INTERVAL;
        self.small_reads = if is_one_of_many { self.small_reads.saturating_add(1) } else { 0 };
        self.open_since = read_at;
        if self.small_reads > FREE_READS {
            self.open_since += INTERVAL;
            self.timer.as_mut().reset(self.open_since);
            self.waits = true;
        }
        self.waits
    }

    /// Ends the delays: a read had other lines, or all received bytes must be read.
    pub(super) fn end(&mut self) {
        self.waits = false;
        self.small_reads = 0;
        self.open_since = Instant::now();
    }

    /// Ready when the connection may be read.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.waits && self.timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.waits = false;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// Simulates reads: milliseconds until the bytes arrive, and their number. Returns the delay of each read in ms.
    async fn pauses(reads: &[(u64, usize)]) -> Vec<u128> {
        let (mut pace, mut pauses) = (ReadPace::new(), Vec::new());
        for &(comes_after_ms, bytes) in reads {
            let since = Instant::now();
            poll_fn(|cx| pace.poll(cx)).await;
            pauses.push(since.elapsed().as_millis());
            let comes_at = since + Duration::from_millis(comes_after_ms);
            tokio::time::sleep_until(comes_at).await;
            pace.after_points(bytes, Instant::now());
        }
        pauses
    }

    #[tokio::test(start_paused = true)]
    async fn many_small_reads_are_paced() {
        let reads = [(1, 100); 7];
        assert_eq!(pauses(&reads).await, [0, 0, 0, 0, 50, 50, 50]);
    }

    #[tokio::test(start_paused = true)]
    async fn seldom_and_large_reads_are_not() {
        assert_eq!(pauses(&[(50, 100); 9]).await, [0; 9]);
        assert_eq!(pauses(&[(1, SMALL_READ); 9]).await, [0; 9]);
        // A large read and a pause restart the count.
        let (small, large, late) = ((1, 100), (1, SMALL_READ), (120, 100));
        let reads = [small, small, small, small, large, small, small, small, small, late, small];
        assert_eq!(pauses(&reads).await, [0, 0, 0, 0, 50, 0, 0, 0, 0, 50, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_can_be_ended() {
        let (mut pace, start) = (ReadPace::new(), Instant::now());
        for _ in 0..9 {
            pace.after_points(1, start);
        }
        pace.end();
        poll_fn(|cx| pace.poll(cx)).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}
