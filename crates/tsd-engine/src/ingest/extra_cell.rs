//! Cells other than points: rolled-up values, pre-aggregates and histograms.
//!
//! Such a cell is encoded before its series is resolved, and waits for its UIDs like a point. If the series is cached,
//! the cell borrows the value of a histogram instead of copying it. Rolled-up values are put into tables of their own,
//! without appends and row compaction. Histograms are put into the rows of the data table.

use std::{borrow::Cow, sync::Arc};

use smallvec::SmallVec;
use tsd_model::{
    BaseTime, EncodedValue, PointValue, Qualifier, RollupConfig, RollupInterval, Timestamp,
    TimestampError, histogram_qualifier,
};
use tsd_read::Rollups;
use tsd_storage::Table;

use super::sample::{RolledUpValue, RollupTarget, check_numbers, check_time};
use crate::put_error::PutError;

/// An encoded cell without its series.
#[derive(Clone, Debug)]
pub(crate) struct ExtraCell<'v> {
    pub(super) target: usize,
    pub(super) base: BaseTime,
    pub(super) timestamp: Timestamp,
    pub(super) qualifier: SmallVec<[u8; 8]>,
    pub(super) value: CellValue<'v>,
}

/// The value of an extra cell.
#[derive(Clone, Debug)]
pub(super) enum CellValue<'v> {
    Rollup {
        encoded: EncodedValue,
        /// The value as the client sent it, for plug-ins.
        given: RolledUpValue,
    },
    Histogram(Cow<'v, [u8]>),
}

impl CellValue<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Rollup { encoded, .. } => encoded,
            Self::Histogram(value) => value,
        }
    }

    /// True if the cell counts for meta tracking.
    pub(super) const fn is_tracked(&self) -> bool {
        matches!(self, Self::Histogram(_))
    }
}

impl ExtraCell<'_> {
    /// Copies a borrowed value.
    pub(super) fn into_owned(self) -> ExtraCell<'static> {
        let Self { target, base, timestamp, qualifier, value } = self;
        let value = match value {
            CellValue::Rollup { encoded, given } => CellValue::Rollup { encoded, given },
            CellValue::Histogram(value) => CellValue::Histogram(Cow::Owned(value.into_owned())),
        };
        ExtraCell { target, base, timestamp, qualifier, value }
    }

    /// Timestamp in epoch seconds.
    pub(super) fn time_secs(&self) -> u32 {
        self.timestamp.as_secs()
    }

    /// The value in the form that plug-ins get.
    pub(super) fn view(&self) -> CellView<'_> {
        match &self.value {
            CellValue::Rollup { given, .. } => CellView::Rollup(self.timestamp, *given),
            CellValue::Histogram(value) => CellView::Histogram(self.timestamp, value),
        }
    }
}

/// A value in the form that plug-ins get.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CellView<'a> {
    /// A point.
    Point(Timestamp, PointValue),
    /// A rolled-up value or a pre-aggregate.
    Rollup(Timestamp, RolledUpValue),
    /// A histogram as stored.
    Histogram(Timestamp, &'a [u8]),
}

/// Table and operation of a write.
#[derive(Clone, Debug)]
pub(crate) struct WriteTarget {
    /// Destination table.
    pub(crate) table: Table,
    /// True for append, false for put.
    pub(crate) appends: bool,
}

/// All write targets, that of points first.
#[derive(Clone, Debug)]
pub(crate) struct WriteTargets {
    pub(crate) list: Arc<[WriteTarget]>,
    rollups: Option<Arc<RollupTargets>>,
}

#[derive(Debug)]
struct RollupTargets {
    config: RollupConfig,
    /// Targets of each interval: its table and its pre-aggregate table.
    of_interval: Vec<[usize; 2]>,
    /// Target of the pre-aggregate table of the default interval.
    pre_aggregates: usize,
}

impl WriteTargets {
    /// Target of points.
    pub(crate) const POINTS: usize = 0;
    /// Puts into the data table, even if points are appended.
    const DATA_PUTS: usize = 1;

