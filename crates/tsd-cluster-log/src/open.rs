//! Makes this process a member. It takes an incarnation, puts a manifest, fences the former process of the same
//! name, and opens a first segment.

use std::{collections::BTreeMap, sync::Arc};

use hbase_rs::Client;
use tokio::{
    runtime::Handle,
    time::{Instant, sleep},
};
use tsd_cluster::{
    ChangeOutcome, LogOwner, Manifest, ManifestChange, ManifestPhase, Recovery, RecoveryError,
};
use tsd_storage::{StorageError, system_clock_ms};
use tsd_storage_wal::{FormerLog, FormerLogs, LogPosition};

use crate::{
    attribute_check,
    config::ClusterLogConfig,
    error::OpenLogError,
    former::FormerGroups,
    heartbeat::beat,
    incarnation,
    log::{ClusterLog, LogInner, SharedRecovery},
    log_table::{self, OpenedTable},
    looks,
    maintenance::{drive_change, keep_standby},
    members::namesake_watch,
    orphans,
    recover::{FencedLog, RecoverError},
    shared, table_loss,
};

/// A log that this process owns.
#[derive(Debug)]
pub struct OpenedLog {
    /// The log.
    pub log: Arc<ClusterLog>,
    /// The logs of former processes of the same name, which are fenced.
    pub former: FormerLogs,
}

/// Joins the cluster of a log table. On return former processes of the same name are fenced; the iterators of
/// [`FormerLogs`] read their logs. Dead nodes with other names are recovered later.
///
/// # Errors
///
/// If the table differs from what the log needs, HBase does not answer in time, settings differ from the
/// cluster's, or a node of the same name is alive.
pub async fn open(client: &Client, config: ClusterLogConfig) -> Result<OpenedLog, OpenLogError> {
    let runtime = Handle::try_current()?;
    let deadline = Instant::now() + config.start_timeout;
    let OpenedTable { table, is_checked } = log_table::open(client, &config, deadline).await?;
    shared::check(&table, &config.shared, deadline).await?;
    let incarnation = incarnation::take(&table, deadline).await?;
    let mut manifest = Manifest::first(incarnation, &config.node, 1);
    manifest.phase = ManifestPhase::Joining;
    manifest.heartbeat_ms = system_clock_ms();
    // The last commit time must outlast the manifests of the other nodes.
    let found = table.manifests(deadline).await?;
    let last_commit_ms = found.iter().map(|(_, manifest)| manifest.last_commit_ms).max();
    manifest.last_commit_ms = last_commit_ms.unwrap_or(i64::MIN);
    let mut change = ManifestChange::new(incarnation, None, manifest.clone());
    if drive_change(&table, &mut change, deadline).await? == ChangeOutcome::Refused {
        let text = format!("incarnation {incarnation} has a manifest already");
        return Err(StorageError::Damaged(text.into()).into());
    }
    // The settings may have changed before this node was listed.
    let unchanged = shared::check(&table, &config.shared, deadline).await;
    let owner = LogOwner::new(incarnation, manifest);
    let log = ClusterLog::new(Arc::new(LogInner::new(table, config, runtime, owner)));
    let inner = &log.inner;
    inner.runtime.spawn(beat(Arc::downgrade(inner)));
    inner.runtime.spawn(looks::watch(Arc::downgrade(inner)));
    inner.runtime.spawn(table_loss::watch(Arc::downgrade(inner)));
    if !is_checked {
        inner.runtime.spawn(attribute_check::run(client.clone(), Arc::downgrade(inner)));
    }
    let former = match unchanged {
        Ok(()) => inner.take_over(deadline).await,
        Err(error) => Err(error),
    };
    let former = match former {
        Ok(former) => former,
        Err(error) => {
            if let Err(error) = inner.give_up().await {
                tracing::debug!(%error, "other nodes will detect that this node did not start");
            }
            return Err(error);
        }
    };
    inner.runtime.spawn(keep_standby(Arc::downgrade(inner)));
    inner.runtime.spawn(orphans::clean(Arc::downgrade(inner)));
    inner.wake.notify_one();
    tracing::info!(log = inner.name(), incarnation, former = former.logs.len(), "owns a log");
    Ok(OpenedLog { log: Arc::new(log), former })
}

/// True if the log table has a log that its owner has not ended. Its points may be stored nowhere else, so a
/// daemon that does not use the log must not start.
///
/// # Errors
///
/// If the table cannot be read.
pub async fn is_in_use(client: &Client, config: &ClusterLogConfig) -> Result<bool, OpenLogError> {
    let deadline = Instant::now() + config.start_timeout;
    let Some(table) = log_table::find(client, config).await? else { return Ok(false) };
    let manifests = table.manifests(deadline).await?;
    Ok(manifests.iter().any(|(_, manifest)| manifest.phase != ManifestPhase::Retired))
}

