//! Plans which rows of the table a validated sub query reads.
//!
//! A plan is plain data: key ranges, the pattern of row keys, the filters to check after the scan,
//! and the grouping of series. It can be printed and tested without a store.

mod explain;
mod ranges;
mod resolve;
mod selection;
mod sub_query_plan;

pub use ranges::{KeyRange, ScanWindow};
pub use resolve::{PlanSettings, ResolvedFilter, ResolvedSubQuery};
pub use selection::{SeriesSelection, TagSelection, TagUidCondition};
pub use sub_query_plan::{PostFilter, SubQueryPlan};
