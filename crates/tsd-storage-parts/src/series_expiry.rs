//! Selects the series that a merge leaves out because their retention has passed.

use std::sync::Arc;

use tsd_storage::{Cutoffs, Retention, first_base};

use crate::layout::PartLayout;

/// Determines which series of a span are expired.
#[derive(Clone, Debug)]
pub(crate) struct ExpiredSeries {
    pub(crate) retention: Arc<Retention>,
    pub(crate) cutoffs: Arc<Cutoffs>,
    pub(crate) row_secs: u32,
    /// End of the span.
    pub(crate) end: u32,
}

impl ExpiredSeries {
    /// True if all rows of the series in the span are expired.
    pub(crate) fn contains(&self, series: &[u8]) -> bool {
        let cutoff = self.cutoffs.of_metric(self.retention.metric_of(series));
        // Rows that are expired under any rule are dropped with their span, after the floor was recorded.
        PartLayout::has_time(series)
            && cutoff > self.cutoffs.oldest()
            && first_base(cutoff, self.row_secs) >= self.end
    }
}
