//! Filters over tag values and over point values.

mod java_pattern;
mod notation;
mod tag_filter;
mod value_filter;
mod wildcard;

pub(crate) use notation::{BraceEntry, EntryError, add_tag, parse_brace_entry, short_filter};
pub use tag_filter::{FilterError, FilterKind, PatternError, TagFilter, compile_pattern};
pub(crate) use value_filter::retain_values;
pub use value_filter::{Comparison, ValueFilter, ValueFilterError};
pub use wildcard::Wildcard;
