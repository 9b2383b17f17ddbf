//! The scans of the rows that a sub query reads, for tools that show rows as they are stored.

use tsd_model::Family;
use tsd_query::{KeyRange, SubQuery, SubQueryPlan};
use tsd_storage::Scan;

use super::{engine::QueryEngine, failure::QueryFailure, plan::row_filter::row_filter};

/// Scans of the data table that read the rows of a sub query.
#[derive(Debug)]
pub struct RowScans {
    /// The plan. It selects among the rows of the scans.
    pub plan: SubQueryPlan,
    /// Name of the metric.
    pub metric: String,
    /// One scan per range of keys.
    pub scans: Vec<Scan>,
}

impl QueryEngine {
    /// The scans of a sub query in a range of epoch milliseconds; `None` if no row can match.
    pub(crate) async fn row_scans(
        &self,
        sub: &SubQuery,
        range_ms: (i64, i64),
    ) -> Result<Option<RowScans>, QueryFailure> {
        let settings = self.plan_settings();
        let resolved = self.resolve(sub, &settings).await?;
        let plan = SubQueryPlan::new(sub, &resolved, range_ms, &self.shared.schema, &settings);
        if plan.is_empty() {
            return Ok(None);
        }
        let metric = self.metric_name(self.metric_uid(&resolved)).await?;
        let scan = |range: &KeyRange| Scan {
            start: range.start.clone(),
            stop: range.stop.clone(),
            family: Some(Family::T),
            filter: row_filter(&plan),
            time_range_ms: self.cell_time_range(&plan.window),
            ..Scan::default()
        };
        let scans = plan.ranges.iter().map(scan).collect();
        Ok(Some(RowScans { plan, metric, scans }))
    }
}
