//! The workload of the fault tests against a fake cluster: the same writers, readers and checks, with
//! moves, splits, merges and broken connections between them.

use std::time::Duration;

use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::{Client, ClientConfig, TableName};
use tokio::time::sleep;

use crate::workload::{
    Workload,
    ledger::{Audit, Ledger, cells, key, parse_key},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_and_readers_never_notice_what_happens_to_regions() {
    let cluster = FakeCluster::start(2).await;
    let mut config = ClientConfig::new("test");
    config.failed_server_pause = Duration::from_millis(20);
    config.backoff.base = Duration::from_millis(2);
    let client = Client::new(config, cluster.discovery());
    let name: TableName = "rehearsal".parse().expect("a name");
    Workload::create_table(&client, &name).await.expect("a table");
    let table = client.table(name.clone());
    let workload = Workload::start(&table, Duration::from_millis(4));
    workload.progress().await.expect("a first acknowledgement");
    for round in 0..6_usize {
        let digit = format!("{:x}", (round * 5 + 2) % 16);
        cluster.move_region(&name, &digit, round % 2, round % 3 == 0);
        cluster.split_at(&name, &format!("{digit}8"));
        workload.progress().await.expect("writers go on");
        cluster.merge_at(&name, &digit);
        for method in ["Mutate", "Multi", "Scan"] {
            cluster.inject(InjectedFault::once(method, FaultKind::Close));
        }
        sleep(Duration::from_millis(20)).await;
        cluster.expire_scanners();
        cluster.kill(1).await;
        cluster.evacuate(1, 0);
        cluster.restart(1).await;
        assert_eq!(workload.recover().await, Ok(()));
        assert_eq!(workload.prove().await, Ok(0));
    }
    let (counts, complaints) = (workload.counts(), workload.complaints());
    assert_eq!(
        (counts.bad_scans, counts.failed_scans, counts.refused),
        (0, 0, 0),
        "{complaints:?}"
    );
    assert!(workload.take_longest() > Duration::ZERO);
    assert_eq!(workload.finish().await, Ok(Vec::new()));
}

/// Rows 0, 2, 1 are in the order of their keys; 5 lies between 0 and 2.
#[track_caller]
fn check(reversed: bool, shown: &[u64], missing: u64, wrong: u64) {
    let ledger = Ledger::new(1);
    ledger.send(0, 6);
    ledger.acknowledge(0, 3);
    let mut audit = Audit::begin(&ledger, reversed);
    for &number in shown {
        let cells: Vec<_> = cells(0, number).collect();
        audit.row(
            key(0, number).as_bytes(),
            cells.iter().map(|(qualifier, value)| (qualifier.as_bytes(), value.as_bytes())),
        );
    }
    let verdict = audit.end(&ledger);
    assert_eq!((verdict.missing, verdict.wrong), (missing, wrong), "{verdict:?}");
}

#[test]
fn a_scan_may_show_more_than_was_acknowledged() {
    check(false, &[0, 2, 1], 0, 0);
    check(true, &[1, 2, 0], 0, 0);
    check(false, &[0, 5, 2, 1], 0, 0);
}

#[test]
fn missing_repeated_disordered_and_invented_rows_are_seen() {
    check(false, &[0, 1], 1, 0);
    check(false, &[0, 2, 2, 1], 0, 2);
    check(false, &[2, 0, 1], 0, 1);
    check(true, &[0, 2, 1], 0, 2);
    check(false, &[0, 5, 5, 2, 1], 0, 1);
    check(false, &[0, 6, 2, 1], 0, 2);
}

#[test]
fn a_row_that_lacks_cells_is_wrong() {
    let ledger = Ledger::new(1);
    ledger.send(0, 1);
    let mut audit = Audit::begin(&ledger, false);
    let first = cells(0, 0).next().expect("a cell");
    audit.row(key(0, 0).as_bytes(), [(first.0.as_bytes(), first.1.as_bytes())].into_iter());
    assert_eq!(audit.end(&ledger).wrong, 1);
}

#[test]
fn keys_tell_writer_and_number() {
    for (writer, number) in [(0, 0), (3, 17), (11, 99_999_999)] {
        assert_eq!(parse_key(key(writer, number).as_bytes()), Some((writer, number)));
    }
    assert_eq!(parse_key(b"7f-counter"), None);
}