    /// The targets of a data table, to which points are appended or put, and the targets of rollups.
    pub(crate) fn new(data: &Table, appends: bool, rollups: Option<&Rollups>) -> Self {
        let mut list = vec![
            WriteTarget { table: data.clone(), appends },
            WriteTarget { table: data.clone(), appends: false },
        ];
        let rollups = rollups.map(|r| Arc::new(RollupTargets::new(r, &mut list)));
        Self { list: list.into(), rollups }
    }

    /// Checks and encodes a rolled-up value. Its timestamp must be in seconds.
    pub(super) fn rollup(
        &self,
        place: RollupTarget,
        timestamp: i64,
        value: PointValue,
    ) -> Result<ExtraCell<'static>, PutError> {
        let timestamp = check_numbers(timestamp, value)?;
        if timestamp.is_millis() {
            return Err(TimestampError::OutOfRange(timestamp.as_given()).into());
        }
        let rollups = self.rollups.as_ref().ok_or(PutError::NoRollups)?;
        let given = RolledUpValue { place, value };
        let (flags, encoded) = value.encode();
        let (target, base, qualifier) = match place {
            RollupTarget::PreAggregate => {
                let qualifier = Qualifier::new(timestamp, flags);
                let base = timestamp.base_time();
                (rollups.pre_aggregates, base, SmallVec::from_slice(qualifier.as_bytes()))
            }
            RollupTarget::Slot { interval, aggregator_id, pre_aggregate } => {
                let (target, rolled_up) = rollups.interval(interval, pre_aggregate)?;
                let (base, qualifier) = rolled_up.place(timestamp.as_secs(), aggregator_id, flags);
                (target, base, qualifier.encode())
            }
        };
        let value = CellValue::Rollup { encoded, given };
        Ok(ExtraCell { target, base, timestamp, qualifier, value })
    }

    /// Checks the timestamp of a histogram, and encodes the histogram, which is given as it is stored.
    pub(super) fn histogram<'v>(
        &self,
        timestamp: i64,
        value: &'v [u8],
    ) -> Result<ExtraCell<'v>, PutError> {
        let timestamp = check_time(timestamp)?;
        let appends = self.list.get(Self::POINTS).is_some_and(|target| target.appends);
        Ok(ExtraCell {
            // If points are put, histograms share their target, so that both are in one batch.
            target: if appends { Self::DATA_PUTS } else { Self::POINTS },
            base: timestamp.base_time(),
            timestamp,
            qualifier: histogram_qualifier(timestamp),
            value: CellValue::Histogram(Cow::Borrowed(value)),
        })
    }
}

impl RollupTargets {
    fn new(rollups: &Rollups, list: &mut Vec<WriteTarget>) -> Self {
        let first = list.len();
        for table in rollups.tables() {
            list.push(WriteTarget { table, appends: false });
        }
        let target = |name: &str| {
            let at = list.iter().skip(first).position(|target| target.table.as_str() == name);
            at.map_or(first, |at| first + at)
        };
        let config = rollups.config.clone();
        let of_interval = config
            .intervals()
            .iter()
            .map(|i| [target(&i.table), target(&i.pre_aggregation_table)])
            .collect();
        let default = config.default_interval().map(|i| i.pre_aggregation_table.as_str());
        let pre_aggregates = target(default.unwrap_or_default());
        Self { config, of_interval, pre_aggregates }
    }

