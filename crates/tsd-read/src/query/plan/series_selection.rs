//! Selects the series of a plan by the series index of the store, and decides how to read their rows: by key or by
//! scans.
//!
//! A scan walks past the rows of all series of the metric. A get costs about as much as walking past [`GET_COST_ROWS`]
//! rows. The index supplies both numbers of rows: it knows the series of each day and the hours in which the metric
//! has rows. The index may select more series than match, so rows that are read are checked like those of scans.
//!
//! If the store reads points by series, a listed series costs what it returns. The list is then used unless it has
//! more than half of the rows. It is also used if the series have only a few rows in years, because then only the days
//! of these rows are read.

use std::sync::Arc;

use tsd_model::{BaseTime, DAY_SECS, MetricUid, SeriesKey, Uid, UidKind};
use tsd_query::{PostFilter, SeriesSelection, SubQueryPlan, TagFilter};
use tsd_series_index::{MetricIndex, SeriesSet, TagCondition};
use tsd_storage::Table;

use super::series_rows::{SelectedSeries, SeriesRows};
use crate::{
    config::SeriesIndexUse,
    query::{
        engine::QueryEngine,
        failure::QueryFailure,
        run::{context::QueryContext, scheduler::TimeSlice},
    },
    usable_index::usable_index,
};

/// Rows that a scan walks past in the time of one get.
const GET_COST_ROWS: u64 = 8;
/// The same for HBase, whose index does not know which rows exist: a get of an existing row takes as long as 80 rows
/// that its servers walk past.
const REMOTE_GET_COST_ROWS: u64 = 64;
/// Most rows that are fetched by key if the index does not know which of them exist. Gets of missing rows cost time,
/// and a scan skips hours without rows.
const MAX_SUPPOSED_ROWS: u64 = 200_000;
/// Rows of all series that are read in the time of one row of a listed series, if the store reads points by series. A
/// listed row takes up to 1.5 times as long, and rows of other series are dropped early.
const LISTED_COST_ROWS: u64 = 2;
/// If the selected series have at most one row in this many days, they are listed.
const DAYS_PER_SPARSE_ROW: u64 = 8;
/// Tag values whose names are looked up together.
const NAMES_BATCH: usize = 8_192;
/// Tag values that are looked up in the cache of a filter in one time slice.
const VALUES_BATCH: usize = 1 << 16;
/// Memory of a selected series in addition to its row key.
const SERIES_BYTES: usize = size_of::<SelectedSeries>() + 16;

/// Counts of the series index for a plan.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IndexCounts {
    /// Selected series.
    pub(crate) series: u64,
    /// Rows of the selected series, at most.
    pub(crate) rows: u64,
    /// Rows that a scan walks past, at most.
    pub(crate) scanned_rows: u64,
}

/// Result of selecting the series of a plan by the index.
#[derive(Clone, Debug, Default)]
pub(crate) struct IndexedRead {
    pub(crate) counts: IndexCounts,
    /// The rows to fetch by key, or the series to list; `None` if reading all series is cheaper.
    pub(crate) by_key: Option<SeriesRows>,
}

impl QueryEngine {
    /// Selects the series of a plan; `None` if the table has no complete index. `by_series` says that the store reads
    /// points by series.
    pub(crate) async fn indexed_read(
        &self,
        table: &Table,
        plan: &SubQueryPlan,
        by_series: bool,
        context: Option<&QueryContext>,
    ) -> Result<Option<IndexedRead>, QueryFailure> {
        let usable = usable_index(
            &*self.shared.storage,
            table,
            &plan.schema,
            self.shared.config.series_index,
        );
        let (Some(index), Some((from, to))) = (usable.await, hours(plan)) else { return Ok(None) };
        let metric = MetricUid::try_new(&plan.metric).ok().and_then(|uid| index.metric(uid));
        let Some(metric) = metric else {
            let by_key = Some(SeriesRows::default());
            return Ok(Some(IndexedRead { by_key, ..IndexedRead::default() }));
        };
        if !metric.is_regular() {
            return Ok(None);
        }
        let mut set = selected(&metric, &plan.selection);
        set.intersect(&metric.active(from, to));
        for filter in &plan.post_filters {
            if set.is_empty() {
                break;
            }
            self.restrict(&metric, &mut set, filter, context).await?;
        }
        let counts = metric.count_rows(&set, from, to);
        let mut read = IndexedRead {
            counts: IndexCounts {
                series: set.len(),
                rows: counts.selected,
                scanned_rows: counts.all,
            },
            by_key: None,
        };
        let (cost, most) = match (by_series, index.has_days()) {
            (true, _) => (LISTED_COST_ROWS, u64::MAX),
            (false, true) => (GET_COST_ROWS, u64::MAX),
            (false, false) => (REMOTE_GET_COST_ROWS, MAX_SUPPOSED_ROWS),
        };
        let is_cheaper =
            counts.selected.saturating_mul(cost) <= counts.all && counts.selected <= most;
        // A range of series is read on all days; a list is read only on days with rows.
        let days = u64::from(to.as_secs() - from.as_secs()) / u64::from(DAY_SECS);
        let is_sparse = by_series
            && index.has_days()
            && counts.selected.saturating_mul(DAYS_PER_SPARSE_ROW) <= days;
        if is_cheaper || is_sparse || self.shared.config.series_index == SeriesIndexUse::Always {
            read.by_key = list_rows(&metric, &set, plan, (from, to), context)?;
        }
        Ok(Some(read))
    }

