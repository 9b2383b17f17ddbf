//! Writes series meta data for points: counters and meta objects in the meta table.
//!
//! OpenTSDB writes meta data for every point. Here an actor collects the points received since its last pass, so that
//! a series costs one increment per pass; counters end at the same values. What is the same for each point of a series
//! is written once a minute. As in OpenTSDB, points do not wait for their meta data, and failures are only logged.
//! Without tracking, no actor runs.

mod recent;
mod tracked_series;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::StreamExt;
use smallvec::SmallVec;
use tsd_model::{
    Family, TS_COUNTER_QUALIFIER, TS_META_QUALIFIER, TableSchema, TsMeta, encode_counter, to_hex,
};
use tsd_runtime::{Actor, ActorContext, ActorRef, Clock, Reply, SendError};
use tsd_storage::{CellBatch, CellRef, Column, Get, Storage, StorageError, StorageExt, Table};

pub(crate) use self::tracked_series::TrackedSeries;
use self::{
    recent::RecentSeries,
    tracked_series::{MAX_SERIES, TsuidBytes},
};
use crate::{config::MetaTracking, tree_processor::TreeQueue};

/// Time between two passes.
const PASS_INTERVAL: Duration = Duration::from_millis(100);
/// Series per storage call.
const SERIES_PER_CALL: usize = 1_024;
/// Concurrent calls for single series.
const CONCURRENT_SERIES: usize = 64;

/// TSUID of the series of a row key.
pub(crate) fn tsuid_of(schema: TableSchema, key: &[u8]) -> TsuidBytes {
    let part = |from: usize, to: usize| key.get(from..to).unwrap_or_default();
    let mut tsuid = SmallVec::from_slice(part(schema.salt_width(), schema.base_time_start()));
    tsuid.extend_from_slice(part(schema.tags_start(), key.len()));
    tsuid
}

/// Messages to the tracker.
pub(crate) enum TrackerMessage {
    /// These series got points.
    Seen(TrackedSeries),
    /// Reply when all series before it are written or have failed.
    Drain(Reply<()>),
}

/// Settings of the tracker.
#[derive(Clone, Debug)]
pub(crate) struct TrackerSettings {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) table: Table,
    pub(crate) tracking: MetaTracking,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) dropped: metrics::Counter,
    /// Places new series in trees, if that is enabled.
    pub(crate) trees: Option<TreeQueue>,
}

/// State of the tracker.
pub(crate) struct MetaTracker {
    settings: TrackerSettings,
    seen: TrackedSeries,
    recent: RecentSeries,
    writing: bool,
    drains: Vec<Reply<()>>,
}

impl MetaTracker {
    pub(crate) fn new(settings: TrackerSettings) -> Self {
        Self {
            settings,
            seen: TrackedSeries::default(),
            recent: RecentSeries::default(),
            writing: false,
            drains: Vec::new(),
        }
    }

    /// Notifies the tracker of series. If its mailbox is full, the series are dropped and counted.
    pub(crate) fn series_seen(
        tracker: &ActorRef<TrackerMessage>,
        dropped: &metrics::Counter,
        seen: TrackedSeries,
    ) {
        if let Err(SendError::Full(TrackerMessage::Seen(seen))) =
            tracker.try_send(TrackerMessage::Seen(seen))
        {
            dropped.increment(seen.len() as u64);
        }
    }

    fn begin_pass(&mut self, ctx: &mut ActorContext<'_, Self>) {
        self.write(ctx);
        ctx.after(PASS_INTERVAL, Self::begin_pass);
    }

    fn write(&mut self, ctx: &mut ActorContext<'_, Self>) {
        if self.writing {
            return;
        }
        let mut seen = std::mem::take(&mut self.seen);
        if self.settings.tracking != MetaTracking::Count {
            self.recent.retain_due(&mut seen, self.settings.clock.now_secs());
        }
        if seen.is_empty() {
            for drain in self.drains.drain(..) {
                // A failed send means that the caller stopped waiting.
                let _ = drain.send(());
            }
            return;
        }
        self.writing = true;
        ctx.spawn(track(self.settings.clone(), seen), |tracker, failed, ctx| {
            tracker.writing = false;
            tracker.recent.forget(failed.iter().map(AsRef::as_ref));
            if !tracker.drains.is_empty() {
                tracker.write(ctx);
            }
        });
    }
}

