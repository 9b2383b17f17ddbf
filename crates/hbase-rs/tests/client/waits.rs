//! Every wait has its end: each test makes one of them as long as it can be.

use std::{sync::Arc, time::Duration};

use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::{
    BufferConfig, Client, ClientConfig, Failure, FixedDiscovery, OperationError, Scan, ServerName,
    Table,
};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::{config, get, put, start_with};

/// Time for an operation.
const PATIENCE: Duration = Duration::from_millis(150);

/// Calls that take longer than an operation may.
fn patient() -> ClientConfig {
    let mut config = config();
    config.operation_timeout = PATIENCE;
    config.procedure_timeout = PATIENCE;
    config
}

/// Accepts connections, and neither reads nor writes.
async fn mute() -> (ServerName, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (ServerName::new("127.0.0.1", port, 1), listener)
}

/// A cluster that never answers calls of this method.
async fn silent(method: &'static str, config: ClientConfig) -> (FakeCluster, Table) {
    let (cluster, table) = start_with(config).await;
    table.mutate(put("a", "1")).await.unwrap();
    cluster.inject(InjectedFault::once(method, FaultKind::NoResponse).times(usize::MAX));
    (cluster, table)
}

/// It ended, and by an error that has tried: that it comes at all is what is tested.
#[track_caller]
fn ended(error: &OperationError) {
    assert!(error.attempts > 0, "{error:?}");
}

#[tokio::test]
async fn a_read_that_is_not_answered() {
    let (_cluster, table) = silent("Get", patient()).await;
    let error = table.get(&get("a")).await.unwrap_err();
    ended(&error);
    assert!(!error.in_doubt);
}

#[tokio::test]
async fn a_change_that_is_not_answered() {
    let (_cluster, table) = silent("Mutate", patient()).await;
    let error = table.mutate(put("a", "2")).await.unwrap_err();
    ended(&error);
    assert!(error.in_doubt);
}

#[tokio::test]
async fn a_batch_that_is_not_answered() {
    let (_cluster, table) = silent("Multi", patient()).await;
    for outcome in table.batch(vec![put("a", "2").into(), get("z").into()]).await {
        ended(&outcome.unwrap_err());
    }
}

#[tokio::test]
async fn a_scan_that_is_not_answered() {
    let (_cluster, table) = silent("Scan", patient()).await;
    let mut scanner = table.scan(Scan::all());
    ended(&scanner.next().await.unwrap().unwrap_err());
    assert!(scanner.next().await.is_none());
}

#[tokio::test]
async fn a_scan_that_brings_heartbeats_alone_is_at_work() {
    let (cluster, table) = start_with(config()).await;
    table.mutate(put("a", "1")).await.unwrap();
    cluster.inject(InjectedFault::once("Scan", FaultKind::Heartbeat).times(500));
    assert!(table.scan(Scan::all()).next().await.unwrap().is_ok());
}

#[tokio::test]
async fn a_lookup_that_brings_heartbeats_alone() {
    let (cluster, table) = start_with(patient()).await;
    cluster.set_meta_heartbeats(usize::MAX);
    ended(&table.get(&get("a")).await.unwrap_err());
    ended(&table.regions().await.unwrap_err());
}

#[tokio::test]
async fn a_buffered_mutation_that_is_not_answered() {
    let (_cluster, table) = silent("Multi", patient()).await;
    let writer = table.buffered(BufferConfig::default());
    let error = writer.mutate(put("a", "2")).await.unwrap_err();
    ended(&error);
    assert!(error.in_doubt);
    writer.close().await;
}

#[tokio::test]
async fn room_in_a_buffer() {
    let (_cluster, table) = silent("Multi", patient()).await;
    let mut config = BufferConfig::default();
    config.max_bytes = 10;
    let writer = table.buffered(config);
    let (first, second) = (put("a", "2"), put("b", "2"));
    let (first, second) = tokio::join!(writer.mutate(first), writer.mutate(second));
    ended(&first.unwrap_err());
    ended(&second.unwrap_err());
    writer.flush().await;
}

