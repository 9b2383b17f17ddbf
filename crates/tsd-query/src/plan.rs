//! Planning: what is read from the table for a validated sub query.
//!
//! A plan is plain data: key ranges, the pattern that row keys must match, the filters to check
//! after the scan, and how series are grouped. It can be printed and tested without a store.

mod explain;
mod ranges;
mod resolve;
mod selection;
mod sub_query_plan;

pub use ranges::{KeyRange, ScanWindow};
pub use resolve::{PlanSettings, ResolvedFilter, ResolvedSubQuery};
pub use selection::{SeriesSelection, TagSelection, TagUidCondition};
pub use sub_query_plan::{PostFilter, SubQueryPlan};
