//! Regions that change during reads and writes, and administrative operations.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::TryStreamExt;
use hbase_rs::{
    Scan, TableName,
    admin::{FamilyDescriptor, NamespaceDescriptor, TableDescriptor, TableState},
};
use tokio::time::sleep;

use super::{Fixture, client_with, put, remove};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs HBASE_QUORUM"]
async fn no_row_is_lost_or_repeated_while_regions_split_move_and_merge() {
    let fixture = Fixture::new("live_regions").await;
    let rows = fixture.fill().await;
    let admin = fixture.admin();
    let done = Arc::new(AtomicBool::new(false));
    let (table, stop, expected) = (fixture.table.clone(), Arc::clone(&done), rows.clone());
    let reader = tokio::spawn(async move {
        let mut scans = 0;
        while !stop.load(Ordering::SeqCst) {
            let scan = if scans % 2 == 0 { Scan::all() } else { Scan::all().reversed() };
            let rows: Vec<_> = table.scan(scan.per_call(50, 1 << 20)).try_collect().await.unwrap();
            let mut keys: Vec<_> =
                rows.iter().map(|row| String::from_utf8(row.row.key().to_vec()).unwrap()).collect();
            if scans % 2 == 1 {
                keys.reverse();
            }
            assert_eq!(keys, expected);
            scans += 1;
        }
        scans
    });
    let (table, stop, keys) = (fixture.table.clone(), Arc::clone(&done), rows.clone());
    let writer = tokio::spawn(async move {
        let mut writes = 0_usize;
        while !stop.load(Ordering::SeqCst) {
            let row = &keys[writes * 13 % keys.len()];
            table.mutate(put(row, row)).await.unwrap();
            writes += 1;
        }
        writes
    });
    let last = fixture.table.locate("t".into()).await.unwrap().region;
    admin.split_region(&last, Some("t".into())).await.unwrap();
    let servers = admin.cluster_status().await.unwrap().servers;
    for (at, row) in fixture.table.regions().await.unwrap().iter().enumerate() {
        if !row.region.is_split_parent() {
            admin.move_region(&row.region, servers.get(at % servers.len())).await.unwrap();
        }
    }
    sleep(Duration::from_secs(1)).await;
    // Regions that were never split: daughters cannot be merged while they have reference files.
    let regions = fixture.table.regions().await.unwrap();
    admin.merge_regions(&[&regions[0].region, &regions[1].region]).await.unwrap();
    admin.compact_table(fixture.table.name(), true).await.unwrap();
    admin.flush_table(fixture.table.name()).await.unwrap();
    done.store(true, Ordering::SeqCst);
    println!("{} scans, {} writes", reader.await.unwrap(), writer.await.unwrap());
    fixture.delete().await;
}

#[tokio::test]
#[ignore = "needs HBASE_QUORUM"]
async fn admin_describes_cluster_and_tables() {
    let fixture = Fixture::new("live_admin").await;
    let admin = fixture.admin();
    let name = fixture.table.name();
    let status = admin.cluster_status().await.unwrap();
    assert!(!status.version.is_empty() && !status.servers.is_empty() && status.master.is_some());
    assert!(admin.tables().await.unwrap().contains(name));
    let described = admin.describe_table(name).await.unwrap().unwrap();
    assert_eq!(described.families()[0].get("VERSIONS"), Some("3"));
    assert_eq!(fixture.table.regions().await.unwrap().len(), 3);
    fixture.fill().await;
    admin.disable_table(name).await.unwrap();
    assert_eq!(admin.table_state(name).await.unwrap(), Some(TableState::Disabled));
    let error = fixture.table.get(&hbase_rs::Get::try_new("a").unwrap()).await.unwrap_err();
    assert!(matches!(&*error.cause, hbase_rs::errors::Failure::TableDisabled(_)), "{error:?}");
    admin.truncate_table(name, true).await.unwrap();
    let rows: Vec<_> = fixture.table.scan(Scan::all()).try_collect().await.unwrap();
    assert!(rows.is_empty());
    let previous = admin.set_balancer(true).await.unwrap();
    admin.set_balancer(previous).await.unwrap();
    fixture.delete().await;
}

/// Former regions of a table remain in hbase:meta as deleted rows until its compaction. A scanner skips
/// more of them than one response allows.
#[tokio::test]
#[ignore = "needs HBASE_QUORUM"]
async fn regions_are_found_after_many_deleted_rows_of_meta() {
    const REGIONS: u32 = 60;
    let fixture = Fixture::new("live_deleted").await;
    let (admin, name) = (fixture.admin(), fixture.table.name().clone());
    remove(&admin, &name).await;
    let table = TableDescriptor::new(name.clone()).family(FamilyDescriptor::new("f"));
    let splits = || (1..REGIONS).map(|at| format!("{at:02}").into());
    admin.create_table(&table, splits()).await.unwrap();
    for _ in 0..4 {
        admin.disable_table(&name).await.unwrap();
        admin.truncate_table(&name, true).await.unwrap();
        // A new client has an empty region cache.
        let table = client_with(|_| {}).table(name.clone());
        for row in ["00", "30", "59"] {
            table.mutate(put(row, row)).await.unwrap();
        }
        let regions = table.regions().await.unwrap();
        assert_eq!(regions.len(), REGIONS as usize);
        assert!(regions.iter().all(|region| region.server.is_some()));
    }
    fixture.delete().await;
}

#[tokio::test]
#[ignore = "needs HBASE_QUORUM"]
async fn namespaces_are_created_used_and_deleted() {
    let admin = client_with(|_| {}).admin();
    let name: TableName = "live_space:table".parse().unwrap();
    if admin.namespaces().await.unwrap().iter().any(|one| one.name() == "live_space") {
        remove(&admin, &name).await;
        admin.delete_namespace("live_space").await.unwrap();
    }
    let space = NamespaceDescriptor::new("live_space").property("owner", "tests");
    admin.create_namespace(&space).await.unwrap();
    let described = admin.describe_namespace("live_space").await.unwrap();
    assert_eq!(described.unwrap().get("owner"), Some("tests"));
    let table = TableDescriptor::new(name.clone()).family(FamilyDescriptor::new("f"));
    admin.create_table(&table, []).await.unwrap();
    assert_eq!(admin.tables_in("live_space").await.unwrap(), std::slice::from_ref(&name));
    let table = client_with(|_| {}).table(name.clone());
    table.mutate(put("a", "1")).await.unwrap();
    assert!(admin.delete_namespace("live_space").await.is_err(), "it is not empty");
    remove(&admin, &name).await;
    admin.delete_namespace("live_space").await.unwrap();
    assert!(admin.describe_namespace("live_space").await.unwrap().is_none());
}
