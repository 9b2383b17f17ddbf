//! Discovery by RPC, without ZooKeeper.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::{
    Client, ClientConfig, ServerName,
    discovery::{Discovery, DiscoveryError, RegistryDiscovery, RegistryServer},
    errors::Failure,
    transport::{
        Destination, PlainTransport, Role, Transport, TransportError, TransportErrorKind,
        TransportFuture,
    },
};
use tokio::{net::TcpListener, time::timeout};

use super::{chain, config, fill, get};

fn server(name: &ServerName) -> RegistryServer {
    RegistryServer { host: name.host().to_owned(), port: name.port(), role: None }
}

/// A registry that asks these servers of a cluster.
fn registry(cluster: &FakeCluster, servers: &[usize]) -> RegistryDiscovery {
    registry_with(cluster, servers, config())
}

fn registry_with(
    cluster: &FakeCluster,
    servers: &[usize],
    config: ClientConfig,
) -> RegistryDiscovery {
    let servers = servers.iter().map(|one| server(&cluster.server(*one)));
    RegistryDiscovery::new(servers.collect(), config)
}

/// A server that accepts no connections.
fn closed() -> RegistryServer {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    address.to_string().parse().unwrap()
}

/// Waits until the servers that a registry knows are these.
async fn until_known(registry: &RegistryDiscovery, servers: &[RegistryServer]) {
    let sorted = |mut servers: Vec<RegistryServer>| {
        servers.sort_by_key(|one| one.port);
        servers
    };
    while sorted(registry.known_servers()) != sorted(servers.to_vec()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn every_server_tells_where_the_others_are() {
    let cluster = FakeCluster::start(3).await;
    cluster.move_meta(1);
    cluster.set_master(2);
    for asked in 0..3 {
        let registry = registry(&cluster, &[asked]);
        assert_eq!(registry.meta_server().await.unwrap(), cluster.server(1));
        assert_eq!(registry.master().await.unwrap(), cluster.server(2));
        assert_eq!(registry.cluster_id().await.unwrap(), "fake");
    }
}

#[tokio::test]
async fn client_follows_hbase_meta_and_the_master() {
    let cluster = FakeCluster::start(2).await;
    let name = cluster.create_table("t", &["m"]);
    let client = Client::new(config(), registry(&cluster, &[0, 1]));
    let table = client.table(name);
    fill(&table, &["a", "z"]).await;
    assert_eq!(client.admin().tables().await.unwrap().len(), 0);
    cluster.move_meta(1);
    cluster.move_region(table.name(), "a", 1, true);
    cluster.set_master(1);
    cluster.kill(0).await;
    cluster.evacuate(0, 1);
    assert_eq!(table.get(&get("a")).await.unwrap().len(), 1);
    assert_eq!(client.admin().tables().await.unwrap().len(), 0);
}

#[tokio::test]
async fn empty_answers_and_dead_servers_lead_to_the_next_one() {
    let cluster = FakeCluster::start(4).await;
    for empty in [0, 1, 3] {
        cluster.set_empty_registry(empty, true);
    }
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent: RegistryServer = silent.local_addr().unwrap().to_string().parse().unwrap();
    let alive = (0..4).map(|one| server(&cluster.server(one)));
    let servers: Vec<_> = alive.chain([closed(), closed(), silent.clone(), silent]).collect();
    for _ in 0..5 {
        let registry = RegistryDiscovery::new(servers.clone(), config());
        assert_eq!(registry.meta_server().await.unwrap(), cluster.server(0));
    }
    cluster.set_empty_registry(2, true);
    let error = registry(&cluster, &[0, 1, 2, 3]).meta_server().await.unwrap_err();
    assert!(matches!(error, DiscoveryError::Unknown { .. }) && !error.is_permanent(), "{error:?}");
    let error = registry(&cluster, &[0, 1]).master().await.unwrap_err();
    assert!(matches!(error, DiscoveryError::Unknown { .. }), "{error:?}");
}

#[tokio::test]
async fn failures_of_calls_lead_to_the_next_server() {
    for fault in [
        FaultKind::Close,
        FaultKind::CloseAfter(5),
        FaultKind::GarbageResponse,
        FaultKind::OversizedFrame,
        FaultKind::FatalConnectionException,
        FaultKind::Exception { class: "ipc.ServerNotRunningYetException", text: "starting" },
        FaultKind::NoResponse,
    ] {
        let cluster = FakeCluster::start(2).await;
        cluster.inject(InjectedFault::once("GetMetaRegionLocations", fault).on(0).times(9));
        let registry = registry(&cluster, &[0, 1]);
        assert_eq!(registry.meta_server().await.unwrap(), cluster.server(0));
    }
}

#[tokio::test]
async fn answers_cut_at_every_byte_are_transient_errors() {
    let cluster = FakeCluster::start(1).await;
    let registry = registry(&cluster, &[0]);
    for bytes in 0.. {
        let cut = InjectedFault::once("GetMetaRegionLocations", FaultKind::CloseAfter(bytes));
        cluster.inject(cut);
        match registry.meta_server().await {
            Ok(server) => {
                assert_eq!(server, cluster.server(0));
                assert!(bytes > 30, "{bytes}");
                break;
            }
            Err(error) => assert!(!error.is_permanent(), "{bytes}: {error:?}"),
        }
    }
}

#[tokio::test]
async fn unreachable_registry_is_a_transient_error_with_the_servers() {
    let (one, two) = (closed(), closed());
    let registry = RegistryDiscovery::new(vec![one.clone(), two.clone()], config());
    let error = registry.meta_server().await.unwrap_err();
    assert!(matches!(error, DiscoveryError::Registry { .. }) && !error.is_permanent(), "{error:?}");
    let text = chain(&error);
    for expected in [&one.to_string(), &two.to_string(), "hbase:meta", "refused"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let none = RegistryDiscovery::new(Vec::new(), config()).master().await.unwrap_err();
    assert!(matches!(none, DiscoveryError::Unknown { .. }), "{none:?}");
}

#[tokio::test]
async fn old_masters_answer_and_old_region_servers_do_not() {
    let cluster = FakeCluster::start(2).await;
    cluster.set_old_registry();
    let mut config = config();
    config.operation_timeout = Duration::from_millis(200);
    let error = registry(&cluster, &[1]).meta_server().await.unwrap_err();
    let text = chain(&error);
    assert!(text.contains("masters of HBase 2.4") && !error.is_permanent(), "{text}");
    let registry = registry(&cluster, &[1, 0]);
    let registry = registry.refresh_every(Duration::from_millis(20), Duration::from_millis(1));
    assert_eq!(registry.meta_server().await.unwrap(), cluster.server(0));
    let master = RegistryServer { role: Some(Role::Master), ..server(&cluster.server(0)) };
    timeout(Duration::from_secs(20), until_known(&registry, &[master])).await.unwrap();
}

#[tokio::test]
async fn servers_are_refreshed_periodically_and_after_a_failure() {
    let cluster = FakeCluster::start(4).await;
    let servers: Vec<_> = (0..4).map(|one| server(&cluster.server(one))).collect();
    cluster.set_bootstrap_nodes(&[1, 2]);
    let registry = registry(&cluster, &[0]);
    let period = Duration::from_millis(50);
    let registry = registry.refresh_every(period, Duration::from_millis(1));
    assert_eq!(registry.known_servers(), []);
    registry.meta_server().await.unwrap();
    until_known(&registry, &servers[1..3]).await;
    // The named servers name others.
    cluster.kill(0).await;
    cluster.evacuate(0, 1);
    cluster.set_bootstrap_nodes(&[2, 3]);
    until_known(&registry, &servers[2..4]).await;
    // Empty lists change nothing.
    let calls = cluster.calls("GetBootstrapNodes");
    cluster.set_bootstrap_nodes(&[]);
    while cluster.calls("GetBootstrapNodes") < calls + 4 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    until_known(&registry, &servers[2..4]).await;
    assert_eq!(registry.meta_server().await.unwrap(), cluster.server(1));
}

#[tokio::test]
async fn a_failed_connection_refreshes_the_servers_at_once() {
    let cluster = FakeCluster::start(2).await;
    let servers = vec![closed(), server(&cluster.server(0))];
    // Without the failure there is no refresh during this test.
    let registry = RegistryDiscovery::new(servers, config())
        .refresh_every(Duration::from_hours(1), Duration::from_hours(1));
    registry.meta_server().await.unwrap();
    let all: Vec<_> = (0..2).map(|one| server(&cluster.server(one))).collect();
    until_known(&registry, &all).await;
    let calls = cluster.calls("GetBootstrapNodes");
    cluster.kill(1).await;
    // At most one within the minimum.
    for _ in 0..5 {
        registry.meta_server().await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(cluster.calls("GetBootstrapNodes"), calls);
}

#[tokio::test]
async fn dropped_registry_asks_no_more() {
    let cluster = FakeCluster::start(1).await;
    let registry = registry(&cluster, &[0]);
    let registry = registry.refresh_every(Duration::from_millis(10), Duration::ZERO);
    registry.meta_server().await.unwrap();
    while cluster.calls("GetBootstrapNodes") < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(registry);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let calls = cluster.calls("GetBootstrapNodes");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(cluster.calls("GetBootstrapNodes"), calls);
}

#[tokio::test]
async fn dropped_lookup_can_be_repeated() {
    let cluster = FakeCluster::start(1).await;
    cluster.inject(InjectedFault::once("GetMetaRegionLocations", FaultKind::NoResponse));
    let registry = registry(&cluster, &[0]);
    assert!(timeout(Duration::from_millis(30), registry.meta_server()).await.is_err());
    assert_eq!(registry.meta_server().await.unwrap(), cluster.server(0));
}

/// Transport that accepts one role, and records all.
#[derive(Debug, Default)]
struct RoleTransport {
    accepted: Option<Role>,
    roles: Mutex<Vec<Role>>,
}

impl Transport for RoleTransport {
    fn connect<'a>(&'a self, to: Destination<'a>) -> TransportFuture<'a> {
        self.roles.lock().unwrap().push(to.role);
        Box::pin(async move {
            if self.accepted != Some(to.role) {
                let text = "the KDC does not know its principal";
                return Err(TransportError::new(TransportErrorKind::Permanent, text));
            }
            PlainTransport.connect(to).await
        })
    }

    fn description(&self) -> &'static str {
        "a test"
    }
}

#[tokio::test]
async fn servers_of_unknown_role_are_tried_with_both_principals() {
    let cluster = FakeCluster::start(1).await;
    let (rs, master) = (Role::RegionServer, Role::Master);
    for (accepted, configured, expected) in [
        (Some(rs), None, &[rs][..]),
        (Some(master), None, &[rs, master]),
        (Some(master), Some(master), &[master]),
        (None, None, &[rs, master]),
        (Some(rs), Some(master), &[master]),
    ] {
        let transport = Arc::new(RoleTransport { accepted, ..RoleTransport::default() });
        let mut config = config();
        config.transport = Arc::clone(&transport) as _;
        let asked = RegistryServer { role: configured, ..server(&cluster.server(0)) };
        let registry = RegistryDiscovery::new(vec![asked], config.clone())
            .refresh_every(Duration::from_hours(1), Duration::from_hours(1));
        let found = registry.meta_server().await;
        let roles = transport.roles.lock().unwrap().clone();
        assert_eq!(roles, expected, "{accepted:?} {configured:?}");
        if let Err(error) = &found {
            assert!(error.is_permanent() && chain(error).contains("principal"), "{error:?}");
        }
        assert_eq!(found.is_ok(), expected.last().copied() == accepted);
    }
}

#[tokio::test]
async fn refused_logins_fail_operations_at_once() {
    let cluster = FakeCluster::start(1).await;
    let name = cluster.create_table("t", &[]);
    let mut config = config();
    config.transport = Arc::new(RoleTransport::default());
    let client = Client::new(config.clone(), registry_with(&cluster, &[0], config));
    let error = client.table(name).get(&get("a")).await.unwrap_err();
    assert_eq!(error.attempts, 1);
    assert!(matches!(&*error.cause, Failure::Discovery(_)), "{error:?}");
}