#[tokio::test]
async fn a_buffered_mutation_whose_region_cannot_be_found() {
    let table = Client::new(patient(), FixedDiscovery::default()).table("t".parse().unwrap());
    let writer = table.buffered(BufferConfig::default());
    let error = writer.mutate(put("a", "2")).await.unwrap_err();
    assert!(matches!(&*error.cause, Failure::Discovery(_)), "{error:?}");
    writer.close().await;
}

#[tokio::test]
async fn room_on_a_connection() {
    let mut config = patient();
    config.max_calls = 1;
    let (_cluster, table) = silent("Get", config).await;
    let table = Arc::new(table);
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let table = Arc::clone(&table);
            tokio::spawn(async move { table.get(&get("a")).await })
        })
        .collect();
    for call in calls {
        ended(&call.await.unwrap().unwrap_err());
    }
}

#[tokio::test]
async fn a_lookups_turn() {
    let mut config = patient();
    config.max_lookups = 1;
    let cluster = FakeCluster::start(1).await;
    let name = cluster.create_table("t", &["m"]);
    cluster.inject(InjectedFault::once("Scan", FaultKind::NoResponse).of_meta().times(usize::MAX));
    let table = Client::new(config, cluster.discovery()).table(name);
    let (a, z) = (get("a"), get("z"));
    let (a, z) = tokio::join!(table.get(&a), table.get(&z));
    ended(&a.unwrap_err());
    ended(&z.unwrap_err());
}

#[tokio::test]
async fn a_server_that_neither_reads_nor_writes() {
    let (server, _listener) = mute().await;
    let client = Client::new(patient(), FixedDiscovery::new(Some(server.clone()), Some(server)));
    ended(&client.table("t".parse().unwrap()).get(&get("a")).await.unwrap_err());
    ended(&client.admin().cluster_status().await.unwrap_err());
}

#[tokio::test]
async fn a_write_that_the_peer_does_not_take() {
    let (server, _listener) = mute().await;
    let mut config = patient();
    // It takes a while to encode that much.
    config.procedure_timeout = Duration::from_secs(1);
    config.max_call_bytes = 64 << 20;
    let client = Client::new(config, FixedDiscovery::new(None, Some(server)));
    // More than the system's buffers hold.
    let splits = (0..400_u32).map(|at| [&at.to_be_bytes()[..], &vec![0; 30_000]].concat().into());
    let table = hbase_rs::TableDescriptor::new("t".parse().unwrap());
    let error = client.admin().create_table(&table, splits).await.unwrap_err();
    ended(&error);
    assert!(error.in_doubt);
}

#[tokio::test]
async fn a_connection_that_does_not_come_up() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let _listener = socket.listen(1).unwrap();
    // Whoever comes when the queue is full waits.
    let crowd: Vec<_> = (0..8).map(|_| tokio::spawn(TcpStream::connect(address))).collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let server = ServerName::new("127.0.0.1", address.port(), 1);
    let mut config = patient();
    config.connect_timeout = Duration::from_millis(30);
    let table =
        Client::new(config, FixedDiscovery::new(Some(server), None)).table("t".parse().unwrap());
    ended(&table.get(&get("a")).await.unwrap_err());
    for one in crowd {
        one.abort();
    }
}

#[tokio::test]
async fn a_server_of_meta_that_nobody_knows() {
    let table = Client::new(patient(), FixedDiscovery::default()).table("t".parse().unwrap());
    let error = table.get(&get("a")).await.unwrap_err();
    ended(&error);
    assert!(matches!(&*error.cause, Failure::Discovery(_)), "{error:?}");
}

#[tokio::test]
async fn a_procedure_that_never_ends() {
    let cluster = FakeCluster::start(1).await;
    let client = Client::new(patient(), cluster.discovery());
    let class = "PleaseHoldException";
    cluster.inject(
        InjectedFault::once("getProcedureResult", FaultKind::Exception { class, text: "later" })
            .times(usize::MAX),
    );
    let family = hbase_rs::FamilyDescriptor::new("f");
    let table = hbase_rs::TableDescriptor::new("t".parse().unwrap()).family(family);
    ended(&client.admin().create_table(&table, []).await.unwrap_err());
}
