//! Series look-up (`/api/search/lookup`).
//!
//! If series tracking is on, the meta table has one row per series. The data table has one row per
//! series and hour; from there OpenTSDB lists a series once per hour, this module once. If the store
//! has a series index, that is read instead of the data table.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tsd_model::{Family, RowKey, SaltBucket, Tsuid, Uid, UidKind};
use tsd_query::{LookupStep, MissingName, QueryError, SeriesError};
use tsd_series_index::{SeriesSet, TagCondition};
use tsd_storage::{Scan, Table};

use crate::{
    EngineHandle,
    handle::EngineShared,
    query::{QueryContext, QueryControl, QueryFailure, QueryGuard, RunningStage},
    series_names::reserved_names,
    series_scan::{TagUids, prefix_range, tags_filter},
    uid::UidError,
    usable_index::usable_index,
};

/// Memory of a series beside its TSUID and the texts of its names.
const SERIES_BYTES: usize = 256;
/// Memory of a tag of the request beside its texts: as sent and resolved.
const REQUEST_TAG_BYTES: usize = 192;
/// Memory of a TSUID in the list that the index returns, about.
const MIN_TSUID_BYTES: usize = 64;
/// Most rows per scan batch of a limited look-up.
const MAX_BATCH_ROWS: usize = 1_024;

/// A request for series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// Metric; `None`, `*` and the empty string match any.
    pub metric: Option<String>,
    /// Tags; `None`, `*` and the empty string match any key or value. Pairs of one key are
    /// alternatives, and so are values of any key; a key with any value overrides its other pairs.
    pub tags: Vec<(Option<String>, Option<String>)>,
    /// Most series; 0: no limit.
    pub limit: usize,
    /// Reads the meta table instead of the data table.
    pub use_meta: bool,
}

/// Result of a look-up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookupResult {
    /// In the order of the table's keys.
    pub series: Vec<LookupSeries>,
}

/// A series of a look-up.
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

/// A look-up with UIDs instead of names.
#[derive(Default)]
struct ResolvedLookup {
    metric: Option<Uid>,
    tags: TagUids,
    /// Values of any key; empty matches all.
    tagvs: BTreeSet<Uid>,
}

/// A scan for series.
struct SeriesScan {
    table: Table,
    scan: Scan,
    /// Most series; 0: no limit.
    limit: usize,
}

impl EngineHandle {
    /// Lists series by metric and tags. Limited and scheduled like a query; dropping the future
    /// cancels it. Keep the guard until the response is written.
    pub async fn lookup(
        &self,
        lookup: Lookup,
        control: QueryControl,
    ) -> Result<(LookupResult, QueryGuard), QueryFailure> {
        let work = |shared: Arc<EngineShared>, context: Arc<QueryContext>| async move {
            find(&shared, &context, lookup).await
        };
        self.run_limited(control, work).await
    }
}

/// Finds series.
async fn find(
    shared: &EngineShared,
    context: &QueryContext,
    lookup: Lookup,
) -> Result<LookupResult, QueryFailure> {
    let pair = |(tagk, tagv): &(Option<String>, Option<String>)| {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        REQUEST_TAG_BYTES + text(tagk) + text(tagv)
    };
    context.reserve(lookup.tags.iter().map(pair).sum())?;
    let resolved = resolve(shared, &lookup).await?;
    if !lookup.use_meta
        && let Some(tsuids) = indexed(shared, context, &resolved, lookup.limit).await?
    {
        return named_series(shared, context, tsuids).await;
    }
    let scans = if lookup.use_meta {
        vec![meta_scan(shared, &resolved, lookup.limit)]
    } else {
        data_scans(shared, &resolved, lookup.limit)
    };
    context.add_scans(scans.len());
    let mut scans = stream::iter(scans)
        .map(|scan| read(shared, context, scan, lookup.use_meta, &resolved.tagvs))
        .buffered(shared.config.query.max_scans.max(1));
    let mut tsuids = Vec::new();
    while let Some(found) = scans.try_next().await? {
        context.finish_scan();
        tsuids.extend(found);
        if lookup.limit > 0 && tsuids.len() >= lookup.limit {
            tsuids.truncate(lookup.limit);
            break;
        }
    }
    drop(scans);
    named_series(shared, context, tsuids).await
}

/// Finds the names of series.
async fn named_series(
    shared: &EngineShared,
    context: &QueryContext,
    tsuids: Vec<Bytes>,
) -> Result<LookupResult, QueryFailure> {
    context.set_stage(RunningStage::Naming);
    let (schema, uids) = (&shared.config.schema, &shared.uids);
    let reserve = |bytes| context.reserve(bytes);
    let unresolved = |error| unresolved(error, LookupStep::Tsuids);
    let names = reserved_names(schema, uids, &tsuids, reserve, unresolved).await?;
    let series = tsuids
        .into_iter()
        .zip(names)
        .map(|(tsuid, (metric, tags))| LookupSeries { tsuid, metric, tags })
        .collect();
    Ok(LookupResult { series })
}

