//! A store on a fake cluster.

use std::time::Duration;

use hbase_fake::FakeCluster;
use hbase_rs::{Client, ClientConfig, config::Backoff};
use tsd_model::TableSchema;
use tsd_storage::ClockMs;
use tsd_storage_hbase::{HBaseConfig, HBaseStorage};

use crate::cells::data;

/// A client with short timeouts and pauses.
pub(crate) fn client(cluster: &FakeCluster) -> Client {
    client_with_attempts(cluster, usize::MAX)
}

fn client_with_attempts(cluster: &FakeCluster, max_attempts: usize) -> Client {
    let mut config = ClientConfig::new("test");
    let pause = Duration::from_millis(1);
    config.backoff = Backoff { base: pause, overloaded: pause, max: pause };
    config.call_timeout = Duration::from_millis(300);
    config.operation_timeout = Duration::from_secs(20);
    config.failed_server_pause = pause;
    config.max_attempts = max_attempts;
    Client::new(config, cluster.discovery())
}

pub(crate) fn store(cluster: &FakeCluster, prefix: &str) -> HBaseStorage {
    let config = HBaseConfig {
        table_prefix: prefix.to_owned(),
        operation_timeout: Duration::from_secs(20),
        compacted_table: Some((data(), TableSchema::opentsdb_default())),
        ..HBaseConfig::new("unused")
    };
    HBaseStorage::with_client(client(cluster), config).unwrap()
}

/// A store that shares its tables with an OpenTSDB. Tests call `read_back` after its compactions.
pub(crate) fn store_beside_opentsdb(cluster: &FakeCluster) -> HBaseStorage {
    let config = HBaseConfig {
        compacted_table: Some((data(), TableSchema::opentsdb_default())),
        read_back_delay: Duration::from_millis(1),
        ..HBaseConfig::new("unused")
    };
    HBaseStorage::with_client(client(cluster), config).unwrap()
}

/// A store that shares its tables with logs that hold points for up to a minute.
pub(crate) fn store_beside_logs(cluster: &FakeCluster) -> HBaseStorage {
    let max_hold = Duration::from_mins(1);
    let config = HBaseConfig { max_hold, ..HBaseConfig::new("unused") };
    HBaseStorage::with_client(client(cluster), config).unwrap()
}

/// A store with its own clock that shares its tables with logs that hold points for up to a tenth
/// of a second.
pub(crate) fn store_with_clock(cluster: &FakeCluster, clock: ClockMs) -> HBaseStorage {
    let config = HBaseConfig {
        compacted_table: Some((data(), TableSchema::opentsdb_default())),
        max_hold: Duration::from_millis(100),
        clock,
        ..HBaseConfig::new("unused")
    };
    HBaseStorage::with_client(client(cluster), config).unwrap()
}

/// A store whose operations fail after a few attempts.
pub(crate) fn impatient_store(cluster: &FakeCluster) -> HBaseStorage {
    let config = HBaseConfig::new("unused");
    HBaseStorage::with_client(client_with_attempts(cluster, 20), config).unwrap()
}

/// Three servers and the data table in three regions.
pub(crate) async fn cluster() -> FakeCluster {
    let cluster = FakeCluster::start(3).await;
    cluster.create_table("tsdb", &["k", "row"]);
    cluster
}