    /// Removes the series whose tag value a filter on names rejects.
    async fn restrict(
        &self,
        metric: &MetricIndex,
        set: &mut SeriesSet,
        post: &PostFilter,
        context: Option<&QueryContext>,
    ) -> Result<(), QueryFailure> {
        let Some(tagk) = post.tagk else {
            // No series has the key.
            if !post.filter.accepts_absence() {
                *set = SeriesSet::default();
            }
            return Ok(());
        };
        let values = metric.values(tagk, set);
        let (accepted, rejected) = self.divide_values(&post.filter, &values, context).await?;
        // Looks up the shorter list. Only a selection by TSUID may contain series without the key.
        let with_key = metric.with_key(tagk);
        if !post.filter.accepts_absence() {
            set.intersect(&with_key);
        }
        if rejected.len() <= accepted.len() {
            set.subtract(&metric.with_value_uids(tagk, &rejected));
        } else {
            let mut others = with_key;
            others.subtract(&metric.with_value_uids(tagk, &accepted));
            set.subtract(&others);
        }
        Ok(())
    }

    /// Divides the values of a tag key, given by their UIDs, into those that a filter accepts and those that it
    /// rejects.
    pub(crate) async fn divide_values(
        &self,
        filter: &TagFilter,
        values: &[u64],
        context: Option<&QueryContext>,
    ) -> Result<(Vec<u64>, Vec<u64>), QueryFailure> {
        let verdicts = self.filters.verdicts(filter, self.shared.names.epoch());
        let width = self.shared.schema.tagv_width();
        let uid_of = |uid: &u64| {
            let bytes = uid.to_be_bytes();
            Uid::try_new(bytes.get(bytes.len().checked_sub(width)?..)?).ok()
        };
        let (mut accepted, mut rejected) = (Vec::new(), Vec::new());
        let mut unknown = Vec::new();
        for batch in values.chunks(VALUES_BATCH) {
            let slice = time_slice(context).await?;
            let divided = verdicts.divide(batch);
            slice.map(TimeSlice::finish);
            accepted.extend(divided.accepted);
            rejected.extend(divided.rejected);
            unknown.extend(divided.unknown);
        }
        // Sorted, because the names of adjacent UIDs are read together.
        unknown.sort_unstable();
        for batch in unknown.chunks(NAMES_BATCH) {
            let uids: Vec<Uid> = batch.iter().filter_map(uid_of).collect();
            let names = self.shared.names.names_of(UidKind::Tagv, &uids).await?;
            let slice = time_slice(context).await?;
            let mut named = Vec::with_capacity(batch.len());
            for (uid, name) in batch.iter().copied().zip(names) {
                // A value without a name matches no filter. It may get a name later.
                let is_accepted = name.as_deref().is_some_and(|name| filter.accepts(name));
                if is_accepted {
                    accepted.push(uid);
                } else {
                    rejected.push(uid);
                }
                if name.is_some() {
                    named.push((uid, is_accepted));
                }
            }
            verdicts.keep(named);
            slice.map(TimeSlice::finish);
        }
        Ok((accepted, rejected))
    }
}

/// Waits for a time slice; fails if the query has reached its deadline.
async fn time_slice(context: Option<&QueryContext>) -> Result<Option<TimeSlice>, QueryFailure> {
    let Some(context) = context else { return Ok(None) };
    context.check_time()?;
    Ok(Some(context.time_slice().await?))
}

