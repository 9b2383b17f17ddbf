//! Which series there are: `/api/search/lookup`.
//!
//! The meta table has a row a series, where the tracking of series is on. The data table has a row for
//! each hour of a series; OpenTSDB lists a series once an hour from there, here it is listed once.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tsd_model::{Family, RowKey, SaltBucket, Tsuid, Uid, UidKind};
use tsd_query::{ErrorDetails, QueryError, QueryErrorClass};
use tsd_storage::{Scan, Table};

use crate::{
    EngineHandle,
    handle::Inner,
    query::{QueryContext, QueryControl, QueryFailure, QueryGuard, QueryStage},
    series_names::series_names,
    series_scan::{WantedTags, prefix_range, tags_filter},
    uid::UidError,
};

/// What a series takes in memory beside its TSUID: its names.
const SERIES_BYTES: usize = 512;
/// Rows a batch where the series wanted are few.
const MAX_BATCH_ROWS: usize = 1_024;

/// Which series are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// Of this metric; `None`, `*` and nothing take any.
    pub metric: Option<String>,
    /// With these tags; `None`, `*` and nothing stand for any key or any value. Pairs of one key are
    /// alternatives, and so are values under any key; a key with any value overrides its other pairs.
    pub tags: Vec<(Option<String>, Option<String>)>,
    /// Most series; 0 lists all. In the data table each salt bucket lists its share.
    pub limit: usize,
    /// Reads the meta table, not the data table.
    pub use_meta: bool,
}

/// The series found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookupAnswer {
    /// In the order of the table's keys.
    pub series: Vec<LookupSeries>,
}

/// A series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupSeries {
    /// Its TSUID.
    pub tsuid: Bytes,
    /// Name of its metric.
    pub metric: String,
    /// Its tags, by the UIDs of their keys.
    pub tags: Vec<(String, String)>,
}

impl Default for Lookup {
    fn default() -> Self {
        Self { metric: None, tags: Vec::new(), limit: 25, use_meta: true }
    }
}

/// A look-up whose names are UIDs.
#[derive(Default)]
struct Wanted {
    metric: Option<Uid>,
    tags: WantedTags,
    /// Under any key; none takes any.
    tagvs: BTreeSet<Uid>,
}

/// Rows of one table.
struct Rows {
    table: Table,
    scan: Scan,
    /// Most of them; 0 is no limit.
    limit: usize,
}

impl EngineHandle {
    /// Lists series by metric and tags. It is a query among the others, with their limits and their
    /// turns; dropping the future ends it. The guard is for whoever writes the answer.
    pub async fn lookup(
        &self,
        lookup: Lookup,
        control: QueryControl,
    ) -> Result<(LookupAnswer, QueryGuard), QueryFailure> {
        let inner = Arc::clone(self.inner());
        let work = |_, run: Arc<QueryContext>| async move { find(&inner, &run, lookup).await };
        self.inner().queries.run(control, (false, false), work).await
    }
}

/// Finds series.
async fn find(
    inner: &Inner,
    run: &QueryContext,
    lookup: Lookup,
) -> Result<LookupAnswer, QueryFailure> {
    let wanted = resolve(inner, &lookup).await?;
    let rows = if lookup.use_meta {
        vec![meta_rows(inner, &wanted, lookup.limit)]
    } else {
        data_rows(inner, &wanted, lookup.limit)
    };
    run.add_scans(rows.len());
    let mut scans = stream::iter(rows)
        .map(|rows| read(inner, run, rows, lookup.use_meta, &wanted.tagvs))
        .buffered(inner.config.query.max_scans.max(1));
    let mut tsuids = Vec::new();
    while let Some(found) = scans.try_next().await? {
        run.finish_scan();
        tsuids.extend(found);
    }
    run.set_stage(QueryStage::Naming);
    let names = series_names(&inner.config.schema, &inner.uids, &tsuids).await;
    let names = names.map_err(|e| unresolved(e, "Unable to resolve one or more TSUIDs"))?;
    let series = tsuids
        .into_iter()
        .zip(names)
        .map(|(tsuid, (metric, tags))| LookupSeries { tsuid, metric, tags })
        .collect();
    Ok(LookupAnswer { series })
}

