//! Tracks the series that are registered in a table that all writers of a table of points share.
//!
//! A series is registered once; from then on every daemon knows it. The index may also have
//! unregistered series, whose rows are only in memory.

use tsd_model::RowKey;

use crate::SeriesIndex;

impl SeriesIndex {
    /// TSUIDs of the unregistered series of these row keys, each once. Keys of global annotations
    /// and invalid row keys are ignored.
    #[must_use]
    pub fn unregistered<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> Vec<Box<[u8]>> {
        let mut found: Vec<Box<[u8]>> = Vec::new();
        for key in keys {
            let Ok(key) = RowKey::decode(&self.schema, key) else { continue };
            if !key.is_global() && !self.is_registered(key.metric(), key.tag_bytes()) {
                found.push([key.metric(), key.tag_bytes()].concat().into());
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Removes the series that are registered.
    pub fn retain_unregistered(&self, tsuids: &mut Vec<Box<[u8]>>) {
        let width = self.schema.metric_width();
        tsuids.retain(|tsuid| {
            let (metric, tags) = tsuid.split_at(width.min(tsuid.len()));
            !self.is_registered(metric, tags)
        });
    }

    /// Adds registered series by their TSUIDs. Invalid TSUIDs are ignored.
    pub fn add_registered<'t>(&self, tsuids: impl IntoIterator<Item = &'t [u8]>) {
        let (width, pair_width) = (self.schema.metric_width(), self.schema.tag_pair_width());
        for tsuid in tsuids.into_iter().take_while(|_| !self.is_full()) {
            let Some((metric, tags)) = tsuid.split_at_checked(width) else { continue };
            if tags.is_empty() || !tags.len().is_multiple_of(pair_width.max(1)) {
                continue;
            }
            let metric = self.metric_or_new(metric);
            let mut series = metric.write();
            let id = series.find(tags).unwrap_or_else(|| series.add_series(tags));
            series.registered.insert(id);
        }
    }

    fn is_registered(&self, metric: &[u8], tags: &[u8]) -> bool {
        let Some(metric) = self.shared_metric(metric) else { return false };
        let series = metric.read();
        series.find(tags).is_some_and(|id| series.registered.contains(id))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use tsd_model::{BaseTime, MetricUid, TableSchema, TagkUid, TagvUid};

    use super::*;

    fn key(host: u8, base: u32) -> Vec<u8> {
        [&[0, 0, 1], &base.to_be_bytes()[..], &[0, 0, 1, 0, 0, host]].concat()
    }

    #[test]
    fn series_are_unregistered_until_they_are_registered() {
        let schema = TableSchema::try_new(3, 3, 3, 0, 20).unwrap();
        let index = SeriesIndex::without_days(schema);
        let keys = [key(1, 0), key(2, 3_600), key(1, 7_200), vec![0; 3]];
        index.add_rows(keys.iter().map(|key| &key[..]));
        let mut new = index.unregistered(keys.iter().map(|key| &key[..]));
        assert_eq!(new, [[0, 0, 1, 0, 0, 1, 0, 0, 1].into(), [0, 0, 1, 0, 0, 1, 0, 0, 2].into()]);
        index.add_registered([&new[1][..], b"no TSUID"]);
        index.retain_unregistered(&mut new);
        assert_eq!(new, [[0, 0, 1, 0, 0, 1, 0, 0, 1].into()]);
        assert_eq!(index.size().series, 2);
    }

    #[test]
    fn without_days_every_series_has_rows_in_each_hour() {
        let schema = TableSchema::try_new(3, 3, 3, 0, 20).unwrap();
        let index = SeriesIndex::without_days(schema);
        index.add_registered([&[0, 0, 1, 0, 0, 1, 0, 0, 1][..], &[0, 0, 1, 0, 0, 1, 0, 0, 2]]);
        let metric = index.metric(MetricUid::from_number(1, 3).unwrap()).unwrap();
        let tagk = TagkUid::from_number(1, 3).unwrap();
        let one = metric.with_values(tagk, [TagvUid::from_number(2, 3).unwrap()]);
        let (from, to) = (BaseTime::containing(3_600), BaseTime::containing(90_000));
        assert_eq!(metric.active(from, to).len(), 2);
        let counts = metric.count_rows(&one, from, to);
        assert_eq!((counts.selected, counts.all), (25, 50));
        let rows = metric.rows(&one, from, to);
        assert_eq!((rows.len(), rows[0].hours.len(), rows[0].series.len()), (1, 25, 1));
        assert_eq!((rows[0].hours[0], rows[0].hours[24]), (from, to));
    }
}
