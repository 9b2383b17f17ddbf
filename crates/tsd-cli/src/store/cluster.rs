//! This daemon as a node of a cluster: its listener for peers, reads of the rows that all nodes hold, and
//! `/api/cluster`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::{Arc, OnceLock, Weak},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context;
use bytes::Bytes;
use tokio::{net::TcpListener, time::timeout};
use tracing::{info, warn};
use tsd_cluster::{
    Assignment, Member, MemberState, Membership, SLOT_COUNT, SLOT_TAGS, SLOTS, SharedSettings,
    Slot, SlotCount, WIRE_VERSIONS,
};
use tsd_cluster_log::ClusterLog;
use tsd_cluster_net::{
    ClockWatch, ClusterReads, ClusterSlots, ForgottenNames, ForwardConfig, ForwardReceiver,
    ForwardedWrites, HotSlot, LinkWatch, NameOwners, NetConfig, NodeControl, NodeIdentity,
    NodeReport, NodeResponse, PeerError, PeerServer, PeerService, PeerTls, Peers, ReadConfig,
    ReadMemory, SlotLog, TimedReport,
};
use tsd_engine::{
    EngineHandle, MemoryConsumer, NamePeers, ProcessMemory, QueryId, UidKind, WeakEngineHandle,
};
use tsd_model::Uid;
use tsd_server::{
    CancelQueryError, ClusterFuture, ClusterNode, ClusterNodes, ClusterQueryId, ClusterStatus,
    DrainedNode, FlushedNode, HotSlotDetails, NodeDetails, NodeQueries, NodeSlots, SilentNodeError,
    SlotSummary, running_queries,
};
use tsd_storage::{BoxFuture, MeteredStorage, Storage, StorageError, Table};

use super::{log_types::HBaseLog, node_names::NodeNames, slot_tags};
use crate::{
    config::{ClusterNetSettings, Settings, host_name},
    data_directory::numbers,
    version,
};

/// Timeout for the status of the nodes.
const STATUS_LIMIT: Duration = Duration::from_secs(1);
/// Timeout for a flush of all nodes.
const FLUSH_LIMIT: Duration = Duration::from_mins(5);
/// Timeout for the owner of new names, if it responds to other requests.
const ASSIGN_LIMIT: Duration = Duration::from_mins(1);

/// The listener for peers, before it responds to requests, and the address that peers get.
#[derive(Debug)]
pub(super) struct PeerListener {
    listener: TcpListener,
    pub(super) advertised: String,
}

impl PeerListener {
    /// Binds the port, so that its address can be published before the node accepts points.
    pub(super) async fn bind(settings: &ClusterNetSettings) -> anyhow::Result<Self> {
        let bind = &settings.bind;
        let listener = TcpListener::bind(bind).await.with_context(|| {
            format!("cannot listen on {bind} for other nodes of the cluster (tsd.cluster.bind)")
        })?;
        let advertised = advertised(settings.advertise.as_deref(), listener.local_addr()?);
        Ok(Self { listener, advertised })
    }
}

/// Configuration of connections to nodes, for nodes and tools.
pub(super) fn net_config(settings: &ClusterNetSettings) -> anyhow::Result<NetConfig> {
    let load = |files| PeerTls::load(files).map(Arc::new);
    let tls = settings.tls.clone().map(load).transpose();
    let tls = tls.context("the certificates of tsd.cluster.tls cannot be used")?;
    Ok(NetConfig { tls, max_connections: settings.max_connections, ..NetConfig::default() })
}

/// The address that peers connect to. A configured address without a port gets the port of the listener. Without a
/// configured address, it is the address of the listener, or the host name if the listener uses all addresses.
fn advertised(set: Option<&str>, listens: SocketAddr) -> String {
    let port = listens.port();
    match set {
        Some(address) if has_port(address) => address.to_owned(),
        Some(host) => format!("{host}:{port}"),
        None if listens.ip().is_unspecified() => format!("{}:{port}", host_name()),
        None => listens.to_string(),
    }
}

/// True for `host:port` and `[v6]:port`.
fn has_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
    })
}

