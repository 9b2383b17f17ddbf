//! Compares the clock of this node with those of the other nodes.
//!
//! No safety rests on clocks. But two writes of a point through two nodes are in the order of their clocks, and a
//! clock that is ahead makes the commit times of all nodes wait. So a node whose clock differs does not join, and
//! one whose clock comes to differ raises a metric.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::task::AbortOnDropHandle;
use tsd_cluster::MemberState;

use crate::{metrics::NetMetrics, peers::Peers};

/// Time between two comparisons.
const INTERVAL: Duration = Duration::from_secs(10);
/// How long the nodes may take to say their time.
const LIMIT: Duration = Duration::from_secs(1);

/// How far the clock of another node is ahead of the own one, as one exchange has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockOffset {
    /// By the middle of the exchange, milliseconds.
    pub(crate) ahead_ms: i64,
    /// By how much that may be wrong: half of the round trip.
    pub(crate) error_ms: i64,
}

/// How far the own clock is ahead of the median of the others, milliseconds; negative if it is behind. What the
/// exchanges cannot tell apart counts as agreement, and so does all between the middle two of an even number.
pub(crate) fn ahead_of_median(others: &[ClockOffset]) -> i64 {
    let mut least: Vec<i64> = others.iter().map(|of| -of.ahead_ms - of.error_ms).collect();
    let mut most: Vec<i64> = others.iter().map(|of| -of.ahead_ms + of.error_ms).collect();
    least.sort_unstable();
    most.sort_unstable();
    let Some(last) = others.len().checked_sub(1) else { return 0 };
    let least = least.get(last / 2).copied().unwrap_or_default();
    let most = most.get(others.len() / 2).copied().unwrap_or_default();
    if least > 0 { least } else { most.min(0) }
}

/// Compares the clocks now and then, until it is dropped.
#[derive(Debug)]
pub struct ClockWatch {
    _watching: AbortOnDropHandle<()>,
}

impl ClockWatch {
    /// Raises a metric while the own clock differs by more than `max_skew` from those of the other nodes.
    #[must_use]
    pub fn start(peers: Arc<Peers>, max_skew: Duration) -> Self {
        let watching = tokio::spawn(watch(peers, max_skew));
        Self { _watching: AbortOnDropHandle::new(watching) }
    }
}

async fn watch(peers: Arc<Peers>, max_skew: Duration) {
    let metrics = NetMetrics::of_process();
    // What the start has compared is not compared again at once.
    let mut tick = interval_at(Instant::now() + INTERVAL, INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_skewed = false;
    loop {
        tick.tick().await;
        let mut others = peers.others();
        others.retain(|member| member.state == MemberState::Serving);
        let asked = others.iter().map(|member| peers.clock_offset(member, LIMIT));
        let offsets = futures_util::future::join_all(asked).await;
        let known: Vec<ClockOffset> = offsets.into_iter().filter_map(Result::ok).collect();
        let ahead_ms = ahead_of_median(&known);
        let is_skewed = is_skewed(ahead_ms, max_skew);
        metrics.clock_ahead.set(ahead_ms as f64 / 1_000.0);
        metrics.clock_skewed.set(f64::from(u8::from(is_skewed)));
        if is_skewed != std::mem::replace(&mut was_skewed, is_skewed) {
            let nodes = known.len();
            if is_skewed {
                tracing::warn!(
                    ahead_ms,
                    nodes,
                    "the clock of this host differs from those of the other nodes"
                );
            } else {
                tracing::info!(
                    ahead_ms,
                    nodes,
                    "the clock of this host agrees with those of the other nodes again"
                );
            }
        }
    }
}

/// True if a clock is further off than it may be.
pub(crate) fn is_skewed(ahead_ms: i64, max_skew: Duration) -> bool {
    u128::from(ahead_ms.unsigned_abs()) > max_skew.as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(others: &[(i64, i64)], expected: i64) {
        let offset = |(ahead_ms, error_ms): &(i64, i64)| ClockOffset {
            ahead_ms: *ahead_ms,
            error_ms: *error_ms,
        };
        let others: Vec<ClockOffset> = others.iter().map(offset).collect();
        assert_eq!(ahead_of_median(&others), expected, "{others:?}");
    }

    #[test]
    fn one_clock_that_differs_is_not_the_median() {
        check(&[], 0);
        check(&[(700, 0)], -700);
        check(&[(-700, 0)], 700);
        check(&[(0, 0), (9_000, 0)], 0);
        check(&[(500, 0), (9_000, 0)], -500);
        check(&[(1, 0), (9_000, 0), (-2, 0)], -1);
    }

    #[test]
    fn a_slow_exchange_proves_little() {
        check(&[(700, 1_000)], 0);
        check(&[(700, 300)], -400);
        check(&[(-700, 300)], 400);
        check(&[(700, 0), (700, 1_000), (700, 0)], -700);
    }

    #[test]
    fn a_clock_may_be_off_by_the_limit() {
        let limit = Duration::from_millis(500);
        assert_eq!(
            [500, -500, 501, -501].map(|ms| is_skewed(ms, limit)),
            [false, false, true, true]
        );
    }
}
