//! Shows the nodes in the log table and the settings that they share, and changes those that may change.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use hbase_rs::Client;
use tokio::time::Instant;
use tsd_cluster::{ClusterId, Member, SharedSettings};
use tsd_cluster_log::{
    ChangedSetting, ClusterLogConfig, MemberVersionsError, adopt_settings, members_by_clock,
    stored_settings,
};
use tsd_cluster_net::{NetConfig, NodeIdentity, PeerClient};
use tsd_engine::UidTable;
use tsd_storage_hbase::HBaseStorage;

use super::{
    cluster::{net_config, shared_settings, state_name},
    found_hbase::find_cluster,
    slot_tags,
};
use crate::config::{ClusterNetSettings, EngineKind, Settings};

/// Name of this tool, as nodes see it.
const TOOL: &str = "tsdb cluster settings";

/// The cluster of a log table, and the settings here.
#[derive(Debug)]
pub(crate) struct ClusterSettings {
    client: Client,
    log: ClusterLogConfig,
    net: ClusterNetSettings,
    uids: UidTable,
}

impl ClusterSettings {
    /// Finds the HBase of the configuration and the cluster in it.
    pub(crate) async fn find(settings: &Settings) -> anyhow::Result<Self> {
        anyhow::ensure!(
            settings.storage.engine == EngineKind::HBase,
            "a cluster needs HBase, and tsd.storage.engine is not hbase"
        );
        let hbase = &settings.storage.hbase;
        let log =
            ClusterLogConfig { shared: shared_settings(settings), ..hbase.cluster_log.clone() };
        let client = hbase.client()?;
        find_cluster(&client, settings, hbase.start_timeout).await?;
        let store = HBaseStorage::with_client(client.clone(), hbase.cluster.clone())?;
        let uids = slot_tags::uid_table(settings, Arc::new(store));
        Ok(Self { client, log, net: hbase.cluster_net.clone(), uids })
    }

    /// The table with the settings.
    pub(crate) fn table(&self) -> &str {
        &self.log.table
    }

    /// All nodes in the log table, with their states; `None` if there is no such table.
    pub(crate) async fn members(&self) -> anyhow::Result<Option<Vec<(Member, &'static str)>>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let now_ms = i64::try_from(now.as_millis())?;
        let members = Box::pin(members_by_clock(&self.client, &self.log, now_ms)).await?;
        let with_state = |member: Member| {
            let state = state_name(member.state);
            (member, state)
        };
        Ok(members.map(|members| members.into_iter().map(with_state).collect()))
    }

    /// The settings of this configuration.
    pub(crate) const fn own(&self) -> &SharedSettings {
        &self.log.shared
    }

    /// The settings of the cluster; `None` if no node has started yet.
    pub(crate) async fn stored(&self) -> anyhow::Result<Option<SharedSettings>> {
        Ok(Box::pin(stored_settings(&self.client, &self.log)).await?)
    }

    /// Writes the settings of this configuration that may change to the cluster.
    pub(crate) async fn adopt(&self) -> anyhow::Result<Vec<ChangedSetting>> {
        let net = net_config(&self.net)?;
        let speaks = async |cluster, members| self.all_speak(&net, cluster, members).await;
        let log = slot_tags::with_uids(&self.client, self.log.clone(), &self.uids, true).await?;
        Ok(Box::pin(adopt_settings(&self.client, &log, speaks)).await?)
    }

    /// Checks that all nodes speak a version of this release, by connecting to each node.
    async fn all_speak(
        &self,
        net: &NetConfig,
        cluster: ClusterId,
        members: Vec<Member>,
    ) -> Result<(), MemberVersionsError> {
        let identity = NodeIdentity { cluster, name: TOOL.to_owned(), incarnation: 0 };
        let identity = Arc::new(identity);
        for member in members {
            let Some(address) = &member.address else { continue };
            let peer = PeerClient::new(
                address.as_str(),
                member.incarnation,
                Arc::clone(&identity),
                net.clone(),
            );
            let probed = peer.probe(Instant::now() + self.net.read_timeout).await;
            probed
                .map_err(|error| MemberVersionsError(format!("node {}: {error}", member.name)))?;
        }
        Ok(())
    }
}
