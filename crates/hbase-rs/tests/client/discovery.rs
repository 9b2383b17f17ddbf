//! Discovery through ZooKeeper.

mod sasl;
mod sessions;

use std::time::Duration;

use hbase_fake::{FakeCluster, FakeEnsemble};
use hbase_rs::{
    Client, ServerName,
    discovery::{Discovery, DiscoveryError, ZooKeeperDiscovery},
    errors::Failure,
};
use hbase_rs_protobuf as pb;
use prost::Message;
use tokio::time::timeout;

use super::{chain, config, fill, get};

/// Encodes a znode as HBase does: metadata of the writer, `PBUF`, the message.
fn znode(message: &impl Message) -> Vec<u8> {
    [&b"\xff\0\0\0\x05mark!PBUF"[..], &message.encode_to_vec()].concat()
}

fn meta(server: &ServerName) -> Vec<u8> {
    znode(&pb::MetaRegionServer {
        server: server.to_message(),
        rpc_version: Some(0),
        state: Some(3),
    })
}

#[tokio::test]
async fn znodes_have_meta_server_and_master() {
    let ensemble = FakeEnsemble::start().await;
    let (one, two) = (ServerName::new("rs1", 16020, 5), ServerName::new("m1", 16000, 6));
    ensemble.set("/chroot/base/meta-region-server", meta(&one));
    let master =
        pb::Master { master: two.to_message(), rpc_version: None, info_port: Some(u32::MAX) };
    ensemble.set("/chroot/base/master", znode(&master));
    let quorum = format!("{}/chroot", ensemble.quorum());
    let discovery =
        ZooKeeperDiscovery::new(&quorum, "/base/").session_timeout(Duration::from_secs(6));
    assert_eq!(discovery.meta_server().await.unwrap(), one);
    assert_eq!(discovery.master().await.unwrap(), two);
    assert_eq!(ensemble.sessions(), 1);
}

#[tokio::test]
async fn missing_znode_is_read_again() {
    let ensemble = FakeEnsemble::start().await;
    let discovery = ZooKeeperDiscovery::new(ensemble.quorum(), "/hbase");
    ensemble.set("/hbase/running", "");
    let missing = discovery.meta_server().await.unwrap_err();
    assert!(
        matches!(missing, DiscoveryError::Unknown { .. }) && !missing.is_permanent(),
        "{missing:?}"
    );
    ensemble.set("/hbase/meta-region-server", "");
    assert!(matches!(discovery.meta_server().await, Err(DiscoveryError::Unknown { .. })));
    let server = ServerName::new("rs1", 16020, 5);
    ensemble.set("/hbase/meta-region-server", meta(&server));
    assert_eq!(discovery.meta_server().await.unwrap(), server);
    ensemble.set("/hbase/meta-region-server", "noise");
    assert!(matches!(discovery.meta_server().await, Err(DiscoveryError::Damaged { .. })));
}