/// Turns names into UIDs. Which name has none is not told, as in OpenTSDB.
async fn resolve(inner: &Inner, lookup: &Lookup) -> Result<Wanted, QueryFailure> {
    let uid = async |kind, name: &str| {
        let found = inner.uids.uid_of(kind, name).await;
        found.map_err(|e| unresolved(e, "Unable to resolve one or more UIDs"))
    };
    let mut wanted = Wanted::default();
    if let Some(metric) = named(lookup.metric.as_deref()) {
        wanted.metric = Some(uid(UidKind::Metric, metric).await?);
    }
    for (tagk, tagv) in &lookup.tags {
        match (named(tagk.as_deref()), named(tagv.as_deref())) {
            (None, None) => {
                let details = "A tag needs a key or a value";
                return Err(QueryError {
                    details: ErrorDetails::Text(details.to_owned()),
                    ..QueryError::bad_request("Unable to parse query")
                }
                .into());
            }
            (None, Some(tagv)) => {
                wanted.tagvs.insert(uid(UidKind::Tagv, tagv).await?);
            }
            (Some(tagk), None) => {
                wanted.tags.insert(uid(UidKind::Tagk, tagk).await?, None);
            }
            (Some(tagk), Some(tagv)) => {
                let tagk = uid(UidKind::Tagk, tagk).await?;
                let tagv = uid(UidKind::Tagv, tagv).await?;
                let tagvs = wanted.tags.entry(tagk).or_insert_with(|| Some(BTreeSet::new()));
                if let Some(tagvs) = tagvs {
                    tagvs.insert(tagv);
                }
            }
        }
    }
    Ok(wanted)
}

/// A name that stands for itself alone.
fn named(name: Option<&str>) -> Option<&str> {
    name.filter(|name| !matches!(*name, "" | "*"))
}

fn meta_rows(inner: &Inner, wanted: &Wanted, limit: usize) -> Rows {
    let schema = &inner.config.schema;
    let metric = wanted.metric.as_ref().map(Uid::as_bytes).unwrap_or_default();
    let (start, stop) = prefix_range(metric);
    let scan = Scan {
        start,
        stop,
        family: Some(Family::Name),
        filter: tags_filter(*schema, schema.metric_width(), &wanted.tags),
        ..Scan::default()
    };
    Rows { table: inner.config.tables.meta.clone(), scan, limit }
}

/// The rows of each salt bucket, or of the whole table.
fn data_rows(inner: &Inner, wanted: &Wanted, limit: usize) -> Vec<Rows> {
    let schema = &inner.config.schema;
    let buckets = if schema.salt_width() == 0 { 1 } else { schema.salt_buckets() };
    let limit = if limit == 0 { 0 } else { (limit / buckets as usize).max(1) };
    (0..buckets)
        .map(|bucket| {
            let mut prefix = SaltBucket::from_index(bucket).salt(schema.salt_width()).to_vec();
            prefix.extend(wanted.metric.as_ref().map(Uid::as_bytes).unwrap_or_default());
            let (start, stop) = prefix_range(&prefix);
            let scan = Scan {
                start,
                stop,
                family: Some(Family::T),
                filter: tags_filter(*schema, schema.tags_start(), &wanted.tags),
                ..Scan::default()
            };
            Rows { table: inner.config.tables.data.clone(), scan, limit }
        })
        .collect()
}

/// The TSUIDs of rows that have one of `tagvs`, under any key.
async fn read(
    inner: &Inner,
    run: &QueryContext,
    rows: Rows,
    meta: bool,
    tagvs: &BTreeSet<Uid>,
) -> Result<Vec<Bytes>, QueryFailure> {
    let schema = &inner.config.schema;
    let Rows { table, mut scan, limit } = rows;
    if limit > 0 {
        scan.batch_rows = Some(limit.min(MAX_BATCH_ROWS));
    }
    let mut scanner = inner.storage.scan(&table, scan);
    let mut found = Vec::new();
    // Of one salt bucket, in which all rows of a series lie.
    let mut seen: HashSet<Bytes> = HashSet::new();
    let _open = run.acquire_scan_permit().await;
    while let Some(batch) = scanner.next_rows().await? {
        run.record_rows(batch.len() as u64, 0, 0);
        let slice = run.time_slice().await?;
        for row in batch {
            let tsuid = if meta {
                Tsuid::try_new(schema, &row.key).ok()
            } else {
                let key = RowKey::decode(schema, &row.key).ok();
                key.filter(|key| !key.is_global()).map(|key| key.tsuid())
            };
            // Keys that name no series are those of global annotations, or damaged.
            let Some(tsuid) = tsuid else { continue };
            let bytes = tsuid.as_bytes();
            let tags = bytes.get(schema.metric_width()..).unwrap_or_default();
            let has = |tag: &[u8]| {
                let tagv = tag.get(schema.tagk_width()..).unwrap_or_default();
                tagvs.iter().any(|wanted| wanted.as_bytes() == tagv)
            };
            if !tagvs.is_empty() && !tags.chunks_exact(schema.tag_pair_width()).any(has) {
                continue;
            }
            if seen.contains(bytes) {
                continue;
            }
            run.reserve(bytes.len() + SERIES_BYTES)?;
            let tsuid = Bytes::copy_from_slice(bytes);
            if !meta {
                seen.insert(tsuid.clone());
            }
            found.push(tsuid);
            if limit > 0 && found.len() >= limit {
                return Ok(found);
            }
        }
        slice.finish();
    }
    Ok(found)
}