impl Actor for MetaTracker {
    type Message = TrackerMessage;

    fn started(&mut self, ctx: &mut ActorContext<'_, Self>) {
        ctx.after(PASS_INTERVAL, Self::begin_pass);
    }

    fn handle(&mut self, message: TrackerMessage, ctx: &mut ActorContext<'_, Self>) {
        match message {
            TrackerMessage::Seen(seen) => {
                for (tsuid, points) in seen {
                    let has_space = self.seen.len() < MAX_SERIES;
                    match self.seen.get_mut(&tsuid) {
                        Some(count) => *count += points,
                        None if has_space => {
                            self.seen.insert(tsuid, points);
                        }
                        None => self.settings.dropped.increment(1),
                    }
                }
            }
            TrackerMessage::Drain(reply) => {
                self.drains.push(reply);
                self.write(ctx);
            }
        }
    }
}

/// Writes the meta data of series. Returns the series that failed.
async fn track(settings: TrackerSettings, seen: TrackedSeries) -> Vec<Bytes> {
    let mut failed = Vec::new();
    let mut seen: Vec<(Bytes, u64)> =
        seen.into_iter().map(|(tsuid, points)| (Bytes::copy_from_slice(&tsuid), points)).collect();
    seen.sort_unstable();
    for chunk in seen.chunks(SERIES_PER_CALL) {
        let written = match settings.tracking {
            MetaTracking::Off => Ok(()),
            MetaTracking::Mark => settings.mark(chunk).await,
            MetaTracking::Describe => {
                let tsuids: Vec<&Bytes> = chunk.iter().map(|(tsuid, _)| tsuid).collect();
                settings.describe_missing(&tsuids).await
            }
            MetaTracking::Count => settings.count(chunk).await,
        };
        if let Err(error) = written {
            settings.dropped.increment(chunk.len() as u64);
            tracing::warn!(%error, series = chunk.len(), "series meta data not written");
            failed.extend(chunk.iter().map(|(tsuid, _)| tsuid.clone()));
        }
    }
    failed
}

impl TrackerSettings {
    async fn mark(&self, seen: &[(Bytes, u64)]) -> Result<(), StorageError> {
        let tsuids = seen.iter().map(|(tsuid, _)| tsuid);
        self.put(tsuids, TS_COUNTER_QUALIFIER, |_| encode_counter(1).to_vec()).await
    }

    /// Writes missing meta objects of series.
    async fn describe_missing(&self, tsuids: &[&Bytes]) -> Result<(), StorageError> {
        let qualifier = Bytes::from_static(TS_META_QUALIFIER.as_bytes());
        let gets = tsuids
            .iter()
            .map(|tsuid| Get::column((*tsuid).clone(), Family::Name, qualifier.clone()))
            .collect();
        let rows = self.storage.multi_get(&self.table, gets).await?;
        let new = tsuids.iter().copied().zip(rows).filter(|(_, row)| row.is_none());
        self.describe(new.map(|(tsuid, _)| tsuid).collect()).await
    }

    async fn count(&self, seen: &[(Bytes, u64)]) -> Result<(), StorageError> {
        let counted: Vec<Result<Option<&Bytes>, StorageError>> = futures_util::stream::iter(seen)
            .map(|(tsuid, points)| async move {
                let column = Column {
                    row: tsuid.clone(),
                    family: Family::Name,
                    qualifier: Bytes::from_static(TS_COUNTER_QUALIFIER.as_bytes()),
                };
                let points = i64::try_from(*points).unwrap_or(i64::MAX);
                let sum = self.storage.increment(&self.table, column, points).await?;
                // The counter was absent: these points are the first.
                Ok((sum == points).then_some(tsuid))
            })
            .buffer_unordered(CONCURRENT_SERIES)
            .collect()
            .await;
        let mut failed = Ok(());
        let mut new = Vec::new();
        for result in counted {
            match result {
                Ok(tsuid) => new.extend(tsuid),
                Err(error) => failed = Err(error),
            }
        }
        // A series may have an object without a counter if a client created the object.
        self.describe_missing(&new).await.and(failed)
    }

