//! Decides when a group waits for requests that are about to arrive.
//!
//! Senders that wait for a response before they send again fall into two halves. While the group of one half is
//! synced, the other half queues, so each sync carries only half of the possible requests.
//!
//! The senders of the last group are expected to send again soon after its end, so a group that lacks them waits.
//! The wait ends at most one sync time after the end of the last commit, and after half of that time without new
//! requests.
//!
//! A group never waits for unknown requests: a single sender, or one after a pause, is committed at once.

use std::time::{Duration, Instant};

/// Longest wait after the end of the last commit.
const MAX_WAIT: Duration = Duration::from_millis(1);
/// Shortest useful wait, because a sleep takes up to 0.1 ms longer than requested. So groups do not wait if a
/// sync takes less than twice this time.
const MIN_WAIT: Duration = Duration::from_micros(150);
/// Maximum number of groups that skip the wait after useless waits.
const MAX_SKIPPED: u32 = 64;

/// Decides how long a group waits.
#[derive(Debug, Default)]
pub(crate) struct GroupWait {
    /// End of the last commit.
    ended: Option<Instant>,
    /// Requests of the last group, plus the requests that were queued at its end.
    expected: usize,
    /// Average time of a commit.
    average: Duration,
    /// Number of groups that still skip the wait.
    to_skip: u32,
    /// Number of groups that skip the wait after the next useless wait.
    next_skip: u32,
}

impl GroupWait {
    /// How long a group of this many requests waits for more. The caller asks again after a wait that gained
    /// requests.
    pub(crate) fn before_sync(&mut self, requests: usize, now: Instant) -> Option<Duration> {
        let ended = self.ended?;
        if requests >= self.expected {
            return None;
        }
        let most = self.average.min(MAX_WAIT);
        let left = most.checked_sub(now.saturating_duration_since(ended))?.min(most / 2);
        if left < MIN_WAIT {
            return None;
        }
        if self.to_skip > 0 {
            self.to_skip -= 1;
            return None;
        }
        Some(left)
    }

    /// Records how many requests a group gained by waiting.
    pub(crate) fn record_wait(&mut self, gained: usize) {
        if gained > 0 {
            self.next_skip = 0;
        } else {
            self.next_skip = (self.next_skip * 2).clamp(1, MAX_SKIPPED);
            self.to_skip = self.next_skip;
        }
    }

    /// Records the commit of a group: its requests, the requests queued behind it, and its duration.
    pub(crate) fn record_commit(&mut self, requests: usize, queued: usize, took: Duration) {
        self.average = if self.ended.is_none() { took } else { (self.average * 7 + took) / 8 };
        self.expected = requests + queued;
        self.ended = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn after_commit(requests: usize, queued: usize, took: Duration) -> (GroupWait, Instant) {
        let mut wait = GroupWait::default();
        wait.record_commit(requests, queued, took);
        let ended = wait.ended.unwrap_or_else(Instant::now);
        (wait, ended)
    }

    #[test]
    fn the_first_group_and_a_single_sender_do_not_wait() {
        assert_eq!(GroupWait::default().before_sync(1, Instant::now()), None);
        let (mut wait, ended) = after_commit(1, 0, MS);
        assert_eq!(wait.before_sync(1, ended), None);
    }

    #[test]
    fn half_of_the_senders_wait_for_the_other_half() {
        let (mut wait, ended) = after_commit(4, 4, MS);
        assert_eq!(wait.before_sync(4, ended), Some(MS / 2));
        assert_eq!(wait.before_sync(6, ended + MS * 3 / 4), Some(MS / 4));
        assert_eq!(wait.before_sync(8, ended), None);
        // Half of a sync at a time; a fast sync is not worth a wait.
        let (mut wait, ended) = after_commit(8, 0, MS * 2 / 5);
        assert_eq!(wait.before_sync(1, ended), Some(MS / 5));
        assert_eq!(wait.before_sync(1, ended + MS * 3 / 10), None);
        let (mut wait, ended) = after_commit(8, 0, MS / 5);
        assert_eq!(wait.before_sync(1, ended), None);
        // A slow sync does not make requests wait that long.
        let (mut wait, ended) = after_commit(8, 0, MS * 100);
        assert_eq!(wait.before_sync(1, ended), Some(MAX_WAIT / 2));
    }

    #[test]
    fn a_sender_after_a_pause_does_not_wait() {
        let (mut wait, ended) = after_commit(8, 0, MS);
        assert_eq!(wait.before_sync(1, ended + MS), None);
    }

    #[test]
    fn waits_in_vain_become_rare() {
        let (mut wait, ended) = after_commit(4, 4, MS);
        let mut waits = 0;
        for _ in 0..1_000 {
            if wait.before_sync(4, ended).is_some() {
                waits += 1;
                wait.record_wait(0);
            }
        }
        assert!((16..30).contains(&waits), "{waits}");
        wait.record_wait(4);
        wait.to_skip = 0;
        assert!(wait.before_sync(4, ended).is_some());
        wait.record_wait(0);
        assert_eq!(wait.to_skip, 1);
    }
}
