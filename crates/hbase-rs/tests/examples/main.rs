//! Runs the examples against a fake cluster.

#![expect(clippy::unwrap_used, reason = "tests and their helpers fail by panicking")]

#[expect(dead_code, reason = "`main` is for a cluster")]
#[path = "../../examples/administration.rs"]
mod administration;
#[expect(dead_code, reason = "`main` is for a cluster")]
#[path = "../../examples/buffered_writes.rs"]
mod buffered_writes;
#[expect(dead_code, reason = "`main` is for a cluster")]
#[path = "../../examples/failures.rs"]
mod failures;
#[expect(dead_code, reason = "`main` is for a cluster")]
#[path = "../../examples/put_get.rs"]
mod put_get;
#[expect(dead_code, reason = "`main` is for a cluster")]
#[path = "../../examples/scan_filters.rs"]
mod scan_filters;

use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::{Client, ClientConfig, Get, OperationError, Table, TableName};

async fn start() -> (FakeCluster, Table) {
    let cluster = FakeCluster::start(2).await;
    let name = cluster.create_table("example", &["m"]);
    let table = client(&cluster).table(name);
    (cluster, table)
}

fn client(cluster: &FakeCluster) -> Client {
    Client::new(ClientConfig::new("test"), cluster.discovery())
}

#[tokio::test]
async fn row_is_written_read_and_deleted() {
    let (_cluster, table) = start().await;
    assert_eq!(put_get::run(&table).await.unwrap(), ("21.5".to_owned(), 1));
    assert!(table.get(&Get::try_new("sensor-1").unwrap()).await.unwrap().is_empty());
}

#[tokio::test]
async fn buffered_cells_are_stored() {
    let (cluster, table) = start().await;
    buffered_writes::run(&table, 2_500).await.unwrap();
    assert_eq!(cluster.cells(table.name()), 2_500);
}

#[tokio::test]
async fn filters_select_rows() {
    let (_cluster, table) = start().await;
    assert_eq!(scan_filters::run(&table).await.unwrap(), ["web1"]);
}

#[tokio::test]
async fn lock_is_taken_once_even_in_doubt() {
    let (cluster, table) = start().await;
    cluster.inject(InjectedFault::once("Mutate", FaultKind::CloseAfter(0)));
    assert!(failures::run(&table, "one").await.unwrap());
    assert!(!failures::run(&table, "two").await.unwrap());
    let missing = client(&cluster).table("missing".parse().unwrap());
    let error = failures::run(&missing, "one").await.unwrap_err();
    let error = error.downcast_ref::<OperationError>().unwrap();
    assert_eq!(failures::advice(error), "create the table");
}

#[tokio::test]
async fn table_is_created_and_deleted() {
    let cluster = FakeCluster::start(2).await;
    let (client, name) = (client(&cluster), "new".parse::<TableName>().unwrap());
    let text = administration::run(&client, &name).await.unwrap();
    assert_eq!(text, "2 servers, 4 regions in new");
    assert_eq!(client.admin().tables().await.unwrap(), []);
}
