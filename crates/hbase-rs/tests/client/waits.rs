//! Every wait is bounded: each test makes one of them as long as possible.

use std::{sync::Arc, time::Duration};

use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::{
    BufferConfig, Client, ClientConfig, OperationError, Scan, ServerName, Table,
    discovery::FixedDiscovery, errors::Failure,
};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::{config, get, put, start_with};

/// Operation timeout.
const TIMEOUT: Duration = Duration::from_millis(150);

/// A configuration whose call timeouts exceed the operation timeout.
fn short_operations() -> ClientConfig {
    let mut config = config();
    config.operation_timeout = TIMEOUT;
    config.procedure_timeout = TIMEOUT;
    config
}

/// Starts a listener that accepts connections and neither reads nor writes.
async fn unresponsive_server() -> (ServerName, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (ServerName::new("127.0.0.1", port, 1), listener)
}

/// Starts a cluster that never responds to calls of this method.
async fn start_silent(method: &'static str, config: ClientConfig) -> (FakeCluster, Table) {
    let (cluster, table) = start_with(config).await;
    table.mutate(put("a", "1")).await.unwrap();
    cluster.inject(InjectedFault::once(method, FaultKind::NoResponse).times(usize::MAX));
    (cluster, table)
}

/// Checks that the operation failed after an attempt.
#[track_caller]
fn assert_attempted(error: &OperationError) {
    assert!(error.attempts > 0, "{error:?}");
}

#[tokio::test]
async fn unanswered_read_times_out() {
    let (_cluster, table) = start_silent("Get", short_operations()).await;
    let error = table.get(&get("a")).await.unwrap_err();
    assert_attempted(&error);
    assert!(!error.in_doubt);
}

#[tokio::test]
async fn unanswered_mutation_times_out_in_doubt() {
    let (_cluster, table) = start_silent("Mutate", short_operations()).await;
    let error = table.mutate(put("a", "2")).await.unwrap_err();
    assert_attempted(&error);
    assert!(error.in_doubt);
}

#[tokio::test]
async fn unanswered_batch_times_out() {
    let (_cluster, table) = start_silent("Multi", short_operations()).await;
    for outcome in table.batch(vec![put("a", "2").into(), get("z").into()]).await {
        assert_attempted(&outcome.unwrap_err());
    }
}

#[tokio::test]
async fn unanswered_scan_times_out() {
    let (_cluster, table) = start_silent("Scan", short_operations()).await;
    let mut scanner = table.scan(Scan::all());
    assert_attempted(&scanner.next().await.unwrap().unwrap_err());
    assert!(scanner.next().await.is_none());
}

#[tokio::test]
async fn heartbeats_are_progress_of_a_scan() {
    let (cluster, table) = start_with(config()).await;
    table.mutate(put("a", "1")).await.unwrap();
    cluster.inject(InjectedFault::once("Scan", FaultKind::Heartbeat).times(500));
    assert!(table.scan(Scan::all()).next().await.unwrap().is_ok());
}

#[tokio::test]
async fn heartbeats_are_no_progress_of_a_lookup() {
    let (cluster, table) = start_with(short_operations()).await;
    cluster.set_meta_heartbeats(usize::MAX);
    assert_attempted(&table.get(&get("a")).await.unwrap_err());
    assert_attempted(&table.regions().await.unwrap_err());
}

#[tokio::test]
async fn unanswered_buffered_mutation_times_out() {
    let (_cluster, table) = start_silent("Multi", short_operations()).await;
    let writer = table.buffered(BufferConfig::default());
    let error = writer.mutate(put("a", "2")).await.unwrap_err();
    assert_attempted(&error);
    assert!(error.in_doubt);
    writer.close().await;
}

#[tokio::test]
async fn wait_for_buffer_capacity_times_out() {
    let (_cluster, table) = start_silent("Multi", short_operations()).await;
    let mut config = BufferConfig::default();
    config.max_bytes = 10;
    let writer = table.buffered(config);
    let (first, second) = (put("a", "2"), put("b", "2"));
    let (first, second) = tokio::join!(writer.mutate(first), writer.mutate(second));
    assert_attempted(&first.unwrap_err());
    assert_attempted(&second.unwrap_err());
    writer.flush().await;
}

