//! Scans.

use std::time::Duration;

use futures_util::TryStreamExt;
use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::{
    Put, Scan, ScanRow, Selection, Table,
    errors::{ExceptionClass, Failure},
    filter::{Comparator, CompareOp, Filter, REGEX_DOTALL},
};

use super::{config, start, start_with};

const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz";

/// Writes rows `a` to `z` of 7 cells each.
async fn letters() -> (FakeCluster, Table) {
    let (cluster, table) = start().await;
    for letter in LETTERS.chars() {
        let mut put = Put::try_new(letter.to_string()).unwrap();
        for qualifier in 0..7_u8 {
            put = put.cell(b"f", &[qualifier], 1, &[letter as u8]).unwrap();
        }
        table.mutate(put).await.unwrap();
    }
    (cluster, table)
}

async fn collect(table: &Table, scan: Scan) -> Vec<ScanRow> {
    table.scan(scan).try_collect().await.unwrap()
}

/// Concatenates the row keys; each row must be complete.
fn keys(rows: &[ScanRow]) -> String {
    rows.iter()
        .map(|row| {
            assert_eq!(row.row.len(), 7);
            std::str::from_utf8(row.row.key()).unwrap()
        })
        .collect()
}

#[track_caller]
fn check(rows: &[ScanRow], expected: &str) {
    assert_eq!(keys(rows), expected);
}

fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

#[tokio::test]
async fn scan_crosses_regions_in_both_directions() {
    let (cluster, table) = letters().await;
    for (rows, cells) in [(0, 0), (1, 0), (3, 0), (0, 1), (0, 5), (4, 20), (0, 7)] {
        cluster.limit_scan_responses(rows, cells);
        check(&collect(&table, Scan::all()).await, LETTERS);
        check(&collect(&table, Scan::all().reversed()).await, &reversed(LETTERS));
        check(&collect(&table, Scan::range("e", "r")).await, "efghijklmnopq");
        check(
            &collect(&table, Scan::range("e", "r").inclusive(false, true)).await,
            "fghijklmnopqr",
        );
        check(&collect(&table, Scan::range("r", "e").reversed()).await, "rqponmlkjihgf");
        check(&collect(&table, Scan::range("g", "p")).await, "ghijklmno");
        check(&collect(&table, Scan::range("a", "g")).await, "abcdef");
        check(
            &collect(&table, Scan::range("p", "g").reversed().inclusive(true, true)).await,
            "ponmlkjihg",
        );
        check(
            &collect(&table, Scan::range("p", "g").reversed().inclusive(false, false)).await,
            "onmlkjih",
        );
        check(&collect(&table, Scan::prefix("h")).await, "h");
        check(&collect(&table, Scan::range("x", "x")).await, "");
    }
}

#[tokio::test]
async fn limit_counts_over_regions() {
    let (cluster, table) = letters().await;
    cluster.limit_scan_responses(2, 9);
    for limit in [0, 1, 5, 6, 7, 20, 26, 30] {
        let expected = &LETTERS[..LETTERS.len().min(limit as usize)];
        check(&collect(&table, Scan::all().limit(limit)).await, expected);
    }
    check(&collect(&table, Scan::all().reversed().limit(13)).await, &reversed(LETTERS)[..13]);
}

#[tokio::test]
async fn batch_returns_partial_rows() {
    let (cluster, table) = letters().await;
    cluster.limit_scan_responses(4, 0);
    let rows = collect(&table, Scan::range("e", "i").batch(3)).await;
    let shape: Vec<_> = rows.iter().map(|row| (row.row.len(), row.partial)).collect();
    assert_eq!(shape, [(3, true), (3, true), (1, false)].repeat(4));
}

