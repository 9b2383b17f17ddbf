//! Detects that the process stood still: it was stopped, its machine was suspended, or it got no CPU time.
//!
//! The data that waits in sockets and queues after a standstill is from the past. Its sender may have given up, sent it
//! to another node, and corrected it. So connections and writes keep the epoch in which they began, and are dropped in
//! a later epoch.
//!
//! A thread marks the time since boot at intervals. A gap of more than [`STANDSTILL`] between two marks begins an epoch.
//! The thread raises the epoch before it moves the mark, and a check reads the mark before the epoch. So a check fails
//! as soon as the process runs again, whichever thread runs first: the mark is too old, or the epoch is a later one.

use std::{
    future::pending,
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;

/// Longest gap between two marks within an epoch.
pub const STANDSTILL: Duration = Duration::from_millis(1_500);
/// Time between two marks.
const MARK_INTERVAL: Duration = Duration::from_millis(200);

/// A clock that goes on while the machine is suspended.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// Returns the time since the boot of the machine, including suspensions, milliseconds.
#[must_use]
pub fn boot_ms() -> u64 {
    let now = clock_gettime(CLOCK);
    let secs = u64::try_from(now.tv_sec).unwrap_or_default();
    secs * 1_000 + u64::try_from(now.tv_nsec).unwrap_or_default() / 1_000_000
}

/// The marks of a process, and the number of its present epoch.
#[derive(Debug)]
pub struct Standstills {
    /// Time of the last mark since boot.
    marked_ms: AtomicU64,
    epoch: AtomicU64,
    /// Wakes those who wait for the end of an epoch.
    raised: watch::Sender<u64>,
}

impl Standstills {
    /// Begins with a mark at `now_ms` since boot.
    #[must_use]
    pub fn new(now_ms: u64) -> Arc<Self> {
        let (marked_ms, raised) = (AtomicU64::new(now_ms), watch::Sender::new(0));
        Arc::new(Self { marked_ms, epoch: AtomicU64::new(0), raised })
    }

    /// Returns the detector of this process. The first call starts its thread.
    ///
    /// # Errors
    ///
    /// If the system starts no thread.
    pub fn of_process() -> io::Result<Arc<Self>> {
        static DETECTOR: Mutex<Option<Arc<Standstills>>> = Mutex::new(None);
        let mut detector = DETECTOR.lock();
        if let Some(started) = &*detector {
            return Ok(Arc::clone(started));
        }
        let started = Self::new(boot_ms());
        let marked = Arc::clone(&started);
        thread::Builder::new().name("standstill".to_owned()).spawn(move || {
            loop {
                thread::sleep(MARK_INTERVAL);
                if let Some(gap) = marked.mark(boot_ms()) {
                    tracing::warn!(
                        ms = gap.as_millis() as u64,
                        "the daemon stood still; it closes its connections and drops what it had received"
                    );
                }
            }
        })?;
        *detector = Some(Arc::clone(&started));
        Ok(started)
    }

    /// Marks the time `now_ms` since boot. Returns the length of the standstill if the mark begins an epoch.
    pub fn mark(&self, now_ms: u64) -> Option<Duration> {
        let gap_ms = now_ms.saturating_sub(self.marked_ms.load(Ordering::Acquire));
        let gap = Some(Duration::from_millis(gap_ms)).filter(|gap| *gap > STANDSTILL);
        if gap.is_some() {
            self.epoch.fetch_add(1, Ordering::SeqCst);
        }
        self.marked_ms.store(now_ms, Ordering::SeqCst);
        if gap.is_some() {
            self.raised.send_replace(self.epoch.load(Ordering::SeqCst));
        }
        gap
    }

    /// Returns the present epoch.
    #[must_use]
    pub fn epoch(self: &Arc<Self>) -> Epoch {
        Epoch { number: self.epoch.load(Ordering::SeqCst), standstills: Arc::clone(self) }
    }
}

/// Time in which the process did not stand still.
#[derive(Clone, Debug)]
pub struct Epoch {
    standstills: Arc<Standstills>,
    number: u64,
}

impl Epoch {
    /// True if the process has not stood still since the epoch began.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.holds_at(boot_ms)
    }

    fn holds_at(&self, now_ms: impl FnOnce() -> u64) -> bool {
        // The order matters, as the module says. The clock comes last, so that it shows a standstill during the check.
        let marked_ms = self.standstills.marked_ms.load(Ordering::SeqCst);
        let is_present = self.standstills.epoch.load(Ordering::SeqCst) == self.number;
        is_present && u128::from(now_ms().saturating_sub(marked_ms)) <= STANDSTILL.as_millis()
    }

    /// Completes when a later epoch has begun.
    pub async fn ended(&self) {
        let mut raised = self.standstills.raised.subscribe();
        while *raised.borrow_and_update() == self.number {
            if raised.changed().await.is_err() {
                // Unreachable, since the epoch keeps the sender.
                pending::<()>().await;
            }
        }
    }
}

