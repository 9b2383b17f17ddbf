//! Searches of TSMeta, and lists of them by metric and tags.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use tsd_meta::{Names, StoredSeriesMeta, cell_of, uids_of_series};
use tsd_model::{
    Family, MetricUid, NamedUidMeta, Row, SeriesMeta, TS_COUNTER_QUALIFIER, TS_META_QUALIFIER, Uid,
    UidKind, decode_counter,
};
use tsd_storage::{Get, Scan, TagUids, prefix_range, tags_filter};

use super::{
    fields::{SearchedSeries, custom_bytes},
    page::{
        BATCH_ROWS, MetaSearch, OBJECT_BYTES, PageCounter, SearchPage, SearchResult, SearchTarget,
    },
};
use crate::{
    query::{QueryContext, QueryFailure, RunningStage},
    read_shared::ReadShared,
    series_lookup::LookupSeries,
    series_names::{SeriesName, name_bytes},
};

/// Names of the UIDs of a batch. UIDs without a name are left out.
type NamesOfUids = HashMap<(UidKind, Uid), String>;

/// A matching series of the page.
struct FoundSeries {
    stored: StoredSeriesMeta,
    name: SeriesName,
}

/// Finds series whose TSMeta or names match.
pub(super) async fn find(
    shared: &ReadShared,
    context: &QueryContext,
    search: &MetaSearch,
) -> Result<SearchResult, QueryFailure> {
    let mut counter = PageCounter::new(search);
    let mut page = Vec::new();
    let scan = Scan {
        family: Some(Family::Name),
        qualifier: Some(Bytes::from_static(TS_META_QUALIFIER.as_bytes())),
        batch_rows: Some(BATCH_ROWS),
        ..Scan::default()
    };
    context.add_scans(1);
    let _open = context.acquire_scan_permit().await;
    let mut rows = shared.storage.scan(&shared.tables.meta, scan);
    while let Some(batch) = rows.next_rows().await? {
        let stored = decode(shared, context, &batch).await?;
        drop(batch);
        let names = names_of(shared, &stored).await?;
        let slice = context.time_slice().await?;
        for stored in stored {
            let Some(name) = series_name(shared, &names, &stored) else { continue };
            let tsuid = stored.tsuid.to_string();
            let series = SearchedSeries { tsuid: &tsuid, meta: &stored.meta, name: &name };
            if search.text.matches(&series) && counter.count() {
                context.reserve(bytes_of(&stored, &name))?;
                page.push(FoundSeries { stored, name });
            }
        }
        slice.finish();
    }
    context.finish_scan();
    let page = match search.target {
        SearchTarget::Tsuids => SearchPage::Tsuids(
            page.iter()
                .map(|found| Bytes::copy_from_slice(found.stored.tsuid.as_bytes()))
                .collect(),
        ),
        SearchTarget::SeriesNames => {
            SearchPage::SeriesNames(page.into_iter().map(FoundSeries::into_lookup).collect())
        }
        _ => {
            let stored = page.into_iter().map(|found| found.stored).collect();
            SearchPage::Series(complete(shared, context, stored).await?)
        }
    };
    Ok(SearchResult { page, total: counter.matches })
}

/// Lists the TSMeta of the series with a metric and all of the tags.
pub(super) async fn list(
    shared: &ReadShared,
    context: &QueryContext,
    metric: &str,
    tags: &[(String, String)],
) -> Result<Vec<SeriesMeta>, QueryFailure> {
    let names = &shared.names;
    let schema = &shared.schema;
    let metric: MetricUid = names.uid(metric).await?;
    let mut conditions = TagUids::new();
    for (tagk, tagv) in tags {
        let tagk = names.uid(tagk).await?;
        let tagv = names.uid(tagv).await?;
        conditions.insert(tagk, Some(BTreeSet::from([tagv])));
    }
    let (start, stop) = prefix_range(metric.as_bytes());
    let scan = Scan {
        start,
        stop,
        family: Some(Family::Name),
        qualifier: Some(Bytes::from_static(TS_META_QUALIFIER.as_bytes())),
        filter: tags_filter(*schema, schema.metric_width(), &conditions),
        batch_rows: Some(BATCH_ROWS),
        ..Scan::default()
    };
    context.add_scans(1);
    let _open = context.acquire_scan_permit().await;
    let mut rows = shared.storage.scan(&shared.tables.meta, scan);
    let mut found = Vec::new();
    while let Some(batch) = rows.next_rows().await? {
        for stored in decode(shared, context, &batch).await? {
            context.reserve(bytes_of(&stored, &SeriesName::default()))?;
            found.push(stored);
        }
    }
    context.finish_scan();
    complete(shared, context, found).await
}

/// Decodes a batch of rows of the meta table.
async fn decode(
    shared: &ReadShared,
    context: &QueryContext,
    batch: &[Row],
) -> Result<Vec<StoredSeriesMeta>, QueryFailure> {
    let bytes = batch.iter().flat_map(|row| &row.cells).map(|cell| cell.value.len() as u64).sum();
    context.record_rows(batch.len() as u64, batch.len() as u64, bytes);
    let slice = context.time_slice().await?;
    let mut stored = Vec::with_capacity(batch.len());
    for row in batch {
        match StoredSeriesMeta::read(shared.schema, row) {
            Ok(found) => stored.extend(found),
            Err(error) => tracing::warn!(
                %error, tsuid = tsd_model::to_hex(&row.key), "ignored an invalid stored TSMeta"
            ),
        }
    }
    slice.finish();
    Ok(stored)
}

