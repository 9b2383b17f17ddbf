//! The log of slow queries: one event with the cost of each query that took long.

use std::time::Duration;

use super::query_list::{CompletedQuery, QueryOutcome};
use crate::query::stats::SubQueryStats;

/// Most bytes of a query in the log.
const MAX_QUERY: usize = 16 << 10;

/// Logs a query. `took`: its own time, without waiting for a slow reader.
pub(super) fn log(completed: &CompletedQuery, took: Duration) {
    let CompletedQuery { client, stats, .. } = completed;
    let (outcome, failure) = match &completed.outcome {
        QueryOutcome::Abandoned => ("abandoned", None),
        QueryOutcome::Failed(failure) => ("failed", Some(failure.to_string())),
        QueryOutcome::NotSent => ("not sent", None),
        QueryOutcome::Sent => ("sent", None),
    };
    let sum = |count: fn(&SubQueryStats) -> u64| stats.sub_queries.iter().map(count).sum::<u64>();
    let scans: usize = stats.sub_queries.iter().map(|sub| sub.scanners.len()).sum();
    let query = client.query.get(..client.query.floor_char_boundary(MAX_QUERY));
    tracing::warn!(
        id = completed.id.0,
        user = client.user.as_deref(),
        remote = client.remote,
        outcome,
        failure,
        took_ms = millis(took),
        waited_ms = millis(stats.waited),
        cpu_ms = millis(stats.cpu),
        peak_memory_bytes = stats.peak_memory_bytes,
        running = completed.running,
        scans,
        rows = sum(|sub| sub.scanners.iter().map(|scan| scan.rows).sum()),
        summaries = sum(|sub| sub.scanners.iter().map(|scan| scan.summaries).sum()),
        bytes = sum(|sub| sub.scanners.iter().map(|scan| scan.bytes).sum()),
        points = sum(|sub| sub.read_points),
        emitted_points = sum(|sub| sub.emitted_points),
        query,
        "slow query"
    );
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
