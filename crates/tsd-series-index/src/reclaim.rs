//! Removes the days that a retention has discarded, and the series without remaining days.
//!
//! The number of a series is its position, so removal copies the remaining series, a metric at a time, in small
//! steps. Rows that writers add meanwhile are noted and added to the copy, which then replaces the metric.
//! Readers keep the unchanged former series. A writer that finds them replaced looks the metric up again.

use std::ops::Range;

use hashbrown::hash_map::Entry;
use roaring::RoaringBitmap;
use tsd_model::{DAY_SECS, MetricUid};

use crate::{
    SeriesIndex,
    metric_series::{Day, MetricSeries, NotedRows, SharedMetric},
};

/// Series that are copied under one lock of their metric.
const COPIED_SERIES: u32 = 4_096;
/// A metric is copied when at least one in this many of its series has no day left.
const DEAD_PART: u64 = 4;
/// Noted rows that are added while the metric is locked.
const LAST_ROWS: usize = 1_024;

/// Copy of the series of a metric that have days left.
#[derive(Debug)]
pub struct LiveSeries {
    metric: Box<[u8]>,
    former: SharedMetric,
    copy: MetricSeries,
}

impl Drop for LiveSeries {
    fn drop(&mut self) {
        // The copy was not installed, or nobody adds to it.
        self.former.write().noted = None;
    }
}

impl SeriesIndex {
    /// Removes the UTC days in a range of times, epoch seconds, which must have no rows in the table. Their
    /// series stay until [`Self::copy_live`].
    pub fn remove_days(&self, secs: Range<u32>) {
        let (first, end) = (secs.start.div_ceil(DAY_SECS), secs.end / DAY_SECS);
        if first >= end {
            return;
        }
        for (_, metric) in self.shared_metrics() {
            let mut series = metric.write();
            let mut later = series.days.split_off(&first);
            let mut kept = later.split_off(&end);
            series.days.append(&mut kept);
        }
    }

    /// Copies the series of a metric that still have days, if enough others have lost all days. Returns `None`
    /// without a copy, also if `checkpoint`, called between two steps, returned false.
    #[must_use]
    pub fn copy_live(
        &self,
        metric: MetricUid,
        checkpoint: &mut dyn FnMut() -> bool,
    ) -> Option<LiveSeries> {
        let former = self.shared_metric(metric.as_bytes())?;
        let live_of = |former: &SharedMetric| {
            let series = former.read();
            (series.live(), series.len())
        };
        let (live, len) = live_of(&former);
        let dead = u64::from(len) - live.len();
        if dead == 0 || dead * DEAD_PART < u64::from(len) {
            return None;
        }
        let noted = Some(NotedRows::Rows(Vec::new()));
        former.write().noted = noted;
        // Read again: this includes all earlier rows, and later rows are noted.
        let (live, len) = live_of(&former);
        let copy = MetricSeries::new(*self.schema(), true);
        // From here on, dropping the copy ends the notes.
        let mut found = LiveSeries { metric: metric.as_bytes().into(), former, copy };
        found.copy_series(&live, len, checkpoint)?;
        found.add_noted(checkpoint)?;
        Some(found)
    }

    /// Replaces a metric by its copy. Returns the number of removed series; 0 if the metric stays. Series get
    /// other numbers, so the index must be written as a whole.
    pub fn install(&self, mut live: LiveSeries) -> u64 {
        let LiveSeries { former, copy, metric } = &mut live;
        // Holders of a metric's lock never wait for this lock.
        let mut metrics = self.metrics.write();
        let Entry::Occupied(mut entry) = metrics.entry(metric.clone()) else { return 0 };
        let mut series = former.write();
        let Some(NotedRows::Rows(rows)) = series.noted.take() else { return 0 };
        for (id, base_secs) in rows {
            copy.add_row(series.tags_of(id), base_secs);
        }
        copy.is_irregular |= series.is_irregular;
        series.is_replaced = true;
        let removed = series.len().saturating_sub(copy.len());
        drop(series);
        if copy.len() == 0 {
            entry.remove();
        } else {
            let copy = std::mem::replace(copy, MetricSeries::new(self.schema, true));
            entry.insert(SharedMetric::new(copy.into()));
        }
        removed.into()
    }
}

impl LiveSeries {
    fn copy_series(
        &mut self,
        live: &RoaringBitmap,
        len: u32,
        checkpoint: &mut dyn FnMut() -> bool,
    ) -> Option<()> {
        let Self { former, copy, .. } = self;
        let read = || former.read();
        // New numbers by former ones.
        let mut numbers = vec![None; len as usize];
        let mut left = live.iter();
        loop {
            let series = read();
            let mut count = 0;
            for id in left.by_ref().take(COPIED_SERIES as usize) {
                if let Some(number) = numbers.get_mut(id as usize) {
                    *number = Some(copy.add_series(series.tags_of(id)));
                }
                count += 1;
            }
            drop(series);
            if count < COPIED_SERIES {
                break;
            }
            checkpoint().then_some(())?;
        }
        let days: Vec<u32> = read().days.keys().copied().collect();
        for number in days {
            checkpoint().then_some(())?;
            let (former, hours) = match read().days.get(&number) {
                Some(day) => (day.series.clone(), day.hours),
                None => continue,
            };
            // Others are noted.
            let of_copy = |id: u32| numbers.get(id as usize).copied().flatten();
            let series: RoaringBitmap = former.iter().filter_map(of_copy).collect();
            copy.days.insert(number, Day { series, hours, ..Day::default() });
        }
        Some(())
    }