#[tokio::test]
async fn buffered_mutation_without_discovery_times_out() {
    let table =
        Client::new(short_operations(), FixedDiscovery::default()).table("t".parse().unwrap());
    let writer = table.buffered(BufferConfig::default());
    let error = writer.mutate(put("a", "2")).await.unwrap_err();
    assert!(matches!(&*error.cause, Failure::Discovery(_)), "{error:?}");
    writer.close().await;
}

#[tokio::test]
async fn wait_for_a_connection_permit_times_out() {
    let mut config = short_operations();
    config.max_calls = 1;
    let (_cluster, table) = start_silent("Get", config).await;
    let table = Arc::new(table);
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let table = Arc::clone(&table);
            tokio::spawn(async move { table.get(&get("a")).await })
        })
        .collect();
    for call in calls {
        assert_attempted(&call.await.unwrap().unwrap_err());
    }
}

#[tokio::test]
async fn wait_for_a_lookup_permit_times_out() {
    let mut config = short_operations();
    config.max_lookups = 1;
    let cluster = FakeCluster::start(1).await;
    let name = cluster.create_table("t", &["m"]);
    cluster.inject(InjectedFault::once("Scan", FaultKind::NoResponse).of_meta().times(usize::MAX));
    let table = Client::new(config, cluster.discovery()).table(name);
    let (a, z) = (get("a"), get("z"));
    let (a, z) = tokio::join!(table.get(&a), table.get(&z));
    assert_attempted(&a.unwrap_err());
    assert_attempted(&z.unwrap_err());
}

#[tokio::test]
async fn unresponsive_server_times_out() {
    let (server, _listener) = unresponsive_server().await;
    let client =
        Client::new(short_operations(), FixedDiscovery::new(Some(server.clone()), Some(server)));
    assert_attempted(&client.table("t".parse().unwrap()).get(&get("a")).await.unwrap_err());
    assert_attempted(&client.admin().cluster_status().await.unwrap_err());
}

#[tokio::test]
async fn blocked_write_times_out_in_doubt() {
    let (server, _listener) = unresponsive_server().await;
    let mut config = short_operations();
    // Encoding this much takes time.
    config.procedure_timeout = Duration::from_secs(1);
    config.max_call_bytes = 64 << 20;
    let client = Client::new(config, FixedDiscovery::new(None, Some(server)));
    // More than the socket buffers.
    let splits = (0..400_u32).map(|at| [&at.to_be_bytes()[..], &vec![0; 30_000]].concat().into());
    let table = hbase_rs::admin::TableDescriptor::new("t".parse().unwrap());
    let error = client.admin().create_table(&table, splits).await.unwrap_err();
    assert_attempted(&error);
    assert!(error.in_doubt);
}

#[tokio::test]
async fn blocked_connect_times_out() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let _listener = socket.listen(1).unwrap();
    // Connects to a socket with a full backlog get no response.
    let backlog: Vec<_> = (0..8).map(|_| tokio::spawn(TcpStream::connect(address))).collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let server = ServerName::new("127.0.0.1", address.port(), 1);
    let mut config = short_operations();
    config.connect_timeout = Duration::from_millis(30);
    let table =
        Client::new(config, FixedDiscovery::new(Some(server), None)).table("t".parse().unwrap());
    assert_attempted(&table.get(&get("a")).await.unwrap_err());
    for one in backlog {
        one.abort();
    }
}

#[tokio::test]
async fn unknown_server_of_meta_times_out() {
    let table =
        Client::new(short_operations(), FixedDiscovery::default()).table("t".parse().unwrap());
    let error = table.get(&get("a")).await.unwrap_err();
    assert_attempted(&error);
    assert!(matches!(&*error.cause, Failure::Discovery(_)), "{error:?}");
}

#[tokio::test]
async fn endless_procedure_times_out() {
    let cluster = FakeCluster::start(1).await;
    let client = Client::new(short_operations(), cluster.discovery());
    let class = "PleaseHoldException";
    cluster.inject(
        InjectedFault::once("getProcedureResult", FaultKind::Exception { class, text: "later" })
            .times(usize::MAX),
    );
    let family = hbase_rs::admin::FamilyDescriptor::new("f");
    let table = hbase_rs::admin::TableDescriptor::new("t".parse().unwrap()).family(family);
    assert_attempted(&client.admin().create_table(&table, []).await.unwrap_err());
}
