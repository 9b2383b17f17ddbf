//! Selects the series that match conditions on tags, and their rows in a range of time.

use parking_lot::RwLockReadGuard;

use roaring::RoaringBitmap;
use tsd_model::{BaseTime, DAY_SECS, TagkUid, TagvUid};

use crate::metric_series::{Day, MetricSeries, SharedMetric};

/// Series whose tags are copied under one lock.
const MAX_COPIED_SERIES: usize = 4_096;
/// Tag values that are looked up under one lock.
const MAX_LOOKED_UP_VALUES: usize = 16_384;

/// Condition on one tag key.
#[derive(Clone, Copy, Debug)]
pub struct TagCondition<'a> {
    /// UID of the tag key, which a series must have.
    pub tagk: TagkUid,
    /// UIDs of the accepted values; `None` accepts any value.
    pub tagvs: Option<&'a [TagvUid]>,
}

/// A set of series of a metric.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesSet(RoaringBitmap);

/// The rows of series on one day, or in the whole range if the index does not know the days.
#[derive(Clone, Debug, PartialEq)]
pub struct DayRows {
    /// Base times at which the metric has rows, ascending.
    pub hours: Vec<BaseTime>,
    /// The series that are active on the day.
    pub series: SeriesSet,
}

/// Upper bounds of numbers of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// Rows of the selected series.
    pub selected: u64,
    /// Rows of all series of the metric.
    pub all: u64,
}

/// The series of one metric. Results may grow between two calls, and shrink only by days that a retention has
/// discarded.
#[derive(Clone, Debug)]
pub struct MetricIndex {
    series: SharedMetric,
}

impl SeriesSet {
    /// Number of series.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// True if it has no series.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if it has the series with this number.
    #[must_use]
    pub fn contains(&self, number: u32) -> bool {
        self.0.contains(number)
    }

    /// Removes the series that `other` lacks.
    pub fn intersect(&mut self, other: &Self) {
        self.0 &= &other.0;
    }

    /// Removes the series that `other` has.
    pub fn subtract(&mut self, other: &Self) {
        self.0 -= &other.0;
    }

    /// Adds the series of `other`.
    pub fn unite(&mut self, other: &Self) {
        self.0 |= &other.0;
    }

    /// Removes the first `count` series, by their numbers.
    pub fn skip(&mut self, count: u64) {
        self.0.remove_smallest(count);
    }

    /// Retains the first `count` series, by their numbers.
    pub fn truncate(&mut self, count: u64) {
        if count < self.0.len() {
            self.0 = self.0.iter().take(count as usize).collect();
        }
    }

    /// Approximate bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.0.serialized_size()
    }
}

impl MetricIndex {
    pub(crate) const fn new(series: SharedMetric) -> Self {
        Self { series }
    }

    /// True if every row of the metric begins at an hour. Otherwise rows cannot be found by key.
    #[must_use]
    pub fn is_regular(&self) -> bool {
        !self.read().is_irregular
    }

    /// Number of series.
    #[must_use]
    pub fn series_count(&self) -> u64 {
        self.read().len().into()
    }

    /// Number of values of each tag key, in no order.
    #[must_use]
    pub fn value_counts(&self) -> Vec<(TagkUid, usize)> {
        self.read().value_counts().filter_map(with_uid).collect()
    }

    /// Number of series with each tag key, in no order.
    #[must_use]
    pub fn key_counts(&self) -> Vec<(TagkUid, u64)> {
        self.read().key_counts().filter_map(with_uid).collect()
    }

    /// UIDs of the values of a tag key, as numbers, with their numbers of series, in no order.
    #[must_use]
    pub fn counts_of_values(&self, tagk: TagkUid) -> Vec<(u64, u64)> {
        self.read().values_of(tagk.as_bytes()).collect()
    }

