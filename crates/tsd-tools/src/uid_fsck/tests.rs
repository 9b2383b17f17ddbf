#![expect(clippy::unwrap_used, reason = "tests")]

mod intents;
mod peers;

use std::sync::Arc;

use tsd_engine::testing::{self, TestStore};
use tsd_model::TableSchema;
use tsd_storage::{CellBatch, CellRef, Fault, Operation, StorageExt, Table};

use super::*;

struct Fixture {
    store: Arc<TestStore>,
    engine: EngineHandle,
    table: Table,
}

impl Fixture {
    async fn new() -> Self {
        let store = testing::store();
        let mut config = testing::config();
        config.schema = TableSchema::opentsdb_default();
        let engine = testing::start(config, &store);
        for name in ["m", "n"] {
            engine.uids().assign(UidKind::Metric, name).await.unwrap();
        }
        let table = engine.config().tables.uid.clone();
        Self { store, engine, table }
    }

    async fn plant(&self, row: &[u8], family: Family, qualifier: &str, value: &[u8]) {
        let qualifier = qualifier.as_bytes();
        let cell = CellRef { family, qualifier, value, timestamp_ms: None };
        self.store.put(&self.table, CellBatch::single(row, cell).unwrap()).await.unwrap();
    }

    async fn check(&self, fix: bool) -> (UidFsckReport, Vec<String>) {
        let mut lines = Vec::new();
        let mut found = |level: FsckLevel, text: &str| lines.push(format!("{level} {text}"));
        let options = UidFsckOptions { fix, delete_unknown: fix };
        let report = uid_fsck(&self.engine, options, &mut found).await.unwrap();
        lines.retain(|line| !line.starts_with("INFO Maximum"));
        (report, lines)
    }

    async fn dump(&self) -> Vec<String> {
        testing::dump(&self.store, &self.table).await
    }
}

/// Ends the check after this many calls.
struct Stopping(u64, Vec<String>);

impl UidFsckObserver for Stopping {
    fn found(&mut self, _: FsckLevel, text: &str) {
        self.1.push(text.to_owned());
    }

    fn continues(&mut self, _: u64) -> bool {
        self.0 = self.0.saturating_sub(1);
        self.0 > 0
    }
}

#[tokio::test]
async fn a_stopped_check_claims_and_repairs_nothing() {
    let fixture = Fixture::new().await;
    fixture.plant(b"o", Family::Id, "metrics", &[0, 0, 9]).await;
    let before = fixture.dump().await;
    let options = UidFsckOptions { fix: true, delete_unknown: true };
    for calls in [1, 2] {
        let mut observer = Stopping(calls, Vec::new());
        let report = uid_fsck(&fixture.engine, options, &mut observer).await.unwrap();
        assert!(report.is_stopped && report.repairs == 0, "{report:?}");
        assert!(!observer.1.iter().any(|line| line.contains("errors found")), "{:?}", observer.1);
        assert_eq!(fixture.dump().await, before);
    }
    let (report, _) = fixture.check(true).await;
    assert!(!report.is_stopped && report.repairs > 0, "{report:?}");
}

#[tokio::test]
async fn a_table_without_damage_is_read_once() {
    let fixture = Fixture::new().await;
    for n in 0..2_500 {
        fixture.engine.uids().assign(UidKind::Tagv, &format!("value-{n}")).await.unwrap();
    }
    let before = fixture.dump().await;
    let (report, lines) = fixture.check(true).await;
    assert_eq!(lines, ["INFO No errors found."]);
    assert_eq!((report.errors, report.warnings, report.repairs), (0, 0, 0));
    assert_eq!(report.cells, 2 + 2 * 2_502);
    assert_eq!(fixture.dump().await, before);
}

#[tokio::test]
async fn one_damaged_mapping_among_thousands_is_found() {
    let fixture = Fixture::new().await;
    for n in 0..2_500 {
        fixture.engine.uids().assign(UidKind::Tagv, &format!("value-{n}")).await.unwrap();
    }
    fixture.plant(&[0, 4, 210], Family::Name, "tagv", b"value-7").await;
    let (report, lines) = fixture.check(false).await;
    assert_eq!(report.errors, 3, "{lines:?}");
    let (report, lines) = fixture.check(true).await;
    assert_eq!((report.errors, report.repairs), (2, 1), "{lines:?}");
    assert_eq!(fixture.check(false).await.0.errors, 0);
}

#[tokio::test]
async fn repairs_are_idempotent_and_change_nothing_else() {
    let fixture = Fixture::new().await;
    fixture.plant(b"o", Family::Id, "metrics", &[0, 0, 1]).await;
    fixture.plant(b"p", Family::Id, "metrics", &[0, 0, 9]).await;
    fixture.plant(&[0, 0, 7], Family::Name, "metrics", b"q").await;
    fixture.plant(&[0, 0, 7], Family::Name, "metric_meta", b"{}").await;
    fixture.plant(&[0, 0, 1], Family::Name, "metric_meta", b"{}").await;
    fixture.plant(b"x", Family::Id, "other", b"y").await;
    let before = fixture.dump().await;
    let (dry, _) = fixture.check(false).await;
    assert_eq!(fixture.dump().await, before);
    assert_eq!((dry.errors, dry.repairs), (4, 0));
    let (fixed, lines) = fixture.check(true).await;
    assert_eq!(fixed.errors, 4, "{lines:?}");
    let repaired = fixture.dump().await;
    assert_eq!(
        repaired,
        [
            "00 id metrics 0000000000000009",
            "000001 name metric_meta 7B7D",
            "000001 name metrics 6D",
            "000002 name metrics 6E",
            "000009 name metrics 70",
            "6D id metrics 000001",
            "6E id metrics 000002",
            "70 id metrics 000009",
        ]
    );
    let (again, lines) = fixture.check(true).await;
    assert_eq!((again.errors, again.repairs), (0, 0), "{lines:?}");
    assert_eq!(fixture.dump().await, repaired);
}

