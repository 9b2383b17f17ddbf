//! Planning: from a checked sub query to what is read from the table.
//!
//! A plan is data. It names key ranges, the pattern that row keys must satisfy, what is left to
//! check afterwards and how series are grouped; it can be printed and tested without a store.

mod explain;
mod ranges;
mod resolve;
mod selection;
mod sub_query_plan;

pub use ranges::{KeyRange, ScanWindow};
pub use resolve::{PlanSettings, ResolvedFilter, ResolvedSubQuery};
pub use selection::{SeriesSelection, TagSelection, TagUidCondition};
pub use sub_query_plan::{PostFilter, SubQueryPlan};
