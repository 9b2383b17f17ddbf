//! The nodes of a log table, for tools that are not members.

use parking_lot::Mutex;
use std::{collections::BTreeSet, sync::Arc, time::Duration};

use hbase_rs::Client;
use tokio::time::{Instant, sleep};
use tsd_cluster::{
    ClusterDigest, ClusterId, Manifest, Member, MemberState, MemberWatch, Membership,
    MembershipFuture, ProofError, Settlement, WatchTimes,
};

use tsd_storage::StorageError;

use crate::{calls::LogTable, config::ClusterLogConfig, error::OpenLogError, log_table};

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
        // Dead nodes too.
        members
            .retain(|member| matches!(member.state, MemberState::Serving | MemberState::Suspected));
        (cluster, members)
    }))
}

/// Returns all nodes of a log table; `None` if the table does not exist. One look cannot see whether heartbeats go on,
/// so their age is the distance of their times from `now_ms`, the clock of this host.
///
/// # Errors
///
/// As [`listed_nodes`].
pub async fn members_by_clock(
    client: &Client,
    config: &ClusterLogConfig,
    now_ms: i64,
) -> Result<Option<Vec<Member>>, OpenLogError> {
    let Some(table) = log_table::find(client, config).await? else { return Ok(None) };
    let deadline = Instant::now() + config.work_timeout;
    let (digest, manifests) = digest_and_manifests(&table, deadline).await?;
    // Without a second look nobody is suspected.
    let mut watch = MemberWatch::new(0, WatchTimes::NEVER);
    watch.looked(Duration::ZERO, digest, manifests.clone());
    let with_age = |(mut member, (_, manifest)): (Member, (u64, Manifest))| {
        let age_ms = now_ms.saturating_sub(manifest.heartbeat_ms).max(0);
        member.heartbeat_age = Duration::from_millis(age_ms.unsigned_abs());
        let is_still = member.heartbeat_age >= config.suspect_after;
        if is_still && matches!(member.state, MemberState::Serving | MemberState::Joining) {
            member.state = MemberState::Suspected;
        }
        member
    };
    // Both are in the order of the incarnations.
    Ok(Some(watch.members().into_iter().zip(manifests).map(with_age).collect()))
}

/// Reads the digest, then all manifests.
async fn digest_and_manifests(
    table: &LogTable,
    deadline: Instant,
) -> Result<(ClusterDigest, Vec<(u64, Manifest)>), StorageError> {
    let digest = table.digest(&ClusterDigest::default(), deadline).await?.digest;
    Ok((digest, table.manifests(deadline).await?))
}

/// As [`listed_nodes`], including nodes that join or are recovered.
pub(crate) async fn all_listed(
    client: &Client,
    config: &ClusterLogConfig,
) -> Result<Option<(ClusterId, Vec<Member>)>, OpenLogError> {
    let Some(table) = log_table::find(client, config).await? else { return Ok(None) };
    let deadline = Instant::now() + config.work_timeout;
    let (digest, manifests) = digest_and_manifests(&table, deadline).await?;
    let mut watch = MemberWatch::new(0, WatchTimes::NEVER);
    watch.looked(Duration::ZERO, digest, manifests);
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

    fn prove_by_append(&self) -> MembershipFuture<'_, Result<(), ProofError>> {
        self.prove()
    }

    fn suspect(&self, _: u64) {}

    fn report_unreached(&self, _: BTreeSet<u64>) {}

    fn beats(&self) -> bool {
        false
    }

    fn note_other_beat(&self) {}

    fn to_reach(&self) -> Vec<Member> {
        Vec::new()
    }

    fn unreachable(&self, _: &BTreeSet<u64>) -> BTreeSet<u64> {
        BTreeSet::new()
    }

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
