//! Filter push-down: the part of a plan's selection that the store can check.

use std::sync::Arc;

use tsd_query::{SeriesSelection, SubQueryPlan};
use tsd_storage::{RowFilter, SeriesSet, TagCondition, tag_pattern};

/// The filter of a plan's scans; `None` if every row of its ranges matches.
pub(crate) fn row_filter(plan: &SubQueryPlan) -> Option<RowFilter> {
    match &plan.selection {
        SeriesSelection::Tags(tags) => {
            if tags.conditions.is_empty() && !tags.explicit {
                return None;
            }
            let conditions = tags
                .conditions
                .iter()
                .map(|tag| TagCondition { tagk: tag.tagk, tagvs: tag.tagvs.clone() })
                .collect();
            let tags_start = plan.schema.tags_start();
            Some(tag_pattern(plan.schema, tags_start, conditions, tags.explicit))
        }
        SeriesSelection::Tsuids(tags) => Some(RowFilter::Series(Arc::new(SeriesSet {
            tags_start: plan.schema.tags_start(),
            tags: tags.clone(),
        }))),
    }
}