impl PartialEq for Epoch {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number && Arc::ptr_eq(&self.standstills, &other.standstills)
    }
}

/// Completes when the process has stood still since the epoch began; never without an epoch.
pub async fn stood_still_since(epoch: Option<&Epoch>) {
    match epoch {
        Some(epoch) => epoch.ended().await,
        None => pending().await,
    }
}

/// When the process received a write, and until when it may make it.
#[derive(Clone, Debug)]
pub struct Receipt {
    epoch: Option<Epoch>,
    /// Time of the last byte of the write since boot.
    received_ms: u64,
    /// Last time since boot at which the write may be made.
    until_ms: u64,
    /// Who waits for the outcome; `None` if that is not known.
    requester: Option<Weak<()>>,
}

/// Waits for the outcome of a write. Dropped when the sender has an answer or its connection has ended: from then on
/// it may send the write to another node.
#[derive(Debug, Default)]
pub struct Requester(Arc<()>);

/// Why a write must not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outdated {
    /// The process has stood still since it received the write.
    StoodStill,
    /// The deadline of the write has passed.
    Late,
}

impl Receipt {
    /// A write whose last byte was received in `epoch`, at `received_ms` since boot. It has no deadline.
    #[must_use]
    pub const fn new(epoch: Epoch, received_ms: u64) -> Self {
        Self { epoch: Some(epoch), received_ms, until_ms: u64::MAX, requester: None }
    }

    /// A write that may be made until `until_ms` since boot.
    #[must_use]
    pub fn until(epoch: Option<Epoch>, until_ms: u64) -> Self {
        Self { epoch, received_ms: boot_ms(), until_ms, requester: None }
    }

    /// Returns the same receipt with a deadline `timeout` after the last byte.
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Self {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        Self { until_ms: self.received_ms.saturating_add(timeout_ms), ..self.clone() }
    }

    /// Returns the same receipt for a write that is no longer awaited once `requester` is dropped.
    #[must_use]
    pub fn awaited_by(self, requester: &Requester) -> Self {
        Self { requester: Some(Arc::downgrade(&requester.0)), ..self }
    }

