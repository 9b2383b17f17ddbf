//! The store against a real HBase, whose ZooKeeper quorum the variable `HBASE_QUORUM` names.
//!
//! Each test makes tables of its own and removes them.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;

use hbase_rs::TableName;
use tsd_storage_hbase::{
    Compression, HBaseConfig, HBaseStorage, Splits, TableError, TableLayout, TableOptions,
    TableReport, TableState, conformance, create_tables,
};

use common::{filters, ingest, rewrite};

fn config(prefix: &str) -> HBaseConfig {
    let quorum = std::env::var("HBASE_QUORUM").unwrap();
    HBaseConfig { table_prefix: format!("live-{prefix}-"), ..HBaseConfig::new(quorum) }
}

async fn remove(store: &HBaseStorage, name: &str) {
    let (admin, name): (_, TableName) = (store.client().admin(), name.parse().unwrap());
    if admin.describe_table(&name).await.unwrap().is_some() {
        // It may be disabled already.
        let _ = admin.disable_table(&name).await;
        admin.delete_table(&name).await.unwrap();
    }
}

/// A store with an empty data table in a few regions.
async fn fixture(prefix: &str) -> (HBaseStorage, String) {
    let config = config(prefix);
    let name = format!("{}tsdb", config.table_prefix);
    let store = HBaseStorage::connect(config).unwrap();
    remove(&store, &name).await;
    let layout = TableLayout::data(&name, Splits::Salt { width: 1, buckets: 3 });
    let options = TableOptions::default();
    create_tables(store.client(), &[layout], &options, |_| {}).await.unwrap();
    (store, name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_passes_the_suite() {
    conformance::run(config("suite")).await;
}

#[tokio::test]
async fn a_scan_with_a_filter_is_the_scan_filtered() {
    let (store, name) = fixture("filters").await;
    filters::a_scan_with_a_filter_is_the_scan_filtered(&store).await;
    remove(&store, &name).await;
}

#[tokio::test]
async fn row_compactions_leave_what_they_did_not_read() {
    let (store, name) = fixture("rewrite").await;
    rewrite::what_was_written_after_the_row_was_read_stays(&store).await;
    remove(&store, &name).await;
    let (store, name) = fixture("rewrite").await;
    rewrite::nothing_is_deleted_for_a_column_that_a_marker_hides(&store).await;
    remove(&store, &name).await;
}

#[tokio::test]
async fn held_rows_read_the_same_as_single_cells() {
    let (store, name) = fixture("held").await;
    ingest::held_rows_read_the_same_as_single_cells(&store, || false).await;
    remove(&store, &name).await;
}

#[tokio::test]
async fn held_rows_are_columns_and_deletes_with_their_times() {
    let (store, name) = fixture("columns").await;
    ingest::the_points_of_a_row_are_one_column(&store).await;
    remove(&store, &name).await;
    let (store, name) = fixture("columns").await;
    ingest::deletes_reach_up_to_their_times_and_no_further(&store).await;
    remove(&store, &name).await;
}

#[tokio::test]
async fn tables_are_made_with_what_the_cluster_can_do() {
    let config = config("tables");
    let store = HBaseStorage::connect(config).unwrap();
    let names = ["live-tables-tsdb", "live-tables-tsdb-uid"];
    for name in names {
        remove(&store, name).await;
    }
    let layouts = [
        TableLayout::data(names[0], Splits::Salt { width: 1, buckets: 20 }),
        TableLayout::uid(names[1]),
    ];
    let make = async |options: &TableOptions, layouts: &[TableLayout]| {
        let mut reports: Vec<TableReport> = Vec::new();
        create_tables(store.client(), layouts, options, |report| reports.push(report)).await?;
        Ok::<_, TableError>(reports)
    };
    // Nobody has a library of that name.
    let lzo = TableOptions { compression: Compression::named("LZO"), ..TableOptions::default() };
    let refused = make(&lzo, &layouts).await;
    assert!(matches!(refused, Err(TableError::Compression { .. })), "{refused:?}");
    let made = make(&TableOptions::default(), &layouts).await.unwrap();
    println!("{made:#?}");
    assert!(made.iter().all(|r| matches!(r.state, TableState::Created { .. })), "{made:?}");
    let again = make(&TableOptions::default(), &layouts).await.unwrap();
    assert!(again.iter().all(|report| report.state == TableState::Fits), "{again:?}");
    let other = [TableLayout::data(names[0], Splits::Salt { width: 1, buckets: 21 }).ttl_secs(60)];
    let differs = make(&TableOptions::default(), &other).await.unwrap();
    println!("{differs:#?}");
    assert!(matches!(&differs[0].state, TableState::Differs(what) if what.len() == 2));
    for name in names {
        remove(&store, name).await;
    }
}