#[tokio::test]
async fn no_fault_loses_or_repeats_a_row() {
    let (cluster, table) = letters().await;
    cluster.limit_scan_responses(2, 11);
    for fault in [
        FaultKind::Exception { class: "NotServingRegionException", text: "gone" },
        FaultKind::Exception { class: "UnknownScannerException", text: "lease" },
        FaultKind::Exception { class: "exceptions.ScannerResetException", text: "reset" },
        FaultKind::Exception { class: "regionserver.LeaseException", text: "lease" },
        FaultKind::Exception { class: "exceptions.OutOfOrderScannerNextException", text: "number" },
        FaultKind::Exception { class: "CallQueueTooBigException", text: "full" },
        FaultKind::Exception { class: "regionserver.RegionServerStoppedException", text: "bye" },
        FaultKind::Close,
        FaultKind::CloseAfter(20),
        FaultKind::Heartbeat,
        FaultKind::UnknownCallIdFirst,
        FaultKind::OversizedFrame,
    ] {
        for after in [0, 1, 2, 5, 9] {
            for scan in [Scan::all(), Scan::all().reversed()] {
                cluster.inject(InjectedFault::once("Scan", fault.clone()).after(after));
                let rows: Vec<_> =
                    table.scan(scan.clone()).try_collect().await.unwrap_or_else(|error| {
                        panic!("{fault:?} after {after}: {error:?}");
                    });
                let expected =
                    if scan == Scan::all() { LETTERS.to_owned() } else { reversed(LETTERS) };
                assert_eq!(keys(&rows), expected, "{fault:?} after {after}");
            }
        }
    }
}

#[tokio::test]
async fn no_fault_loses_or_repeats_a_cell_of_partial_rows() {
    let (cluster, table) = letters().await;
    cluster.limit_scan_responses(2, 0);
    for after in 0..12 {
        let fault = FaultKind::Exception { class: "UnknownScannerException", text: "lease" };
        cluster.inject(InjectedFault::once("Scan", fault).after(after));
        let parts = collect(&table, Scan::range("e", "k").batch(2)).await;
        let cells: Vec<_> = parts
            .iter()
            .flat_map(|part| {
                part.row.cells().map(|cell| (cell.row[0], cell.qualifier[0])).collect::<Vec<_>>()
            })
            .collect();
        let expected: Vec<_> =
            (b'e'..b'k').flat_map(|row| (0..7).map(move |cell| (row, cell))).collect();
        assert_eq!(cells, expected, "after {after}");
    }
}

#[tokio::test]
async fn regions_may_change_during_a_scan() {
    let (cluster, table) = letters().await;
    cluster.limit_scan_responses(1, 0);
    for reverse in [false, true] {
        let scan = if reverse { Scan::all().reversed() } else { Scan::all() };
        let mut rows = Vec::new();
        let mut scanner = table.scan(scan);
        while let Some(row) = scanner.next().await {
            rows.push(row.unwrap());
            match rows.len() {
                3 => cluster.split_region(table.name(), "k"),
                6 => cluster.move_region(table.name(), "c", 1, false),
                9 => cluster.move_region(table.name(), "m", 0, true),
                12 => cluster.merge_region(table.name(), "h"),
                15 => cluster.expire_scanners(),
                18 => cluster.merge_region(table.name(), "a"),
                20 => cluster.split_region(table.name(), "g"),
                _ => {}
            }
        }
        check(&rows, &if reverse { reversed(LETTERS) } else { LETTERS.to_owned() });
    }
}

#[tokio::test]
async fn scan_waits_for_the_regions_of_a_killed_server() {
    let (cluster, table) = letters().await;
    cluster.limit_scan_responses(1, 0);
    let mut scanner = table.scan(Scan::all());
    let mut rows = Vec::new();
    while let Some(row) = scanner.next().await {
        rows.push(row.unwrap());
        if rows.len() == 9 {
            cluster.kill(1).await;
            cluster.move_region(table.name(), "h", 0, true);
        }
    }
    check(&rows, LETTERS);
}

