//! The nodes of a log table, as one that is none of them sees them.

use std::time::Duration;

use hbase_rs::Client;
use tokio::time::Instant;
use tsd_cluster::{ClusterId, Member, MemberState, MemberWatch, WatchTimes};

use crate::{config::ClusterLogConfig, error::OpenLogError, log_table};

/// The cluster of a log table and the nodes that own a log in it; whether they are alive is not known. `None`:
/// there is no such table.
///
/// # Errors
///
/// If the table cannot be read in the time of other work, or is none of a log.
pub async fn listed_nodes(
    client: &Client,
    config: &ClusterLogConfig,
) -> Result<Option<(ClusterId, Vec<Member>)>, OpenLogError> {
    let Some(table) = log_table::find(client, config).await? else { return Ok(None) };
    let manifests = table.manifests(Instant::now() + config.work_timeout).await?;
    let times = WatchTimes { suspect_after: Duration::MAX, hinted_after: Duration::MAX };
    let mut watch = MemberWatch::new(0, times);
    watch.looked(Duration::ZERO, manifests);
    let mut members = watch.members();
    members.retain(|member| member.state == MemberState::Serving);
    Ok(Some((table.keys.cluster(), members)))
}
