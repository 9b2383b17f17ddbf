//! The nodes of a log table, for tools that are not members.

use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};

use hbase_rs::Client;
use tokio::time::{Instant, sleep};
use tsd_cluster::{
    ClusterId, Member, MemberState, MemberWatch, Membership, MembershipFuture, ProofError,
    Settlement, WatchTimes,
};

use crate::{config::ClusterLogConfig, error::OpenLogError, log_table};

/// Time between two looks at the state of a node.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Returns the cluster of a log table and the nodes that own a log in it, dead or alive. `None` means that the
/// table does not exist.
///
/// # Errors
///
/// If the table cannot be read within `work_timeout`, or is not the table of a log.
pub async fn listed_nodes(
    client: &Client,
    config: &ClusterLogConfig,
) -> Result<Option<(ClusterId, Vec<Member>)>, OpenLogError> {
    let listed = all_listed(client, config).await?;
    Ok(listed.map(|(cluster, mut members)| {
        members.retain(|member| member.state == MemberState::Serving);
        (cluster, members)
    }))
}

/// As [`listed_nodes`], including nodes that join or are recovered.
pub(crate) async fn all_listed(
    client: &Client,
    config: &ClusterLogConfig,
) -> Result<Option<(ClusterId, Vec<Member>)>, OpenLogError> {
    let Some(table) = log_table::find(client, config).await? else { return Ok(None) };
    let manifests = table.manifests(Instant::now() + config.work_timeout).await?;
    let times = WatchTimes { suspect_after: Duration::MAX, hinted_after: Duration::MAX };
    let mut watch = MemberWatch::new(0, times);
    watch.looked(Duration::ZERO, manifests);
    Ok(Some((table.keys.cluster(), watch.members())))
}

/// The members of a cluster, for a tool that is not a member. It recovers nobody, so it only observes the members.
#[derive(Debug)]
pub struct ListedMembers {
    client: Client,
    config: ClusterLogConfig,
    cluster: ClusterId,
    members: Mutex<Vec<Member>>,
}

impl ListedMembers {
    /// Reads the members of a log table; `None` if the table does not exist.
    ///
    /// # Errors
    ///
    /// As [`listed_nodes`].
    pub async fn find(
        client: &Client,
        config: &ClusterLogConfig,
    ) -> Result<Option<Arc<Self>>, OpenLogError> {
        let listed = all_listed(client, config).await?;
        let (client, config) = (client.clone(), config.clone());
        Ok(listed.map(|(cluster, members)| {
            Arc::new(Self { client, config, cluster, members: Mutex::new(members) })
        }))
    }

    async fn look(&self) -> Result<Vec<Member>, ProofError> {
        let listed = Box::pin(all_listed(&self.client, &self.config)).await;
        let listed = listed.map_err(|error| ProofError::Unavailable(error.to_string()))?;
        let members = listed.map_or_else(Vec::new, |(_, members)| members);
        self.members.lock().clone_from(&members);
        Ok(members)
    }
}

impl Membership for ListedMembers {
    fn cluster(&self) -> ClusterId {
        self.cluster
    }

    fn this(&self) -> u64 {
        // A tool has no incarnation.
        0
    }

    fn members(&self) -> Vec<Member> {
        self.members.lock().clone()
    }

    fn current(&self) -> MembershipFuture<'_, Result<Vec<Member>, ProofError>> {
        Box::pin(self.look())
    }

    fn prove(&self) -> MembershipFuture<'_, Result<(), ProofError>> {
        Box::pin(async { Err(ProofError::Fenced("a tool is no member".to_owned())) })
    }

    fn suspect(&self, _: u64) {}

    fn settled(&self, incarnation: u64) -> MembershipFuture<'_, Settlement> {
        Box::pin(async move {
            loop {
                let is_member = |member: &Member| {
                    member.incarnation == incarnation && member.state != MemberState::Left
                };
                if let Ok(members) = self.look().await
                    && !members.iter().any(is_member)
                {
                    return Settlement::Stored;
                }
                sleep(LOOK_INTERVAL).await;
            }
        })
    }
}
