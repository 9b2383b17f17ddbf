//! Tests of the client against a fake cluster, with and without injected faults.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests and their helpers fail by panicking"
)]

mod admin;
mod batches;
mod buffered;
mod calls;
mod chaos;
mod connections;
mod discovery;
mod lookups;
mod outages;
mod pressure;
mod quotas;
mod regions;
mod registry;
mod rows;
mod scans;
mod security;
mod tls;
mod tracing;
mod waits;

use std::time::Duration;

use hbase_fake::{FakeCluster, FaultKind};
use hbase_rs::{Client, ClientConfig, Get, Put, Row, Table, config::Backoff};

/// A configuration with short backoff and timeouts.
fn config() -> ClientConfig {
    let mut config = ClientConfig::new("test");
    config.backoff = Backoff {
        base: Duration::from_millis(2),
        overloaded: Duration::from_millis(4),
        max: Duration::from_millis(50),
    };
    config.max_attempts = 1_000;
    config.call_timeout = Duration::from_secs(5);
    config.operation_timeout = Duration::from_secs(20);
    config.failed_server_pause = Duration::from_millis(20);
    config
}

/// Starts a cluster of two servers with the table `t`, split at `g` and `p`.
async fn start() -> (FakeCluster, Table) {
    start_with(config()).await
}

async fn start_with(config: ClientConfig) -> (FakeCluster, Table) {
    let cluster = FakeCluster::start(2).await;
    let name = cluster.create_table("t", &["g", "p"]);
    let table = Client::new(config, cluster.discovery()).table(name);
    (cluster, table)
}

fn put(row: &str, value: &str) -> Put {
    Put::try_new(row.to_owned()).unwrap().cell(b"f", b"q", 1, value.as_bytes()).unwrap()
}

fn get(row: &str) -> Get {
    Get::try_new(row.to_owned()).unwrap()
}

fn value(row: &Row) -> &str {
    std::str::from_utf8(row.value(b"f", b"q").unwrap_or_default()).unwrap()
}

/// Writes rows with their keys as values.
async fn fill(table: &Table, rows: &[&str]) {
    for row in rows {
        table.mutate(put(row, row)).await.unwrap();
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

/// Faults of a Multi that a retry recovers from.
fn transient_faults() -> [FaultKind; 11] {
    [
        FaultKind::ActionException { class: "RegionTooBusyException", text: "busy" },
        FaultKind::ActionException { class: "MultiActionResultTooLarge", text: "full" },
        FaultKind::RegionException { class: "NotServingRegionException", text: "gone" },
        FaultKind::RegionException { class: "quotas.RpcThrottlingException", text: "x - wait 2ms" },
        FaultKind::RegionException { class: "exceptions.RegionOpeningException", text: "opening" },
        FaultKind::Exception { class: "CallQueueTooBigException", text: "full" },
        FaultKind::Exception { class: "regionserver.RegionServerStoppedException", text: "bye" },
        FaultKind::Exception { class: "exceptions.RequestTooBigException", text: "big" },
        FaultKind::Close,
        FaultKind::CloseAfter(5),
        FaultKind::OmitActionResult,
    ]
}
