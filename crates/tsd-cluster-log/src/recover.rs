//! Recovers the log of a dead member: stores its rows while this node continues to write.
//!
//! A node recovers one log at a time; after a failure it tries the other logs first. If several nodes begin, one
//! takes the manifest and the others give up.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};
use tsd_cluster::{DeadLog, ManifestPhase, Recovery, RecoveryError};
use tsd_storage::{StorageError, boot_ms};
use tsd_storage_wal::{GroupIterator, LogRecoverer};

use crate::{
    former::FormerGroups,
    log::{LogInner, SharedRecovery},
};

/// Pause after a failed recovery.
const FAILED_PAUSE: Duration = Duration::from_secs(5);

/// A log that this node has taken.
pub(crate) struct FencedLog {
    pub(crate) recovery: SharedRecovery,
    /// When the lease of its owner has ended, milliseconds since boot. Before that, this node must neither retire the
    /// log nor serve for the slots of its owner.
    pub(crate) lease_end_ms: u64,
}

/// Why a recovery did not complete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecoverError {
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl LogInner {
    /// Begins the recovery of a dead member, unless a recovery is in progress.
    pub(crate) fn begin_recovery(self: &Arc<Self>) {
        let Some(recoverer) = self.recoverer() else { return };
        let Ok(turn) = Arc::clone(&self.recovering).try_lock_owned() else { return };
        let found = {
            let former = self.former();
            let failed = self.failed_recovery.load(Ordering::Relaxed);
            self.members.watch().recoverable(failed, |other| former.contains_key(&other))
        };
        let Some(dead) = found else { return };
        let incarnation = dead.incarnation;
        let log = Arc::clone(self);
        self.runtime.spawn(async move {
            let _turn = turn;
            match log.recover(dead, recoverer).await {
                Ok(()) => {}
                // Another node was first, or the owner is alive.
                Err(RecoverError::Recovery(
                    reason @ (RecoveryError::Taken { .. } | RecoveryError::Alive { .. }),
                )) => {
                    tracing::debug!(incarnation, %reason, "a log is not recovered");
                }
                // This log is closed, or is being recovered itself: another node continues.
                Err(_) if log.is_over() => {}
                Err(error) => {
                    log.metrics.recovery_failures.increment(1);
                    log.failed_recovery.store(incarnation, Ordering::Relaxed);
                    let text = tsd_storage::error_chain(&error);
                    tracing::error!(
                        incarnation,
                        error = text,
                        retry_in = ?FAILED_PAUSE,
                        "the log of a dead node cannot be recovered; reads wait for it"
                    );
                    sleep(FAILED_PAUSE).await;
                }
            }
        });
    }

    async fn recover(
        self: &Arc<Self>,
        DeadLog { incarnation, still, recoverer: former }: DeadLog,
        recoverer: Arc<dyn LogRecoverer>,
    ) -> Result<(), RecoverError> {
        let begun = Instant::now();
        let deadline = begun + self.config.start_timeout;
        let recovery = Recovery::new(incarnation, self.owner().incarnation());
        let recovery = former.into_iter().fold(recovery, Recovery::taking_over);
        let recovery = still.into_iter().fold(recovery, Recovery::standing_still);
        let Some(FencedLog { recovery, lease_end_ms }) = self.fence(recovery, deadline).await?
        else {
            return Ok(());
        };
        let (node, trimmed_ms) = {
            let recovery = recovery.lock().await;
            let manifest = recovery.manifest();
            manifest.map_or_else(Default::default, |of| (of.node.clone(), of.last_commit_ms))
        };
        tracing::warn!(
            incarnation,
            node,
            "fenced a node, whose heartbeats have stopped or which has not left in time"
        );
        let groups: GroupIterator =
            Box::new(FormerGroups::new(Arc::clone(self), Arc::clone(&recovery)));
        let (log, storer) = (Arc::clone(self), Arc::clone(&recoverer));
        let storing = spawn_blocking(move || storer.store(groups, &|| log.confirm_recent()));
        let stored = storing.await.unwrap_or(Err(StorageError::Closed))?;
        // The commit time comes first, because it must outlast the recovered log.
        let last_commit_ms = stored.last_commit_ms.max(trimmed_ms);
        recoverer.raise_commit_time(last_commit_ms);
        self.await_boot_ms(lease_end_ms).await;
        let deadline = Instant::now() + self.config.start_timeout;
        self.outlast(last_commit_ms, deadline).await?;
        if !self.retire(&recovery, deadline).await? {
            return Err(RecoveryError::Taken { incarnation }.into());
        }
        self.metrics.recoveries.increment(1);
        self.metrics.recovery_seconds.record(begun.elapsed());
        let (records, cells, took) = (stored.records, stored.cells, begun.elapsed());
        tracing::warn!(incarnation, node, records, cells, ?took, "stored the rows of a dead node");
        // Reads that wait for the recovery see its end now.
        self.look().await?;
        self.members.changed.notify_waiters();
        Ok(())
    }

    /// Fences a log. Returns `None` if the log is removed already.
    pub(crate) async fn fence(
        &self,
        mut recovery: Recovery,
        deadline: Instant,
    ) -> Result<Option<FencedLog>, RecoverError> {
        let mut lease_end_ms = 0;
        let is_retired = |of: &Recovery| {
            of.manifest().is_some_and(|manifest| manifest.phase == ManifestPhase::Retired)
        };
        while let Some(request) = recovery.request()
            && (!recovery.is_fenced() || is_retired(&recovery))
        {
            let reply = self.table.ask(&request, deadline).await?;
            recovery.reply(reply)?;
            if let Some(replaced) = recovery.replaced().filter(|_| lease_end_ms == 0) {
                let incarnation = recovery.incarnation();
                lease_end_ms = self.lease_watch().lease_end_ms(incarnation, replaced, boot_ms());
            }
        }
        let is_left = !recovery.is_done();
        Ok(is_left.then(|| {
            let recovery = Arc::new(tokio::sync::Mutex::new(recovery));
            FencedLog { recovery, lease_end_ms }
        }))
    }

    /// Waits until this time since boot.
    pub(crate) async fn await_boot_ms(&self, until_ms: u64) {
        // The timer stops while the machine is suspended, the boot clock does not.
        while let Some(left_ms) = until_ms.checked_sub(boot_ms()).filter(|left| *left > 0) {
            sleep(Duration::from_millis(left_ms)).await;
        }
    }
}
