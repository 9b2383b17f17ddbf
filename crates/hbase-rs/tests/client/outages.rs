//! Servers that are not there without saying so: hung, cut off, or behind something that is not.

use std::{sync::Arc, time::Duration};

use futures_util::TryStreamExt;
use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::{Client, ClientConfig, MutationBatch, Scan, Table};
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinHandle,
};

use super::{config, fill, get, put, value};

/// Calls that hang are given up soon.
fn hasty() -> ClientConfig {
    let mut config = config();
    config.call_timeout = Duration::from_millis(200);
    config.scan_timeout = Duration::from_millis(200);
    config.connect_timeout = Duration::from_millis(200);
    config
}

/// A table on two servers, where the second is reached at another address, if one is said.
async fn start(second_at: Option<String>) -> (FakeCluster, Table) {
    let cluster = FakeCluster::start(2).await;
    let name = cluster.create_table("t", &["m"]);
    let second = cluster.server(1);
    let config = hasty().map_addresses(move |server| match &second_at {
        Some(address) if *server == second => address.clone(),
        _ => format!("{}:{}", server.host(), server.port()),
    });
    let table = Client::new(config, cluster.discovery()).table(name);
    (cluster, table)
}

/// Everything that can be done to the region of the second server, while that does not answer.
fn everything(table: &Table) -> Vec<JoinHandle<()>> {
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

async fn all(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_hangs_is_left_when_its_regions_are_elsewhere() {
    let (cluster, table) = start(None).await;
    fill(&table, &["a", "o"]).await;
    for method in ["Get", "Mutate", "Multi", "Scan"] {
        cluster.inject(InjectedFault::once(method, FaultKind::NoResponse).on(1).times(usize::MAX));
    }
    let tasks = everything(&table);
    tokio::time::sleep(Duration::from_millis(300)).await;
    cluster.evacuate(1, 0);
    all(tasks).await;
}

#[tokio::test]
async fn a_server_that_answers_late_does_no_harm() {
    let (cluster, table) = start(None).await;
    fill(&table, &["a", "o"]).await;
    for method in ["Get", "Mutate", "Multi", "Scan"] {
        // As if it had been stopped for a while: all comes at once, and too late.
        let late = FaultKind::Delay(Duration::from_millis(400));
        cluster.inject(InjectedFault::once(method, late).on(1).times(3));
    }
    all(everything(&table)).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    all(everything(&table)).await;
}

#[tokio::test]
async fn a_server_that_cannot_be_connected_to_is_left_when_its_regions_are_elsewhere() {
    // Whoever comes when the queue of a socket is full hears nothing.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    let _listener = socket.listen(1).unwrap();
    let crowd: Vec<_> = (0..8).map(|_| tokio::spawn(TcpStream::connect(address))).collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let (cluster, table) = start(Some(address.to_string())).await;
    fill(&table, &["a"]).await;
    {
        // By another client, for this one cannot.
        let other = Client::new(config(), cluster.discovery()).table(table.name().clone());
        fill(&other, &["o"]).await;
    }
    let tasks = everything(&table);
    tokio::time::sleep(Duration::from_millis(300)).await;
    cluster.evacuate(1, 0);
    all(tasks).await;
    for one in crowd {
        one.abort();
    }
}

#[tokio::test]
async fn a_proxy_whose_server_is_dead_is_left_when_the_regions_are_elsewhere() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // Takes connections, and closes them since there is nobody behind.
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
    let tasks = everything(&table);
    tokio::time::sleep(Duration::from_millis(300)).await;
    cluster.evacuate(1, 0);
    all(tasks).await;
    proxy.abort();
}

#[tokio::test]
async fn callers_in_line_for_a_server_that_hangs_leave_it_too() {
    let cluster = FakeCluster::start(2).await;
    let name = cluster.create_table("t", &["m"]);
    let mut config = hasty();
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
async fn the_server_of_meta_that_dies_is_found_again_elsewhere() {
    let cluster = FakeCluster::start(2).await;
    let name = cluster.create_table("t", &["m"]);
    let table = Client::new(hasty(), cluster.discovery()).table(name);
    fill(&table, &["a", "o"]).await;
    cluster.kill(0).await;
    let (one, other) = (table.clone(), table.clone());
    let tasks = vec![
        tokio::spawn(async move { one.mutate(put("b", "1")).await.map(drop).unwrap() }),
        tokio::spawn(async move { other.regions().await.map(drop).unwrap() }),
    ];
    tokio::time::sleep(Duration::from_millis(100)).await;
    cluster.evacuate(0, 1);
    all(tasks).await;
}
