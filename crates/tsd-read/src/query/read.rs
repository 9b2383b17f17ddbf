//! Second stage: reads rows or series, and builds the series that a plan selects.

pub(crate) mod block_rows;
pub(crate) mod cached_read;
pub(crate) mod conflict;
pub(crate) mod day_cache;
pub(crate) mod ended_days;
pub(crate) mod fan_out;
pub(crate) mod finishing;
pub(crate) mod merged_series;
pub(crate) mod name_filters;
pub(crate) mod row_decoder;
pub(crate) mod row_ranges;
pub(crate) mod row_source;
pub(crate) mod row_to_delete;
pub(crate) mod scan;
pub(crate) mod scan_job;
pub(crate) mod scan_range;
pub(crate) mod series_merge;
pub(crate) mod series_ranges;
pub(crate) mod series_state;
pub(crate) mod unreadable;
pub(crate) mod whole_series;