    /// Writes meta objects of new series.
    async fn describe(&self, tsuids: Vec<&Bytes>) -> Result<(), StorageError> {
        let now = self.clock.now_secs();
        self.put(tsuids.iter().copied(), TS_META_QUALIFIER, |tsuid| {
            TsMeta::new(&to_hex(tsuid), now).to_json().into_bytes()
        })
        .await?;
        if let Some(trees) = &self.trees {
            trees.created(tsuids.into_iter().cloned().collect());
        }
        Ok(())
    }

    async fn put<'a>(
        &self,
        tsuids: impl IntoIterator<Item = &'a Bytes>,
        qualifier: &str,
        value: impl Fn(&[u8]) -> Vec<u8>,
    ) -> Result<(), StorageError> {
        let mut batch = CellBatch::new();
        for tsuid in tsuids {
            batch.begin_row(tsuid)?;
            batch.push(CellRef {
                family: Family::Name,
                qualifier: qualifier.as_bytes(),
                value: &value(tsuid),
                timestamp_ms: None,
            })?;
        }
        if batch.is_empty() { Ok(()) } else { self.storage.put(&self.table, batch).await }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tsd_storage::{Fault, Operation};

    use super::*;
    use crate::{
        EngineConfig, EngineHandle, NameText,
        testing::{ManualClock, TestStore, config, dump, put, put_one, start, store},
    };

    fn tracking(tracking: MetaTracking) -> EngineConfig {
        let clock = ManualClock::at_secs(1_356_998_400);
        EngineConfig { meta_tracking: tracking, clock, ..config() }
    }

    async fn tracked(engine: &EngineHandle, store: &TestStore) -> Vec<String> {
        let tracker = engine.shared().ingest.tracker.as_ref().unwrap();
        tracker.ask(TrackerMessage::Drain).await.unwrap();
        dump(store, &EngineConfig::default().tables.meta).await
    }

    fn described(tsuid: &str) -> String {
        let json = format!(
            r#"{{"tsuid":"{tsuid}","displayName":"","description":"","notes":"","created":1356998400,"custom":null,"units":"","dataType":"","retention":0,"max":"NaN","min":"NaN"}}"#
        );
        format!("{tsuid} name ts_meta {}", to_hex(json.as_bytes()))
    }

    const A: &str = "000001000001000001";
    const B: &str = "000001000001000002";

    async fn put_three(engine: &EngineHandle) {
        put_one(engine, "m", "host=a", 1_356_998_400, 1).await.unwrap();
        put_one(engine, "m", "host=a", 1_356_998_401, 2).await.unwrap();
        put_one(engine, "m", "host=b", 1_356_998_400, 1).await.unwrap();
    }

    #[test]
    fn settings_map_to_tracking_modes() {
        use MetaTracking::{Count, Describe, Mark, Off};
        let choice = MetaTracking::from_settings;
        assert_eq!([choice(false, true, true), choice(true, false, true)], [Off, Mark]);
        assert_eq!([choice(true, true, false), choice(true, true, true)], [Describe, Count]);
    }

    #[tokio::test]
    async fn series_are_tracked_as_configured() {
        let mark = |tsuid: &str, count: u64| format!("{tsuid} name ts_ctr {count:016X}");
        for (choice, expected) in [
            (MetaTracking::Mark, vec![mark(A, 1), mark(B, 1)]),
            (MetaTracking::Describe, vec![described(A), described(B)]),
            (MetaTracking::Count, vec![mark(A, 2), described(A), mark(B, 1), described(B)]),
        ] {
            for salt_width in [0, 1] {
                let store = store();
                let mut settings = tracking(choice);
                settings.schema = TableSchema::try_new(3, 3, 3, salt_width, 20).unwrap();
                let engine = start(settings, &store);
                put_three(&engine).await;
                assert_eq!(tracked(&engine, &store).await, expected, "{choice:?} {salt_width}");
            }
        }
    }

    #[tokio::test]
    async fn stored_meta_objects_are_kept_and_counters_continue() {
        for choice in [MetaTracking::Describe, MetaTracking::Count] {
            let store = store();
            let engine = start(tracking(choice), &store);
            put_one(&engine, "m", "host=a", 1, 1).await.unwrap();
            tracked(&engine, &store).await;
            let cell = CellRef {
                family: Family::Name,
                qualifier: b"ts_meta",
                value: b"edited",
                timestamp_ms: None,
            };
            let row = tsd_model::from_hex(A.as_bytes()).unwrap();
            let batch = CellBatch::single(&row, cell).unwrap();
            store.put(&EngineConfig::default().tables.meta, batch).await.unwrap();
            let mut session = engine.ingest_session(NameText::Utf8);
            for second in 2..10 {
                put(&mut session, "m", "host=a", second, 1, 0).unwrap();
            }
            session.commit().await;
            let cells = tracked(&engine, &store).await;
            assert_eq!(cells.last(), Some(&format!("{A} name ts_meta {}", to_hex(b"edited"))));
            if choice == MetaTracking::Count {
                assert_eq!(cells.first(), Some(&format!("{A} name ts_ctr 0000000000000009")));
            }
        }
    }

    #[tokio::test]
    async fn storage_failure_loses_no_point() {
        let store = store();
        let engine = start(tracking(MetaTracking::Count), &store);
        put_one(&engine, "m", "host=a", 1, 1).await.unwrap();
        tracked(&engine, &store).await;
        store.script(Operation::Increment, [Fault::Error(StorageError::DiskFull)]);
        put_one(&engine, "m", "host=a", 2, 1).await.unwrap();
        let cells = tracked(&engine, &store).await;
        assert_eq!(cells.first(), Some(&format!("{A} name ts_ctr 0000000000000001")));
        put_one(&engine, "m", "host=a", 3, 1).await.unwrap();
        let cells = tracked(&engine, &store).await;
        assert_eq!(cells.first(), Some(&format!("{A} name ts_ctr 0000000000000002")));
    }

    #[tokio::test]
    async fn a_series_is_marked_once_a_minute() {
        let store = store();
        let clock = ManualClock::at_secs(1_356_998_400);
        let engine =
            start(EngineConfig { clock: clock.clone(), ..tracking(MetaTracking::Mark) }, &store);
        let meta = EngineConfig::default().tables.meta;
        for (second, is_marked) in [(0, true), (1, false), (59, false), (60, true)] {
            clock.set_secs(1_356_998_400 + second);
            put_one(&engine, "m", "host=a", 1, second).await.unwrap();
            let marks = tracked(&engine, &store).await.len();
            assert_eq!(marks, usize::from(is_marked), "after {second} s");
            // Shows whether the next point writes the mark.
            let row = Bytes::from(tsd_model::from_hex(A.as_bytes()).unwrap());
            store.delete(&meta, tsd_storage::Delete::Row(row)).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_series_whose_meta_data_failed_is_written_with_its_next_point() {
        let store = store();
        let engine = start(tracking(MetaTracking::Describe), &store);
        // Assigns the UIDs.
        put_one(&engine, "m", "host=a", 1, 1).await.unwrap();
        put_one(&engine, "n", "host=b", 1, 1).await.unwrap();
        tracked(&engine, &store).await;
        store.script(Operation::MultiGet, [Fault::Error(StorageError::DiskFull)]);
        for series in [2, 3] {
            put_one(&engine, "m", "host=b", 1, 1).await.unwrap();
            assert_eq!(tracked(&engine, &store).await.len(), series);
        }
    }

    #[tokio::test]
    async fn shutdown_writes_pending_series() {
        let store = store();
        let engine = start(tracking(MetaTracking::Mark), &store);
        put_three(&engine).await;
        assert!(engine.shutdown(Duration::from_secs(5)).await);
        assert_eq!(dump(&store, &EngineConfig::default().tables.meta).await.len(), 2);
    }

    #[tokio::test]
    async fn meta_objects_are_written_with_new_uids() {
        let store = store();
        let mut settings = tracking(MetaTracking::Off);
        settings.uids.realtime_meta = true;
        let engine = start(settings, &store);
        put_three(&engine).await;
        let cells = dump(&store, &EngineConfig::default().tables.uid).await;
        let metas: Vec<&str> = cells
            .iter()
            .filter_map(|cell| {
                cell.split(' ').nth(2).filter(|qualifier| qualifier.ends_with("_meta"))
            })
            .collect();
        assert_eq!(metas, ["metric_meta", "tagk_meta", "tagv_meta", "tagv_meta"]);
        let json = r#"{"type":"METRIC","displayName":"","description":"","notes":"","created":1356998400,"custom":null}"#;
        let expected = format!("000001 name metric_meta {}", to_hex(json.as_bytes()));
        assert!(cells.contains(&expected), "{cells:?}");
        assert!(engine.shared().ingest.tracker.is_none());
    }
}
