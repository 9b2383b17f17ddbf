//! Shows the other nodes that this one is alive.

use std::{sync::Weak, time::Duration};

use tokio::time::{Instant, timeout};

use crate::log::LogInner;

/// Shortest pause, after a heartbeat that took long.
const MIN_PAUSE: Duration = Duration::from_millis(10);

/// Runs until the log is closed or fenced.
pub(crate) async fn beat(log: Weak<LogInner>) {
    let mut is_failing = false;
    loop {
        let Some(inner) = log.upgrade().filter(|inner| !inner.is_over()) else { return };
        let begun = Instant::now();
        match inner.heartbeat().await {
            Ok(()) => {
                is_failing = false;
                inner.members.note_beat();
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
        // News are shown at once.
        let _ = timeout(pause.max(MIN_PAUSE), inner.members.beat_now.notified()).await;
    }
}
