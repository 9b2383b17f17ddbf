//! Rejoins the cluster in the same process after another node has taken over the log of this daemon.
//!
//! The other node stores the held rows. So store, engine and server stop without a flush, and new ones start as
//! usual, with a new incarnation and empty memtables and caches. The process keeps no state of the former run, so it
//! cannot write any of it (`docs/decisions/017-nodes-over-one-log-table.md`).

use std::time::{Duration, Instant};

use anyhow::Context;
use tracing::{info, warn};

use crate::{config::Config, node::Node};

/// Pause before the second attempt; doubled before each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Attempts after which the daemon exits.
const ATTEMPTS: u32 = 10;
/// After this time as a member, the count of attempts starts again.
const STABLE: Duration = Duration::from_mins(1);

/// Counts the recent rejoins of this process.
#[derive(Debug)]
pub(super) struct Rejoins {
    attempts: u32,
    joined: Instant,
}

impl Rejoins {
    pub(super) fn new() -> Self {
        Self { attempts: 0, joined: Instant::now() }
    }

    /// Stops a fenced node and starts a new one on its port.
    ///
    /// # Errors
    ///
    /// If all attempts fail.
    pub(super) async fn join_again(
        &mut self,
        config: &Config,
        node: Node,
        reason: &str,
    ) -> anyhow::Result<Node> {
        warn!(reason, "this node was fenced; it drops its held rows and joins the cluster again");
        let began = Instant::now();
        if self.joined.elapsed() >= STABLE {
            self.attempts = 0;
        }
        let mut config = config.clone();
        // Keeps the port that was chosen at the start.
        config.set_flag("rejoin", "tsd.network.port", node.address().port().to_string());
        node.abandon().await;
        loop {
            tokio::time::sleep(pause_before(self.attempts)).await;
            self.attempts += 1;
            match Node::start(&config).await {
                Ok(node) => {
                    self.joined = Instant::now();
                    let took_ms = began.elapsed().as_millis() as u64;
                    info!(address = %node.address(), took_ms, "joined the cluster again");
                    return Ok(node);
                }
                Err(error) if self.attempts < ATTEMPTS => {
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
}
