//! The storage suite on a cluster.
//!
//! Every case wants empty tables, and delete markers outlive what they delete. So each case gets tables
//! of its own, under a prefix with its number.

#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test suite: it panics where a store is wrong"
)]

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::{StreamExt, stream};
use hbase_rs::{Client, FamilyDescriptor, TableDescriptor, TableName};
use tsd_model::Family;
use tsd_storage::conformance::{CASES, run_all, tables};

use crate::{HBaseConfig, HBaseStorage};

/// Tables that are made or removed at once.
const AT_ONCE: usize = 8;

/// Runs every case of [`tsd_storage::conformance`] on the cluster that the configuration names. Tables are
/// made for it, each with two boundaries between regions, and removed in the end; their names begin with
/// the configuration's prefix.
pub async fn run(config: HBaseConfig) {
    let client = config.client();
    let names: Vec<TableName> = (0..CASES.len()).flat_map(|case| names(&config, case)).collect();
    let made = stream::iter(&names).map(|name| create(&client, name)).buffer_unordered(AT_ONCE);
    made.collect::<Vec<()>>().await;
    let case = AtomicUsize::new(0);
    run_all(async || {
        let prefix = prefix(&config, case.fetch_add(1, Ordering::Relaxed));
        let config = HBaseConfig { table_prefix: prefix, ..config.clone() };
        Arc::new(HBaseStorage::connect(config).expect("a runtime and a quorum"))
    })
    .await;
    let gone = stream::iter(&names).map(|name| remove(&client, name)).buffer_unordered(AT_ONCE);
    gone.collect::<Vec<()>>().await;
}

/// In front of the names of a case's tables.
fn prefix(config: &HBaseConfig, case: usize) -> String {
    format!("{}case{case:02}-", config.table_prefix)
}

fn names(config: &HBaseConfig, case: usize) -> Vec<TableName> {
    let prefix = prefix(config, case);
    tables().iter().map(|table| format!("{prefix}{table}").parse().expect("a name")).collect()
}

async fn create(client: &Client, name: &TableName) {
    let families = [Family::Id, Family::Name, Family::T];
    let table = families.iter().fold(TableDescriptor::new(name.clone()), |table, family| {
        table.family(FamilyDescriptor::new(family.as_str()).versions(1))
    });
    let splits = ["b", "row"].map(|key| key.as_bytes().to_vec().into());
    client.admin().create_table(&table, splits).await.expect("a table is made");
}

async fn remove(client: &Client, name: &TableName) {
    client.admin().disable_table(name).await.expect("a table is disabled");
    client.admin().delete_table(name).await.expect("a table is removed");
}