/// The settings that all nodes must share, because they decide the meaning of rows and names, or the results of
/// queries.
pub(super) fn shared_settings(settings: &Settings) -> SharedSettings {
    let (tables, hbase) = (&settings.engine.tables, &settings.storage.hbase);
    let (lowest, highest) = tsd_cluster_net::VERSIONS;
    let layout = numbers(settings.storage.schema).map(|(key, number)| (key, number.to_string()));
    let others = [
        (WIRE_VERSIONS, format!("{lowest}-{highest}")),
        ("tsd.storage.hbase.data_table", tables.data.as_str().to_owned()),
        ("tsd.storage.hbase.uid_table", tables.uid.as_str().to_owned()),
        ("tsd.storage.hbase.meta_table", tables.meta.as_str().to_owned()),
        ("tsd.storage.hbase.tree_table", tables.tree.as_str().to_owned()),
        ("tsd.storage.hbase.series_table", hbase.series_table.as_str().to_owned()),
        (SLOT_TAGS, slot_tags::text_of(&hbase.cluster_net.slot_tags)),
        (SLOT_COUNT, SLOTS.to_string()),
    ];
    let alike = hbase.cluster_net.alike.iter().cloned();
    SharedSettings::new(layout.into_iter().chain(others).chain(alike))
}

/// This daemon as a node of its cluster. It responds to peers until it is dropped.
#[derive(Debug)]
pub(crate) struct ClusterNodeHandle {
    pub(super) peers: Arc<Peers>,
    control: Arc<LogControl>,
    /// Its slots.
    slots: Arc<ClusterSlots>,
    names: Arc<NodeNames>,
    /// Which nodes this one reaches.
    pub(super) links: LinkWatch,
    server: PeerServer,
    _clock: ClockWatch,
}

impl ClusterNodeHandle {
    /// Sets the engine whose queries peers see, and whose caches forget names. Before this call the node has no
    /// queries and no caches.
    pub(crate) fn attach(&self, engine: &EngineHandle) {
        // A node has one engine.
        let _ = self.control.engine.set(engine.downgrade());
    }

    /// True once another node has connected to this one.
    pub(crate) fn was_reached(&self) -> bool {
        self.server.was_reached()
    }

    /// Names on the other nodes.
    pub(super) fn names(&self) -> Arc<dyn NamePeers> {
        Arc::<NodeNames>::clone(&self.names)
    }
}

/// The log and the engine of this node, for its peers.
#[derive(Debug)]
struct LogControl {
    log: Arc<HBaseLog>,
    /// Weak, because the store of the engine also refers to this value.
    engine: OnceLock<WeakEngineHandle>,
    /// Weak, because the slots also refer to this value.
    slots: OnceLock<Weak<ClusterSlots>>,
}

impl LogControl {
    /// The engine, while it runs.
    fn engine(&self) -> Option<EngineHandle> {
        self.engine.get().and_then(WeakEngineHandle::upgrade)
    }

    /// The names of the tag values of hot slots, by UID.
    async fn value_names(
        &self,
        responses: &[NodeResponse<TimedReport>],
    ) -> BTreeMap<Bytes, String> {
        let mut names = BTreeMap::new();
        let Some(engine) = self.engine() else { return names };
        let reports = responses.iter().filter_map(|response| response.response.as_ref().ok());
        let hot_slots = reports.flat_map(|(report, _)| &report.hot_slots);
        for value in hot_slots.filter_map(|hot_slot| hot_slot.value.clone()) {
            let Ok(uid) = Uid::try_new(&value) else { continue };
            if let Ok(name) = engine.uids().name_of(UidKind::Tagv, uid).await {
                names.insert(value, name);
            }
        }
        names
    }
}

impl NodeControl for LogControl {
    fn report(&self) -> NodeReport {
        let gauges = self.log.maintenance().gauges();
        let gauge = |name: &str| {
            let found = gauges.iter().find(|(known, _)| *known == name);
            found.map_or(0, |(_, value)| *value as u64)
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let slots = self.slots.get().and_then(Weak::upgrade);
        NodeReport {
            version: version::build_facts().version,
            log_bytes: gauge("tsd_wal_log_bytes"),
            rows: gauge("tsd_wal_memtable_rows"),
            memtable_bytes: gauge("tsd_wal_memtable_bytes"),
            time_ms: now.map_or(0, |now| now.as_millis() as i64),
            problems: self
                .log
                .maintenance()
                .health()
                .iter()
                .map(|problem| problem.reason.to_string())
                .collect(),
            hot_slots: slots.map_or_else(Vec::new, |slots| slots.hot_slots()),
        }
    }

    fn note_refusal(&self, node: &str, reason: &str) {
        // Debug output escapes control characters in texts of another process.
        warn!(node = ?node, reason = ?reason, "a node does not join the cluster");
    }

    fn queries(&self) -> BoxFuture<'_, String> {
        Box::pin(async {
            match self.engine() {
                Some(engine) => running_queries(&engine).await,
                None => "{}".to_owned(),
            }
        })
    }

