//! The nodes of a log table, as one that is none of them sees them.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hbase_rs::Client;
use tokio::time::{Instant, sleep};
use tsd_cluster::{
    ClusterId, Member, MemberState, MemberWatch, Membership, MembershipFuture, ProofError,
    Settlement, WatchTimes,
};

use crate::{config::ClusterLogConfig, error::OpenLogError, log_table};

/// Time between two looks for what becomes of a node.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

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
    let listed = all_listed(client, config).await?;
    Ok(listed.map(|(cluster, mut members)| {
        members.retain(|member| member.state == MemberState::Serving);
        (cluster, members)
    }))
}

/// As [`listed_nodes`], also those that join, or are recovered.
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

/// The members of a cluster, for a tool that is none of them. It recovers nobody, so it only sees what the members
/// do.
#[derive(Debug)]
pub struct ListedMembers {
    client: Client,
    config: ClusterLogConfig,
    cluster: ClusterId,
    members: Mutex<Vec<Member>>,
}

impl ListedMembers {
    /// Those of the log table; `None` if there is no such table.
    ///
    /// # Errors
    ///
    /// Those of [`listed_nodes`].
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

    fn lock(&self) -> MutexGuard<'_, Vec<Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look(&self) -> Result<Vec<Member>, ProofError> {
        let listed = Box::pin(all_listed(&self.client, &self.config)).await;
        let listed = listed.map_err(|error| ProofError::Unavailable(error.to_string()))?;
        let members = listed.map_or_else(Vec::new, |(_, members)| members);
        self.lock().clone_from(&members);
        Ok(members)
    }
}

impl Membership for ListedMembers {
    fn cluster(&self) -> ClusterId {
        self.cluster
    }

    fn this(&self) -> u64 {
        // No incarnation.
        0
    }

    fn members(&self) -> Vec<Member> {
        self.lock().clone()
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
