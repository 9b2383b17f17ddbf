//! Checks an index against the rows of its table, and its postings against its series.

use roaring::RoaringBitmap;
use tsd_model::{BaseTime, DAY_SECS, RowKey};

use crate::{SeriesIndex, metric_series::MetricSeries};

/// Series that are checked under one lock of their metric.
const LOCKED_SERIES: u32 = 4_096;

impl SeriesIndex {
    /// Counts the rows, given by their keys, that the index lacks and a selection by tags would
    /// miss. Keys that [`Self::add_rows`] ignores do not count.
    #[must_use]
    pub fn count_missing<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> u64 {
        let has = |key: &RowKey<'_>| {
            let metrics = self.shared_metric(key.metric());
            metrics.is_some_and(|metric| {
                let series = metric.read();
                series.has_row(key.tag_bytes(), key.base_time().as_secs())
            })
        };
        let keys = keys.into_iter().filter_map(|key| RowKey::decode(self.schema(), key).ok());
        keys.filter(|key| !key.is_global() && !has(key)).count() as u64
    }

    /// Counts the series of the index that a selection by one of their tags would miss, and the
    /// entries of unknown series.
    #[must_use]
    pub fn count_wrong(&self) -> u64 {
        let wrong_of = |metric: &crate::metric_series::SharedMetric| {
            let mut wrong = 0;
            let mut first = 0;
            loop {
                let series = metric.read();
                let end = series.len().min(first + LOCKED_SERIES);
                wrong += (first..end).filter(|id| !series.is_right(*id)).count() as u64;
                first = end;
                if end == series.len() {
                    return wrong + series.unknown_entries();
                }
            }
        };
        self.shared_metrics().iter().map(|(_, metric)| wrong_of(metric)).sum()
    }

    /// Repairs the errors that [`Self::count_wrong`] counts, from the tags of the series. Writers
    /// of a metric wait meanwhile.
    pub fn restore_postings(&self) {
        for (_, metric) in self.shared_metrics() {
            metric.write().restore_postings();
        }
    }
}

impl MetricSeries {
    /// True if the index has the row.
    fn has_row(&self, tags: &[u8], base_secs: u32) -> bool {
        let Some(id) = self.find(tags) else { return false };
        let hour = 1 << (base_secs % DAY_SECS / BaseTime::SPAN_SECONDS);
        let day = self.days.get(&(base_secs / DAY_SECS));
        let is_known = base_secs.is_multiple_of(BaseTime::SPAN_SECONDS) || self.is_irregular;
        is_known && day.is_some_and(|day| day.series.contains(id) && day.hours & hour != 0)
    }

    /// True if a series is found by its tags, by each of its tag keys and by each of its tag pairs.
    fn is_right(&self, id: u32) -> bool {
        let tags = self.tags_of(id);
        self.find(tags) == Some(id) && self.has_postings(tags, id)
    }

    /// Counts series of days that do not exist.
    fn unknown_entries(&self) -> u64 {
        let unknown = |set: &RoaringBitmap| set.len() - set.rank(self.len().saturating_sub(1));
        let is_empty = self.len() == 0;
        self.days
            .values()
            .map(|day| if is_empty { day.series.len() } else { unknown(&day.series) })
            .sum()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tsd_model::TableSchema;

    use super::*;

    #[test]
    fn wrong_entries_are_counted_and_restored() {
        let index = SeriesIndex::new(TableSchema::opentsdb_default());
        let key = [0, 0, 1, 80, 225, 99, 128, 0, 0, 1, 0, 0, 9];
        index.add_rows([&key[..]]);
        let metric = index.shared_metric(&[0, 0, 1]).unwrap();
        metric.write().days.entry(3).or_default().series.insert(7);
        assert_eq!(index.count_wrong(), 1);
        index.restore_postings();
        assert_eq!(index.count_wrong(), 0);
        assert_eq!(index.count_missing([&key[..]]), 0);
        let series = metric.read();
        assert_eq!(series.with_key(&[0, 0, 1]).len(), 1);
    }
}
