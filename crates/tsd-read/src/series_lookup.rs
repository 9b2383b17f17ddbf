//! Looks up series by metric and tags (`/api/search/lookup`).
//!
//! Series are listed without tracking: from the series index, if the store has a complete one, otherwise from the keys
//! of the data table, which has one row per series and hour. If series are tracked, the meta table has one row per
//! series, but does not know when they had points. OpenTSDB lists a series of the data table once per hour; this
//! module lists it once.

mod indexed;
mod resolved;

use std::{
    collections::{BTreeSet, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tsd_meta::UidError;
use tsd_model::{BaseTime, Family, KindUid, KnownKind, RowKey, SaltBucket, Tsuid, UidKind};
use tsd_query::{LimitError, LookupStep, MissingName, QueryError, SeriesError};
use tsd_storage::{Scan, Table, prefix_end, prefix_range, tags_filter};

use self::resolved::SERIES_BYTES;
pub(crate) use self::{
    indexed::tsuids as indexed_tsuids,
    resolved::{LookupPage, ResolvedLookup},
};
use crate::{
    query::{QueryContext, QueryControl, QueryEngine, QueryFailure, QueryGuard, RunningStage},
    read_shared::{MetaTableWriter, ReadShared},
    read_subject::ReadSubject,
    reads::Reads,
    series_names::reserved_names,
};

/// Memory of a tag of the request in addition to its texts, both as sent and resolved.
const REQUEST_TAG_BYTES: usize = 192;
/// Most rows per scan batch of a limited look-up.
const MAX_BATCH_ROWS: usize = 1_024;
/// Most rows of the data table that one look-up reads.
const MAX_SCANNED_ROWS: u64 = 10_000_000;

/// A request for series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// Metric; `None`, `*` and the empty string match any.
    pub metric: Option<String>,
    /// Tags; `None`, `*` and the empty string match any key or value. Pairs with the same key are alternatives, and so
    /// are values for any key. A pair of a key with any value overrides the other pairs of that key.
    pub tags: Vec<(Option<String>, Option<String>)>,
    /// Number of matching series to skip.
    pub start_index: usize,
    /// Most series; 0 means no limit.
    pub limit: usize,
    /// True reads the meta table, false the series index and the data table. `None` reads the index; without an index,
    /// the meta table if it is filled, otherwise the data table.
    pub use_meta: Option<bool>,
    /// First and last hour. Lists only series with rows in this range, and does not read the meta table. The index
    /// lists series with rows on the UTC days of the range.
    pub range: Option<(BaseTime, BaseTime)>,
    /// Lists series with an unnamed UID separately, as OpenTSDB's tool does. Otherwise such a series fails a look-up
    /// in a table, as in OpenTSDB's API; a look-up in the index leaves it out.
    pub skips_unnamed: bool,
}

/// Result of a look-up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LookupResult {
    /// Series in the order of the table's keys.
    pub series: Vec<LookupSeries>,
    /// Series with a UID that has no name.
    pub unnamed: Vec<UnnamedSeries>,
}

/// A series with a UID that has no name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnnamedSeries {
    /// TSUID of the series.
    pub tsuid: Bytes,
    /// The first UID without a name.
    pub uid: (UidKind, Vec<u8>),
}

/// A series that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupSeries {
    /// TSUID of the series.
    pub tsuid: Bytes,
    /// Name of the metric.
    pub metric: String,
    /// Tags, ordered by the UIDs of their keys.
    pub tags: Vec<(String, String)>,
}

impl Default for Lookup {
    fn default() -> Self {
        Self {
            metric: None,
            tags: Vec::new(),
            start_index: 0,
            limit: 25,
            use_meta: None,
            range: None,
            skips_unnamed: false,
        }
    }
}

/// Scans for series.
struct SeriesScans<'a> {
    shared: &'a ReadShared,
    context: &'a QueryContext,
    resolved: &'a ResolvedLookup,
    range: Option<(BaseTime, BaseTime)>,
    /// Most series of a scan; 0 means no limit.
    limit: usize,
    /// Most rows of all scans together.
    max_rows: u64,
    rows: AtomicU64,
}