    /// The last days with rows, newest first: start in epoch seconds, and number of active series. Empty if
    /// the index does not know the days.
    #[must_use]
    pub fn last_days(&self, count: usize) -> Vec<(u32, u64)> {
        let series = self.read();
        let days = series.days.iter().rev().take(count);
        days.map(|(number, day)| (number * DAY_SECS, day.series.len())).collect()
    }

    /// The series that match all conditions; `explicit` admits no other tag keys.
    #[must_use]
    pub fn matching(&self, conditions: &[TagCondition<'_>], explicit: bool) -> SeriesSet {
        let mut found: Option<RoaringBitmap> = None;
        for condition in conditions {
            let matching = match condition.tagvs {
                None => self.read().with_key(condition.tagk.as_bytes()),
                Some(values) => self.with_values(condition.tagk, values.iter().copied()).0,
            };
            match &mut found {
                Some(found) => *found &= matching,
                None => found = Some(matching),
            }
        }
        let found = found.unwrap_or_else(|| self.read().all());
        if !explicit {
            return SeriesSet(found);
        }
        let mut kept = RoaringBitmap::new();
        self.for_batches(&SeriesSet(found), |series, ids| {
            let is_kept = |id: &&u32| series.pair_count(**id) == conditions.len();
            kept.extend(ids.iter().filter(is_kept).copied());
        });
        SeriesSet(kept)
    }

    /// The series with one of these values of a tag key.
    #[must_use]
    pub fn with_values(
        &self,
        tagk: TagkUid,
        values: impl IntoIterator<Item = TagvUid>,
    ) -> SeriesSet {
        let mut found = RoaringBitmap::new();
        let mut values = values.into_iter();
        loop {
            let batch: Vec<_> = values.by_ref().take(MAX_LOOKED_UP_VALUES).collect();
            if batch.is_empty() {
                return SeriesSet(found);
            }
            found |= self.read().with_values(tagk.as_bytes(), batch);
        }
    }

    /// The series with these tag pairs (key UID, value UID, …; sorted by key).
    #[must_use]
    pub fn of_tags<'t>(&self, tags: impl IntoIterator<Item = &'t [u8]>) -> SeriesSet {
        let series = self.read();
        SeriesSet(tags.into_iter().filter_map(|tags| series.find(tags)).collect())
    }

    /// The series with a tag key.
    #[must_use]
    pub fn with_key(&self, tagk: TagkUid) -> SeriesSet {
        SeriesSet(self.read().with_key(tagk.as_bytes()))
    }

    /// The series that are active on a day from the hour `from` to the hour `to`.
    #[must_use]
    pub fn active(&self, from: BaseTime, to: BaseTime) -> SeriesSet {
        let series = self.read();
        if !series.has_days {
            return SeriesSet(series.all());
        }
        let mut active = RoaringBitmap::new();
        days(&series, from, to).for_each(|(_, day)| active |= &day.series);
        SeriesSet(active)
    }

    /// UIDs of the values that the series of a set have for a tag key, as numbers (their bytes are
    /// big-endian); each once, in no order.
    #[must_use]
    pub fn values(&self, tagk: TagkUid, set: &SeriesSet) -> Vec<u64> {
        self.read().values(tagk.as_bytes(), &set.0)
    }

    /// The series with one of several values of a tag key, given by their UIDs as numbers.
    #[must_use]
    pub fn with_value_uids(&self, tagk: TagkUid, uids: &[u64]) -> SeriesSet {
        let batches = uids.chunks(MAX_LOOKED_UP_VALUES);
        let found = batches.map(|batch| self.read().with_value_uids(tagk.as_bytes(), batch));
        SeriesSet(found.fold(RoaringBitmap::new(), |all, found| all | found))
    }