    fn cancel_query(&self, id: u64) -> bool {
        self.engine().is_some_and(|engine| engine.reads().cancel_query(QueryId(id)))
    }

    fn forget(&self, names: &ForgottenNames) {
        if let Some(engine) = self.engine() {
            engine.forget_names(names.kind, &names.names, &names.uids);
        }
    }

    fn assign_uids(&self, kind: UidKind, names: Vec<Bytes>) -> BoxFuture<'_, Vec<Option<Uid>>> {
        Box::pin(async move {
            match self.engine() {
                Some(engine) => engine.assign_for_peer(kind, names).await,
                None => vec![None; names.len()],
            }
        })
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        self.log.flush()
    }
}

impl SlotLog for LogControl {
    fn flush(&self) -> BoxFuture<'_, Result<(), StorageError>> {
        self.log.flush()
    }

    fn last_commit_ms(&self) -> i64 {
        self.log.last_commit_ms()
    }
}

/// Accounts rows of other nodes to the memory of queries.
#[derive(Debug)]
struct QueryMemory(ProcessMemory);

impl ReadMemory for QueryMemory {
    fn try_reserve(&self, bytes: usize) -> Option<Box<dyn Send + Sync>> {
        let permit = self.0.try_reserve(MemoryConsumer::Queries, bytes)?;
        Some(Box::new(permit))
    }
}

/// Starts to respond to peers. Returns the store whose reads see the held rows of peers, and whose writes go to their
/// owners.
pub(super) fn join(
    settings: &Settings,
    (listener, net): (PeerListener, NetConfig),
    cluster_log: Arc<ClusterLog>,
    log: Arc<HBaseLog>,
    forward: ForwardConfig,
) -> anyhow::Result<(Arc<dyn Storage>, Arc<ClusterNodeHandle>)> {
    let hbase = &settings.storage.hbase;
    let membership: Arc<dyn Membership> = Arc::<ClusterLog>::clone(&cluster_log);
    let published = Arc::clone(&cluster_log);
    let identity = NodeIdentity {
        cluster: membership.cluster(),
        name: hbase.cluster_log.node.clone(),
        incarnation: membership.this(),
    };
    let rows = log.held_row_reader();
    let control = Arc::new(LogControl {
        log: Arc::clone(&log),
        engine: OnceLock::new(),
        slots: OnceLock::new(),
    });
    let peers = Arc::new(Peers::new(identity.clone(), net.clone(), Arc::clone(&membership)));
    let metered = Arc::new(MeteredStorage::new("log", log));
    let slot_log = Arc::<LogControl>::clone(&control);
    let slots = ClusterSlots::start(cluster_log, Arc::clone(&membership), slot_log);
    // A node has its slots once.
    let _ = control.slots.set(Arc::downgrade(&slots));
    let storage: Arc<dyn Storage> = if hbase.cluster_net.reads_held {
        let config = ReadConfig {
            tables: forward.tables.clone(),
            slots: Arc::<ClusterSlots>::clone(&slots),
            rule: Arc::clone(&forward.rule),
            patience: hbase.cluster_net.read_timeout,
            memory: Arc::new(QueryMemory(settings.engine.memory.clone())),
        };
        Arc::new(ClusterReads::new(metered, Arc::clone(&rows), Arc::clone(&peers), config))
    } else {
        metered
    };
    let storage = ForwardedWrites::new(storage, Arc::clone(&slots), Arc::clone(&peers), forward);
    let storage = Arc::new(storage);
    let writes: Option<Arc<dyn ForwardReceiver>> =
        Some(Arc::<ForwardedWrites<dyn Storage>>::clone(&storage));
    let node = Arc::<LogControl>::clone(&control);
    let read_slots = Arc::<ClusterSlots>::clone(&slots);
    let service = PeerService { rows, slots: read_slots, membership, writes, node };
    let PeerListener { listener, advertised } = listener;
    let server = PeerServer::start(listener, identity, net, service)?;
    // Not before: others would take a node that replays its log for one that they do not reach.
    published.publish_address(&advertised);
    info!(address = %server.local_addr(), advertised, "listening for the other nodes of the cluster");
    let clock = ClockWatch::start(Arc::clone(&peers), hbase.cluster_net.max_clock_skew);
    let limit = hbase.cluster_net.read_timeout;
    let owners = NameOwners::new(Arc::clone(&peers), Arc::clone(&slots), ASSIGN_LIMIT);
    let names = Arc::new(NodeNames { peers: Arc::clone(&peers), owners, limit });
    let links = LinkWatch::start(Arc::clone(&peers));
    let node = ClusterNodeHandle { peers, control, slots, names, links, server, _clock: clock };
    Ok((storage, Arc::new(node)))
}

