//! Clusters with TLS.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hbase_fake::{FakeCluster, FakeTls, FaultKind, InjectedFault};
use hbase_rs::{
    Client, ClientConfig, Scan, Table,
    errors::{CallError, Failure},
    security::{SecurityConfig, TlsConfig},
};

use super::{chain, config, fill, get, put, value};

fn data(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tls")).join(name)
}

/// TLS that trusts an authority.
pub(super) fn trusting(authority: &str) -> TlsConfig {
    let authorities = Some(data(&format!("{authority}/ca.pem")));
    TlsConfig { authorities, ..TlsConfig::default() }
}

fn with(tls: TlsConfig) -> ClientConfig {
    let security = SecurityConfig { tls: Some(tls), ..SecurityConfig::default() };
    let mut config = config();
    config.transport = security.transport().unwrap();
    config
}

pub(super) fn server_tls() -> FakeTls {
    FakeTls::new(&data("one/node.pem"), &data("one/node.key"))
}

async fn start(server: FakeTls, client: ClientConfig) -> (FakeCluster, Table) {
    let cluster = FakeCluster::start_encrypted(2, server).await;
    let name = cluster.create_table("t", &["g", "p"]);
    let table = Client::new(client, cluster.discovery()).table(name);
    (cluster, table)
}

#[tokio::test]
async fn operations_work_with_both_versions() {
    for server in [server_tls().only_1_2(), server_tls().only_1_3()] {
        let (_cluster, table) = start(server, with(trusting("one"))).await;
        fill(&table, &["a", "h", "q"]).await;
        table.mutate(put("b", &"v".repeat(700_000))).await.unwrap();
        assert_eq!(value(&table.get(&get("b")).await.unwrap()).len(), 700_000);
        let mut rows = table.scan(Scan::all());
        let mut count = 0;
        while let Some(row) = rows.next().await {
            row.unwrap();
            count += 1;
        }
        assert_eq!(count, 4);
    }
}

#[tokio::test]
async fn large_values_go_in_both_directions_at_the_same_time() {
    let (_cluster, table) = start(server_tls(), with(trusting("one"))).await;
    let table = Arc::new(table);
    fill(&table, &["h"]).await;
    let tasks: Vec<_> = (0..30)
        .map(|at| {
            let table = Arc::clone(&table);
            tokio::spawn(async move {
                let row = format!("a{at}");
                table.mutate(put(&row, &"v".repeat(200_000))).await.unwrap();
                value(&table.get(&get(&row)).await.unwrap()).len()
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), 200_000);
    }
}

#[tokio::test]
async fn lost_connections_are_retried() {
    let (cluster, table) = start(server_tls(), with(trusting("one"))).await;
    fill(&table, &["a"]).await;
    let cuts = (0..60).map(FaultKind::CloseAfter);
    for fault in [FaultKind::Close].into_iter().chain(cuts) {
        cluster.inject(InjectedFault::once("Get", fault));
        assert_eq!(value(&table.get(&get("a")).await.unwrap()), "a");
    }
    cluster.kill(1).await;
    cluster.evacuate(1, 0);
    fill(&table, &["a", "h", "q"]).await;
    cluster.restart(1).await;
    cluster.move_region(table.name(), "h", 1, true);
    assert_eq!(value(&table.get(&get("h")).await.unwrap()), "h");
}

#[tokio::test]
async fn refused_certificates_fail_at_once() {
    let mut hosts = trusting("one");
    let elsewhere = FakeTls::new(&data("one/elsewhere.pem"), &data("one/elsewhere.key"));
    let demanding = server_tls().require_clients_of(&data("two/ca.pem"));
    for (server, tls, expected) in [
        (server_tls(), trusting("two"), "hbase.rpc.tls.truststore.location"),
        (elsewhere.clone(), hosts.clone(), "hbase.client.netty.tls.verify.server.hostname"),
        (demanding.clone().only_1_2(), trusting("one"), "hbase.rpc.tls.keystore.location"),
        // The refusal arrives after the handshake, instead of the first response.
        (demanding.only_1_3(), trusting("one"), "hbase.rpc.tls.keystore.location"),
    ] {
        let (_cluster, table) = start(server, with(tls)).await;
        let error = table.get(&get("a")).await.unwrap_err();
        let text = chain(&error);
        assert_eq!(error.attempts, 1, "{text}");
        assert!(text.contains(expected) && text.contains("127.0.0.1"), "{text}");
    }
    hosts.verify_host = false;
    let (_cluster, table) = start(elsewhere, with(hosts)).await;
    fill(&table, &["a"]).await;
}

#[tokio::test]
async fn servers_without_tls_are_named() {
    let (cluster, table) = start(server_tls(), with(trusting("one"))).await;
    cluster.set_tls(None);
    let error = table.with_timeout(Duration::from_millis(300)).get(&get("a")).await.unwrap_err();
    assert!(matches!(&*error.cause, Failure::Call(CallError::Connect { .. })), "{error:?}");
    let text = chain(&error);
    assert!(text.contains("hbase.client.netty.tls.enabled"), "{text}");
}

#[test]
fn unusable_files_are_errors_of_the_configuration() {
    let mut tls = trusting("one");
    tls.identity = Some(data("one/node.key"));
    let security = SecurityConfig { tls: Some(tls), ..SecurityConfig::default() };
    let error = security.transport().unwrap_err().to_string();
    assert!(error.starts_with("hbase.rpc.tls.keystore.location: "), "{error}");
    assert!(error.contains("node.key") && error.contains("certificate"), "{error}");
}