/// First and last hour of a plan's rows. The row at the end is included if a stop key reaches into
/// it.
fn hours(plan: &SubQueryPlan) -> Option<(BaseTime, BaseTime)> {
    let from = u32::try_from(plan.window.scan_start_secs).ok()?;
    let to = u32::try_from(plan.window.scan_end_secs.min(u32::MAX.into())).ok()?;
    (from <= to).then(|| (BaseTime::containing(from), BaseTime::containing(to)))
}

/// The series that match by their UIDs, before filters on names.
fn selected(metric: &MetricIndex, selection: &SeriesSelection) -> SeriesSet {
    match selection {
        SeriesSelection::Tsuids(tags) => metric.of_tags(tags.iter().map(AsRef::as_ref)),
        SeriesSelection::Tags(tags) => {
            let conditions: Vec<_> = tags
                .conditions
                .iter()
                .map(|tag| TagCondition { tagk: tag.tagk, tagvs: tag.tagvs.as_deref() })
                .collect();
            metric.matching(&conditions, tags.explicit)
        }
    }
}

/// Lists series and hours; `None` if a series is in no salt bucket of the plan.
fn list_rows(
    metric: &MetricIndex,
    set: &SeriesSet,
    plan: &SubQueryPlan,
    (from, to): (BaseTime, BaseTime),
    context: Option<&QueryContext>,
) -> Result<Option<SeriesRows>, QueryFailure> {
    if let Some(context) = context {
        let bytes = (SERIES_BYTES + plan.schema.tags_start()) * set.len() as usize;
        context.check_available(bytes)?;
    }
    let days = metric.rows(set, from, to);
    let mut series = Vec::with_capacity(set.len() as usize);
    metric.for_each(set, |number, tags| {
        // The index cannot check every condition of the plan.
        if plan.admits(tags)
            && let Ok(key) = SeriesKey::from_tags(&plan.schema, &plan.metric, tags)
        {
            series.push(SelectedSeries { number, key });
        }
    });
    let range_of = |series: &SelectedSeries| {
        let bucket = series.key.bucket().index();
        plan.ranges.iter().any(|range| range.bucket.is_none_or(|of| of == bucket))
    };
    if !series.iter().all(range_of) {
        return Ok(None);
    }
    sort_by_key(&mut series, plan.schema.salt_width() > 0);
    Ok(Some(SeriesRows::new(Arc::from(series), days, Arc::from(plan.ranges.as_slice()))))
}

/// Sorts series by salt bucket (if salted) and tags. The first tag pairs decide most comparisons without reading the
/// keys.
fn sort_by_key(series: &mut [SelectedSeries], is_salted: bool) {
    let head = |series: &SelectedSeries| {
        let bucket = if is_salted { series.key.bucket().index() } else { 0 };
        let mut head = [0; size_of::<u128>()];
        for (to, from) in head.iter_mut().zip(series.key.tag_bytes()) {
            *to = *from;
        }
        (bucket, u128::from_be_bytes(head))
    };
    series.sort_by_cached_key(head);
    for equal in series.chunk_by_mut(|a, b| head(a) == head(b)) {
        if equal.len() > 1 {
            equal.sort_unstable_by(|a, b| a.key.tag_bytes().cmp(b.key.tag_bytes()));
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;
    use tsd_model::TableSchema;

    use super::*;

    proptest! {
        #[test]
        fn series_are_in_the_order_of_their_keys(
            tags in prop::collection::vec(prop::collection::vec(0_u8..2, 6), 1..60), is_salted: bool,
        ) {
            let salt_width = usize::from(is_salted);
            let schema = TableSchema::try_new(3, 1, 1, salt_width, 4).unwrap();
            let key = |tags: &Vec<u8>| {
                // The first 16 bytes of half of the series are equal.
                let tags = [&[0; 14][..], tags].concat();
                SeriesKey::from_tags(&schema, &[0, 0, 1], &tags).unwrap()
            };
            let selected = |(number, tags)| SelectedSeries { number, key: key(tags) };
            let mut series: Vec<_> = (0..).zip(&tags).map(selected).collect();
            let row_key = |series: &SelectedSeries| series.key.row_key(BaseTime::containing(0));
            let mut expected: Vec<_> = series.iter().map(row_key).collect();
            expected.sort();
            sort_by_key(&mut series, is_salted);
            prop_assert_eq!(series.iter().map(row_key).collect::<Vec<_>>(), expected);
        }
    }
}