/// Resolves names to UIDs. An error tells in its details which name has none.
async fn resolve(shared: &EngineShared, lookup: &Lookup) -> Result<ResolvedLookup, QueryFailure> {
    let uid = async |kind, name: &str| {
        let found = shared.uids.uid_of(kind, name).await;
        found.map_err(|e| unresolved(e, LookupStep::Names))
    };
    let mut resolved = ResolvedLookup::default();
    if let Some(metric) = named(lookup.metric.as_deref()) {
        resolved.metric = Some(uid(UidKind::Metric, metric).await?);
    }
    for (tagk, tagv) in &lookup.tags {
        match (named(tagk.as_deref()), named(tagv.as_deref())) {
            (None, None) => {
                return Err(QueryError::from(SeriesError::EmptyLookupTag).into());
            }
            (None, Some(tagv)) => {
                resolved.tagvs.insert(uid(UidKind::Tagv, tagv).await?);
            }
            (Some(tagk), None) => {
                resolved.tags.insert(uid(UidKind::Tagk, tagk).await?, None);
            }
            (Some(tagk), Some(tagv)) => {
                let tagk = uid(UidKind::Tagk, tagk).await?;
                let tagv = uid(UidKind::Tagv, tagv).await?;
                let tagvs = resolved.tags.entry(tagk).or_insert_with(|| Some(BTreeSet::new()));
                if let Some(tagvs) = tagvs {
                    tagvs.insert(tagv);
                }
            }
        }
    }
    Ok(resolved)
}

/// A name that is no wildcard.
fn named(name: Option<&str>) -> Option<&str> {
    name.filter(|name| !matches!(*name, "" | "*"))
}

/// The TSUIDs of series in the series index of the data table, sorted; `None` if there is no complete
/// one.
async fn indexed(
    shared: &EngineShared,
    context: &QueryContext,
    resolved: &ResolvedLookup,
    limit: usize,
) -> Result<Option<Vec<Bytes>>, QueryFailure> {
    let (schema, query) = (&shared.config.schema, &shared.config.query);
    let data = &shared.config.tables.data;
    let usable = usable_index(&*shared.storage, data, schema, query.series_index);
    let Some(index) = usable.await else { return Ok(None) };
    let metrics = match &resolved.metric {
        Some(metric) => vec![metric.as_bytes().into()],
        None => index.metrics(),
    };
    let tagvs: Vec<(&[u8], Option<Vec<Bytes>>)> = resolved
        .tags
        .iter()
        .map(|(tagk, tagvs)| {
            let bytes = |uid: &Uid| Bytes::copy_from_slice(uid.as_bytes());
            (tagk.as_bytes(), tagvs.as_ref().map(|tagvs| tagvs.iter().map(bytes).collect()))
        })
        .collect();
    let conditions: Vec<_> =
        tagvs.iter().map(|(tagk, tagvs)| TagCondition { tagk, tagvs: tagvs.as_deref() }).collect();
    let mut found: Vec<Bytes> = Vec::new();
    for uid in metrics {
        let Some(metric) = index.metric(&uid) else { continue };
        let slice = context.time_slice().await?;
        let mut set = metric.matching(&conditions, false);
        if !resolved.tagvs.is_empty() {
            let mut with_value = SeriesSet::default();
            for (tagk, _) in metric.value_counts() {
                let values = resolved.tagvs.iter().map(Uid::as_bytes);
                with_value.unite(&metric.with_values(&tagk, values));
            }
            set.intersect(&with_value);
        }
        if limit > 0 {
            set.truncate((limit - found.len()) as u64);
        }
        let start = found.len();
        context.reserve(set.len() as usize * (SERIES_BYTES + MIN_TSUID_BYTES))?;
        metric.for_each(&set, |_, tags| found.push([&*uid, tags].concat().into()));
        if let Some(of_metric) = found.get_mut(start..) {
            of_metric.sort_unstable();
        }
        slice.finish();
        if limit > 0 && found.len() >= limit {
            break;
        }
    }
    Ok(Some(found))
}

fn meta_scan(shared: &EngineShared, resolved: &ResolvedLookup, limit: usize) -> SeriesScan {
    let schema = &shared.config.schema;
    let metric = resolved.metric.as_ref().map(Uid::as_bytes).unwrap_or_default();
    let (start, stop) = prefix_range(metric);
    let scan = Scan {
        start,
        stop,
        family: Some(Family::Name),
        filter: tags_filter(*schema, schema.metric_width(), &resolved.tags),
        ..Scan::default()
    };
    SeriesScan { table: shared.config.tables.meta.clone(), scan, limit }
}

