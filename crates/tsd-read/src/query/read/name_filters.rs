//! Applies filters on the names of tag values to series.

use std::time::Instant;

use tsd_model::Uid;

use super::scan_job::ScanJob;
use crate::query::{failure::QueryFailure, run::context::QueryContext, stats::ScannerStats};

/// Clears the entries of `admitted` whose series a filter on names rejects; `tags_of` returns the tags of an entry.
/// Looks up each value once per filter.
pub(crate) async fn apply_name_filters<'t>(
    job: &ScanJob,
    stats: &mut ScannerStats,
    admitted: &mut [bool],
    tags_of: impl Fn(usize) -> Option<&'t [u8]> + Send,
) -> Result<(), QueryFailure> {
    let plan = &job.plan;
    for filter in &plan.post_filters {
        let value = |index: usize| plan.value_of(tags_of(index)?, filter.tagk?).map(Uid::number_of);
        let numbers = admitted.iter().enumerate().filter(|(_, admitted)| **admitted);
        let mut values: Vec<u64> = numbers.filter_map(|(index, _)| value(index)).collect();
        values.sort_unstable();
        values.dedup();
        let requested = Instant::now();
        let context: &QueryContext = job.budget.context();
        let divided = job.engine.divide_values(&filter.filter, &values, Some(context)).await?;
        let (mut accepted, _) = divided;
        stats.uid_to_string += requested.elapsed();
        stats.uid_pairs_resolved += values.len() as u64;
        accepted.sort_unstable();
        for (index, admitted) in admitted.iter_mut().enumerate() {
            *admitted = *admitted
                && match value(index) {
                    Some(value) => accepted.binary_search(&value).is_ok(),
                    // Only series that a query names by TSUID may lack the key of a filter.
                    None => filter.filter.accepts_absence(),
                };
        }
    }
    Ok(())
}
