//! Compares the clock of this node with those of the other nodes.
//!
//! No safety depends on clocks. But the clocks order two writes of a point through two nodes, and a clock that is
//! ahead makes the commit times of all nodes wait. So a node whose clock differs does not join. If the clock of a
//! member begins to differ, the member raises a metric.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::task::AbortOnDropHandle;
use tsd_cluster::MemberState;

use crate::{
    clock_offset::{ClockOffset, ahead_of_median, is_skewed},
    metrics::NetMetrics,
    peers::Peers,
};

/// Time between two comparisons.
const INTERVAL: Duration = Duration::from_secs(10);
/// Time in which the nodes must report their clocks.
const LIMIT: Duration = Duration::from_secs(1);

/// Compares the clocks every ten seconds, until it is dropped.
#[derive(Debug)]
pub struct ClockWatch {
    _watching: AbortOnDropHandle<()>,
}

impl ClockWatch {
    /// Raises a metric while this node's clock differs from the others by more than `max_skew`.
    #[must_use]
    pub fn start(peers: Arc<Peers>, max_skew: Duration) -> Self {
        let watching = tokio::spawn(watch(peers, max_skew));
        Self { _watching: AbortOnDropHandle::new(watching) }
    }
}

async fn watch(peers: Arc<Peers>, max_skew: Duration) {
    let metrics = NetMetrics::of_process();
    // The start has just compared the clocks, so the first comparison waits.
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