impl Reads {
    /// Lists series by metric and tags. Limited and scheduled like a query; dropping the future
    /// cancels it. Keep the guard until the response is written.
    pub async fn lookup(
        &self,
        lookup: Lookup,
        control: QueryControl,
    ) -> Result<(LookupResult, QueryGuard), QueryFailure> {
        let metric = lookup.metric.clone().filter(|name| !name.is_empty() && name != "*");
        let subject = metric.as_deref().map_or(ReadSubject::AllMetrics, ReadSubject::Metric);
        let work = move |engine: Arc<QueryEngine>, context: Arc<QueryContext>| {
            let lookup = lookup.clone();
            async move { find(&engine.shared, &context, lookup, MAX_SCANNED_ROWS).await }
        };
        self.run_limited(control, subject, work).await
    }
}

/// Finds series. Fails after `max_rows` rows of tables.
pub(crate) async fn find(
    shared: &ReadShared,
    context: &QueryContext,
    lookup: Lookup,
    max_rows: u64,
) -> Result<LookupResult, QueryFailure> {
    let pair = |(tagk, tagv): &(Option<String>, Option<String>)| {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        REQUEST_TAG_BYTES + text(tagk) + text(tagv)
    };
    context.reserve(lookup.tags.iter().map(pair).sum())?;
    let resolved = resolve(shared, &lookup).await?;
    let page = LookupPage { start: lookup.start_index, limit: lookup.limit };
    let use_meta = if lookup.range.is_some() { Some(false) } else { lookup.use_meta };
    if use_meta != Some(true)
        && let Some(tsuids) =
            indexed::tsuids(shared, context, &resolved, lookup.range, page).await?
    {
        // The index also keeps the TSUIDs of annotations, which anyone may write for a series that never existed.
        let mut result = named_series(shared, context, tsuids, true).await?;
        if !lookup.skips_unnamed && !result.unnamed.is_empty() {
            tracing::debug!(
                series = result.unnamed.len(),
                "a look-up leaves out series without names"
            );
            result.unnamed.clear();
        }
        return Ok(result);
    }
    let scans = SeriesScans {
        shared,
        context,
        resolved: &resolved,
        range: lookup.range,
        limit: page.last(),
        max_rows,
        rows: AtomicU64::new(0),
    };
    let writer = shared.meta_table_writer;
    let mut tsuids = match use_meta {
        Some(true) => scans.meta_tsuids().await?,
        None if writer != MetaTableWriter::Nobody => scans.meta_tsuids().await?,
        _ => scans.data_tsuids().await?,
    };
    // Other daemons may fill the meta table; otherwise it is empty.
    let may_be_untracked = use_meta.is_none() && writer == MetaTableWriter::OtherDaemons;
    if tsuids.is_empty() && may_be_untracked {
        tsuids = scans.data_tsuids().await?;
    }
    let start = page.start.min(tsuids.len());
    named_series(shared, context, tsuids.split_off(start), lookup.skips_unnamed).await
}

/// Finds the names of series.
async fn named_series(
    shared: &ReadShared,
    context: &QueryContext,
    tsuids: Vec<Bytes>,
    skips_unnamed: bool,
) -> Result<LookupResult, QueryFailure> {
    context.set_stage(RunningStage::Naming);
    let reserve = |bytes| context.reserve(bytes);
    let names = reserved_names(&shared.schema, &*shared.names, &tsuids, reserve).await?;
    let mut result = LookupResult::default();
    for (tsuid, names) in tsuids.into_iter().zip(names) {
        match names {
            Ok((metric, tags)) => result.series.push(LookupSeries { tsuid, metric, tags }),
            Err(UidError::NoSuchUid { kind, uid }) if skips_unnamed => {
                result.unnamed.push(UnnamedSeries { tsuid, uid: (kind, uid) });
            }
            Err(error) => return Err(unresolved(error, LookupStep::Tsuids)),
        }
    }
    Ok(result)
}