    /// The target of an interval, and the interval.
    fn interval(
        &self,
        interval: usize,
        pre_aggregate: bool,
    ) -> Result<(usize, &RollupInterval), PutError> {
        let (Some(rolled_up), Some([table, pre_aggregates])) =
            (self.config.intervals().get(interval), self.of_interval.get(interval))
        else {
            return Err(PutError::NoRollups);
        };
        Ok((if pre_aggregate { *pre_aggregates } else { *table }, rolled_up))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::time::Duration;

    use tsd_model::SimpleHistogram;
    use tsd_storage::{ByteBudget, Fault, MemoryStorage, Operation, StorageError, Table};

    use super::*;
    use crate::{
        EngineConfig, EngineHandle, IngestSession, NameText, Sample, SampleContent,
        testing::{TestStore, config, dump, put, put_all, put_content, start, store_with},
    };

    const ROLLUPS: &str = r#"{
    "aggregationIds": {"sum": 0, "count": 1},
    "intervals": [
        {"table": "tsdb", "preAggregationTable": "agg", "interval": "1m", "rowSpan": "1h",
         "defaultInterval": true},
        {"table": "rollup-1h", "preAggregationTable": "agg-1h", "interval": "1h", "rowSpan": "1n"}
    ]
}"#;
    const TABLES: [&str; 3] = ["agg", "rollup-1h", "agg-1h"];
    const HOURLY_SUM: RollupTarget =
        RollupTarget::Slot { interval: 1, aggregator_id: 0, pre_aggregate: false };

    fn rollup_config() -> EngineConfig {
        let rollups = RollupConfig::from_json(ROLLUPS.as_bytes(), |_| true).unwrap();
        EngineConfig { rollups: Some(Rollups::new(rollups)), ..config() }
    }

    fn rollup_store() -> Arc<TestStore> {
        store_with(TABLES.map(Table::new))
    }

    /// Puts a value of `m host=a`.
    fn put_host(session: &mut IngestSession, time: i64, content: SampleContent<'_>, tag: u32) {
        put_content(session, "m", "host=a", time, content, tag).unwrap();
    }

