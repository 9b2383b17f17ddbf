//! Refreshes the servers of the registry.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, sleep_until};

use super::state::{RefreshIntervals, Registry};

/// The first refresh comes after this part of a period.
const FIRST_PART: u32 = 10;

/// Refreshes the servers until the discovery aborts the task.
pub(super) async fn run(registry: Arc<Registry>, intervals: RefreshIntervals) {
    let mut wait = intervals.period / FIRST_PART;
    let mut earliest = Instant::now();
    loop {
        tokio::select! {
            () = sleep(wait) => {}
            () = registry.failed.notified() => sleep_until(earliest).await,
        }
        registry.refresh().await;
        earliest = Instant::now() + intervals.min;
        wait = intervals.period.max(Duration::from_millis(1));
    }
}

impl Registry {
    /// Asks one server after the other for further ones. If none names any, the present ones stay.
    async fn refresh(&self) {
        for server in self.servers() {
            let deadline = Instant::now() + self.config.call_timeout;
            match self.ask_for_servers(&server, deadline).await {
                Ok(servers) if !servers.is_empty() => {
                    *self.known.lock() = servers;
                    return;
                }
                // Failures are logged with their calls.
                Ok(_) | Err(_) => {}
            }
        }
    }
}
