//! The conformance suite of [`tsd_storage`] on a real cluster.
//!
//! Delete markers outlive the cells they delete, so tables cannot be reused: each case has its own
//! tables, under a prefix with its number.

#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a test suite: it panics on a violation"
)]

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::{StreamExt, stream};
use hbase_rs::{
    Client, TableName,
    admin::{FamilyDescriptor, TableDescriptor},
};
use tsd_model::Family;
use tsd_storage::conformance::{CASES, run_all, tables};

use crate::{HBaseConfig, HBaseStorage};

/// Tables that are created or deleted concurrently.
const CONCURRENCY: usize = 8;

/// Runs every case of [`tsd_storage::conformance`] on the configured cluster.
///
/// Creates tables of three regions whose names have the configured prefix, and deletes them at the
/// end.
pub async fn run(config: HBaseConfig) {
    let client = config.client().expect("a cluster without security");
    let names: Vec<TableName> = (0..CASES.len()).flat_map(|case| names(&config, case)).collect();
    let created =
        stream::iter(&names).map(|name| create(&client, name)).buffer_unordered(CONCURRENCY);
    created.collect::<Vec<()>>().await;
    let case = AtomicUsize::new(0);
    run_all(async || {
        let prefix = prefix(&config, case.fetch_add(1, Ordering::Relaxed));
        let config = HBaseConfig { table_prefix: prefix, ..config.clone() };
        Arc::new(HBaseStorage::connect(config).expect("a runtime and a quorum"))
    })
    .await;
    let deleted =
        stream::iter(&names).map(|name| delete(&client, name)).buffer_unordered(CONCURRENCY);
    deleted.collect::<Vec<()>>().await;
}

/// Prefix of the table names of a case.
fn prefix(config: &HBaseConfig, case: usize) -> String {
    format!("{}case{case:02}-", config.table_prefix)
}

fn names(config: &HBaseConfig, case: usize) -> Vec<TableName> {
    let prefix = prefix(config, case);
    tables()
        .iter()
        .map(|table| format!("{prefix}{table}").parse().expect("a valid table name"))
        .collect()
}

async fn create(client: &Client, name: &TableName) {
    let families = [Family::Id, Family::Name, Family::T];
    let table = families.iter().fold(TableDescriptor::new(name.clone()), |table, family| {
        table.family(FamilyDescriptor::new(family.as_str()).versions(1))
    });
    let splits = ["b", "row"].map(|key| key.as_bytes().to_vec().into());
    client.admin().create_table(&table, splits).await.expect("create a table");
}

async fn delete(client: &Client, name: &TableName) {
    client.admin().disable_table(name).await.expect("disable a table");
    client.admin().delete_table(name).await.expect("delete a table");
}
