//! Fixtures for the tests of this crate and of others (feature `testing`): engines over memory storage, a manual
//! clock, table dumps.

#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "tests")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tsd_model::{Cell, Family, PointValue, to_hex};
use tsd_storage::{FaultyStorage, MemoryStorage, Scan, Storage, Table};

use crate::{
    Clock, Engine, EngineConfig, EngineHandle, IngestSession, NameText, PutError, Sample,
    SampleContent, WorkSizes,
};

/// Memory storage with fault injection.
pub type TestStore = FaultyStorage<MemoryStorage>;

/// Empty storage with the default tables.
#[must_use]
pub fn store() -> Arc<TestStore> {
    store_with([])
}

/// Empty storage with the default tables and `others`.
#[must_use]
pub fn store_with(others: impl IntoIterator<Item = Table>) -> Arc<TestStore> {
    let tables = EngineConfig::default().tables;
    let usual = [tables.data, tables.uid, tables.meta, tables.tree];
    Arc::new(FaultyStorage::new(Arc::new(MemoryStorage::new(usual.into_iter().chain(others)))))
}

/// A clock that tests set.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock at epoch seconds.
    #[must_use]
    pub fn at_secs(secs: i64) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(secs * 1_000)))
    }

    /// Sets the time, in epoch seconds.
    pub fn set_secs(&self, secs: i64) {
        self.0.store(secs * 1_000, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Settings that auto-create every kind of name.
#[must_use]
pub fn config() -> EngineConfig {
    let mut config = EngineConfig::default();
    config.uids.auto_create_metrics = true;
    config.ingest.queue_deadline = Duration::from_secs(2);
    if cfg!(test) {
        config.query.sizes = WorkSizes::small();
    }
    config
}

/// Starts an engine.
#[must_use]
pub fn start(config: EngineConfig, store: &Arc<TestStore>) -> EngineHandle {
    let storage: Arc<dyn Storage> = Arc::<TestStore>::clone(store);
    Engine::start(config, storage).unwrap()
}

/// Parses tags as `k=v`, separated by blanks.
#[must_use]
pub fn pairs(tags: &[u8]) -> Vec<(&[u8], &[u8])> {
    let words = tags.split(|b| *b == b' ');
    words
        .filter_map(|word| {
            let equals = word.iter().position(|b| *b == b'=')?;
            Some((word.get(..equals)?, word.get(equals + 1..)?))
        })
        .collect()
}

/// Puts samples as a front end does.
pub fn put_all<'p>(session: &mut IngestSession, samples: &[Sample<'p>]) -> Vec<(usize, PutError)> {
    session.put(samples, |sample| *sample, |sample: &Sample<'p>| Ok(pairs(sample.tags_raw)))
}

/// Puts a value as a front end does.
#[expect(
    clippy::too_many_arguments,
    reason = "the fields of a sample, so that a test puts one in a line"
)]
pub fn put_content(
    session: &mut IngestSession,
    metric: &str,
    tags: &str,
    timestamp: i64,
    content: SampleContent<'_>,
    tag: u32,
) -> Result<(), PutError> {
    let (metric, tags_raw) = (metric.as_bytes(), tags.as_bytes());
    let sample = Sample { metric, tags_raw, timestamp, content, tag };
    put_all(session, &[sample]).pop().map_or(Ok(()), |(_, error)| Err(error))
}

/// Puts a point as a front end does.
#[expect(
    clippy::too_many_arguments,
    reason = "the fields of a point, so that a test puts one in a line"
)]
pub fn put(
    session: &mut IngestSession,
    metric: &str,
    tags: &str,
    timestamp: i64,
    value: i64,
    tag: u32,
) -> Result<(), PutError> {
    let content = SampleContent::Point(PointValue::Integer(value));
    put_content(session, metric, tags, timestamp, content, tag)
}

/// Puts one point and waits until it is durable.
pub async fn put_one(
    engine: &EngineHandle,
    metric: &str,
    tags: &str,
    timestamp: i64,
    value: i64,
) -> Result<(), PutError> {
    let mut session = engine.ingest_session(NameText::Utf8);
    put(&mut session, metric, tags, timestamp, value, 0)?;
    match session.commit().await.failures.pop() {
        Some(failure) => Err(failure.error),
        None => Ok(()),
    }
}

/// Every cell of a table, in order, with its row key.
pub async fn cells(store: &TestStore, table: &Table) -> Vec<(Vec<u8>, Cell)> {
    let mut rows = store.inner().scan(table, Scan::default());
    let mut cells = Vec::new();
    while let Some(batch) = rows.next_rows().await.unwrap() {
        for row in batch {
            let key = row.key.to_vec();
            cells.extend(row.into_cells().unwrap().into_iter().map(|cell| (key.clone(), cell)));
        }
    }
    cells
}

/// Every cell of a table as (row, family, qualifier, value) in hex, family as text.
pub async fn dump(store: &TestStore, table: &Table) -> Vec<String> {
    cells(store, table)
        .await
        .into_iter()
        .map(|(row, cell)| {
            let qualifier = match cell.family {
                Family::T => to_hex(&cell.qualifier),
                _ => String::from_utf8_lossy(&cell.qualifier).into_owned(),
            };
            format!("{} {} {qualifier} {}", to_hex(&row), cell.family.as_str(), to_hex(&cell.value))
        })
        .collect()
}
