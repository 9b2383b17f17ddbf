//! Looks at the other nodes: reads the digest, and all manifests if this node watches. Then acts on what it finds:
//! publishes the digest, if that is this node's task, and begins recoveries.

use std::{sync::Weak, time::Duration};

use tokio::time::{Instant, sleep, timeout};
use tsd_storage::StorageError;

use crate::log::LogInner;

/// Shortest pause between two looks.
const MIN_PAUSE: Duration = Duration::from_millis(200);

/// Runs until the log is closed or fenced.
pub(crate) async fn watch(log: Weak<LogInner>) {
    loop {
        let Some(inner) = log.upgrade().filter(|inner| !inner.is_over()) else { return };
        let begun = Instant::now();
        let interval = match inner.look_at_digest().await {
            Ok(has_watched) => {
                inner.act().await;
                if has_watched { inner.config.watch_interval() } else { inner.config.beat() }
            }
            Err(error) => {
                inner.metrics.heartbeat_failures.increment(1);
                inner.members.failed();
                tracing::debug!(log = inner.name(), %error, "the other nodes cannot be seen");
                inner.config.watch_interval()
            }
        };
        let shortest = MIN_PAUSE.min(interval);
        sleep(shortest).await;
        let rest = interval.saturating_sub(begun.elapsed());
        let _ = timeout(rest, inner.members.look_now.notified()).await;
    }
}

impl LogInner {
    /// Reads the digest, and all manifests if this node watches. Returns true in that case.
    async fn look_at_digest(&self) -> Result<bool, StorageError> {
        let mut looked = self.members.looked.lock().await;
        let begun = Instant::now();
        let digest = self.read_digest().await?;
        let must_leave = digest.is_removed(self.owner().incarnation());
        // The reasons of a removal are in the manifests.
        let is_new = must_leave && !self.must_leave();
        let has_watched = is_new || self.members.has_to_watch(begun, &digest);
        if has_watched {
            let found = self.table.manifests(self.work_deadline()).await?;
            self.note_revisions(&found);
            self.members.looked(begun, digest, found);
            *looked = Some(begun);
        } else {
            self.members.noted(begun, digest);
        }
        drop(looked);
        self.note_removal();
        self.members.changed.notify_waiters();
        Ok(has_watched)
    }

    async fn act(self: &std::sync::Arc<Self>) {
        self.publish().await;
        // Points that this node accepts from now on must be newer than all points that other nodes have stored.
        if let Some(recoverer) = self.recoverer() {
            recoverer.raise_commit_time(self.members.last_commit_ms());
        }
        self.begin_recovery();
    }

    /// Publishes the digest, if this node does. If another node was first, or HBase does not answer, the next look
    /// decides again.
    async fn publish(&self) {
        let (publication, before) = {
            let watch = self.members.watch();
            (watch.publication(), watch.digest().clone())
        };
        let Some(new) = publication else { return };
        let swapping = self.table.until(self.work_deadline());
        match swapping.swap_digest(&before.beat, &new).await {
            Ok(true) => {
                let removed = new.members.iter().filter(|(_, of)| of.is_removed);
                let removed: Vec<&str> = removed
                    .filter(|(node, _)| !before.is_removed(**node))
                    .map(|(_, of)| of.name.as_str())
                    .collect();
                if !removed.is_empty() {
                    tracing::warn!(
                        ?removed,
                        "decided which nodes have to leave, because other nodes do not reach them"
                    );
                }
                self.members.watch().published(new);
            }
            Ok(false) => {}
            Err(failure) => {
                let error = self.table.error(failure);
                tracing::debug!(%error, "the digest of the members is not stored yet");
            }
        }
    }
}
