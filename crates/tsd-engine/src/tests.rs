//! Tests of the whole engine: corrections on real stores, and reads of what was written.

mod corrections;
mod last_point;
mod meta_search;
mod query;
mod series_lookup;