/// Resolves names to UIDs. The details of an error show which name has no UID.
async fn resolve(shared: &ReadShared, lookup: &Lookup) -> Result<ResolvedLookup, QueryFailure> {
    let mut resolved = ResolvedLookup::default();
    if let Some(metric) = named(lookup.metric.as_deref()) {
        resolved.metric = Some(uid(shared, metric).await?);
    }
    for (tagk, tagv) in &lookup.tags {
        match (named(tagk.as_deref()), named(tagv.as_deref())) {
            (None, None) => {
                return Err(QueryError::from(SeriesError::EmptyLookupTag).into());
            }
            (None, Some(tagv)) => {
                resolved.tagvs.insert(uid(shared, tagv).await?);
            }
            (Some(tagk), None) => {
                resolved.tags.insert(uid(shared, tagk).await?, None);
            }
            (Some(tagk), Some(tagv)) => {
                let tagk = uid(shared, tagk).await?;
                let tagv = uid(shared, tagv).await?;
                let tagvs = resolved.tags.entry(tagk).or_insert_with(|| Some(BTreeSet::new()));
                if let Some(tagvs) = tagvs {
                    tagvs.insert(tagv);
                }
            }
        }
    }
    Ok(resolved)
}

async fn uid<K: KnownKind>(shared: &ReadShared, name: &str) -> Result<KindUid<K>, QueryFailure> {
    shared.names.uid(name).await.map_err(|error| unresolved(error, LookupStep::Names))
}

/// A name that is not a wildcard.
fn named(name: Option<&str>) -> Option<&str> {
    name.filter(|name| !matches!(*name, "" | "*"))
}