impl LogInner {
    /// Fences the former processes of this name, removes ended logs, and opens a segment.
    async fn take_over(self: &Arc<Self>, deadline: Instant) -> Result<FormerLogs, OpenLogError> {
        let found = self.former_manifests(deadline).await?;
        let last_commit_ms = found.iter().map(|(_, manifest)| manifest.last_commit_ms).max();
        let mut recoveries: BTreeMap<u64, SharedRecovery> = BTreeMap::new();
        let name = self.owner().manifest().node.clone();
        let mut leases_end_ms = 0;
        let is_former = |of: u64| found.iter().any(|(id, old)| *id == of && old.node == name);
        for (incarnation, manifest) in &found {
            let writer = manifest.revision.writer;
            let recovery = Recovery::new(*incarnation, self.owner().incarnation());
            let recovery = match manifest.phase {
                _ if manifest.phase.is_owned() && manifest.node == name => recovery,
                ManifestPhase::Recovering if is_former(writer) => recovery.taking_over(writer),
                ManifestPhase::Retired => recovery,
                _ => continue,
            };
            if let Some(fenced) = self.fence_former(recovery, deadline).await? {
                let node = &manifest.node;
                tracing::info!(incarnation, node, "fenced a former owner of a log");
                leases_end_ms = leases_end_ms.max(fenced.lease_end_ms);
                recoveries.insert(*incarnation, fenced.recovery);
            }
        }
        self.former().extend(recoveries.clone());
        self.open_up_to(1, deadline).await?;
        // After this look the members include this node and the others at once, not only after the first
        // heartbeat.
        self.look().await?;
        // A former process may be alive without heartbeats, and answer reads by its lease.
        self.await_boot_ms(leases_end_ms).await;
        let log = |(incarnation, recovery)| FormerLog {
            position: LogPosition { incarnation, sequence: u64::MAX },
            groups: Box::new(FormerGroups::new(Arc::clone(self), recovery)),
        };
        let last_commit_ms = last_commit_ms.filter(|last| *last != i64::MIN);
        Ok(FormerLogs { logs: recoveries.into_iter().map(log).collect(), last_commit_ms })
    }

    /// Fences a former process. Returns `None` if its log is removed, or if another node already stores its
    /// rows.
    async fn fence_former(
        &self,
        recovery: Recovery,
        deadline: Instant,
    ) -> Result<Option<FencedLog>, OpenLogError> {
        loop {
            match self.fence(recovery.clone(), deadline).await {
                Ok(fenced) => return Ok(fenced),
                Err(RecoverError::Recovery(RecoveryError::Taken { incarnation })) => {
                    // HBase may have executed a change late that the former process itself had sent.
                    let found = self.table.manifests(deadline).await?;
                    if !found
                        .iter()
                        .any(|(of, manifest)| *of == incarnation && manifest.phase.is_owned())
                    {
                        return Ok(None);
                    }
                }
                Err(RecoverError::Recovery(error)) => return Err(error.into()),
                Err(RecoverError::Storage(error)) => return Err(error.into()),
            }
        }
    }

    /// Returns all earlier manifests. Fails if an earlier node of the same name is alive, which shows by a
    /// change of its manifest. Watches only if such a manifest has a recent heartbeat.
    async fn former_manifests(
        &self,
        deadline: Instant,
    ) -> Result<Vec<(u64, Manifest)>, OpenLogError> {
        let (this, name) = {
            let owner = self.owner();
            (owner.incarnation(), owner.manifest().node.clone())
        };
        let watched_until = Instant::now() + namesake_watch(self.config.heartbeat);
        let stale_ms = self.config.suspect_after.as_millis() as i64;
        let mut revisions = BTreeMap::new();
        loop {
            let mut found = self.table.manifests(deadline).await?;
            self.note_revisions(&found);
            found.retain(|(incarnation, _)| *incarnation < this);
            let mut may_be_alive = false;
            for (incarnation, manifest) in &found {
                if manifest.node != name || !manifest.phase.is_owned() {
                    continue;
                }
                let revision = manifest.revision.number;
                if *revisions.entry(*incarnation).or_insert(revision) != revision {
                    let address = manifest.address.clone();
                    let incarnation = *incarnation;
                    return Err(OpenLogError::NameInUse { name, incarnation, address });
                }
                let age_ms = system_clock_ms().saturating_sub(manifest.heartbeat_ms);
                may_be_alive |= age_ms < stale_ms;
            }
            if !may_be_alive || Instant::now() >= watched_until {
                return Ok(found);
            }
            sleep(self.config.heartbeat / 4).await;
        }
    }
}
