//! Discovery by RPC agrees with ZooKeeper. `HBASE_MASTERS` are the masters, `host:port,…`.

use std::time::Duration;

use hbase_rs::{
    Client, ClientConfig,
    discovery::{Discovery, RegistryDiscovery, RegistryServer, ZooKeeperDiscovery},
};

use super::security;

/// A client with the security of the environment's variables.
fn config() -> ClientConfig {
    let mut config = ClientConfig::new("live");
    config.transport = security().transport().unwrap();
    config
}

fn zookeeper() -> ZooKeeperDiscovery {
    ZooKeeperDiscovery::new(&std::env::var("HBASE_QUORUM").unwrap(), "/hbase")
}

#[tokio::test]
#[ignore = "needs HBase"]
async fn masters_tell_what_zookeeper_tells() {
    let masters = std::env::var("HBASE_MASTERS").unwrap();
    let masters: Vec<_> =
        masters.split(',').map(|one| RegistryServer::master(one).unwrap()).collect();
    let (meta, active) =
        (zookeeper().meta_server().await.unwrap(), zookeeper().master().await.unwrap());
    // Active and standby masters answer.
    for asked in masters.iter().map(std::slice::from_ref).chain([&masters[..]]) {
        let registry = RegistryDiscovery::new(asked.to_vec(), config())
            .refresh_every(Duration::from_millis(100), Duration::from_millis(1));
        assert_eq!(registry.meta_server().await.unwrap(), meta);
        assert_eq!(registry.master().await.unwrap(), active);
        while registry.known_servers().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!("{} {:?}", registry.cluster_id().await.unwrap(), registry.known_servers());
        let client = Client::new(config(), registry);
        assert!(!client.admin().cluster_status().await.unwrap().servers.is_empty());
    }
}

#[tokio::test]
#[ignore = "needs HBase"]
async fn region_servers_tell_since_2_5() {
    let client = Client::new(config(), zookeeper());
    let status = client.admin().cluster_status().await.unwrap();
    let (meta, active) =
        (zookeeper().meta_server().await.unwrap(), zookeeper().master().await.unwrap());
    for server in status.servers {
        let server =
            RegistryServer { host: server.host().to_owned(), port: server.port(), role: None };
        let registry = RegistryDiscovery::new(vec![server], config());
        let (found, master) = (registry.meta_server().await, registry.master().await);
        println!("{:?}: {found:?} {master:?}", status.version);
        if status.version.starts_with("2.4") {
            assert!(!found.unwrap_err().is_permanent());
        } else {
            assert_eq!(master.unwrap(), active);
            // Some do not know it.
            assert!(found.map_or_else(|error| !error.is_permanent(), |found| found == meta));
        }
    }
}