    /// Counts the rows from the hour `from` to the hour `to`, both inclusive.
    #[must_use]
    pub fn count_rows(&self, set: &SeriesSet, from: BaseTime, to: BaseTime) -> RowCounts {
        let series = self.read();
        if !series.has_days {
            let hours =
                u64::from(to.as_secs().saturating_sub(from.as_secs()) / BaseTime::SPAN_SECONDS) + 1;
            return RowCounts { all: hours * u64::from(series.len()), selected: hours * set.len() };
        }
        let mut counts = RowCounts::default();
        for (number, day) in days(&series, from, to) {
            let hours = u64::from(hours_between(number, day.hours, from, to).count_ones());
            counts.all += hours * day.series.len();
            counts.selected += hours * day.series.intersection_len(&set.0);
        }
        counts
    }

    /// The rows of a set of series from the hour `from` to the hour `to`, both inclusive, by day.
    #[must_use]
    pub fn rows(&self, set: &SeriesSet, from: BaseTime, to: BaseTime) -> Vec<DayRows> {
        let series = self.read();
        if !series.has_days {
            let hours = (from.as_secs()..=to.as_secs()).step_by(BaseTime::SPAN_SECONDS as usize);
            let hours = hours.map(BaseTime::containing).collect();
            return vec![DayRows { hours, series: set.clone() }];
        }
        let mut rows = Vec::new();
        for (number, day) in days(&series, from, to) {
            let active = &day.series & &set.0;
            let hours = hours_between(number, day.hours, from, to);
            if hours == 0 || active.is_empty() {
                continue;
            }
            let base =
                |hour: u32| BaseTime::containing(number * DAY_SECS + hour * BaseTime::SPAN_SECONDS);
            let hours = (0..DAY_SECS / BaseTime::SPAN_SECONDS)
                .filter(|hour| hours >> hour & 1 == 1)
                .map(base);
            rows.push(DayRows { hours: hours.collect(), series: SeriesSet(active) });
        }
        rows
    }

    /// Visits the series of a set by number, with their tag pairs.
    pub fn for_each(&self, set: &SeriesSet, mut visit: impl FnMut(u32, &[u8])) {
        let mut numbers = Vec::new();
        let mut tags = Vec::new();
        self.for_batches(set, |series, ids| {
            for id in ids {
                tags.extend_from_slice(series.tags_of(*id));
                numbers.push((*id, tags.len()));
            }
        });
        let mut start = 0;
        for (id, end) in numbers {
            visit(id, tags.get(start..end).unwrap_or_default());
            start = end;
        }
    }

    /// Calls `visit` for batches of a set, each under its own lock.
    fn for_batches(&self, set: &SeriesSet, mut visit: impl FnMut(&MetricSeries, &[u32])) {
        let mut batch = Vec::with_capacity(MAX_COPIED_SERIES.min(set.len() as usize));
        let mut ids = set.0.iter();
        loop {
            batch.clear();
            batch.extend(ids.by_ref().take(MAX_COPIED_SERIES));
            if batch.is_empty() {
                return;
            }
            visit(&self.read(), &batch);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, MetricSeries> {
        self.series.read()
    }
}

/// A count of a tag key with its UID.
fn with_uid<T>((tagk, count): (&[u8], T)) -> Option<(TagkUid, T)> {
    Some((TagkUid::try_new(tagk).ok()?, count))
}

/// Days with rows, with their numbers.
fn days(series: &MetricSeries, from: BaseTime, to: BaseTime) -> impl Iterator<Item = (u32, &Day)> {
    let (first, last) = (from.as_secs() / DAY_SECS, to.as_secs() / DAY_SECS);
    // A reversed range would panic.
    series.days.range(first..=last.max(first)).map(|(number, day)| (*number, day))
}

/// The hours of a day that are in a range, a bit for each.
fn hours_between(day: u32, hours: u32, from: BaseTime, to: BaseTime) -> u32 {
    (0..DAY_SECS / BaseTime::SPAN_SECONDS)
        .filter(|hour| {
            let secs =
                u64::from(day) * u64::from(DAY_SECS) + u64::from(hour * BaseTime::SPAN_SECONDS);
            (u64::from(from.as_secs())..=u64::from(to.as_secs())).contains(&secs)
        })
        .fold(0, |mask, hour| mask | hours & 1 << hour)
}
