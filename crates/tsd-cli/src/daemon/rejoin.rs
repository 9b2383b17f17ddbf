//! Rejoins the cluster in the same process after another node has taken over the log of this daemon, or after this
//! daemon had to leave.
//!
//! After a fence the other node stores the held rows. So store, engine and server stop without a flush, and new ones
//! start as usual, with a new incarnation and empty memtables and caches. The process keeps no state of the former
//! run, so it cannot write any of it (`docs/decisions/017-nodes-over-one-log-table.md`).
//!
//! A daemon that others do not reach leaves by itself: it gives its slots away, flushes and ends. It joins again when
//! its connections have held for a time, which doubles with each removal within an hour.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use anyhow::Context;
use tracing::{info, warn};

use crate::{config::Config, node::Node, store::JoinError};

/// Pause before the second attempt; doubled before each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Attempts after which a fenced daemon exits.
const ATTEMPTS: u32 = 10;
/// After this time as a member, the count of attempts starts again.
const STABLE: Duration = Duration::from_mins(1);
/// How long the connections of a removed node must have held, after its first removal and at most.
const HELD_FOR: Duration = Duration::from_secs(10);
const LONGEST_HELD_FOR: Duration = Duration::from_mins(10);
/// Time after which a removal is forgotten.
const REMOVAL_AGE: Duration = Duration::from_hours(1);

/// Why a node is no longer a member.
#[derive(Debug)]
pub(super) enum Departure {
    /// Another node has taken over its log, for this reason.
    Fenced(String),
    /// It has to leave, for this reason.
    Removed(String),
}

/// Counts the recent rejoins of this process.
#[derive(Debug)]
pub(super) struct Rejoins {
    attempts: u32,
    joined: Instant,
    /// Times of the removals within an hour.
    removals: VecDeque<Instant>,
}

impl Rejoins {
    pub(super) fn new() -> Self {
        Self { attempts: 0, joined: Instant::now(), removals: VecDeque::new() }
    }

    /// Stops a node that is no longer a member, and starts a new one on its port.
    ///
    /// # Errors
    ///
    /// If all attempts of a fenced node fail, or no other node has ever reached a removed one.
    pub(super) async fn join_again(
        &mut self,
        config: &Config,
        node: Node,
        departure: Departure,
    ) -> anyhow::Result<Node> {
        let began = Instant::now();
        if self.joined.elapsed() >= STABLE {
            self.attempts = 0;
        }
        let mut config = config.clone();
        // Keeps the port that was chosen at the start.
        config.set_flag("rejoin", "tsd.network.port", node.address().port().to_string());
        let mut held_for = match departure {
            Departure::Fenced(reason) => {
                warn!(
                    reason,
                    "this node was fenced; it drops its held rows and joins the cluster again"
                );
                node.abandon().await;
                None
            }
            Departure::Removed(reason) => Some(self.leave(node, &reason).await?),
        };
        loop {
            tokio::time::sleep(pause_before(self.attempts)).await;
            self.attempts = self.attempts.saturating_add(1);
            let started = Node::start_again(&config, held_for).await;
            match started {
                Ok(node) => {
                    self.joined = Instant::now();
                    let took_ms = began.elapsed().as_millis() as u64;
                    info!(address = %node.address(), took_ms, "joined the cluster again");
                    return Ok(node);
                }
                Err(error) if self.attempts < ATTEMPTS || held_for.is_some() => {
                    let is_link =
                        error.downcast_ref::<JoinError>().is_some_and(|error| error.is_link);
                    if is_link && held_for.is_none() {
                        // It was fenced while others did not reach it.
                        held_for = Some(self.count_removal());
                    }
                    let (attempt, retry_in) = (self.attempts, pause_before(self.attempts));
                    let error = format!("{error:#}");
                    warn!(attempt, error, ?retry_in, "cannot join the cluster again yet");
                }
                Err(error) => {
                    let text = format!("cannot join the cluster again after {ATTEMPTS} attempts");
                    return Err(error).context(text);
                }
            }
        }
    }

    /// Leaves the cluster. Returns how long the connections must hold before the node joins again.
    async fn leave(&mut self, node: Node, reason: &str) -> anyhow::Result<Duration> {
        let was_reached = node.was_reached();
        warn!(reason, "leaving the cluster: giving the slots away, and flushing");
        if let Err(error) = node.leave().await {
            let error = format!("{error:#}");
            warn!(error, "not all rows are flushed; the log keeps them");
        }
        anyhow::ensure!(
            was_reached,
            "{reason}; no other node has connected to this one since its start: set tsd.cluster.advertise to an address \
             of this host that the other nodes can reach, and open its port in both directions"
        );
        let held_for = self.count_removal();
        warn!(?held_for, "this node joins again when its connections have held for a time");
        Ok(held_for)
    }
}

impl Rejoins {
    /// Counts a removal. Returns how long the connections must hold before the node joins again.
    fn count_removal(&mut self) -> Duration {
        self.removals.retain(|at| at.elapsed() < REMOVAL_AGE);
        self.removals.push_back(Instant::now());
        held_for(self.removals.len())
    }
}

/// How long connections must have held after this many removals within an hour.
fn held_for(removals: usize) -> Duration {
    let doublings = u32::try_from(removals.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    HELD_FOR.saturating_mul(1 << doublings).min(LONGEST_HELD_FOR)
}

/// Pause after this many attempts.
fn pause_before(attempts: u32) -> Duration {
    match attempts {
        0 => Duration::ZERO,
        more => FIRST_PAUSE.saturating_mul(1 << (more - 1).min(16)).min(LONGEST_PAUSE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_attempt_is_made_at_once_and_later_ones_wait_longer_and_longer() {
        let pauses = [0, 1, 2, 5, 9, 100].map(pause_before);
        let expected = [0, 250, 500, 4_000, 10_000, 10_000].map(Duration::from_millis);
        assert_eq!(pauses, expected);
    }

    #[test]
    fn connections_must_hold_longer_after_each_removal() {
        let times = [1, 2, 3, 7, 99].map(held_for);
        assert_eq!(times, [10, 20, 40, 600, 600].map(Duration::from_secs));
    }
}