#[tokio::test]
async fn disconnected_and_expired_sessions_are_replaced() {
    let ensemble = FakeEnsemble::start().await;
    let server = ServerName::new("rs1", 16020, 5);
    ensemble.set("/hbase/meta-region-server", meta(&server));
    let discovery = ZooKeeperDiscovery::new(ensemble.quorum(), "/hbase");
    for disrupt in [
        FakeEnsemble::close_connections,
        FakeEnsemble::expire_sessions,
        FakeEnsemble::expire_sessions,
    ] {
        assert_eq!(discovery.meta_server().await.unwrap(), server);
        disrupt(&ensemble);
        // The first requests may fail.
        while discovery.meta_server().await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert!(ensemble.sessions() >= 2);
}

#[tokio::test]
async fn dropped_lookup_can_be_repeated() {
    let ensemble = FakeEnsemble::start().await;
    let server = ServerName::new("rs1", 16020, 5);
    ensemble.set("/hbase/meta-region-server", meta(&server));
    let discovery = ZooKeeperDiscovery::new(ensemble.quorum(), "/hbase");
    assert_eq!(discovery.meta_server().await.unwrap(), server);
    ensemble.set_silent(true);
    assert!(timeout(Duration::from_millis(30), discovery.meta_server()).await.is_err());
    ensemble.set_silent(false);
    ensemble.close_connections();
    while discovery.meta_server().await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn client_follows_hbase_meta() {
    let ensemble = FakeEnsemble::start().await;
    let cluster = FakeCluster::start(2).await;
    let name = cluster.create_table("t", &["m"]);
    let discovery = ZooKeeperDiscovery::new(ensemble.quorum(), "/hbase");
    let table = Client::new(config(), discovery).table(name);
    ensemble.set("/hbase/meta-region-server", meta(&cluster.server(0)));
    fill(&table, &["a", "z"]).await;
    cluster.move_meta(1);
    cluster.move_region(table.name(), "a", 1, true);
    ensemble.set("/hbase/meta-region-server", meta(&cluster.server(1)));
    assert_eq!(table.get(&get("a")).await.unwrap().len(), 1);
}

#[tokio::test]
async fn unresponsive_ensemble_fails_at_the_operation_timeout() {
    let ensemble = FakeEnsemble::start().await;
    ensemble.set_silent(true);
    let discovery = ZooKeeperDiscovery::new(ensemble.quorum(), "/hbase");
    let mut config = config();
    config.call_timeout = Duration::from_millis(20);
    let table = Client::new(config, discovery).table("t".parse().unwrap());
    let error = table.with_timeout(Duration::from_millis(100)).get(&get("a")).await.unwrap_err();
    assert!(matches!(&*error.cause, Failure::Discovery(_)), "{error:?}");
}

#[tokio::test]
async fn lookups_name_a_zookeeper_that_stops_answering() {
    let ensemble = FakeEnsemble::start().await;
    let cluster = FakeCluster::start(2).await;
    let name = cluster.create_table("t", &["m"]);
    let discovery = ZooKeeperDiscovery::new(ensemble.quorum(), "/hbase");
    let client = Client::new(config(), discovery);
    let table = client.table(name);
    ensemble.set("/hbase/meta-region-server", meta(&cluster.server(0)));
    fill(&table, &["a", "z"]).await;
    ensemble.set_silent(true);
    // Known regions need no lookup.
    fill(&table, &["a", "z"]).await;
    cluster.move_meta(1);
    let other = cluster.create_table("other", &["c", "e", "g"]);
    let unknown = client.table(other).with_timeout(Duration::from_secs(5));
    let lookups = ["a", "d", "f", "h"].map(|row| {
        let table = unknown.clone();
        async move { table.get(&get(row)).await.unwrap_err() }
    });
    for error in futures_util::future::join_all(lookups).await {
        let text = chain(&error);
        assert!(text.contains(ensemble.quorum()) && text.contains("ZooKeeper"), "{text}");
    }
    fill(&table, &["a", "z"]).await;
    ensemble.set("/hbase/meta-region-server", meta(&cluster.server(1)));
    ensemble.set_silent(false);
    ensemble.close_connections();
    assert!(unknown.get(&get("a")).await.unwrap().is_empty());
}

#[tokio::test]
async fn wrong_root_fails_at_once_with_its_name_and_the_znodes_that_exist() {
    let ensemble = FakeEnsemble::start().await;
    let cluster = FakeCluster::start(1).await;
    let name = cluster.create_table("t", &[]);
    cluster.publish(&ensemble, "/hbase-unsecure");
    ensemble.set("/zookeeper/quota", "");
    for (root, expected) in [
        ("/hbase", "/hbase-unsecure, /zookeeper"),
        ("/a/b/c", "/hbase-unsecure, /zookeeper"),
        ("/hbase-unsecure/x", "/hbase-unsecure/hbaseid, /hbase-unsecure/master"),
    ] {
        let discovery = ZooKeeperDiscovery::new(ensemble.quorum(), root);
        let client = Client::new(config(), discovery);
        let error = client.table(name.clone()).get(&get("a")).await.unwrap_err();
        assert_eq!(error.attempts, 1);
        let Failure::Discovery(cause) = &*error.cause else { panic!("{error:?}") };
        let text = cause.to_string();
        assert!(cause.is_permanent() && text.contains(&format!("no znode {root} ")), "{text}");
        assert!(text.contains(expected), "{text}");
        let error = client.admin().tables().await.unwrap_err();
        assert!(matches!(&*error.cause, Failure::Discovery(_)), "{error:?}");
    }
}

#[tokio::test]
async fn closed_port_is_reported_with_the_error_of_the_socket() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let quorum = listener.local_addr().unwrap().to_string();
    drop(listener);
    let discovery = ZooKeeperDiscovery::new(&quorum, "/hbase");
    let error = discovery.meta_server().await.unwrap_err();
    assert!(!error.is_permanent());
    let DiscoveryError::Unreachable { source, .. } = &error else { panic!("{error:?}") };
    assert_eq!(source.kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(error.to_string().contains(&quorum), "{error}");
}
