//! The reads of a sub query in the order to try: table, cells and key ranges of each.

use tsd_query::{
    QueryError, ReadAttempt, ReadSource, ReadStrategy, ResolvedSubQuery, RollupSettings, SubQuery,
    SubQueryPlan, choose_reads,
};
use tsd_storage::Table;

use super::{row_content::RowContent, row_keys::retain_series_buckets};
use crate::query::engine::QueryEngine;

/// The reads of a sub query in the order to try. True if the sub query is split into exactly two reads.
pub(crate) fn read_attempts(
    engine: &QueryEngine,
    sub: &SubQuery,
    range: (i64, i64),
) -> Result<(Vec<ReadAttempt>, bool), QueryError> {
    let mut settings =
        RollupSettings { now_ms: engine.shared.clock.now_ms(), ..Default::default() };
    if let Some(rollups) = &engine.shared.rollups {
        settings.config = Some(&rollups.config);
        settings.aggregate_tag_key = &rollups.aggregate_tag_key;
        settings.raw_tag_value = &rollups.raw_tag_value;
        settings.split_queries = rollups.split_queries;
    }
    Ok(match choose_reads(sub, range, &settings)? {
        ReadStrategy::FirstWithSeries(attempts) => (attempts, false),
        ReadStrategy::Split { rollup, raw } => (vec![*rollup, *raw], true),
    })
}

impl QueryEngine {
    /// Table and row content of a read.
    pub(crate) fn source(&self, attempt: &ReadAttempt) -> (Table, RowContent) {
        match &attempt.source {
            ReadSource::Points { table } => {
                let table =
                    table.as_deref().map_or_else(|| self.shared.tables.data.clone(), Table::new);
                let histograms = attempt.sub.is_histogram();
                (table, if histograms { RowContent::Histograms } else { RowContent::Points })
            }
            ReadSource::Rollup { table, interval, cells } => {
                let content = RowContent::Rollup { interval: interval.clone(), cells: *cells };
                (Table::new(table), content)
            }
        }
    }

    /// The plan of a read, restricted to the salt buckets that can contain its series.
    pub(crate) fn plan_of(
        &self,
        attempt: &ReadAttempt,
        resolved: &ResolvedSubQuery,
    ) -> SubQueryPlan {
        let ReadAttempt { sub, window, .. } = attempt;
        let settings = self.plan_settings();
        let mut plan =
            SubQueryPlan::with_window(sub, resolved, *window, &self.shared.schema, &settings);
        if self.shared.config.series_keep_bucket {
            retain_series_buckets(&mut plan);
        }
        plan
    }
}
