//! The store on a real HBase with the ZooKeeper quorum in the environment variable `HBASE_QUORUM`; without
//! `--ignored` none runs.
//!
//! Each test creates its own tables and deletes them.

use hbase_rs::TableName;
use tsd_model::TableSchema;
use tsd_storage_hbase::{
    Compression, HBaseConfig, HBaseStorage, Splits, TableError, TableLayout, TableOptions,
    TableReport, TableState, conformance, create_tables,
};

use crate::{
    cells::data,
    scenarios::{corrections, filters, flush, rewrite},
};

fn config(prefix: &str) -> HBaseConfig {
    let quorum = std::env::var("HBASE_QUORUM").unwrap();
    let compacted_table = Some((data(), TableSchema::opentsdb_default()));
    let table_prefix = format!("live-{prefix}-");
    HBaseConfig { table_prefix, compacted_table, ..HBaseConfig::new(quorum) }
}

async fn delete_table(store: &HBaseStorage, name: &str) {
    let (admin, name): (_, TableName) = (store.client().admin(), name.parse().unwrap());
    if admin.describe_table(&name).await.unwrap().is_some() {
        // The table may already be disabled.
        let _ = admin.disable_table(&name).await;
        admin.delete_table(&name).await.unwrap();
    }
}

/// A store with an empty data table in three regions.
async fn fixture(prefix: &str) -> (HBaseStorage, String) {
    let config = config(prefix);
    let name = format!("{}tsdb", config.table_prefix);
    let store = HBaseStorage::connect(config).unwrap();
    delete_table(&store, &name).await;
    let layout = TableLayout::data(&name, Splits::Salt { width: 1, buckets: 3 });
    let options = TableOptions::default();
    create_tables(store.client(), &[layout], &options, |_| {}).await.unwrap();
    (store, name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs HBASE_QUORUM"]
async fn store_passes_the_suite() {
    conformance::run(config("suite")).await;
}

#[tokio::test]
#[ignore = "needs HBASE_QUORUM"]
async fn filtered_scan_returns_the_matching_rows() {
    let (store, name) = fixture("filters").await;
    filters::filtered_scan_returns_the_matching_rows(&store).await;
    delete_table(&store, &name).await;
}

#[tokio::test]
#[ignore = "needs HBASE_QUORUM"]
async fn row_compactions_keep_cells_they_did_not_read() {
    let (store, name) = fixture("rewrite").await;
    rewrite::cells_written_since_the_read_are_kept(&store).await;
    delete_table(&store, &name).await;
    let (store, name) = fixture("rewrite").await;
    rewrite::hidden_column_is_put_again_before_deletes(&store).await;
    delete_table(&store, &name).await;
    let (store, name) = fixture("rewrite").await;
    rewrite::row_that_was_deleted_since_the_read_stays_deleted(&store).await;
    delete_table(&store, &name).await;
}

#[tokio::test]
#[ignore = "needs HBASE_QUORUM"]
async fn corrections_are_read_whoever_compacts() {
    let (store, name) = fixture("held").await;
    corrections::held_correction_wins_over_a_compaction(&store).await;
    delete_table(&store, &name).await;
    let (store, name) = fixture("later").await;
    corrections::later_correction_of_another_daemon_is_kept(&store).await;
    delete_table(&store, &name).await;
    let (store, name) = fixture("deleted").await;
    corrections::deleted_points_stay_deleted(&store).await;
    delete_table(&store, &name).await;
    let (store, name) = fixture("race").await;
    corrections::correction_written_during_a_row_compaction_is_kept(&store).await;
    delete_table(&store, &name).await;
}

#[tokio::test]
#[ignore = "needs HBASE_QUORUM"]
async fn flushed_rows_read_the_same_as_single_cells() {
    let (store, name) = fixture("flush").await;
    flush::flushed_rows_read_the_same_as_single_cells(&store, || false).await;
    delete_table(&store, &name).await;
}

#[tokio::test]
#[ignore = "needs HBASE_QUORUM"]
async fn flushed_rows_are_columns_and_deletes_with_timestamps() {
    let (store, name) = fixture("columns").await;
    flush::points_of_a_row_are_one_column(&store).await;
    delete_table(&store, &name).await;
    let (store, name) = fixture("columns").await;
    flush::deletes_remove_versions_up_to_their_timestamps(&store).await;
    delete_table(&store, &name).await;
}

#[tokio::test]
#[ignore = "needs HBASE_QUORUM"]
async fn tables_are_created_with_a_supported_compression() {
    let config = config("tables");
    let store = HBaseStorage::connect(config).unwrap();
    let names = ["live-tables-tsdb", "live-tables-tsdb-uid"];
    for name in names {
        delete_table(&store, name).await;
    }
    let layouts = [
        TableLayout::data(names[0], Splits::Salt { width: 1, buckets: 20 }),
        TableLayout::uid(names[1]),
    ];
    let create = async |options: &TableOptions, layouts: &[TableLayout]| {
        let mut reports: Vec<TableReport> = Vec::new();
        create_tables(store.client(), layouts, options, |report| reports.push(report)).await?;
        Ok::<_, TableError>(reports)
    };
    // HBase has no LZO library by default.
    let lzo = TableOptions { compression: Compression::named("LZO"), ..TableOptions::default() };
    let unsupported = create(&lzo, &layouts).await;
    assert!(matches!(unsupported, Err(TableError::Compression { .. })), "{unsupported:?}");
    let created = create(&TableOptions::default(), &layouts).await.unwrap();
    println!("{created:#?}");
    assert!(created.iter().all(|r| matches!(r.state, TableState::Created { .. })), "{created:?}");
    let again = create(&TableOptions::default(), &layouts).await.unwrap();
    assert!(again.iter().all(|report| report.state == TableState::Matches), "{again:?}");
    let other = [TableLayout::data(names[0], Splits::Salt { width: 1, buckets: 21 }).ttl_secs(60)];
    let differs = create(&TableOptions::default(), &other).await.unwrap();
    println!("{differs:#?}");
    assert!(matches!(&differs[0].state, TableState::Differs(what) if what.len() == 2));
    for name in names {
        delete_table(&store, name).await;
    }
}
