//! Starts the row compactors, one per write shard.

use std::sync::{Arc, atomic::AtomicU32};

use futures_util::future::join_all;
use tsd_model::FlushPace;
use tsd_read::FragmentedRows;
use tsd_runtime::ActorRef;

use super::{
    CompactionMessage, CompactionStats, CompactorSettings, RowCompactor, pace::CompactionPace,
    queue::QueueTotals, read_rows::ReadRows, row::RowRules,
};
use crate::{
    config::{CompactionConfig, EngineConfig},
    engine_start::EngineStart,
};

/// Mailbox capacity of a compaction actor: one message per write batch.
const COMPACTION_MAILBOX: usize = 4_096;

/// The row compactors and their counters.
#[derive(Debug)]
pub(crate) struct RowCompactors {
    /// One per write shard; empty if compaction is disabled.
    pub(crate) actors: Vec<ActorRef<CompactionMessage>>,
    pub(crate) stats: Arc<CompactionStats>,
    pub(crate) totals: Arc<QueueTotals>,
    /// Current compaction round of each write shard.
    pub(crate) rounds: Vec<Arc<AtomicU32>>,
}

impl RowCompactors {
    /// Starts one actor per write shard, if compaction is enabled.
    pub(crate) fn start(start: EngineStart<'_>) -> Self {
        let mut compactors = Self {
            actors: Vec::new(),
            stats: Arc::default(),
            totals: Arc::default(),
            rounds: (0..start.shard_count()).map(|_| Arc::default()).collect(),
        };
        if start.config.compaction.enabled {
            let shards = 0..compactors.rounds.len();
            compactors.actors = shards.map(|shard| compactors.spawn(start, shard)).collect();
        }
        compactors
    }

    /// Starts the actor of a write shard, on the thread of its write actor.
    fn spawn(&self, start: EngineStart<'_>, shard: usize) -> ActorRef<CompactionMessage> {
        let EngineStart { config, storage, threads } = start;
        let compaction = &config.compaction;
        let settings = CompactorSettings {
            storage: Arc::clone(storage),
            table: config.tables.data.clone(),
            rules: row_rules(config),
            pace: pace(compaction),
            interval: compaction.flush_interval,
            max_in_flight: compaction.max_concurrent_flushes.div_ceil(self.rounds.len().max(1)),
            max_queue_bytes: compaction.max_queue_bytes,
            clock: Arc::clone(&config.clock),
            totals: Arc::clone(&self.totals),
            stats: Arc::clone(&self.stats),
            round: self.rounds.get(shard).cloned().unwrap_or_default(),
        };
        threads.get(shard).spawn("row_compaction", COMPACTION_MAILBOX, move || {
            RowCompactor::new(settings.clone())
        })
    }

    /// Gets fragmented rows that queries read, if these are compacted.
    pub(crate) fn fragmented_rows(&self, config: &EngineConfig) -> Option<Arc<dyn FragmentedRows>> {
        if !config.compaction.on_read || self.actors.is_empty() {
            return None;
        }
        Some(Arc::new(ReadRows {
            rules: row_rules(config),
            compactors: self.actors.clone(),
            stats: Arc::clone(&self.stats),
        }))
    }

    /// Waits until every row that was reported by a query, or taken by a round, is compacted.
    pub(crate) async fn idle(&self) {
        // An actor that does not reply has no pending rows.
        join_all(self.actors.iter().map(|actor| actor.ask(CompactionMessage::Idle))).await;
    }

    /// Compacts every due row in the queues and waits for it.
    pub(crate) async fn flush(&self) {
        join_all(self.actors.iter().map(|actor| actor.ask(CompactionMessage::Flush))).await;
    }
}

fn pace(config: &CompactionConfig) -> CompactionPace {
    let interval_secs = u32::try_from(config.flush_interval.as_secs()).unwrap_or(u32::MAX);
    let allowance = FlushPace {
        interval_secs: interval_secs.max(1),
        min_rows: config.min_flush_threshold as u64,
        speed: config.flush_speed,
    };
    CompactionPace { allowance }
}

const fn row_rules(config: &EngineConfig) -> RowRules {
    RowRules {
        schema: config.schema,
        merge: config.rows.merge_rule(),
        repair_appends: config.rows.repair_appends,
    }
}
