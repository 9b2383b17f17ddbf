//! Reads scan ranges, taking ended days from the query cache.

use std::sync::Arc;

use tsd_storage::{ReadSelection, SeriesRead, SeriesVersion};

use super::{
    day_cache::{CachedDays, DayCache, DayKey},
    ended_days::divide_ended_days,
    scan_job::{ENTRY_OVERHEAD_BYTES, RangeSeries, ScanJob},
    scan_range::{RangeRows, ScanRange},
    series_merge::merge_ranges,
    series_state::SeriesState,
};
use crate::query::{failure::QueryFailure, stats::ScannerStats};

/// Most listed series of a cached read, because their keys are part of the key of each entry.
const MAX_LISTED_SERIES: usize = 4_096;

/// Some base times of a scan range.
struct ReadChunk {
    read: Arc<SeriesRead>,
    /// Version of the rows, if the chunk consists of whole ended days.
    version: Option<SeriesVersion>,
}

impl ScanJob {
    /// Reads all rows of a scan range. Ended days come from the cache if it has them; they are cached if the read is
    /// repeated.
    pub(crate) async fn read_range(
        self: Arc<Self>,
        scan_range: ScanRange,
    ) -> Result<RangeSeries, QueryFailure> {
        let engine = Arc::clone(&self.engine);
        let (Some(cache), RangeRows::Points(read)) = (&engine.days, &scan_range.rows) else {
            return self.read(scan_range).await;
        };
        let Some((identity, chunks)) = self.chunks(cache, read) else {
            return self.read(scan_range).await;
        };
        let mut scan_ranges = Vec::with_capacity(chunks.len());
        let mut is_continuation = scan_range.is_continuation;
        for ReadChunk { read, version } in chunks {
            let bases = read.bases;
            let id = scan_range.id.clone();
            // Other chunks may have rows of the same series.
            let rows = RangeRows::Points(read);
            // Downsampling buckets begin with a day, so neither whole days nor the rows after them continue a bucket.
            is_continuation &= version.is_none();
            let chunk = ScanRange { rows, is_continuation, is_whole: false, id };
            is_continuation = false;
            scan_ranges.push(match version {
                None => Arc::clone(&self).read(chunk).await?,
                Some(version) => {
                    let key = DayKey { read: Arc::clone(&identity), bases, version };
                    self.cached_days(cache, &key, chunk).await?
                }
            });
        }
        let mut stats = ScannerStats { id: scan_range.id, ..ScannerStats::default() };
        for scan_range in &scan_ranges {
            stats.add(&scan_range.stats);
        }
        stats.successful = true;
        let (merged, _) = merge_ranges(&self, scan_ranges, true).await?;
        Ok(RangeSeries { stats, ..merged })
    }

    /// The chunks of a read, and the identity that equal reads share. `None` if the cache does not apply.
    fn chunks(&self, cache: &DayCache, read: &SeriesRead) -> Option<(Arc<str>, Vec<ReadChunk>)> {
        let is_listed_long = match &read.selection {
            ReadSelection::Keys(keys) => keys.len() > MAX_LISTED_SERIES,
            ReadSelection::Range(_) => false,
        };
        if is_listed_long || self.with_keys {
            return None;
        }
        let buckets = self.pipeline.day_buckets()?;
        let from_secs = buckets.from_ms.saturating_add(999).div_euclid(1_000);
        let from_secs = u32::try_from(from_secs.max(0)).unwrap_or(u32::MAX);
        let now_secs = u32::try_from(self.engine.shared.clock.now_secs()).unwrap_or_default();
        let ranges = divide_ended_days(&(read.bases.0..=read.bases.1), from_secs, now_secs);
        if !ranges.iter().any(|(_, is_days)| *is_days) {
            return None;
        }
        let plan = &self.plan;
        let identity = self.kept_identity.get_or_init(|| {
            // Read the epoch before resolving names, because filters depend on names.
            let epoch = self.engine.shared.names.epoch();
            let identity = format!(
                "{} {epoch} {:?} {} {:?} {:?} {}",
                self.table,
                plan.metric,
                self.with_annotations,
                plan.selection,
                plan.post_filters,
                buckets.identity
            );
            cache.is_repeated(&identity).then_some(identity)
        });
        let identity = identity.as_ref()?;
        let identity = format!("{identity} {} {:?}", read.prefix_len, read.selection);
        let mut chunks: Vec<ReadChunk> = Vec::new();
        for (bases, is_days) in ranges {
            let read = SeriesRead { bases: (*bases.start(), *bases.end()), ..read.clone() };
            let storage = &self.engine.shared.storage;
            let version =
                if is_days { storage.series().series_version(&self.table, &read) } else { None };
            match chunks.last_mut() {
                // Adjacent chunks that are not cached are read together.
                Some(ReadChunk { read: before, version: None }) if version.is_none() => {
                    let bases = (before.bases.0, read.bases.1);
                    *before = Arc::new(SeriesRead { bases, ..read });
                }
                _ => chunks.push(ReadChunk { read: Arc::new(read), version }),
            }
        }
        let has_versions = chunks.iter().any(|chunk| chunk.version.is_some());
        has_versions.then(|| (identity.into(), chunks))
    }

    /// The series of whole days, from the cache, or read and then cached.
    async fn cached_days(
        self: &Arc<Self>,
        cache: &DayCache,
        key: &DayKey,
        chunk: ScanRange,
    ) -> Result<RangeSeries, QueryFailure> {
        match cache.get(key).await {
            Ok(days) => self.series_of(&days).await,
            Err(missing) => {
                let RangeRows::Points(read) = &chunk.rows else {
                    return self.clone().read(chunk).await;
                };
                let read = Arc::clone(read);
                let series = Arc::clone(self).read(chunk).await?;
                // The result may include rows written during the read: cache it only if the version is still the same.
                let version =
                    self.engine.shared.storage.series().series_version(&self.table, &read);
                if version.as_ref() == Some(&key.version) {
                    let slice = self.budget.context().time_slice().await?;
                    let copy = series.series.iter();
                    let copy = copy.map(|(tags, state)| (tags.clone(), SeriesState::clone(state)));
                    cache.keep(missing, CachedDays::new(copy.collect()));
                    slice.finish();
                }
                Ok(series)
            }
        }
    }

    /// A copy of the series of an entry, charged to the query.
    async fn series_of(&self, days: &CachedDays) -> Result<RangeSeries, QueryFailure> {
        let mut copy = RangeSeries::default();
        copy.series.reserve(days.series.len());
        let mut series = days.series.iter();
        while series.len() > 0 {
            let context = self.budget.context();
            context.check_ended()?;
            let slice = context.time_slice().await?;
            let mut bytes = 0;
            for (tags, state) in series.by_ref() {
                let state = Box::new(state.clone());
                bytes += tags.len() + ENTRY_OVERHEAD_BYTES + state.memory_bytes();
                copy.series.insert(tags.clone(), state);
                if slice.is_expired() {
                    break;
                }
            }
            slice.finish();
            self.budget.adjust_series_memory(bytes as isize)?;
        }
        Ok(copy)
    }
}
