//! The state that all sessions share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tsd_model::TableSchema;
use tsd_runtime::{ActorRef, Clock};
use tsd_storage::{BudgetAccess, Retention};

use super::{extra_cell::WriteTargets, validate::NameRules};
use crate::{
    compaction::latest_base, meta_tracking::TrackerMessage, point_plugins::PointPlugins,
    put_error::PutError, series_cache::SeriesCache, uid::Resolver, write_filter::WriteFilterSlot,
    write_hold::WriteHold, writer::WriteShard,
};

/// State shared by all sessions.
#[derive(Debug)]
pub(crate) struct IngestShared {
    pub(crate) schema: TableSchema,
    pub(crate) names: NameRules,
    pub(crate) max_tags: usize,
    pub(crate) retention: Option<Arc<Retention>>,
    pub(crate) write_filter: WriteFilterSlot,
    pub(crate) plugins: PointPlugins,
    pub(crate) appends: bool,
    pub(crate) use_otsdb_timestamp: bool,
    pub(crate) compaction: bool,
    pub(crate) queue_deadline: Duration,
    pub(crate) chunks_in_flight: usize,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) series: SeriesCache,
    pub(crate) resolver: Resolver,
    pub(crate) targets: WriteTargets,
    /// The store's budget.
    pub(crate) admission: BudgetAccess,
    pub(crate) shards: Vec<WriteShard>,
    pub(crate) hold: Arc<WriteHold>,
    /// Current compaction round of each write shard.
    pub(crate) rounds: Vec<Arc<AtomicU32>>,
    /// Set if the meta table tracks series.
    pub(crate) tracker: Option<ActorRef<TrackerMessage>>,
    pub(crate) tracking_dropped: metrics::Counter,
    pub(crate) closed: AtomicBool,
    /// Write shard of the next session that uses a single one, round robin.
    pub(crate) next_shard: AtomicUsize,
    /// Points received, stored or not.
    pub(crate) received: AtomicU64,
    pub(crate) received_total: metrics::Counter,
    pub(crate) cache_misses: metrics::Counter,
}

impl IngestShared {
    /// Rejects a point that is older than the retention of its series. `template` is the row key of the series.
    #[inline]
    pub(super) fn check_age(&self, template: &[u8], time_secs: u32) -> Result<(), PutError> {
        let Some(retention) = &self.retention else { return Ok(()) };
        retention
            .check_put(template, time_secs)
            .map_err(|cutoff_secs| PutError::Expired { time_secs, cutoff_secs })
    }

    /// Current compaction round of a shard.
    pub(super) fn round(&self, shard: usize) -> u32 {
        self.rounds.get(shard).map_or(0, |round| round.load(Ordering::Relaxed))
    }

    /// Largest base time whose rows may have been compacted already.
    pub(super) fn due_before(&self) -> u32 {
        u32::try_from(latest_base(self.clock.now_secs()).max(0)).unwrap_or(u32::MAX)
    }
}
