//! Searches of annotations. They are in rows of the data table, so a search reads the whole table, unless it names one
//! series.

use std::{cmp::Ordering, collections::BinaryHeap, sync::Arc};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use tsd_meta::annotation_cells;
use tsd_model::{Annotation, Family, SaltBucket, SeriesKey, Tsuid};
use tsd_storage::{RowFilter, Scan, SeriesSet, prefix_range};

use super::{
    fields::{SearchedAnnotation, custom_bytes},
    page::{BATCH_ROWS, MetaSearch, OBJECT_BYTES, PageCounter, SearchPage, SearchResult},
};
use crate::{
    query::{QueryContext, QueryFailure},
    read_shared::ReadShared,
};

/// An annotation, ordered by start time, then by series.
#[derive(Debug, PartialEq, Eq)]
struct ByStart(Annotation);

/// Matches of one scan: the first ones, and the total number.
#[derive(Debug, Default)]
struct BucketMatches {
    first: BinaryHeap<ByStart>,
    total: u64,
}

impl Ord for ByStart {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |of: &'_ Self| (of.0.start_time, of.0.end_time);
        key(self)
            .cmp(&key(other))
            .then_with(|| self.0.tsuid.cmp(&other.0.tsuid))
            .then_with(|| self.0.description.cmp(&other.0.description))
            .then_with(|| self.0.notes.cmp(&other.0.notes))
            .then_with(|| self.0.custom.cmp(&other.0.custom))
    }
}

impl PartialOrd for ByStart {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Finds annotations that match, in the order of their start times.
pub(super) async fn find(
    shared: &ReadShared,
    context: &QueryContext,
    search: &MetaSearch,
) -> Result<SearchResult, QueryFailure> {
    let mut counter = PageCounter::new(search);
    let most = usize::try_from(counter.end).unwrap_or(usize::MAX);
    let scans = scans(shared, search);
    context.add_scans(scans.len());
    let mut buckets = stream::iter(scans)
        .map(|scan| read(shared, context, search, scan, most))
        .buffered(shared.config.max_scans.max(1));
    let mut total = 0;
    let mut matches = Vec::new();
    while let Some(bucket) = buckets.try_next().await? {
        context.finish_scan();
        total += bucket.total;
        matches.extend(bucket.first);
    }
    drop(buckets);
    let slice = context.time_slice().await?;
    matches.sort_unstable();
    let page = matches.into_iter().filter(|_| counter.count()).map(|found| found.0).collect();
    slice.finish();
    Ok(SearchResult { page: SearchPage::Annotations(page), total })
}

/// One scan per salt bucket, or one of the rows of a series.
fn scans(shared: &ReadShared, search: &MetaSearch) -> Vec<Scan> {
    let schema = &shared.schema;
    let rows_of = |prefix: &[u8]| {
        let (start, stop) = prefix_range(prefix);
        Scan {
            start,
            stop,
            family: Some(Family::T),
            batch_rows: Some(BATCH_ROWS),
            ..Scan::default()
        }
    };
    let tsuid = search.text.exact("tsuid").map(|text| Tsuid::parse_hex(schema, text));
    if let Some(Ok(tsuid)) = tsuid {
        let series = SeriesKey::from_tsuid(schema, &tsuid);
        let tags = tsuid.as_bytes().get(schema.metric_width()..).unwrap_or_default();
        let key = series.row_key(tsd_model::BaseTime::containing(0));
        let head = key.get(..schema.base_time_start()).unwrap_or_default();
        let filter = RowFilter::Series(Arc::new(SeriesSet {
            tags_start: schema.tags_start(),
            tags: vec![Bytes::copy_from_slice(tags)],
        }));
        return vec![Scan { filter: Some(filter), ..rows_of(head) }];
    }
    if schema.salt_width() == 0 {
        return vec![rows_of(&[])];
    }
    (0..schema.salt_buckets())
        .map(|bucket| rows_of(&SaltBucket::from_index(bucket).salt(schema.salt_width())))
        .collect()
}

/// The matches of a scan: the first `most` of them, and the total number.
async fn read(
    shared: &ReadShared,
    context: &QueryContext,
    search: &MetaSearch,
    scan: Scan,
    most: usize,
) -> Result<BucketMatches, QueryFailure> {
    let _open = context.acquire_scan_permit().await;
    let mut rows = shared.storage.scan(&shared.tables.data, scan);
    let mut matches = BucketMatches::default();
    while let Some(batch) = rows.next_rows().await? {
        let cells = batch.iter().flat_map(|row| &row.cells);
        let (count, bytes) =
            cells.fold((0, 0), |(count, bytes), cell| (count + 1, bytes + cell.value.len() as u64));
        context.record_rows(batch.len() as u64, count, bytes);
        let slice = context.time_slice().await?;
        for cell in batch.iter().flat_map(annotation_cells) {
            let annotation = match Annotation::from_json(&cell.value) {
                Ok(annotation) => annotation,
                Err(error) => {
                    tracing::warn!(%error, "ignored an invalid stored annotation");
                    continue;
                }
            };
            if search.text.matches(&SearchedAnnotation(&annotation)) {
                matches.add(context, annotation, most)?;
            }
        }
        slice.finish();
    }
    Ok(matches)
}

impl BucketMatches {
    fn add(
        &mut self,
        context: &QueryContext,
        annotation: Annotation,
        most: usize,
    ) -> Result<(), QueryFailure> {
        self.total += 1;
        context.reserve(bytes_of(&annotation))?;
        self.first.push(ByStart(annotation));
        if self.first.len() > most
            && let Some(last) = self.first.pop()
        {
            context.release(bytes_of(&last.0));
        }
        Ok(())
    }
}

/// Bytes of memory of an annotation.
fn bytes_of(annotation: &Annotation) -> usize {
    let Annotation { tsuid, description, notes, custom, .. } = annotation;
    OBJECT_BYTES + tsuid.len() + description.len() + notes.len() + custom_bytes(custom.as_ref())
}