/// One scan per salt bucket, or one of the whole table.
fn data_scans(shared: &EngineShared, resolved: &ResolvedLookup, limit: usize) -> Vec<SeriesScan> {
    let schema = &shared.config.schema;
    let buckets = if schema.salt_width() == 0 { 1 } else { schema.salt_buckets() };
    (0..buckets)
        .map(|bucket| {
            let mut prefix = SaltBucket::from_index(bucket).salt(schema.salt_width()).to_vec();
            prefix.extend(resolved.metric.as_ref().map(Uid::as_bytes).unwrap_or_default());
            let (start, stop) = prefix_range(&prefix);
            let scan = Scan {
                start,
                stop,
                family: Some(Family::T),
                filter: tags_filter(*schema, schema.tags_start(), &resolved.tags),
                ..Scan::default()
            };
            SeriesScan { table: shared.config.tables.data.clone(), scan, limit }
        })
        .collect()
}

/// The TSUIDs of a scan's rows that have one of `tagvs`, for any key.
async fn read(
    shared: &EngineShared,
    context: &QueryContext,
    scan: SeriesScan,
    meta: bool,
    tagvs: &BTreeSet<Uid>,
) -> Result<Vec<Bytes>, QueryFailure> {
    let schema = &shared.config.schema;
    let SeriesScan { table, mut scan, limit } = scan;
    if limit > 0 {
        scan.batch_rows = Some(limit.min(MAX_BATCH_ROWS));
    }
    let mut scanner = shared.storage.scan(&table, scan);
    let mut found = Vec::new();
    // All rows of a series are in one salt bucket.
    let mut seen: HashSet<Bytes> = HashSet::new();
    let _open = context.acquire_scan_permit().await;
    while let Some(batch) = scanner.next_rows().await? {
        context.record_rows(batch.len() as u64, 0, 0);
        let slice = context.time_slice().await?;
        for row in batch {
            let tsuid = if meta {
                Tsuid::try_new(schema, &row.key).ok()
            } else {
                let key = RowKey::decode(schema, &row.key).ok();
                key.filter(|key| !key.is_global()).map(|key| key.tsuid())
            };
            // Ignores keys of global annotations, and invalid ones.
            let Some(tsuid) = tsuid else { continue };
            let bytes = tsuid.as_bytes();
            let tags = bytes.get(schema.metric_width()..).unwrap_or_default();
            let has = |tag: &[u8]| {
                let tagv = tag.get(schema.tagk_width()..).unwrap_or_default();
                tagvs.iter().any(|resolved| resolved.as_bytes() == tagv)
            };
            if !tagvs.is_empty() && !tags.chunks_exact(schema.tag_pair_width()).any(has) {
                continue;
            }
            if seen.contains(bytes) {
                continue;
            }
            context.reserve(bytes.len() + SERIES_BYTES)?;
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

/// An unknown name or UID is an error of the request.
fn unresolved(error: UidError, lookup: LookupStep) -> QueryFailure {
    let missing = match error {
        UidError::NoSuchName { kind, name } => MissingName::Name { kind, name },
        UidError::NoSuchUid { kind, uid } => MissingName::Uid { kind, uid },
        other => return other.into(),
    };
    QueryError::from(SeriesError::NotFound { lookup, missing }).into()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::{sync::Arc, time::Duration};

    use tsd_model::{TS_META_QUALIFIER, TableSchema};
    use tsd_query::LimitError;
    use tsd_storage::{CellBatch, CellRef, Column, Delete, Fault, Operation, Storage};

    use super::*;
    use crate::{
        testing::{TestStore, config, put_one, start, store},
        uid::UidTable,
    };

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

    /// Writes the meta rows that series tracking creates. Values `a`, `x`, `b`, `c`, `y` are 1 to
    /// 5.
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

    fn lookup_of(metric: &str, tags: &str) -> Lookup {
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
    async fn meta_table_lists_each_series_once() {
        for salt_width in [0, 1] {
            let (store, engine) = filled(salt_width).await;
            assert!(found(&engine, lookup_of("m", "")).await.is_empty(), "no series was tracked");
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
                    found(&engine, lookup_of(metric, tags)).await,
                    expected,
                    "{metric}{{{tags}}}"
                );
            }
            assert_eq!(found(&engine, Lookup { limit: 2, ..lookup_of("", "") }).await, [A, B]);
            assert_eq!(
                found(&engine, Lookup { limit: 0, ..lookup_of("", "") }).await,
                [A, B, C, N]
            );
        }
    }

    #[tokio::test]
    async fn data_table_lists_each_series_once() {
        for salt_width in [0, 1] {
            let (_store, engine) = filled(salt_width).await;
            let list = async |metric, tags, limit| {
                let lookup = Lookup { use_meta: false, limit, ..lookup_of(metric, tags) };
                let mut found = found(&engine, lookup).await;
                found.sort();
                found
            };
            assert_eq!(list("", "", 0).await, [A, B, C, N]);
            assert_eq!(list("m", "=x", 0).await, [A, B]);
            assert_eq!(list("m", "host=a host=b", 0).await, [A, B]);
            assert_eq!(list("m", "host=a", 1).await, [A]);
            for limit in 1..=5 {
                assert_eq!(list("", "", limit).await.len(), limit.min(4), "limit {limit}");
            }
        }
    }

    #[tokio::test]
    async fn unknown_names_and_uids_are_not_found() {
        let (store, engine) = filled(0).await;
        track(&store).await;
        let rejected = async |lookup| match engine.lookup(lookup, QueryControl::default()).await {
            Err(QueryFailure::Rejected(QueryError::Series(error))) => error,
            other => panic!("{other:?}"),
        };
        for (metric, tags, kind, name) in [
            ("zz", "", UidKind::Metric, "zz"),
            ("m", "zz=", UidKind::Tagk, "zz"),
            ("m", "host=a|b", UidKind::Tagv, "a|b"),
            ("", "=zz", UidKind::Tagv, "zz"),
        ] {
            let missing = MissingName::Name { kind, name: name.to_owned() };
            let unknown = SeriesError::NotFound { lookup: LookupStep::Names, missing };
            assert_eq!(rejected(lookup_of(metric, tags)).await, unknown);
        }
        for tags in ["=", "*=", "*=*"] {
            assert_eq!(rejected(lookup_of("m", tags)).await, SeriesError::EmptyLookupTag);
        }
        let uid = engine.uids().uid_of(UidKind::Tagv, "y").await.unwrap();
        let Column { row, family, qualifier } = UidTable::reverse(UidKind::Tagv, uid);
        let delete = Delete::Columns { row, columns: vec![(family, qualifier)] };
        store.delete(&engine.config().tables.uid, delete).await.unwrap();
        engine.drop_caches();
        let missing = MissingName::Uid { kind: UidKind::Tagv, uid: uid.as_bytes().to_vec() };
        let unknown = SeriesError::NotFound { lookup: LookupStep::Tsuids, missing };
        assert_eq!(rejected(lookup_of("m", "")).await, unknown);
    }

    #[tokio::test]
    async fn look_up_over_the_memory_limit_is_rejected() {
        let store = store();
        let mut settings = config();
        settings.query.max_memory_bytes = 700 + 1_024;
        let engine = start(settings, &store);
        for host in ["a", "b", "c"] {
            put_one(&engine, "m", &format!("host={host}"), HOUR, 1).await.unwrap();
        }
        let all = Lookup { use_meta: false, limit: 0, ..lookup_of("m", "") };
        match engine.lookup(all.clone(), QueryControl::default()).await {
            Err(QueryFailure::Rejected(QueryError::Limit(LimitError::Memory { .. }))) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(found(&engine, Lookup { limit: 2, ..all }).await.len(), 2);
    }

    #[tokio::test]
    async fn tags_of_a_look_up_and_names_of_its_result_are_reserved() {
        let store = store();
        let mut settings = config();
        settings.query.max_memory_bytes = 3_500 + 1_024;
        let engine = start(settings, &store);
        let long = "v".repeat(1_000);
        for host in 0..3 {
            put_one(&engine, "m", &format!("host={host}{long}"), HOUR, 1).await.unwrap();
        }
        let of = |limit| Lookup { use_meta: false, limit, ..lookup_of("m", "") };
        let too_large = async |lookup| match engine.lookup(lookup, QueryControl::default()).await {
            Err(QueryFailure::Rejected(QueryError::Limit(LimitError::Memory { .. }))) => {}
            other => panic!("{other:?}"),
        };
        assert_eq!(found(&engine, of(2)).await.len(), 2);
        too_large(of(3)).await;
        let tags = vec![(Some("host".to_owned()), Some("a".to_owned())); 30];
        too_large(Lookup { tags, ..of(1) }).await;
    }

    #[tokio::test]
    async fn look_up_is_listed_and_can_be_cancelled() {
        let (store, engine) = filled(0).await;
        store.script(Operation::ScanBatch, vec![Fault::Delay(Duration::from_mins(1)); 8]);
        let all = Lookup { use_meta: false, limit: 0, ..lookup_of("m", "") };
        let request = tokio::spawn({
            let engine = engine.clone();
            async move { engine.lookup(all, QueryControl::default()).await }
        });
        let id = loop {
            if let Some(run) = engine.queries().await.running.first() {
                break run.id;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        assert!(engine.cancel_query(id));
        assert!(matches!(request.await.unwrap(), Err(QueryFailure::CancelledByOperator)));
        assert!(engine.queries().await.running.is_empty());
    }
}
