//! Unresponsive servers: hung, disconnected, or behind a proxy.

use std::{sync::Arc, time::Duration};

use futures_util::TryStreamExt;
use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::{Client, ClientConfig, Scan, Table, buffer::MutationBatch};
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinHandle,
};

use super::{config, fill, get, put, value};

/// A configuration with short call timeouts.
fn short_timeouts() -> ClientConfig {
    let mut config = config();
    config.call_timeout = Duration::from_millis(200);
    config.scan_timeout = Duration::from_millis(200);
    config.connect_timeout = Duration::from_millis(200);
    config
}

/// Starts a table on two servers. The client connects to the second at `second_address` if that is set.
async fn start(second_address: Option<String>) -> (FakeCluster, Table) {
    let cluster = FakeCluster::start(2).await;
    let name = cluster.create_table("t", &["m"]);
    let second = cluster.server(1);
    let config = short_timeouts().map_addresses(move |server| match &second_address {
        Some(address) if *server == second => address.clone(),
        _ => format!("{}:{}", server.host(), server.port()),
    });
    let table = Client::new(config, cluster.discovery()).table(name);
    (cluster, table)
}

/// Starts every kind of operation on the region of the second server, which does not respond.
fn spawn_all_operations(table: &Table) -> Vec<JoinHandle<()>> {
    let table = Arc::new(table.clone());
    let one = Arc::clone(&table);
    let mut tasks = vec![tokio::spawn(async move {
        one.mutate(put("x", "1")).await.unwrap();
        assert_eq!(value(&one.get(&get("x")).await.unwrap()), "1");
    })];
    let one = Arc::clone(&table);
    tasks.push(tokio::spawn(async move {
        for outcome in one.batch(vec![put("y", "1").into(), get("a").into()]).await {
            outcome.unwrap();
        }
    }));
    let one = Arc::clone(&table);
    tasks.push(tokio::spawn(async move {
        let mut batch = MutationBatch::default();
        batch.put(b"z", b"f", b"q", 1, b"1").unwrap();
        batch.put(b"b", b"f", b"q", 1, b"1").unwrap();
        one.buffered(hbase_rs::BufferConfig::default()).write(batch).await.unwrap();
    }));
    tasks.push(tokio::spawn(async move {
        let rows: Vec<_> = table.scan(Scan::range("n", "")).try_collect().await.unwrap();
        assert!(rows.iter().any(|row| row.row.key() == b"o"));
    }));
    tasks
}

async fn join_all(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn operations_leave_a_hung_server_when_its_regions_move() {
    let (cluster, table) = start(None).await;
    fill(&table, &["a", "o"]).await;
    for method in ["Get", "Mutate", "Multi", "Scan"] {
        cluster.inject(InjectedFault::once(method, FaultKind::NoResponse).on(1).times(usize::MAX));
    }
    let tasks = spawn_all_operations(&table);
    tokio::time::sleep(Duration::from_millis(300)).await;
    cluster.evacuate(1, 0);
    join_all(tasks).await;
}

#[tokio::test]
async fn late_responses_are_harmless() {
    let (cluster, table) = start(None).await;
    fill(&table, &["a", "o"]).await;
    for method in ["Get", "Mutate", "Multi", "Scan"] {
        // Like a paused process: all responses arrive at once, after the timeout.
        let late = FaultKind::Delay(Duration::from_millis(400));
        cluster.inject(InjectedFault::once(method, late).on(1).times(3));
    }
    join_all(spawn_all_operations(&table)).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    join_all(spawn_all_operations(&table)).await;
}

#[tokio::test]
async fn operations_leave_an_unconnectable_server_when_its_regions_move() {
    // Connects to a socket with a full backlog get no response.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let _listener = socket.listen(1).unwrap();
    let backlog: Vec<_> = (0..8).map(|_| tokio::spawn(TcpStream::connect(address))).collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let (cluster, table) = start(Some(address.to_string())).await;
    fill(&table, &["a"]).await;
    {
        // By another client, since this one cannot connect.
        let other = Client::new(config(), cluster.discovery()).table(table.name().clone());
        fill(&other, &["o"]).await;
    }
    let tasks = spawn_all_operations(&table);
    tokio::time::sleep(Duration::from_millis(300)).await;
    cluster.evacuate(1, 0);
    join_all(tasks).await;
    for one in backlog {
        one.abort();
    }
}

#[tokio::test]
async fn operations_leave_a_proxy_of_a_dead_server_when_its_regions_move() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // Accepts connections and closes them.
    let proxy = tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _ = socket.read(&mut [0; 4096]).await;
        }
    });
    let (cluster, table) = start(Some(address.to_string())).await;
    fill(&table, &["a"]).await;
    {
        let other = Client::new(config(), cluster.discovery()).table(table.name().clone());
        fill(&other, &["o"]).await;
    }
    let tasks = spawn_all_operations(&table);
    tokio::time::sleep(Duration::from_millis(300)).await;
    cluster.evacuate(1, 0);
    join_all(tasks).await;
    proxy.abort();
}

#[tokio::test]
async fn callers_that_wait_for_a_permit_leave_a_hung_server() {
    let cluster = FakeCluster::start(2).await;
    let name = cluster.create_table("t", &["m"]);
    let mut config = short_timeouts();
    config.max_calls = 1;
    config.connections_per_server = 1;
    let table = Arc::new(Client::new(config, cluster.discovery()).table(name));
    fill(&table, &["a", "o"]).await;
    cluster.inject(InjectedFault::once("Get", FaultKind::NoResponse).on(1).times(usize::MAX));
    let readers: Vec<_> = (0..20)
        .map(|_| {
            let table = Arc::clone(&table);
            tokio::spawn(async move { table.get(&get("o")).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    cluster.evacuate(1, 0);
    for reader in readers {
        assert_eq!(value(&reader.await.unwrap().unwrap()), "o");
    }
}

#[tokio::test]
async fn hbase_meta_is_located_again_after_its_server_dies() {
    let cluster = FakeCluster::start(2).await;
    let name = cluster.create_table("t", &["m"]);
    let table = Client::new(short_timeouts(), cluster.discovery()).table(name);
    fill(&table, &["a", "o"]).await;
    cluster.kill(0).await;
    let (one, other) = (table.clone(), table.clone());
    let tasks = vec![
        tokio::spawn(async move { one.mutate(put("b", "1")).await.map(drop).unwrap() }),
        tokio::spawn(async move { other.regions().await.map(drop).unwrap() }),
    ];
    tokio::time::sleep(Duration::from_millis(100)).await;
    cluster.evacuate(0, 1);
    join_all(tasks).await;
}
