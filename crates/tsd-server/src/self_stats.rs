//! Stores the daemon's own statistics as points of its store, so that their history can be drawn (`tsd.stats.self`).

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;
use tsd_engine::{LogLimit, NameText, PutError, Sample, SampleContent, UidKind};
use tsd_protocol::{PutLine, PutLineError};

use crate::{rollups::put_one, server_state::ServerState, stats::Stats};

/// Minimum interval between two log messages about points that were not stored.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Why a point was not stored.
#[derive(Debug, thiserror::Error)]
enum SelfStatsError {
    /// The point is invalid.
    #[error(transparent)]
    Line(#[from] PutLineError),
    /// The engine rejected it, or the store failed.
    #[error("{0}")]
    Put(PutError),
}

impl From<PutError> for SelfStatsError {
    fn from(error: PutError) -> Self {
        Self::Put(error)
    }
}

/// Stores all statistics at intervals, until the task is aborted.
pub(crate) async fn store(state: Arc<ServerState>, every: Duration) {
    let log = LogLimit::new(LOG_INTERVAL);
    let mut named = HashSet::new();
    let mut tick = interval(every);
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tick.tick().await;
        let stats = Stats::collect(&state).await;
        let lines: Vec<String> = stats.lines().map(|line| format!("put {line}")).collect();
        let (stored, failure) = store_lines(&state, &lines, &mut named).await;
        let failed = lines.len().saturating_sub(stored);
        state.metrics.self_stats_stored.increment(stored as u64);
        state.metrics.self_stats_failed.increment(failed as u64);
        if failed > 0
            && let Some(suppressed) = log.admit()
        {
            let reason = failure.map_or_else(String::new, |failure| failure.to_string());
            warn!(
                failed,
                stored,
                reason,
                suppressed,
                "the daemon's own statistics were not all stored (tsd.stats.self)"
            );
        }
    }
}

/// Stores points. Returns how many are durable, and one of the failures. `named` are the metrics that have UIDs.
async fn store_lines(
    state: &ServerState,
    lines: &[String],
    named: &mut HashSet<String>,
) -> (usize, Option<SelfStatsError>) {
    let mut session = state.engine.ingest_session(NameText::Latin1);
    let mut failure = None;
    for line in lines {
        // The operator has asked for these metrics, so tsd.core.auto_create_metrics does not apply.
        let metric = line.split(' ').nth(1).unwrap_or_default();
        if !named.contains(metric)
            && state.engine.uids().get_or_assign(UidKind::Metric, metric).await.is_ok()
        {
            named.insert(metric.to_owned());
        }
        let put = PutLine::parse(line.as_bytes()).map_err(SelfStatsError::from).and_then(|point| {
            let sample = Sample {
                metric: point.metric,
                tags_raw: point.tags_raw,
                timestamp: point.timestamp.as_given(),
                content: SampleContent::Point(point.value),
                tag: 0,
            };
            put_one(&mut session, &sample, || Ok(point.tags(&state.rules)?))
        });
        if let Err(error) = put {
            failure = Some(error);
        }
    }
    let report = session.commit_within(Some(state.engine.config().ingest.store_deadline)).await;
    let failed = report.failures.into_iter().next().map(|failed| SelfStatsError::Put(failed.error));
    (report.stored, failure.or(failed))
}