    /// True unless the sender has gone, or has been told that the write failed.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.requester.as_ref().is_none_or(|requester| requester.strong_count() > 0)
    }

    /// The epoch of the write, if standstills are detected.
    #[must_use]
    pub const fn epoch(&self) -> Option<&Epoch> {
        self.epoch.as_ref()
    }

    /// Returns the time until the deadline.
    #[must_use]
    pub fn left(&self) -> Duration {
        Duration::from_millis(self.until_ms.saturating_sub(boot_ms()))
    }

    /// True if the process has not stood still since it received the write.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.epoch.as_ref().is_none_or(Epoch::holds)
    }

    /// Fails if the write must not be made now.
    ///
    /// # Errors
    ///
    /// The reason.
    pub fn check(&self) -> Result<(), Outdated> {
        if !self.is_present() {
            return Err(Outdated::StoodStill);
        }
        if boot_ms() > self.until_ms { Err(Outdated::Late) } else { Ok(()) }
    }

    /// Counts the deadline of a held write from now, for another attempt.
    pub fn renew(&mut self) {
        self.received_ms = boot_ms();
    }

    /// Returns the receipt of two writes that are joined: the earlier time, the earlier deadline, and no
    /// requester.
    #[must_use]
    pub fn joined(mut self, other: Self) -> Self {
        self.epoch = self.epoch.or(other.epoch);
        self.received_ms = self.received_ms.min(other.received_ms);
        self.until_ms = self.until_ms.min(other.until_ms);
        // One of two senders may still wait.
        self.requester = None;
        self
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::expect_used, reason = "tests")]

    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;

    fn is_pending(future: impl Future<Output = ()>) -> bool {
        pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[test]
    fn a_gap_of_more_than_the_limit_begins_an_epoch() {
        let detector = Standstills::new(1_000);
        let mut epochs = vec![detector.epoch()];
        for (now_ms, gap_ms) in [(1_200, None), (2_700, None), (4_201, Some(1_501)), (4_401, None)]
        {
            assert_eq!(detector.mark(now_ms), gap_ms.map(Duration::from_millis), "{now_ms}");
            epochs.push(detector.epoch());
        }
        let holds: Vec<bool> = epochs.iter().map(|epoch| epoch.holds_at(|| 4_500)).collect();
        assert_eq!(holds, [false, false, false, true, true]);
    }

    #[test]
    fn a_check_fails_before_the_thread_has_seen_the_standstill() {
        let detector = Standstills::new(1_000);
        let epoch = detector.epoch();
        assert!(epoch.holds_at(|| 2_500) && !epoch.holds_at(|| 2_501));
        assert!(epoch == detector.epoch(), "the epoch is the same one");
    }

    #[test]
    fn a_check_fails_if_the_standstill_falls_into_it() {
        let detector = Standstills::new(1_000);
        // The thread marks the end of the standstill after the check has read mark and epoch.
        let marks_meanwhile = || {
            let _ = detector.mark(9_000);
            9_000
        };
        assert!(!detector.epoch().holds_at(marks_meanwhile));
        assert!(detector.epoch().holds_at(|| 9_000));
    }

    #[test]
    fn a_clock_behind_the_mark_is_no_gap() {
        let detector = Standstills::new(5_000);
        assert!(detector.mark(4_000).is_none() && detector.epoch().holds_at(|| 3_000));
    }

    #[test]
    fn a_write_is_awaited_until_its_requester_is_dropped() {
        let requester = Requester::default();
        let receipt = Receipt::until(None, u64::MAX);
        let awaited = receipt.clone().awaited_by(&requester);
        let limited = awaited.within(Duration::from_secs(1));
        assert!(receipt.is_awaited() && limited.is_awaited());
        drop(requester);
        assert!(receipt.is_awaited() && !limited.is_awaited());
        assert!(limited.joined(receipt).is_awaited(), "another sender may wait");
    }

    #[tokio::test]
    async fn an_epoch_ends_with_the_next_one() {
        let detector = Standstills::new(0);
        let epoch = detector.epoch();
        let _ = detector.mark(1_000);
        assert!(is_pending(epoch.ended()) && is_pending(stood_still_since(None)));
        let waiting = epoch.clone();
        let waiter = tokio::spawn(async move { waiting.ended().await });
        tokio::task::yield_now().await;
        let _ = detector.mark(10_000);
        waiter.await.expect("no panic");
        stood_still_since(Some(&epoch)).await;
        assert!(is_pending(detector.epoch().ended()));
    }

    #[test]
    fn a_write_is_made_within_its_deadline_and_its_epoch() {
        let now_ms = boot_ms();
        let detector = Standstills::new(now_ms);
        let receipt = Receipt::new(detector.epoch(), now_ms.saturating_sub(20_000));
        assert_eq!(receipt.check(), Ok(()), "without a deadline");
        let (late, in_time) = (Duration::from_secs(10), Duration::from_hours(1));
        assert_eq!(receipt.within(late).check(), Err(Outdated::Late));
        assert_eq!(receipt.within(late).left(), Duration::ZERO);
        assert_eq!(receipt.within(in_time).check(), Ok(()));
        let joined = receipt.within(in_time).joined(Receipt::until(None, now_ms - 1));
        assert_eq!(joined.check(), Err(Outdated::Late));
        let mut renewed = receipt.clone();
        renewed.renew();
        assert_eq!(renewed.within(late).check(), Ok(()));
        let _ = detector.mark(now_ms + 10_000);
        assert_eq!(renewed.within(in_time).check(), Err(Outdated::StoodStill));
    }

    #[test]
    fn a_process_has_one_detector() {
        let [first, second] = [(); 2].map(|()| Standstills::of_process().expect("a thread"));
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(first.epoch(), second.epoch());
    }
}