    /// Adds the noted rows until few remain.
    fn add_noted(&mut self, checkpoint: &mut dyn FnMut() -> bool) -> Option<()> {
        let Self { former, copy, .. } = self;
        loop {
            checkpoint().then_some(())?;
            let mut series = former.write();
            let Some(NotedRows::Rows(rows)) = &mut series.noted else { return None };
            if rows.len() < LAST_ROWS {
                return Some(());
            }
            let rows = std::mem::take(rows);
            drop(series);
            for rows in rows.chunks(LAST_ROWS) {
                let series = former.read();
                for (id, base_secs) in rows {
                    copy.add_row(series.tags_of(*id), *base_secs);
                }
            }
        }
    }
}

impl MetricSeries {
    /// Series that have rows on any day.
    fn live(&self) -> RoaringBitmap {
        let mut live = RoaringBitmap::new();
        for day in self.days.values() {
            live |= &day.series;
        }
        live
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use tsd_model::{BaseTime, TableSchema};

    use super::*;
    use crate::{MetricIndex, metric_series::MAX_NOTED_ROWS};

    const DAY: u32 = 86_400;

    fn key(metric: u8, base: u32, tag: u16) -> Vec<u8> {
        let [high, low] = tag.to_be_bytes();
        [&[0, 0, metric][..], &base.to_be_bytes(), &[0, 0, 1, 0, high, low]].concat()
    }

    fn uid(metric: u64) -> MetricUid {
        MetricUid::from_number(metric, 3).unwrap()
    }

    fn add(index: &SeriesIndex, metric: u8, day: u32, tags: Range<u16>) {
        let keys: Vec<_> = tags.map(|tag| key(metric, day * DAY, tag)).collect();
        index.add_rows(keys.iter().map(Vec::as_slice));
    }

    fn reclaim(index: &SeriesIndex, until: u32) -> u64 {
        index.remove_days(DAY..until);
        let copies = index.metrics();
        let copies = copies.into_iter().filter_map(|uid| index.copy_live(uid, &mut || true));
        copies.map(|copy| index.install(copy)).sum()
    }

    /// Tags of the series that are active from a day on, by day.
    fn active(metric: &MetricIndex) -> Vec<(u32, Vec<Vec<u8>>)> {
        let (from, to) = (BaseTime::containing(0), BaseTime::containing(u32::MAX));
        let rows = metric.rows(&metric.matching(&[], false), from, to);
        let tags = |rows: &crate::DayRows| {
            let mut all = Vec::new();
            metric.for_each(&rows.series, |_, tags| all.push(tags.to_vec()));
            all.sort();
            (rows.hours[0].as_secs() / DAY, all)
        };
        rows.iter().map(tags).collect()
    }

    #[test]
    fn series_without_a_day_go_and_readers_keep_theirs() {
        let index = SeriesIndex::new(TableSchema::opentsdb_default());
        add(&index, 1, 3, 0..100);
        add(&index, 1, 4, 50..150);
        add(&index, 2, 3, 0..10);
        add(&index, 3, 4, 0..10);
        let reader = index.metric(uid(1)).unwrap();
        let before = reader.matching(&[], false);
        assert_eq!(reclaim(&index, 4 * DAY), 60);
        assert_eq!(index.metrics(), [uid(1), uid(3)]);
        assert_eq!((index.size().series, index.count_wrong()), (110, 0));
        // Its selected series are unchanged.
        let mut tags = Vec::new();
        reader.for_each(&before, |_, found| tags.push(found.to_vec()));
        assert_eq!(tags.len(), 150);
        let metric = index.metric(uid(1)).unwrap();
        let all = active(&metric);
        assert_eq!(all.len(), 1);
        assert_eq!(
            (all[0].0, all[0].1.len(), &all[0].1[0][..]),
            (4, 100, &[0, 0, 1, 0, 0, 50][..])
        );
        // Known again, and written as a whole.
        add(&index, 1, 5, 0..1);
        assert_eq!(metric.series_count(), 101);
        let delta = index.delta(true).unwrap();
        let loaded = SeriesIndex::new(TableSchema::opentsdb_default());
        delta.frames.iter().for_each(|frame| loaded.load(frame).unwrap());
        index.commit(delta);
        assert!(index.delta(false).is_none());
        assert_eq!(active(&loaded.metric(uid(1)).unwrap()), active(&metric));
    }

    #[test]
    fn few_series_without_a_day_stay() {
        let index = SeriesIndex::new(TableSchema::opentsdb_default());
        add(&index, 1, 3, 0..10);
        add(&index, 1, 4, 0..8);
        assert_eq!(reclaim(&index, 4 * DAY), 0);
        assert_eq!(index.size().series, 10);
        assert_eq!(index.count_missing([&key(1, 4 * DAY, 7)[..]]), 0);
        assert_eq!(index.count_missing([&key(1, 3 * DAY, 7)[..]]), 1);
    }

    #[test]
    fn what_is_added_while_a_metric_is_copied_is_in_the_copy() {
        let index = SeriesIndex::new(TableSchema::opentsdb_default());
        add(&index, 1, 3, 0..100);
        add(&index, 1, 4, 0..10);
        index.remove_days(0..4 * DAY);
        let mut step = 0;
        let copy = index.copy_live(uid(1), &mut || {
            step += 1;
            // A series that would be removed, a copied series and a new series; another hour.
            add(&index, 1, 4, 20..20 + step);
            add(&index, 1, 4 + u32::from(step), 5..6);
            add(&index, 1, 4, 200..200 + step);
            index.add_rows([&key(1, 4 * DAY + 7_200, 5)[..]]);
            true
        });
        let last = key(1, 9 * DAY, 99);
        index.add_rows([&last[..]]);
        let copy = copy.unwrap();
        let step = u64::from(step);
        assert_eq!(index.install(copy), 100 + step - (10 + 2 * step + 1));
        assert_eq!(index.size().series, 10 + 2 * step + 1);
        let expected = [last, key(1, 4 * DAY + 7_200, 5), key(1, 5 * DAY, 5), key(1, 4 * DAY, 20)];
        assert_eq!(index.count_missing(expected.iter().map(Vec::as_slice)), 0);
        assert_eq!(index.count_wrong(), 0);
    }

    #[test]
    fn a_copy_that_is_stopped_or_comes_too_late_changes_nothing() {
        let index = SeriesIndex::new(TableSchema::opentsdb_default());
        add(&index, 1, 3, 0..100);
        index.remove_days(0..4 * DAY);
        assert!(index.copy_live(uid(1), &mut || false).is_none());
        let copy = index.copy_live(uid(1), &mut || true).unwrap();
        for day in 0..(MAX_NOTED_ROWS as u32).div_ceil(1_000) {
            add(&index, 1, 10 + day, 0..1_001);
        }
        assert_eq!(index.install(copy), 0);
        assert_eq!(index.size().series, 1_001);
    }

    #[test]
    fn a_writer_adds_nothing_to_a_metric_that_was_replaced() {
        let index = Arc::new(SeriesIndex::new(TableSchema::opentsdb_default()));
        add(&index, 1, 3, 0..1);
        let former = index.shared_metric(&[0, 0, 1]).unwrap();
        former.write().is_replaced = true;
        let writer = {
            let index = Arc::clone(&index);
            std::thread::spawn(move || add(&index, 1, 4, 7..8))
        };
        // The writer finds the former metric until then.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let copy = SharedMetric::new(MetricSeries::new(*index.schema(), true).into());
        index.metrics.write().insert([0, 0, 1].into(), copy);
        writer.join().unwrap();
        assert_eq!(index.count_missing([&key(1, 4 * DAY, 7)[..]]), 0);
        assert_eq!(former.read().len(), 1);
    }

    #[test]
    fn no_row_is_lost_beside_writers() {
        const DAYS: u32 = 2_000;
        let index = Arc::new(SeriesIndex::new(TableSchema::opentsdb_default()));
        let written = Arc::new(AtomicU32::new(2));
        // Each day has other series than the days before.
        let tags = |day: u32| {
            let first = (day % 50 * 20) as u16;
            first..first + 20
        };
        let writer = {
            let (index, written) = (Arc::clone(&index), Arc::clone(&written));
            std::thread::spawn(move || {
                for day in 2..DAYS {
                    add(&index, 1, day, tags(day));
                    add(&index, 2, day, tags(day));
                    written.store(day, Ordering::Release);
                }
            })
        };
        let mut gone = 0;
        while !writer.is_finished() {
            gone += reclaim(&index, (written.load(Ordering::Acquire) - 1) * DAY);
        }
        writer.join().unwrap();
        gone += reclaim(&index, (DAYS - 2) * DAY);
        for (metric, day) in [(1, DAYS - 2), (1, DAYS - 1), (2, DAYS - 2), (2, DAYS - 1)] {
            let keys: Vec<_> = tags(day).map(|tag| key(metric, day * DAY, tag)).collect();
            assert_eq!(index.count_missing(keys.iter().map(Vec::as_slice)), 0, "{metric} {day}");
        }
        assert!(gone > 0);
        assert_eq!((index.size().series, index.count_wrong()), (80, 0));
    }
}
