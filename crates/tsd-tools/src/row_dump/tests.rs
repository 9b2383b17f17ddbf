#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use tsd_engine::testing::{self, TestStore};
use tsd_model::{Family, TableSchema};
use tsd_query::{Clock, RawQuery, RawSubQuery};
use tsd_storage::{CellBatch, CellRef, StorageExt};

use super::*;

const HOUR: i64 = 1_356_998_400;

#[derive(Default)]
struct Lines {
    written: String,
    flushed: String,
    unreadable: Vec<String>,
    /// Bytes that can be flushed.
    capacity: Option<usize>,
}

impl DumpSink for Lines {
    fn write(&mut self, lines: &str) -> io::Result<()> {
        self.written.push_str(lines);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let (flushed, written) = (self.flushed.len(), self.written.len());
        if self.capacity.is_some_and(|capacity| flushed + written > capacity) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.flushed.push_str(&std::mem::take(&mut self.written));
        Ok(())
    }

    fn unreadable(&mut self, what: &str) {
        self.unreadable.push(what.to_owned());
    }
}

struct Fixture {
    store: Arc<TestStore>,
    engine: EngineHandle,
}

impl Fixture {
    /// Points of three series in two hours, in salted rows.
    async fn new() -> Self {
        let store = testing::store();
        let mut config = testing::config();
        config.schema = TableSchema::try_new(3, 3, 3, 1, 4).unwrap();
        let engine = testing::start(config, &store);
        for (tags, value) in [("host=a", 1), ("host=b", 2), ("host=c dc=x", 3)] {
            for at in [HOUR, HOUR + 3_600] {
                testing::put_one(&engine, "m", tags, at, value).await.unwrap();
            }
        }
        Self { store, engine }
    }

    async fn dump(
        &self,
        tags: &[(&str, &str)],
        options: DumpOptions,
        sink: &mut Lines,
    ) -> Result<DumpReport, DumpError> {
        let mut sub = RawSubQuery {
            aggregator: Some("sum".to_owned()),
            metric: Some("m".to_owned()),
            ..RawSubQuery::default()
        };
        sub.set_tags(tags.iter().copied()).unwrap();
        let query = RawQuery {
            start: Some(HOUR.to_string()),
            end: Some((HOUR + 10).to_string()),
            queries: Some(vec![sub]),
            ..RawQuery::default()
        };
        let query = query.validate(&Clock::utc((HOUR + 100_000) * 1_000)).unwrap();
        dump_rows(&self.engine, &query, options, sink).await
    }

    async fn rows(&self) -> usize {
        let table = self.engine.config().tables.data.clone();
        testing::cells(&self.store, &table).await.len()
    }
}

const IMPORT: DumpOptions = DumpOptions { import_format: true, delete: false };
const DELETE: DumpOptions = DumpOptions { import_format: true, delete: true };

fn sorted(lines: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.sort_unstable();
    lines
}

#[tokio::test]
async fn rows_of_the_hours_of_a_query_are_printed() {
    let fixture = Fixture::new().await;
    let mut lines = Lines::default();
    let report = fixture.dump(&[], IMPORT, &mut lines).await.unwrap();
    assert_eq!(
        sorted(&lines.flushed),
        [
            "m 1356998400 1 host=a",
            "m 1356998400 2 host=b",
            // In the order of Java's map.
            "m 1356998400 3 host=c dc=x",
        ]
    );
    assert_eq!((report.rows, report.points, report.deleted_rows), (3, 3, 0));
}

#[tokio::test]
async fn filters_on_names_are_applied() {
    let fixture = Fixture::new().await;
    for (tagv, expected) in [
        ("a|b", &["m 1356998400 1 host=a", "m 1356998400 2 host=b"][..]),
        ("wildcard(*c)", &["m 1356998400 3 host=c dc=x"]),
        ("*", &["m 1356998400 1 host=a", "m 1356998400 2 host=b", "m 1356998400 3 host=c dc=x"]),
    ] {
        let mut lines = Lines::default();
        fixture.dump(&[("host", tagv)], IMPORT, &mut lines).await.unwrap();
        assert_eq!(sorted(&lines.flushed), expected, "{tagv}");
    }
}

#[tokio::test]
async fn only_printed_rows_are_deleted() {
    let fixture = Fixture::new().await;
    let mut lines = Lines::default();
    let report = fixture.dump(&[("host", "a")], DELETE, &mut lines).await.unwrap();
    assert_eq!((report.rows, report.deleted_rows), (1, 1));
    assert_eq!(lines.flushed, "m 1356998400 1 host=a\n");
    assert_eq!(fixture.rows().await, 5);
    // Lines that nobody can read.
    let mut closed = Lines { capacity: Some(0), ..Lines::default() };
    let failed = fixture.dump(&[], DELETE, &mut closed).await;
    assert!(matches!(failed, Err(DumpError::Write(_))), "{failed:?}");
    assert_eq!(fixture.rows().await, 5);
}

#[tokio::test]
async fn a_row_that_cannot_be_printed_whole_is_not_deleted() {
    let fixture = Fixture::new().await;
    let table = fixture.engine.config().tables.data.clone();
    let (key, _) = testing::cells(&fixture.store, &table).await.swap_remove(0);
    let (qualifier, value) = (&[0, 3, 0, 19][..], &[0][..]);
    let cell = CellRef { family: Family::T, qualifier, value, timestamp_ms: None };
    fixture.store.put(&table, CellBatch::single(&key, cell).unwrap()).await.unwrap();
    let mut lines = Lines::default();
    let report = fixture.dump(&[], DELETE, &mut lines).await.unwrap();
    assert_eq!((report.rows, report.points, report.deleted_rows, report.unreadable), (3, 3, 2, 1));
    let named = lines.unreadable.iter().all(|what| what.contains("column 00030013"));
    assert!(named, "{:?}", lines.unreadable);
    // Its two columns, and the rows of the next hour.
    assert_eq!(fixture.rows().await, 2 + 3);
}