/// Settings of forwarded writes, with the rule that all nodes share.
pub(super) fn forward_config(
    settings: &Settings,
    shared: &SharedSettings,
    tables: Vec<Table>,
) -> anyhow::Result<ForwardConfig> {
    let rule = slot_tags::rule(settings.storage.schema, shared)?;
    let timeout = settings.storage.hbase.cluster_net.forward_timeout;
    Ok(ForwardConfig { tables, rule, timeout })
}

impl ClusterNodeHandle {
    /// Gives all slots of this node to other nodes, before it stops.
    pub(crate) async fn drain(&self, limit: Duration) -> DrainedNode {
        self.drain_slots(limit, true).await
    }

    async fn drain_slots(&self, limit: Duration, stops: bool) -> DrainedNode {
        let slots = &self.slots;
        let before = slots.counts().owned;
        let drained =
            if stops { slots.drain_to_stop(limit).await } else { slots.drain(limit).await };
        let left = slots.counts().owned;
        let error = match drained {
            Ok(true) => {
                info!(slots = before, "drained: other nodes own the slots of this one");
                None
            }
            Ok(false) => {
                info!(left, "this node keeps its slots: no other node took them in time");
                Some("no other node took the slots in time".to_owned())
            }
            Err(error) => {
                let error = error.to_string();
                warn!(left, error, "not drained");
                Some(error)
            }
        };
        DrainedNode { slots: before.saturating_sub(left), left, error }
    }
}

impl ClusterNodes for ClusterNodeHandle {
    fn status(&self) -> ClusterFuture<'_, ClusterStatus> {
        Box::pin(async {
            let responses = self.peers.reports(&*self.control, STATUS_LIMIT).await;
            let assignment = self.slots.assignment();
            // While HBase does not answer, the names are missing.
            let names = timeout(STATUS_LIMIT, self.control.value_names(&responses)).await;
            let (counts, names) = (assignment.counts(), names.unwrap_or_default());
            let node = |response| node_of(response, &counts, &names);
            let nodes: Vec<ClusterNode> = responses.into_iter().map(node).collect();
            let slots = slot_summary(&assignment, &nodes);
            ClusterStatus { nodes, slots }
        })
    }

    fn drain(&self) -> ClusterFuture<'_, DrainedNode> {
        Box::pin(self.drain_slots(FLUSH_LIMIT, false))
    }

    fn flush(&self) -> ClusterFuture<'_, Vec<FlushedNode>> {
        Box::pin(async {
            let responses = self.peers.flush(&*self.control, FLUSH_LIMIT).await;
            let flushed = |response: NodeResponse<()>| FlushedNode {
                name: response.member.name,
                error: response.response.err().map(|error| error.to_string()),
            };
            responses.into_iter().map(flushed).collect()
        })
    }

    fn queries(&self) -> ClusterFuture<'_, Vec<NodeQueries>> {
        Box::pin(async {
            let responses = self.peers.queries(&*self.control, STATUS_LIMIT).await;
            let of_node =
                |NodeResponse { member, is_this, response }: NodeResponse<String>| NodeQueries {
                    name: member.name,
                    incarnation: member.incarnation,
                    is_this,
                    running: response.map_err(|error| SilentNodeError(error.to_string())),
                };
            responses.into_iter().map(of_node).collect()
        })
    }

    fn cancel_query(
        &self,
        id: ClusterQueryId,
    ) -> ClusterFuture<'_, Result<String, CancelQueryError>> {
        Box::pin(async move {
            let ClusterQueryId { incarnation, query } = id;
            let asked =
                self.peers.cancel_query(&*self.control, (incarnation, query), STATUS_LIMIT).await;
            let Some(NodeResponse { member, response, .. }) = asked else {
                return Err(CancelQueryError::NotRunning);
            };
            match response {
                Ok(()) => Ok(member.name),
                Err(PeerError::Failed(_)) => Err(CancelQueryError::NotRunning),
                Err(error) => {
                    let reason = error.to_string();
                    Err(CancelQueryError::Silent { node: member.name, reason })
                }
            }
        })
    }
}

