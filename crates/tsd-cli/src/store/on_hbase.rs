//! Client, logs and cluster node of an open store on HBase, and their closing. `hbase.rs` opens them.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use hbase_rs::Client;
use tracing::{info, warn};
use tsd_cluster_log::ClusterLog;
use tsd_storage::{Storage, StorageError};
use tsd_storage_wal::holds_log;

use super::{cluster::ClusterNodeHandle, log_mark, log_types::HBaseLog};

/// Client and log of a store on HBase.
#[derive(Clone, Debug)]
pub(crate) struct OnHBase {
    /// The client.
    pub(crate) client: Client,
    /// The log in front, and its directory if it is on this host.
    pub(crate) log: Option<(Arc<HBaseLog>, Option<PathBuf>)>,
    /// The log in a table of HBase.
    pub(crate) cluster_log: Option<Arc<ClusterLog>>,
    /// This daemon as a node of the cluster.
    pub(crate) cluster_node: Option<Arc<ClusterNodeHandle>>,
    /// True if remaining rows in the log are an error at the close.
    pub(crate) must_drain: bool,
}

impl OnHBase {
    /// Without a log.
    pub(super) const fn new(client: Client) -> Self {
        Self { client, log: None, cluster_log: None, cluster_node: None, must_drain: false }
    }

    /// Closes the store. Rows that are not flushed in time stay in the log. If the log is lost, they are an error.
    pub(crate) async fn close(&self, storage: &dyn Storage, limit: Duration) -> anyhow::Result<()> {
        let Some((log, directory)) = &self.log else {
            return storage.close().await.context("cannot close the store");
        };
        if let Some(log) = &self.cluster_log {
            log.look_for_loss().await;
        }
        let limit = if self.must_drain { Duration::MAX } else { limit };
        let error = match tokio::time::timeout(limit, storage.close()).await {
            Ok(Ok(())) => {
                self.end_cluster_log().await;
                return directory.as_deref().map_or(Ok(()), end_mark);
            }
            Ok(Err(error)) => error,
            Err(_) => StorageError::Timeout("HBase did not accept all rows in time"),
        };
        log.stop().await;
        if self.cluster_log.as_ref().is_some_and(|log| log.is_fenced()) {
            info!("the node that fenced this one stores its held rows");
            return Ok(());
        }
        if let Some(loss) = self.cluster_log.as_ref().and_then(|log| log.loss()) {
            let rows = log.held_row_count();
            let text = format!("acknowledged points are lost (rows: {rows}): {loss}");
            return if rows == 0 { Ok(()) } else { Err(error).context(text) };
        }
        let place = directory.as_ref().map(|directory| directory.display().to_string());
        let log = place.unwrap_or_else(|| "the log table".to_owned());
        if self.must_drain {
            return Err(error).with_context(|| {
                format!("some rows are not flushed to HBase; they are in {log}, and the next import flushes them \
                first")
            });
        }
        warn!(log, %error, "rows stay in the log; the next start flushes them to HBase");
        Ok(())
    }

    /// Retires the log in HBase, whose rows are all flushed.
    async fn end_cluster_log(&self) {
        let Some(log) = &self.cluster_log else { return };
        if let Some(loss) = log.loss() {
            warn!(loss, "the log is lost; all rows that this node held are in HBase");
            return;
        }
        match log.end().await {
            Ok(true) => {}
            Ok(false) => info!("the log in HBase is kept for the next start"),
            Err(error) => warn!(%error, "the log in HBase is kept for the next start"),
        }
    }
}

/// Records that a log was closed, unless it still has segments.
pub(super) fn end_mark(directory: &Path) -> anyhow::Result<()> {
    if !holds_log(directory).with_context(|| format!("cannot read {}", directory.display()))? {
        log_mark::end(directory)?;
    }
    Ok(())
}