/// Two daemons assign a name at once. Both map their UIDs to it, and only one UID becomes that of the name.
#[tokio::test]
async fn a_uid_that_has_lost_its_name_to_another_is_found_and_removed() {
    let fixture = Fixture::new().await;
    let before = fixture.dump().await;
    fixture.plant(&[0, 0, 3], Family::Name, "metrics", b"n").await;
    let (found, lines) = fixture.check(false).await;
    let expected =
        "ERROR Inconsistent reverse metrics mapping 000003 -> n vs 000002 -> n / n -> 000002";
    assert_eq!((found.errors, lines.first().unwrap().as_str()), (1, expected), "{lines:?}");
    let (fixed, lines) = fixture.check(true).await;
    assert_eq!((fixed.errors, fixed.repairs), (1, 1), "{lines:?}");
    assert_eq!(fixture.dump().await, before);
    assert_eq!(fixture.check(false).await.0.errors, 0);
}

#[tokio::test]
async fn a_repair_that_was_interrupted_goes_on() {
    let writes = [
        (Operation::CompareAndSet, 0),
        (Operation::CompareAndSet, 1),
        (Operation::CompareAndDelete, 0),
        (Operation::CompareAndDelete, 1),
        (Operation::CompareAndDelete, 2),
    ];
    for (operation, before) in writes {
        let failing = format!("{operation:?} {before}");
        let fixture = Fixture::new().await;
        for name in [b"o", b"p"] {
            fixture.plant(name, Family::Id, "metrics", &[0, 0, 1]).await;
        }
        let faults = std::iter::repeat_n(Fault::Pass, before)
            .chain([Fault::Error(StorageError::Timeout("a write"))]);
        fixture.store.script(operation, faults);
        let mut ignored = |_: FsckLevel, _: &str| {};
        let options = UidFsckOptions { fix: true, delete_unknown: false };
        assert!(uid_fsck(&fixture.engine, options, &mut ignored).await.is_err(), "{failing}");
        fixture.check(true).await;
        let (last, lines) = fixture.check(true).await;
        assert_eq!((last.errors, last.repairs), (0, 0), "{failing}: {lines:?}");
        let dump = fixture.dump().await;
        // Two names are left before the last delete: the known name stays.
        let is_last = (operation, before) == (Operation::CompareAndDelete, 2);
        let name = to_hex(if is_last { b"p" } else { b"fsck.m.o.p" });
        assert!(dump.contains(&format!("000001 name metrics {name}")), "{failing}: {dump:#?}");
    }
}

#[tokio::test]
async fn a_counter_below_a_uid_is_an_error_whatever_the_number_of_names() {
    let fixture = Fixture::new().await;
    fixture.plant(b"o", Family::Id, "metrics", &[0, 1, 0]).await;
    fixture.plant(&[0, 1, 0], Family::Name, "metrics", b"o").await;
    fixture.plant(&[0], Family::Id, "metrics", &50_i64.to_be_bytes()).await;
    let (report, lines) = fixture.check(true).await;
    assert_eq!((report.errors, report.warnings, report.repairs), (1, 1, 1), "{lines:?}");
    let counter = "00 id metrics 0000000000000100".to_owned();
    assert_eq!(fixture.dump().await.first(), Some(&counter));
}

/// Issue 37: a name that somebody knows stays.
#[tokio::test]
async fn a_uid_of_several_names_keeps_one_of_them() {
    // (names that are planted, points use the UID, mapped to, name that stays)
    let cases: [(&[&str], bool, &str, &str); 7] = [
        (&["o"], false, "m", "m"),
        (&["o"], true, "m", "m"),
        // A daemon without intents was killed during a rename.
        (&["new"], true, "new", "new"),
        // The UID is mapped to a name that is another's: the newest stays.
        (&["o"], false, "n", "o"),
        (&["o", "p"], true, "m", "m"),
        (&["o", "p"], false, "m", "fsck.m.o.p"),
        // An OpenTSDB was killed during its repair.
        (&["fsck.m.o"], true, "fsck.m.o", "m"),
    ];
    for (names, has_points, mapped, stays) in cases {
        let fixture = Fixture::new().await;
        if has_points {
            testing::put_one(&fixture.engine, "m", "host=a", 1_356_998_400, 1).await.unwrap();
        }
        // Later than the names before, in milliseconds.
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        for name in names {
            fixture.plant(name.as_bytes(), Family::Id, "metrics", &[0, 0, 1]).await;
        }
        fixture.plant(&[0, 0, 1], Family::Name, "metrics", mapped.as_bytes()).await;
        let (_, lines) = fixture.check(true).await;
        let found = fixture.engine.uids().mappings_of_uid(Some(UidKind::Metric), &[0, 0, 1]).await;
        assert_eq!(found.unwrap().first().unwrap().name, stays, "{names:?} {lines:?}");
        let mut forward = Vec::new();
        let list = fixture.engine.uids().list(
            Some(UidKind::Metric),
            |_| true,
            |mapping| {
                if *mapping.uid == [0, 0, 1] {
                    forward.push(mapping.name);
                }
                true
            },
        );
        list.await.unwrap();
        assert_eq!(forward, [stays], "{names:?} {lines:?}");
        assert_eq!(fixture.check(false).await.0.errors, 0);
    }
}
