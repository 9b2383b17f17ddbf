//! Detects that the log table is gone: dropped, emptied, or created anew.
//!
//! The records in it are lost then, but this node still holds their rows in memory. It flushes them and acknowledges
//! nothing more. A node that was fenced must not flush, because another node has stored its rows, perhaps with
//! corrections. The fence may be gone with the table, so the node decides by time: no other node fences it before its
//! manifest has stood still for half of `suspect_after`, and nobody fences anything while the table is disabled.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use hbase_rs::admin::TableState;
use tokio::time::{Instant, sleep};
use tsd_storage::StorageError;

use crate::{
    identity::{self, FoundIdentity},
    log::{ClusterLog, LogInner},
};

/// Timeout of a look at the table.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
/// Texts of a loss, as predicates of the table.
const DROPPED: &str = "does not exist any more";
const REPLACED: &str = "was emptied or created anew";

/// Looks at the table while heartbeats fail. Runs until the log is over.
pub(crate) async fn watch(log: Weak<LogInner>) {
    loop {
        let Some(inner) = log.upgrade().filter(|inner| !inner.is_over()) else { return };
        let heartbeat = inner.config.heartbeat;
        if inner.condition.unfenced_age() > heartbeat * 5 / 4 {
            inner.look_at_table().await;
        }
        drop(inner);
        sleep(heartbeat / 2).await;
    }
}

impl LogInner {
    /// Finds out whether the table is gone or closed.
    async fn look_at_table(&self) {
        let begun = Instant::now();
        let table = self.table.table.clone().with_timeout(LOOK_TIMEOUT);
        match table.state().await {
            Ok(None) => {
                self.lose(DROPPED);
            }
            Ok(Some(TableState::Disabled | TableState::Disabling)) => {
                if self.is_surely_owner() {
                    self.condition.is_unfenced_until(begun);
                }
            }
            Ok(Some(_)) => {
                let found = identity::read(&table, Instant::now() + LOOK_TIMEOUT).await;
                if found.is_ok_and(|found| self.is_replaced(found)) {
                    self.lose(REPLACED);
                }
            }
            Err(_) => {}
        }
    }

    /// True if the table with this identity is not the one that this process has opened.
    fn is_replaced(&self, found: FoundIdentity) -> bool {
        match found {
            FoundIdentity::Row(found) => found.birth != self.table.birth,
            FoundIdentity::NoRow => true,
            // Its state decides.
            FoundIdentity::NoTable => false,
        }
    }

    /// True if no other process can have fenced this one.
    fn is_surely_owner(&self) -> bool {
        // A node that has to leave is fenced although its heartbeats go on.
        self.check_fence().is_ok()
            && !self.must_leave()
            && self.condition.unfenced_age() < self.config.suspect_after / 2
    }

    /// Records that the table is gone. Returns the error for the caller.
    fn lose(&self, how: &str) -> StorageError {
        let is_owner = self.is_surely_owner();
        let rows = if is_owner {
            "this node flushes the rows that it holds in memory"
        } else {
            "another node may have taken over this log before, so this node does not flush its rows"
        };
        let text = format!(
            "{} {how}, so the log of this node is lost; {rows}, and acknowledges nothing until it is started again",
            self.name()
        );
        if self.condition.set_lost(text.clone(), is_owner) {
            tracing::error!("{text}");
        }
        self.condition.check().err().unwrap_or(StorageError::Closed)
    }

    /// Returns the error of a call that the table has refused without a fence: another process has taken over the log
    /// and removed it, or the table is not the same any more.
    pub(crate) async fn refusal(&self) -> StorageError {
        match identity::read(&self.table.table, Instant::now() + LOOK_TIMEOUT).await {
            Ok(FoundIdentity::NoTable) => self.lose(DROPPED),
            Ok(found) if self.is_replaced(found) => self.lose(REPLACED),
            Ok(_) => self.fenced(None),
            Err(error) => error,
        }
    }
}

impl ClusterLog {
    /// Looks once more whether the log table is gone, before the end of the process.
    pub async fn look_for_loss(&self) {
        let inner = Arc::clone(&self.inner);
        // An error means that the runtime ends.
        let _ = self.inner.runtime.spawn(async move { inner.look_at_table().await }).await;
    }

    /// True if no other node can have a log in the table either.
    pub(crate) fn is_lost_for_all(&self) -> bool {
        self.loss().is_some_and(|text| text.contains(DROPPED))
    }

    /// Why the log is lost; `None` while its table exists.
    #[must_use]
    pub fn loss(&self) -> Option<&str> {
        self.inner.condition.loss()
    }
}
