//! Filter push-down: the part of a plan's selection that the store can check.

use std::sync::Arc;

use tsd_query::{SeriesSelection, SubQueryPlan};
use tsd_storage::{RowFilter, SeriesSet, TagCondition, TagPattern};

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
                .map(|tag| TagCondition { tagk: tag.tagk.clone(), tagvs: tag.tagvs.clone() })
                .collect();
            Some(RowFilter::Tags(Arc::new(TagPattern {
                tags_start: plan.schema.tags_start(),
                tagk_width: plan.schema.tagk_width(),
                tagv_width: plan.schema.tagv_width(),
                conditions,
                explicit: tags.explicit,
            })))
        }
        SeriesSelection::Tsuids(tags) => Some(RowFilter::Series(Arc::new(SeriesSet {
            tags_start: plan.schema.tags_start(),
            tags: tags.clone(),
        }))),
    }
}