#[tokio::test]
async fn permanent_failure_ends_the_scan() {
    let (cluster, table) = letters().await;
    cluster.limit_scan_responses(1, 0);
    let fault = FaultKind::Exception { class: "DoNotRetryIOException", text: "corrupt" };
    cluster.inject(InjectedFault::once("Scan", fault).after(3));
    let mut scanner = table.scan(Scan::all());
    let mut rows = Vec::new();
    let error = loop {
        match scanner.next().await.unwrap() {
            Ok(row) => rows.push(row),
            Err(error) => break error,
        }
    };
    check(&rows, "abc");
    assert_eq!(error.class(), Some(ExceptionClass::Permanent));
    assert!(scanner.next().await.is_none());
    cluster.inject(InjectedFault::once("Scan", FaultKind::WrongCellCount));
    let error = table.scan(Scan::all()).try_collect::<Vec<_>>().await.unwrap_err();
    assert!(matches!(&*error.cause, Failure::Cells(_)), "{error:?}");
}

#[tokio::test]
async fn row_over_the_maximum_length_ends_the_scan() {
    let (cluster, table) = letters().await;
    cluster.limit_scan_responses(0, 2);
    let mut config = config();
    config.max_row = 100;
    let limited = hbase_rs::Client::new(config, cluster.discovery()).table(table.name().clone());
    let error = limited.scan(Scan::all()).try_collect::<Vec<_>>().await.unwrap_err();
    assert!(matches!(&*error.cause, Failure::Row(_)), "{error:?}");
}

#[tokio::test]
async fn dropped_scan_closes_its_region_scanner() {
    let (cluster, table) = letters().await;
    cluster.limit_scan_responses(1, 0);
    let mut scanner = table.scan(Scan::all());
    scanner.next().await.unwrap().unwrap();
    assert_eq!(cluster.open_scanners(), 1);
    drop(scanner);
    while cluster.open_scanners() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn scan_timeout_loses_no_row() {
    let mut config = config();
    config.scan_timeout = Duration::from_millis(50);
    let (cluster, table) = start_with(config).await;
    super::fill(&table, &["a", "b", "h"]).await;
    cluster.limit_scan_responses(1, 0);
    cluster.inject(InjectedFault::once("Scan", FaultKind::NoResponse).after(1));
    let rows = collect(&table, Scan::all()).await;
    assert_eq!(rows.len(), 3);
}

#[tokio::test]
async fn selective_scan_resumes_at_its_cursor_after_a_fault() {
    for (reversed, cursors) in [(false, ["b", "f"]), (true, ["y", "r"])] {
        let (cluster, table) = letters().await;
        let row = if reversed { "a" } else { "z" };
        let filter =
            Filter::row(CompareOp::Equal, Comparator::binary_regex(row.as_bytes(), REGEX_DOTALL));
        let mut scan = Scan::all().select(Selection::all().filter(filter));
        if reversed {
            scan = scan.reversed();
        }
        // The scanner reports its progress twice and is lost twice.
        for cursor in cursors {
            cluster.inject(InjectedFault::once("Scan", FaultKind::HeartbeatAt(cursor)));
            cluster.inject(InjectedFault::once("Scan", FaultKind::Close));
        }
        let rows = collect(&table, scan).await;
        check(&rows, row);
        let starts = cluster.scan_starts();
        for cursor in cursors {
            assert!(starts.iter().any(|start| start == cursor.as_bytes()), "{cursor}: {starts:?}");
        }
    }
}

#[tokio::test]
async fn scan_of_everything_requests_no_cursor() {
    let (cluster, table) = letters().await;
    cluster.inject(InjectedFault::once("Scan", FaultKind::HeartbeatAt("x")));
    cluster.inject(InjectedFault::once("Scan", FaultKind::Close));
    check(&collect(&table, Scan::all()).await, LETTERS);
    assert!(!cluster.scan_starts().contains(&"x".into()));
}
