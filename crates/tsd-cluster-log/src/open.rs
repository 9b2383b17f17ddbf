//! Takes the log over: an incarnation, a manifest, the fences of all earlier owners, a first segment.

use std::{collections::BTreeMap, sync::Arc};

use hbase_rs::Client;
use tokio::{runtime::Handle, time::Instant};
use tsd_cluster::{
    ChangeOutcome, LogOwner, Manifest, ManifestChange, ManifestPhase, Recovery, TableReply,
    TableRequest,
};
use tsd_storage::StorageError;
use tsd_storage_wal::{FormerLog, FormerLogs, LogPosition};

use crate::{
    calls::{CallFailure, LogTable},
    config::ClusterLogConfig,
    error::OpenLogError,
    former::FormerGroups,
    incarnation,
    log::{ClusterLog, LogInner, SharedRecovery},
    log_table,
    maintenance::{drive_change, keep_standby},
};

/// A log that this process owns.
#[derive(Debug)]
pub struct OpenedLog {
    /// The log.
    pub log: Arc<ClusterLog>,
    /// What the earlier owners have left. They are fenced.
    pub former: FormerLogs,
}

/// Takes the log over. All earlier owners are fenced when it returns; what they have left is read by the
/// iterators of [`FormerLogs`].
///
/// # Errors
///
/// If the table is not as it must be, if HBase does not answer in time, or if a newer process takes the
/// log over meanwhile.
pub async fn open(client: &Client, config: ClusterLogConfig) -> Result<OpenedLog, OpenLogError> {
    let runtime = Handle::try_current()?;
    let deadline = Instant::now() + config.start_timeout;
    let table = log_table::open(client, &config).await?;
    let incarnation = incarnation::take(&table, deadline).await?;
    let mut manifest = Manifest::first(incarnation, &config.node, 1);
    // It outlasts the manifests that it is of.
    manifest.last_commit_ms = last_commit_ms(&table, deadline).await?;
    let mut change = ManifestChange::new(incarnation, None, manifest.clone());
    if drive_change(&table, &mut change, deadline).await? == ChangeOutcome::Refused {
        let text = format!("incarnation {incarnation} has a manifest already");
        return Err(StorageError::Damaged(text.into()).into());
    }
    let before = Some(manifest.last_commit_ms).filter(|last| *last != i64::MIN);
    let (recoveries, last_commit_ms) = fence_all(&table, incarnation, deadline).await?;
    let last_commit_ms = last_commit_ms.max(before);
    let owner = LogOwner::new(incarnation, manifest);
    let inner = Arc::new(LogInner::new(table, config, runtime, owner, recoveries.clone()));
    inner.open_segment(deadline).await?;
    inner.runtime.spawn(keep_standby(Arc::downgrade(&inner)));
    inner.wake.notify_one();
    let logs = recoveries.into_iter().map(|(incarnation, recovery)| FormerLog {
        position: LogPosition { incarnation, sequence: u64::MAX },
        groups: Box::new(FormerGroups::new(Arc::clone(&inner), recovery)),
    });
    let former = FormerLogs { logs: logs.collect(), last_commit_ms };
    tracing::info!(log = inner.name(), incarnation, former = former.logs.len(), "owns the log");
    Ok(OpenedLog { log: Arc::new(ClusterLog::new(inner)), former })
}

/// True if the log table exists, and somebody who acknowledged points by it has not ended the log: it may have
/// points that are nowhere else. A daemon that does not use the log must not start then.
///
/// # Errors
///
/// If the table cannot be read.
pub async fn is_in_use(client: &Client, config: &ClusterLogConfig) -> Result<bool, OpenLogError> {
    let deadline = Instant::now() + config.start_timeout;
    let Some(table) = log_table::find(client, config).await? else { return Ok(false) };
    for incarnation in incarnations(&table, deadline).await? {
        let request = TableRequest::ReadManifest { incarnation };
        if let TableReply::Manifest(Some(manifest)) = table.ask(&request, deadline).await?
            && manifest.phase != ManifestPhase::Retired
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Earlier logs that are not retired, all fenced, and the last commit time of what was trimmed of them.
type FencedLogs = (BTreeMap<u64, SharedRecovery>, Option<i64>);

/// The last commit time in all manifests.
async fn last_commit_ms(table: &LogTable, deadline: Instant) -> Result<i64, OpenLogError> {
    let mut last = i64::MIN;
    for incarnation in incarnations(table, deadline).await? {
        let request = TableRequest::ReadManifest { incarnation };
        if let TableReply::Manifest(Some(manifest)) = table.ask(&request, deadline).await? {
            last = last.max(manifest.last_commit_ms);
        }
    }
    Ok(last)
}

/// Fences all earlier owners.
async fn fence_all(
    table: &LogTable,
    by: u64,
    deadline: Instant,
) -> Result<FencedLogs, OpenLogError> {
    let mut recoveries = BTreeMap::new();
    let mut last_commit_ms = None;
    let earlier = incarnations(table, deadline).await?.into_iter().filter(|other| *other < by);
    for incarnation in earlier {
        let mut recovery = Recovery::new(incarnation, by);
        let is_retired = |of: &Recovery| {
            of.manifest().is_some_and(|manifest| manifest.phase == ManifestPhase::Retired)
        };
        while let Some(request) = recovery.request()
            && (!recovery.is_fenced() || is_retired(&recovery))
        {
            let reply: TableReply = table.ask(&request, deadline).await?;
            recovery.reply(reply)?;
        }
        if let Some(manifest) = recovery.manifest() {
            last_commit_ms = last_commit_ms.max(Some(manifest.last_commit_ms));
            tracing::info!(incarnation, node = manifest.node, "fenced an earlier owner of the log");
        }
        if !recovery.is_done() {
            recoveries.insert(incarnation, Arc::new(tokio::sync::Mutex::new(recovery)));
        }
    }
    Ok((recoveries, last_commit_ms.filter(|last| *last != i64::MIN)))
}

async fn incarnations(table: &LogTable, deadline: Instant) -> Result<Vec<u64>, StorageError> {
    loop {
        match table.incarnations().await {
            Ok(found) => return Ok(found),
            Err(CallFailure::Fail(error)) => return Err(error),
            Err(CallFailure::Repeat(text)) if Instant::now() >= deadline => {
                return Err(table.unavailable(&text));
            }
            Err(CallFailure::Repeat(_)) => {}
        }
    }
}
