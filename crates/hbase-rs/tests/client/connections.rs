//! Number of connections, transports and statistics.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::{
    Client, Scan, Table,
    errors::{CallError, ExceptionClass, Failure},
    stats::RetryReason,
    transport::{
        Channel, Destination, PlainTransport, Transport, TransportError, TransportErrorKind,
        TransportFuture,
    },
};

use super::{config, fill, get, put, start_with, value};

/// Writes many large values concurrently.
async fn write_concurrently(table: &Table) {
    let table = Arc::new(table.clone());
    let tasks: Vec<_> = (0..40)
        .map(|at| {
            let table = Arc::clone(&table);
            tokio::spawn(
                async move { table.mutate(put(&format!("a{at}"), &"v".repeat(100_000))).await },
            )
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn load_opens_further_connections() {
    for (connections, expected) in [(1, 1..=1), (3, 2..=3)] {
        let cluster = FakeCluster::start(1).await;
        let mut config = config();
        config.connections_per_server = connections;
        let table = Client::new(config, cluster.discovery()).table(cluster.create_table("t", &[]));
        for _ in 0..20 {
            table.mutate(put("a", "1")).await.unwrap();
        }
        // One for hbase:meta and one for a low load.
        assert_eq!(cluster.connections(), 2);
        cluster.inject(
            InjectedFault::once("Mutate", FaultKind::Delay(Duration::from_millis(20))).times(20),
        );
        write_concurrently(&table).await;
        assert!(expected.contains(&(cluster.connections() - 1)), "{}", cluster.connections());
    }
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let cluster = FakeCluster::start(1).await;
    let mut config = config();
    config.idle_timeout = Duration::from_millis(50);
    let client = Client::new(config, cluster.discovery());
    let table = client.table(cluster.create_table("t", &[]));
    cluster.inject(
        InjectedFault::once("Mutate", FaultKind::Delay(Duration::from_millis(20))).times(20),
    );
    write_concurrently(&table).await;
    while client.stats().total.connections > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    table.mutate(put("a", "1")).await.unwrap();
    let total = client.stats().total;
    assert_eq!(total.connections, 1);
    assert_eq!(total.connections_opened as usize, cluster.connections());
}

/// Transport that wraps every socket without changes, or fails, or hangs.
#[derive(Debug, Default)]
struct TestTransport {
    established: AtomicUsize,
    fails: Option<TransportErrorKind>,
    hangs: bool,
}

impl Transport for TestTransport {
    fn connect<'a>(&'a self, to: Destination<'a>) -> TransportFuture<'a> {
        Box::pin(async move {
            self.established.fetch_add(1, Ordering::Relaxed);
            assert_eq!((to.user, to.server.host()), ("test", "127.0.0.1"));
            if let Some(kind) = self.fails {
                return Err(TransportError::new(kind, "no certificate"));
            }
            if self.hangs {
                std::future::pending::<()>().await;
            }
            let mut established = PlainTransport.connect(to).await?;
            if let Channel::Plain(socket) = established.stream {
                let (read, write) = tokio::io::split(socket);
                let (read, write) = (Box::new(read), Box::new(write));
                established.stream = Channel::Layered { read, write };
            }
            Ok(established)
        })
    }

    fn description(&self) -> &'static str {
        "a test"
    }
}

#[tokio::test]
async fn every_connection_uses_the_transport() {
    let transport = Arc::new(TestTransport::default());
    let mut config = config();
    config.transport = Arc::clone(&transport) as _;
    let (_cluster, table) = start_with(config).await;
    fill(&table, &["a", "h"]).await;
    table.mutate(put("b", &"v".repeat(300_000))).await.unwrap();
    assert_eq!(value(&table.get(&get("b")).await.unwrap()).len(), 300_000);
    assert!(table.scan(Scan::all()).next().await.unwrap().is_ok());
    // hbase:meta, two servers, a scan.
    assert!(transport.established.load(Ordering::Relaxed) >= 4);
}

#[tokio::test]
async fn failed_transport_fails_the_connect() {
    let unreachable = Some(TransportErrorKind::Unreachable);
    for (fails, hangs) in [(unreachable, false), (None, true)] {
        let mut config = config();
        config.connect_timeout = Duration::from_millis(20);
        config.operation_timeout = Duration::from_millis(200);
        config.transport = Arc::new(TestTransport { fails, hangs, ..TestTransport::default() });
        let (_cluster, table) = start_with(config).await;
        let error = table.get(&get("a")).await.unwrap_err();
        assert!(matches!(&*error.cause, Failure::Call(CallError::Connect { .. })), "{error:?}");
    }
}

#[tokio::test]
async fn transport_errors_are_retried_by_their_kind() {
    for (kind, retried) in [
        (TransportErrorKind::Permanent, false),
        (TransportErrorKind::Transient, true),
        (TransportErrorKind::Expired, true),
        (TransportErrorKind::Unreachable, true),
    ] {
        let transport = Arc::new(TestTransport { fails: Some(kind), ..TestTransport::default() });
        let mut config = config();
        config.failed_server_pause = Duration::ZERO;
        config.operation_timeout = Duration::from_millis(500);
        config.transport = Arc::clone(&transport) as _;
        let (_cluster, table) = start_with(config).await;
        let error = table.get(&get("a")).await.unwrap_err();
        let chain = format!("{:?}", error.cause);
        assert!(chain.contains("no certificate"), "{chain}");
        let attempts = transport.established.load(Ordering::Relaxed);
        assert_eq!(attempts > 1, retried, "{kind:?}: {attempts} attempts");
    }
}

#[tokio::test]
async fn statistics_count_calls_and_bytes() {
    let cluster = FakeCluster::start(2).await;
    let client = Client::new(config(), cluster.discovery());
    let table = client.table(cluster.create_table("t", &["m"]));
    fill(&table, &["a", "b", "z"]).await;
    table.get(&get("a")).await.unwrap();
    cluster.inject(InjectedFault::once(
        "Get",
        FaultKind::Exception { class: "RegionTooBusyException", text: "busy" },
    ));
    table.get(&get("z")).await.unwrap();
    table.batch(vec![put("a", "1").into(), put("z", "1").into(), get("b").into()]).await;
    let mut rows = table.scan(Scan::all());
    while let Some(row) = rows.next().await {
        row.unwrap();
    }
    let stats = client.stats();
    let of = |method: &str| stats.methods.iter().find(|one| one.method == method).unwrap();
    let counts = |method: &str| (of(method).latency.count, of(method).failed);
    assert_eq!(counts("Mutate"), (3, 0));
    assert_eq!(counts("Get"), (2, 1));
    assert_eq!(counts("Multi"), (2, 0));
    assert_eq!(counts("Admin"), (0, 0));
    assert!(counts("Scan").0 >= 2 && counts("Meta").0 >= 1);
    for method in &stats.methods {
        let latency = &method.latency;
        assert_eq!(latency.buckets.iter().sum::<u64>(), latency.count);
        assert!(latency.count == 0 || latency.sum > Duration::ZERO);
    }
    let busy = RetryReason::Exception(ExceptionClass::RegionTooBusy);
    assert_eq!(stats.retries, [(busy, 1)]);
    assert_eq!((stats.batches, stats.batch_actions), (2, 3));
    assert_eq!((stats.cached_regions, stats.scanners_opened, stats.scanners_reopened), (2, 2, 0));
    assert!(stats.region_hits >= 5 && stats.region_misses >= 1 && stats.lookups >= 1);
    let total = stats.total;
    assert_eq!((total.calls_in_flight, total.bytes_in_flight), (0, 0));
    assert!(total.bytes_sent > 300 && total.bytes_received > 300 && total.calls >= 10);
    assert_eq!(stats.servers.len(), 2);
    let sum = |of: fn(&hbase_rs::stats::Traffic) -> u64| -> u64 {
        stats.servers.iter().map(|server| of(&server.traffic)).sum()
    };
    assert_eq!(sum(|traffic| traffic.calls), total.calls);
    assert_eq!(sum(|traffic| traffic.bytes_sent), total.bytes_sent);
    assert_eq!(sum(|traffic| traffic.bytes_received), total.bytes_received);
    assert_eq!(sum(|traffic| traffic.connections), total.connections);
    let answered = |latency: &hbase_rs::stats::Latency| latency.count;
    let by_server: u64 = stats.servers.iter().map(|server| answered(&server.latency)).sum();
    let by_method: u64 = stats.methods.iter().map(|method| answered(&method.latency)).sum();
    assert!(by_server >= 10);
    assert_eq!(by_server, by_method);
    let failed: u64 = stats.servers.iter().map(|server| server.failed).sum();
    assert_eq!(failed, stats.methods.iter().map(|method| method.failed).sum::<u64>());
}
