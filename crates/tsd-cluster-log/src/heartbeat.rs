//! Shows the other nodes that this one is alive, detects dead nodes, and begins their recoveries.

use std::{sync::Weak, time::Duration};

use tokio::time::{Instant, sleep};
use tsd_storage::{StorageError, system_clock_ms};

use crate::log::LogInner;

/// Shortest pause, after a heartbeat that took long.
const MIN_PAUSE: Duration = Duration::from_millis(10);

/// Runs until the log is closed or fenced.
pub(crate) async fn beat(log: Weak<LogInner>) {
    let mut is_failing = false;
    loop {
        let Some(inner) = log.upgrade().filter(|inner| !inner.is_over()) else { return };
        let begun = Instant::now();
        match inner.beat_and_look().await {
            Ok(()) => {
                is_failing = false;
                inner.begin_recovery();
            }
            Err(error) => {
                inner.metrics.heartbeat_failures.increment(1);
                inner.members.failed();
                // Only the first failure is logged. The metric and the other nodes show when the
                // failures end.
                if !std::mem::replace(&mut is_failing, true) && !inner.is_over() {
                    tracing::warn!(log = inner.name(), %error, "heartbeats fail");
                }
            }
        }
        let pause = inner.config.heartbeat.saturating_sub(begun.elapsed());
        drop(inner);
        sleep(pause.max(MIN_PAUSE)).await;
    }
}

impl LogInner {
    async fn beat_and_look(&self) -> Result<(), StorageError> {
        self.heartbeat(system_clock_ms()).await?;
        self.look().await?;
        // Points that this node accepts from now on must be newer than all points that other nodes
        // have stored.
        if let Some(recoverer) = self.recoverer() {
            recoverer.raise_commit_time(self.members.last_commit_ms());
        }
        Ok(())
    }
}