    fn rollup(place: RollupTarget, value: i64) -> SampleContent<'static> {
        SampleContent::Rollup { place, value: PointValue::Integer(value) }
    }

    async fn put_rollup(engine: &EngineHandle, place: RollupTarget, secs: i64, value: i64) {
        let mut session = engine.ingest_session(NameText::Latin1);
        put_host(&mut session, secs, rollup(place, value), 0);
        assert_eq!(session.commit().await.stored, 1);
    }

    async fn table(store: &TestStore, name: &str) -> Vec<String> {
        dump(store, &Table::new(name)).await
    }

    #[tokio::test]
    async fn rolled_up_values_are_stored_in_the_tables_of_their_interval() {
        let store = rollup_store();
        let engine = start(rollup_config(), &store);
        let places = [
            HOURLY_SUM,
            RollupTarget::Slot { interval: 1, aggregator_id: 1, pre_aggregate: true },
            RollupTarget::Slot { interval: 0, aggregator_id: 0, pre_aggregate: false },
            RollupTarget::PreAggregate,
        ];
        // The second round finds the series in the cache.
        for value in [1, 42] {
            for place in places {
                put_rollup(&engine, place, 1_370_532_925, value).await;
            }
        }
        assert_eq!(table(&store, "rollup-1h").await, ["00000151A93980000001000001 t 000870 2A"]);
        assert_eq!(table(&store, "agg-1h").await, ["00000151A93980000001000001 t 010870 2A"]);
        assert_eq!(table(&store, "tsdb").await, ["00000151B0A3F0000001000001 t 000230 2A"]);
        assert_eq!(table(&store, "agg").await, ["00000151B0A3F0000001000001 t 84D0 2A"]);
    }

    #[tokio::test]
    async fn salted_rollup_rows_carry_the_bucket_of_their_series() {
        let store = rollup_store();
        let mut settings = rollup_config();
        settings.schema = tsd_model::TableSchema::try_new(3, 3, 3, 1, 20).unwrap();
        let engine = start(settings, &store);
        put_rollup(&engine, HOURLY_SUM, 1_370_532_925, 42).await;
        assert_eq!(table(&store, "rollup-1h").await, ["0800000151A93980000001000001 t 000870 2A"]);
    }

    #[tokio::test]
    async fn only_points_are_appended() {
        let store = rollup_store();
        let mut settings = rollup_config();
        settings.ingest.enable_appends = true;
        let engine = start(settings, &store);
        let mut session = engine.ingest_session(NameText::Latin1);
        for round in 0..2 {
            put(&mut session, "m", "host=a", 1_356_998_400 + round, 1, 0).unwrap();
            let histogram = SampleContent::Histogram(&[42, 0, 0, 0, 0]);
            put_host(&mut session, 1_356_998_400, histogram, 1);
            put_host(&mut session, 1_356_998_400, rollup(HOURLY_SUM, 7), 2);
            session.send().await;
        }
        session.drain().await;
        assert_eq!(
            table(&store, "tsdb").await,
            [
                "00000150E22700000001000001 t 050000 000001001001",
                "00000150E22700000001000001 t 060000 2A00000000"
            ]
        );
        assert_eq!(table(&store, "rollup-1h").await, ["00000150E22700000001000001 t 000000 07"]);
    }

    #[tokio::test]
    async fn histograms_are_stored_in_the_rows_of_points() {
        let store = rollup_store();
        let engine = start(config(), &store);
        let value = SimpleHistogram::parse("u=0:o=1:0,1=42").unwrap().encode(42).unwrap();
        let mut session = engine.ingest_session(NameText::Latin1);
        session.use_single_shard(3);
        for (tag, timestamp) in [(0, 1_356_998_401), (1, 1_356_998_400_250)] {
            put_host(&mut session, timestamp, SampleContent::Histogram(&value), tag);
        }
        put(&mut session, "m", "host=a", 1_356_998_400, 5, 2).unwrap();
        assert_eq!((session.pending(), session.commit().await.stored), (3, 3));
        assert_eq!(
            table(&store, "tsdb").await,
            [
                "00000150E22700000001000001 t 0000 05",
                "00000150E22700000001000001 t 06000000FA 2A0001000000003F8000002A0001",
                "00000150E22700000001000001 t 060001 2A0001000000003F8000002A0001",
            ]
        );
    }

    #[tokio::test]
    async fn cells_of_one_column_are_stored_in_put_order() {
        let store = rollup_store();
        let engine = start(rollup_config(), &store);
        let mut session = engine.ingest_session(NameText::Latin1);
        for value in 0..40 {
            // Several spellings of the series: some cached, some not.
            let tags = format!("host=a{}", " ".repeat(usize::try_from(value).unwrap() % 7));
            let content = rollup(HOURLY_SUM, value);
            put_content(&mut session, "m", &tags, 1_370_532_925, content, 0).unwrap();
            session.send().await;
        }
        session.drain().await;
        assert_eq!(table(&store, "rollup-1h").await, ["00000151A93980000001000001 t 000870 27"]);
    }

    #[tokio::test]
    async fn kinds_share_one_put_and_are_stored_in_put_order() {
        let store = rollup_store();
        let engine = start(rollup_config(), &store);
        let value = SimpleHistogram::parse("0,1=42").unwrap().encode(42).unwrap();
        // The second round finds the series in the cache.
        for round in 0..2 {
            let contents = [
                SampleContent::Point(PointValue::Integer(1)),
                rollup(HOURLY_SUM, 2),
                SampleContent::Histogram(&value),
                rollup(RollupTarget::PreAggregate, 3),
                rollup(HOURLY_SUM, 4 + round),
                SampleContent::Point(PointValue::Integer(6 + round)),
            ];
            let sample = |content| Sample {
                metric: b"m",
                tags_raw: b"host=a",
                timestamp: 1_370_532_925,
                content,
                tag: 0,
            };
            let samples = contents.map(sample);
            let mut session = engine.ingest_session(NameText::Latin1);
            assert!(put_all(&mut session, &samples).is_empty());
            assert_eq!((session.pending(), session.commit().await.stored), (6, 6));
            let last = [format!("00000151A93980000001000001 t 000870 {:02X}", 4 + round)];
            assert_eq!(table(&store, "rollup-1h").await, last);
            let data = table(&store, "tsdb").await;
            assert_eq!(data.len(), 2);
            assert!(data.iter().any(|cell| cell.ends_with(&format!(" {:02X}", 6 + round))));
            assert_eq!(table(&store, "agg").await.len(), 1);
        }
    }

    #[tokio::test]
    async fn millisecond_times_and_unknown_intervals_are_rejected() {
        let engine = start(rollup_config(), &rollup_store());
        let one = PointValue::Integer(1);
        put_rollup(&engine, HOURLY_SUM, 7_200, 1).await;
        let unknown = RollupTarget::Slot { interval: 9, aggregator_id: 0, pre_aggregate: false };
        let infinite =
            SampleContent::Rollup { place: HOURLY_SUM, value: PointValue::Double(f64::INFINITY) };
        // With and without a cached series.
        for tags in ["host=a", "host=new"] {
            let mut session = engine.ingest_session(NameText::Latin1);
            let mut rejected =
                |time, content| put_content(&mut session, "m", tags, time, content, 0).unwrap_err();
            let error = rejected(1_370_532_925_123, rollup(HOURLY_SUM, 1));
            assert!(matches!(
                error,
                PutError::BadTimestamp(TimestampError::OutOfRange(1_370_532_925_123))
            ));
            assert!(matches!(rejected(1, rollup(unknown, 1)), PutError::NoRollups));
            let histogram = rejected(-1, SampleContent::Histogram(&[]));
            assert!(matches!(histogram, PutError::BadTimestamp(TimestampError::OutOfRange(-1))));
            assert!(matches!(rejected(1, infinite), PutError::NotFinite));
            assert_eq!(session.pending(), 0);
        }
        let plain = start(config(), &rollup_store());
        let mut session = plain.ingest_session(NameText::Latin1);
        let content = SampleContent::Rollup { place: RollupTarget::PreAggregate, value: one };
        let rejected = put_content(&mut session, "m", "host=a", 1, content, 0);
        assert!(matches!(rejected, Err(PutError::NoRollups)));
    }

    #[tokio::test]
    async fn storage_error_fails_only_the_cells_of_its_call() {
        let store = rollup_store();
        let engine = start(rollup_config(), &store);
        put_rollup(&engine, HOURLY_SUM, 7_200, 1).await;
        let mut session = engine.ingest_session(NameText::Latin1);
        put_host(&mut session, 10_800, rollup(HOURLY_SUM, 1), 4);
        store.script(Operation::Put, [Fault::Error(StorageError::Backend("region moved".into()))]);
        let report = session.commit().await;
        assert_eq!((report.stored, report.failures.len()), (0, 1));
        assert_eq!(report.failures.first().map(|f| f.tag), Some(4));
        put_rollup(&engine, HOURLY_SUM, 14_400, 1).await;
    }

    #[tokio::test]
    async fn full_queue_throttles_rollups_like_points() {
        let store = rollup_store();
        let mut settings = rollup_config();
        settings.ingest.budget = ByteBudget::new(64);
        settings.ingest.queue_deadline = Duration::from_millis(30);
        let engine = start(settings, &store);
        put_rollup(&engine, HOURLY_SUM, 7_200, 1).await;
        store.script(Operation::Put, [Fault::Delay(Duration::from_millis(300))]);
        let mut first = engine.ingest_session(NameText::Latin1);
        put(&mut first, "m", "host=a", 2, 1, 0).unwrap();
        first.send().await;
        let mut second = engine.ingest_session(NameText::Latin1);
        put_host(&mut second, 10_800, rollup(HOURLY_SUM, 1), 7);
        let report = second.commit().await;
        assert!(matches!(report.failures.first().map(|f| &f.error), Some(PutError::Throttled(_))));
        first.drain().await;
    }

    #[test]
    fn engine_requires_its_rollup_tables() {
        let tables = EngineConfig::default().tables;
        let bare: Arc<dyn tsd_storage::Storage> =
            Arc::new(MemoryStorage::new([tables.data, tables.uid]));
        let error = crate::Engine::start(rollup_config(), bare).unwrap_err();
        assert_eq!(error.to_string(), "table agg does not exist");
    }
}