/// A name or UID that nobody knows is a 404 here.
fn unresolved(error: UidError, message: &str) -> QueryFailure {
    match error {
        UidError::NoSuchName { .. } | UidError::NoSuchUid { .. } => QueryError {
            class: QueryErrorClass::NotFound,
            message: message.to_owned(),
            details: ErrorDetails::None,
        }
        .into(),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::{sync::Arc, time::Duration};

    use tsd_model::{TS_META_QUALIFIER, TableSchema};
    use tsd_storage::{CellBatch, CellRef, Fault, Operation, Storage};

    use super::*;
    use crate::testing::{TestStore, config, put_one, start, store};

    const HOUR: i64 = 1_356_998_400;

    /// Four series, one of them with points in two hours.
    async fn filled(salt_width: usize) -> (Arc<TestStore>, EngineHandle) {
        let store = store();
        let mut settings = config();
        settings.schema = TableSchema::try_new(3, 3, 3, salt_width, 20).unwrap();
        let engine = start(settings, &store);
        for (metric, tags, at) in [
            ("m", "host=a dc=x", HOUR),
            ("m", "host=a dc=x", HOUR + 3_600),
            ("m", "host=b dc=x", HOUR),
            ("m", "host=c dc=y", HOUR),
            ("n", "host=a", HOUR),
        ] {
            put_one(&engine, metric, tags, at, 1).await.unwrap();
        }
        (store, engine)
    }

    /// Writes what a daemon that tracks series does. Values `a`, `x`, `b`, `c`, `y` are 1 to 5.
    async fn track(store: &TestStore) {
        let meta = crate::EngineConfig::default().tables.meta;
        for tsuid in [
            &[0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 2, 0, 0, 2][..],
            &[0, 0, 1, 0, 0, 1, 0, 0, 3, 0, 0, 2, 0, 0, 2],
            &[0, 0, 1, 0, 0, 1, 0, 0, 4, 0, 0, 2, 0, 0, 5],
            &[0, 0, 2, 0, 0, 1, 0, 0, 1],
            b"no key",
        ] {
            let cell = CellRef {
                family: Family::Name,
                qualifier: TS_META_QUALIFIER.as_bytes(),
                value: b"{}",
                timestamp_ms: None,
            };
            store.put(&meta, CellBatch::single(tsuid, cell).unwrap()).await.unwrap();
        }
    }

    fn asked(metric: &str, tags: &str) -> Lookup {
        let word = |word: &str| Some(word.to_owned()).filter(|word| !word.is_empty());
        let tags = tags
            .split_whitespace()
            .filter_map(|pair| pair.split_once('='))
            .map(|(tagk, tagv)| (word(tagk), word(tagv)))
            .collect();
        Lookup { metric: word(metric), tags, ..Lookup::default() }
    }

    async fn found(engine: &EngineHandle, lookup: Lookup) -> Vec<String> {
        let (answer, _guard) = engine.lookup(lookup, QueryControl::default()).await.unwrap();
        answer
            .series
            .iter()
            .map(|series| {
                assert_eq!(series.tsuid.len(), 3 + 6 * series.tags.len());
                let tags: Vec<_> = series.tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
                format!("{}{{{}}}", series.metric, tags.join(","))
            })
            .collect()
    }

    const A: &str = "m{host=a,dc=x}";
    const B: &str = "m{host=b,dc=x}";
    const C: &str = "m{host=c,dc=y}";
    const N: &str = "n{host=a}";

    #[tokio::test]
    async fn the_meta_table_lists_series_once() {
        for salt_width in [0, 1] {
            let (store, engine) = filled(salt_width).await;
            assert!(found(&engine, asked("m", "")).await.is_empty(), "no series was tracked");
            track(&store).await;
            for (metric, tags, expected) in [
                ("", "", &[A, B, C, N][..]),
                ("*", "", &[A, B, C, N]),
                ("m", "", &[A, B, C]),
                ("m", "host=a", &[A]),
                ("", "host=a", &[A, N]),
                ("m", "host=a host=c", &[A, C]),
                ("m", "host=a host=c dc=x", &[A]),
                ("", "dc=", &[A, B, C]),
                ("", "dc=x dc=*", &[A, B, C]),
                ("", "dc=* dc=x", &[A, B, C]),
                ("m", "*=x", &[A, B]),
                ("", "=y =b", &[B, C]),
                ("", "=a dc=", &[A]),
                ("n", "dc=x", &[]),
            ] {
                assert_eq!(
                    found(&engine, asked(metric, tags)).await,
                    expected,
                    "{metric}{{{tags}}}"
                );
            }
            assert_eq!(found(&engine, Lookup { limit: 2, ..asked("", "") }).await, [A, B]);
            assert_eq!(found(&engine, Lookup { limit: 0, ..asked("", "") }).await, [A, B, C, N]);
        }
    }

    #[tokio::test]
    async fn the_data_table_lists_series_once_whatever_their_hours() {
        for salt_width in [0, 1] {
            let (_store, engine) = filled(salt_width).await;
            let list = async |metric, tags, limit| {
                let lookup = Lookup { use_meta: false, limit, ..asked(metric, tags) };
                let mut found = found(&engine, lookup).await;
                found.sort();
                found
            };
            assert_eq!(list("", "", 0).await, [A, B, C, N]);
            assert_eq!(list("m", "=x", 0).await, [A, B]);
            assert_eq!(list("m", "host=a host=b", 0).await, [A, B]);
            // A share of a bucket is at least one.
            let limited = list("m", "host=a", 1).await;
            assert_eq!(limited, [A]);
            assert_eq!(list("", "", 1).await.len(), if salt_width == 0 { 1 } else { 4 });
        }
    }

    #[tokio::test]
    async fn what_nobody_knows_is_not_found() {
        let (store, engine) = filled(0).await;
        track(&store).await;
        let refused = async |lookup| match engine.lookup(lookup, QueryControl::default()).await {
            Err(QueryFailure::Rejected(error)) => (error.class.status(), error.message),
            other => panic!("{other:?}"),
        };
        let unknown = (404, "Unable to resolve one or more UIDs".to_owned());
        for (metric, tags) in [("zz", ""), ("m", "zz="), ("m", "host=a|b"), ("", "=zz")] {
            assert_eq!(refused(asked(metric, tags)).await, unknown);
        }
        for tags in ["=", "*=", "*=*"] {
            assert_eq!(refused(asked("m", tags)).await, (400, "Unable to parse query".to_owned()));
        }
        engine.delete_uid(UidKind::Tagv, "y").await.unwrap();
        engine.drop_caches();
        let unknown = (404, "Unable to resolve one or more TSUIDs".to_owned());
        assert_eq!(refused(asked("m", "")).await, unknown);
    }

    #[tokio::test]
    async fn more_series_than_memory_allows_are_refused() {
        let store = store();
        let mut settings = config();
        settings.query.max_memory_bytes = 1_100;
        let engine = start(settings, &store);
        for host in ["a", "b", "c"] {
            put_one(&engine, "m", &format!("host={host}"), HOUR, 1).await.unwrap();
        }
        let all = Lookup { use_meta: false, limit: 0, ..asked("m", "") };
        match engine.lookup(all.clone(), QueryControl::default()).await {
            Err(QueryFailure::Rejected(error)) => assert_eq!(error.class.status(), 413),
            other => panic!("{other:?}"),
        }
        assert_eq!(found(&engine, Lookup { limit: 2, ..all }).await.len(), 2);
    }

    #[tokio::test]
    async fn a_look_up_is_a_query_that_can_be_seen_and_cancelled() {
        let (store, engine) = filled(0).await;
        store.script(Operation::ScanBatch, vec![Fault::Delay(Duration::from_mins(1)); 8]);
        let all = Lookup { use_meta: false, limit: 0, ..asked("m", "") };
        let asking = tokio::spawn({
            let engine = engine.clone();
            async move { engine.lookup(all, QueryControl::default()).await }
        });
        let id = loop {
            if let Some(run) = engine.queries().running.first() {
                break run.id;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        assert!(engine.cancel_query(id));
        assert!(matches!(asking.await.unwrap(), Err(QueryFailure::CancelledByOperator)));
        assert!(engine.queries().running.is_empty());
    }
}