fn slot_summary(of: &Assignment, nodes: &[ClusterNode]) -> SlotSummary {
    let listed: BTreeSet<u64> = nodes.iter().map(|node| node.incarnation).collect();
    let is_owned = |slot: &Slot| of.slot(*slot).owner.is_some_and(|owner| listed.contains(&owner));
    let without_owner = Slot::all().filter(|slot| !is_owned(slot)).count();
    SlotSummary { generation: of.generation, moving: of.moving_count(), without_owner }
}

fn node_slots(counts: &BTreeMap<u64, SlotCount>, incarnation: u64) -> NodeSlots {
    let SlotCount { owned, moving_in, moving_out } =
        counts.get(&incarnation).copied().unwrap_or_default();
    NodeSlots { owned, moving_in, moving_out }
}

/// The state of a node in `/api/cluster`.
pub(super) const fn state_name(state: MemberState) -> &'static str {
    match state {
        MemberState::Joining => "joining",
        MemberState::Serving => "serving",
        MemberState::Removed => "leaving",
        MemberState::Suspected => "suspected",
        MemberState::Recovering { .. } => "recovering",
        MemberState::Left => "left",
    }
}

fn node_of(
    response: NodeResponse<TimedReport>,
    counts: &BTreeMap<u64, SlotCount>,
    names: &BTreeMap<Bytes, String>,
) -> ClusterNode {
    let Member { name, incarnation, address, state, heartbeat_age, log_bytes, .. } =
        response.member;
    let hot_slot = |HotSlot { slot, percent, value }: HotSlot| HotSlotDetails {
        slot,
        percent,
        name: value.and_then(|value| names.get(&value).cloned()),
    };
    let details = |(report, clock_ahead_ms): TimedReport| NodeDetails {
        version: report.version,
        held_bytes: report.memtable_bytes,
        held_rows: report.rows,
        clock_ahead_ms,
        problems: report.problems,
        hot_slots: report.hot_slots.into_iter().map(hot_slot).collect(),
    };
    // The node's own figure is newer than the one in the log table.
    let log_bytes = response.response.as_ref().map_or(log_bytes, |(report, _)| report.log_bytes);
    ClusterNode {
        name,
        address: address.unwrap_or_default(),
        state: match state {
            MemberState::Joining | MemberState::Serving if response.response.is_err() => {
                "unreachable"
            }
            state => state_name(state),
        },
        incarnation,
        is_this: response.is_this,
        heartbeat_age_ms: u64::try_from(heartbeat_age.as_millis()).unwrap_or(u64::MAX),
        log_bytes,
        slots: node_slots(counts, incarnation),
        report: response.response.map(details).map_err(|error| SilentNodeError(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tsd_cluster::SlotOwner;

    use super::*;

    #[test]
    fn slots_of_nodes_that_are_gone_have_no_owner() {
        let mut of = Assignment::default().next_generation(1, 0);
        for slot in Slot::all() {
            of.set(slot, SlotOwner { owner: Some(1), next: None });
        }
        of.set(Slot::try_new(0).unwrap(), SlotOwner::default());
        of.set(Slot::try_new(1).unwrap(), SlotOwner { owner: Some(9), next: Some(1) });
        let expected = NodeSlots { owned: SLOTS - 2, moving_in: 1, moving_out: 0 };
        assert_eq!(node_slots(&of.counts(), 1), expected);
        let node = ClusterNode {
            name: "a".to_owned(),
            address: String::new(),
            state: "serving",
            incarnation: 1,
            is_this: true,
            heartbeat_age_ms: 0,
            log_bytes: 0,
            slots: NodeSlots::default(),
            report: Err(SilentNodeError(String::new())),
        };
        let expected = SlotSummary { generation: 1, moving: 1, without_owner: 2 };
        assert_eq!(slot_summary(&of, &[node]), expected);
    }

    #[test]
    fn the_advertised_address_is_one_that_others_reach() {
        let own = host_name();
        for (set, listens, expected) in [
            (None, "10.0.0.1:4243", "10.0.0.1:4243".to_owned()),
            (None, "[::1]:4243", "[::1]:4243".to_owned()),
            (None, "0.0.0.0:7", format!("{own}:7")),
            (None, "[::]:7", format!("{own}:7")),
            (Some("tsd1"), "0.0.0.0:7", "tsd1:7".to_owned()),
            (Some("tsd1:9"), "0.0.0.0:7", "tsd1:9".to_owned()),
            (Some("[fe80::1]:9"), "0.0.0.0:7", "[fe80::1]:9".to_owned()),
        ] {
            assert_eq!(advertised(set, listens.parse().unwrap()), expected);
        }
    }
}