impl SeriesScans<'_> {
    /// The TSUIDs of the rows of the meta table.
    async fn meta_tsuids(&self) -> Result<Vec<Bytes>, QueryFailure> {
        let scan = self.meta_scan();
        self.tsuids(&self.shared.tables.meta, vec![scan], true).await
    }

    /// The TSUIDs of the rows of the data table, each once.
    async fn data_tsuids(&self) -> Result<Vec<Bytes>, QueryFailure> {
        self.tsuids(&self.shared.tables.data, self.data_scans(), false).await
    }

    /// The UID of the metric; empty if the look-up is for any metric.
    fn metric_bytes(&self) -> &[u8] {
        self.resolved.metric.as_ref().map(AsRef::as_ref).unwrap_or_default()
    }

    fn meta_scan(&self) -> Scan {
        let schema = &self.shared.schema;
        let metric = self.metric_bytes();
        let (start, stop) = prefix_range(metric);
        Scan {
            start,
            stop,
            family: Some(Family::Name),
            filter: tags_filter(*schema, schema.metric_width(), &self.resolved.tags),
            ..Scan::default()
        }
    }

    /// One scan per salt bucket, or one scan of the whole table. The keys of a metric are in time order.
    fn data_scans(&self) -> Vec<Scan> {
        let schema = &self.shared.schema;
        let buckets = if schema.salt_width() == 0 { 1 } else { schema.salt_buckets() };
        let scan_of = |bucket| {
            let mut prefix = SaltBucket::from_index(bucket).salt(schema.salt_width()).to_vec();
            prefix.extend(self.metric_bytes());
            let (mut start, mut stop) = prefix_range(&prefix);
            if let (Some(_), Some((from, to))) = (&self.resolved.metric, self.range) {
                let at = |base: BaseTime| [&prefix[..], &base.as_secs().to_be_bytes()].concat();
                start = at(from).into();
                stop = prefix_end(&at(to));
            }
            let filter = tags_filter(*schema, schema.tags_start(), &self.resolved.tags);
            Scan { start, stop, family: Some(Family::T), filter, ..Scan::default() }
        };
        (0..buckets).map(scan_of).collect()
    }

    async fn tsuids(
        &self,
        table: &Table,
        scans: Vec<Scan>,
        is_meta: bool,
    ) -> Result<Vec<Bytes>, QueryFailure> {
        self.context.add_scans(scans.len());
        let mut scans = stream::iter(scans)
            .map(|scan| self.read(table, scan, is_meta))
            .buffered(self.shared.config.max_scans.max(1));
        let mut tsuids = Vec::new();
        while let Some(found) = scans.try_next().await? {
            self.context.finish_scan();
            tsuids.extend(found);
            if self.limit > 0 && tsuids.len() >= self.limit {
                tsuids.truncate(self.limit);
                break;
            }
        }
        Ok(tsuids)
    }

    /// The TSUIDs of a scan's rows that are in the range and have one of the values that any key may have.
    async fn read(
        &self,
        table: &Table,
        mut scan: Scan,
        is_meta: bool,
    ) -> Result<Vec<Bytes>, QueryFailure> {
        let context = self.context;
        if self.limit > 0 {
            scan.batch_rows = Some(self.limit.min(MAX_BATCH_ROWS));
        }
        let mut scanner = self.shared.storage.scan(table, scan);
        let mut found = Vec::new();
        // All rows of a series are in one salt bucket.
        let mut seen: HashSet<Bytes> = HashSet::new();
        let _open = context.acquire_scan_permit().await;
        while let Some(batch) = scanner.next_rows().await? {
            context.record_rows(batch.len() as u64, 0, 0);
            let rows = batch.len() as u64;
            if self.rows.fetch_add(rows, Ordering::Relaxed) + rows > self.max_rows {
                return Err(
                    QueryError::from(LimitError::LookupRows { limit: self.max_rows }).into()
                );
            }
            let slice = context.time_slice().await?;
            for row in batch {
                // Ignores invalid keys and keys of global annotations.
                let Some(tsuid) = self.tsuid_of(&row.key, is_meta) else { continue };
                let bytes = tsuid.as_bytes();
                if !self.has_value(bytes) || seen.contains(bytes) {
                    continue;
                }
                context.reserve(bytes.len() + SERIES_BYTES)?;
                let tsuid = Bytes::copy_from_slice(bytes);
                if !is_meta {
                    seen.insert(tsuid.clone());
                }
                found.push(tsuid);
                if self.limit > 0 && found.len() >= self.limit {
                    return Ok(found);
                }
            }
            slice.finish();
        }
        Ok(found)
    }

    /// The series of a row, if the row is in the range.
    fn tsuid_of(&self, key: &[u8], is_meta: bool) -> Option<Tsuid> {
        let schema = &self.shared.schema;
        if is_meta {
            return Tsuid::try_new(schema, key).ok();
        }
        let key = RowKey::decode(schema, key).ok()?;
        let is_in = |(from, to): (BaseTime, BaseTime)| (from..=to).contains(&key.base_time());
        (!key.is_global() && self.range.is_none_or(is_in)).then(|| key.tsuid())
    }

    /// True if a series has one of the requested values, with any key.
    fn has_value(&self, tsuid: &[u8]) -> bool {
        let (schema, tagvs) = (&self.shared.schema, &self.resolved.tagvs);
        let tags = tsuid.get(schema.metric_width()..).unwrap_or_default();
        let has = |tag: &[u8]| {
            let tagv = tag.get(schema.tagk_width()..).unwrap_or_default();
            tagvs.iter().any(|resolved| resolved.as_bytes() == tagv)
        };
        tagvs.is_empty() || tags.chunks_exact(schema.tag_pair_width()).any(has)
    }
}

/// Makes an unknown name or UID an error of the request.
fn unresolved(error: UidError, lookup: LookupStep) -> QueryFailure {
    let missing = match error {
        UidError::NoSuchName { kind, name } => MissingName::Name { kind, name },
        UidError::NoSuchUid { kind, uid } => MissingName::Uid { kind, uid },
        other => return other.into(),
    };
    QueryError::from(SeriesError::NotFound { lookup, missing }).into()
}
