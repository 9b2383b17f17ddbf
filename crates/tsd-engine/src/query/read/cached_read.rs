//! Reads of parts that take ended days from the cache.

use std::sync::Arc;

use tsd_storage::{ReadSelection, SeriesRead, SeriesVersion};

use super::{
    day_cache::{CachedDays, DayCache, DayKey},
    ended_days::divide_ended_days,
    scan_job::{ENTRY_OVERHEAD_BYTES, PartSeries, ScanJob},
    scan_part::{PartRows, ScanPart},
    series_merge::merge_parts,
    series_state::SeriesState,
};
use crate::query::{failure::QueryFailure, stats::ScannerStats};

/// Most listed series of a read that is kept: their keys are part of the key of each entry.
const MAX_LISTED_SERIES: usize = 4_096;

/// A range of base times of a part.
struct Piece {
    read: Arc<SeriesRead>,
    /// The version of its rows, if it is made of whole ended days.
    version: Option<SeriesVersion>,
}

impl ScanJob {
    /// Reads all rows of a part; ended days are taken from the cache if they are there, and kept if the
    /// read is repeated.
    pub(crate) async fn read_part(
        self: Arc<Self>,
        part: ScanPart,
    ) -> Result<PartSeries, QueryFailure> {
        let engine = Arc::clone(&self.engine);
        let (Some(cache), PartRows::Points(read)) = (&engine.days, &part.rows) else {
            return self.read(part).await;
        };
        let Some((identity, pieces)) = self.pieces(cache, read) else {
            return self.read(part).await;
        };
        let mut parts = Vec::with_capacity(pieces.len());
        let mut is_continuation = part.is_continuation;
        for Piece { read, version } in pieces {
            let bases = read.bases;
            let id = part.id.clone();
            // Other pieces may have rows of the same series.
            let rows = PartRows::Points(read);
            // Buckets begin with a day, so that neither whole days nor what is after them continues one.
            is_continuation &= version.is_none();
            let piece = ScanPart { rows, is_continuation, is_whole: false, id };
            is_continuation = false;
            parts.push(match version {
                None => Arc::clone(&self).read(piece).await?,
                Some(version) => {
                    let key = DayKey { read: Arc::clone(&identity), bases, version };
                    self.cached_days(cache, &key, piece).await?
                }
            });
        }
        let mut stats = ScannerStats { id: part.id, ..ScannerStats::default() };
        for part in &parts {
            stats.add(&part.stats);
        }
        stats.successful = true;
        let (merged, _) = merge_parts(&self, parts, true).await?;
        Ok(PartSeries { stats, ..merged })
    }

    /// The pieces of a read, and what makes another read the same. `None` if it is to be read as a whole.
    fn pieces(&self, cache: &DayCache, read: &SeriesRead) -> Option<(Arc<str>, Vec<Piece>)> {
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
        let now_secs = u32::try_from(self.engine.clock.now_secs()).unwrap_or_default();
        let ranges = divide_ended_days(&(read.bases.0..=read.bases.1), from_secs, now_secs);
        if !ranges.iter().any(|(_, is_days)| *is_days) {
            return None;
        }
        let plan = &self.plan;
        let identity = self.kept_identity.get_or_init(|| {
            // The epoch before names are resolved: filters on names depend on them.
            let epoch = self.engine.uids.epoch();
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
        let mut pieces: Vec<Piece> = Vec::new();
        for (bases, is_days) in ranges {
            let read = SeriesRead { bases: (*bases.start(), *bases.end()), ..read.clone() };
            let storage = &self.engine.storage;
            let version = if is_days { storage.series_version(&self.table, &read) } else { None };
            match pieces.last_mut() {
                // What is not kept is read together.
                Some(Piece { read: before, version: None }) if version.is_none() => {
                    let bases = (before.bases.0, read.bases.1);
                    *before = Arc::new(SeriesRead { bases, ..read });
                }
                _ => pieces.push(Piece { read: Arc::new(read), version }),
            }
        }
        let has_versions = pieces.iter().any(|piece| piece.version.is_some());
        has_versions.then(|| (identity.into(), pieces))
    }

    /// The series of whole days, from the cache or read and kept.
    async fn cached_days(
        self: &Arc<Self>,
        cache: &DayCache,
        key: &DayKey,
        piece: ScanPart,
    ) -> Result<PartSeries, QueryFailure> {
        match cache.get(key).await {
            Ok(days) => self.series_of(&days).await,
            Err(missing) => {
                let PartRows::Points(read) = &piece.rows else {
                    return self.clone().read(piece).await;
                };
                let read = Arc::clone(read);
                let series = Arc::clone(self).read(piece).await?;
                // Rows that came meanwhile may be among those that were read.
                let version = self.engine.storage.series_version(&self.table, &read);
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
    async fn series_of(&self, days: &CachedDays) -> Result<PartSeries, QueryFailure> {
        let mut copy = PartSeries::default();
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