/// Reads the names of all UIDs of series.
async fn names_of(
    shared: &ReadShared,
    stored: &[StoredSeriesMeta],
) -> Result<NamesOfUids, QueryFailure> {
    let schema = shared.schema;
    let uids: BTreeSet<(UidKind, Uid)> =
        stored.iter().flat_map(|found| uids_of_series(schema, found.tsuid.as_bytes())).collect();
    let mut names = NamesOfUids::with_capacity(uids.len());
    for kind in UidKind::ALL {
        let of_kind: Vec<Uid> =
            uids.iter().filter(|(of, _)| *of == kind).map(|(_, uid)| *uid).collect();
        add_names(&*shared.names, kind, &of_kind, &mut names).await?;
    }
    Ok(names)
}

async fn add_names(
    names: &dyn Names,
    kind: UidKind,
    uids: &[Uid],
    found: &mut NamesOfUids,
) -> Result<(), QueryFailure> {
    for chunk in uids.chunks(BATCH_ROWS) {
        let named = chunk.iter().zip(names.names_of(kind, chunk).await?);
        found.extend(named.filter_map(|(uid, name)| Some(((kind, *uid), name?))));
    }
    Ok(())
}

/// Metric and tags of a series; `None` if one of its UIDs has no name.
fn series_name(
    shared: &ReadShared,
    names: &NamesOfUids,
    stored: &StoredSeriesMeta,
) -> Option<SeriesName> {
    let uids = uids_of_series(shared.schema, stored.tsuid.as_bytes());
    let mut found = uids.iter().map(|uid| names.get(uid).cloned());
    let metric = found.next()??;
    let mut tags = Vec::with_capacity(uids.len() / 2);
    while let Some(tagk) = found.next() {
        tags.push((tagk?, found.next()??));
    }
    Some((metric, tags))
}

/// Adds counters and the UIDMeta of the names. Series whose UIDs have no names are left out.
async fn complete(
    shared: &ReadShared,
    context: &QueryContext,
    mut stored: Vec<StoredSeriesMeta>,
) -> Result<Vec<SeriesMeta>, QueryFailure> {
    context.set_stage(RunningStage::Naming);
    let mut objects = Vec::with_capacity(stored.len());
    while !stored.is_empty() {
        let rest = stored.split_off(stored.len().min(BATCH_ROWS));
        let mut chunk = std::mem::replace(&mut stored, rest);
        read_counters(shared, &mut chunk).await?;
        let metas = uid_metas(shared, &chunk).await?;
        for found in chunk {
            let uids = uids_of_series(shared.schema, found.tsuid.as_bytes());
            let names: Option<Vec<NamedUidMeta>> =
                uids.iter().map(|uid| metas.get(uid).cloned()).collect();
            let Some(mut names) = names.filter(|names| !names.is_empty()) else { continue };
            context.reserve(names.iter().map(super::uid_metas::bytes_of).sum())?;
            let tags = names.split_off(1);
            if let Some(metric) = names.pop() {
                objects.push(found.with_names((metric, tags)));
            }
        }
    }
    Ok(objects)
}

async fn read_counters(
    shared: &ReadShared,
    stored: &mut [StoredSeriesMeta],
) -> Result<(), QueryFailure> {
    let qualifier = Bytes::from_static(TS_COUNTER_QUALIFIER.as_bytes());
    let gets = stored
        .iter()
        .map(|found| {
            let row = Bytes::copy_from_slice(found.tsuid.as_bytes());
            Get::column(row, Family::Name, qualifier.clone())
        })
        .collect();
    let rows = shared.storage.multi_get(&shared.tables.meta, gets).await?;
    for (found, row) in stored.iter_mut().zip(rows) {
        let Some(row) = row else { continue };
        if let Some(cell) = cell_of(&row, TS_COUNTER_QUALIFIER) {
            found.last_received = cell.timestamp_ms / 1_000;
            found.data_points = decode_counter(&cell.value).unwrap_or(0);
        }
    }
    Ok(())
}

/// The UIDMeta of all UIDs of series that have names.
async fn uid_metas(
    shared: &ReadShared,
    stored: &[StoredSeriesMeta],
) -> Result<HashMap<(UidKind, Uid), NamedUidMeta>, QueryFailure> {
    let schema = shared.schema;
    let uids: BTreeSet<(UidKind, Uid)> =
        stored.iter().flat_map(|found| uids_of_series(schema, found.tsuid.as_bytes())).collect();
    let uids: Vec<(UidKind, Uid)> = uids.into_iter().collect();
    let mut metas = HashMap::with_capacity(uids.len());
    for chunk in uids.chunks(BATCH_ROWS) {
        let found = shared.meta.known_uid_metas(chunk).await?;
        let known = chunk.iter().zip(found);
        metas.extend(known.filter_map(|(uid, meta)| Some((*uid, meta?))));
    }
    Ok(metas)
}

/// Bytes of memory of a stored TSMeta with its names.
fn bytes_of(stored: &StoredSeriesMeta, (metric, tags): &SeriesName) -> usize {
    let meta = &stored.meta;
    let texts = [
        &meta.tsuid,
        &meta.display_name,
        &meta.description,
        &meta.notes,
        &meta.units,
        &meta.data_type,
    ];
    OBJECT_BYTES
        + stored.tsuid.as_bytes().len()
        + texts.iter().map(|text| text.len()).sum::<usize>()
        + custom_bytes(meta.custom.as_ref())
        + name_bytes(metric, tags)
}

impl FoundSeries {
    fn into_lookup(self) -> LookupSeries {
        let (metric, tags) = self.name;
        LookupSeries { tsuid: Bytes::copy_from_slice(self.stored.tsuid.as_bytes()), metric, tags }
    }
}
