//! Operators, which turn the points of series into the points of a result.
//!
//! Two steps. **Per series**: value filters, downsampling, fill, rate ([`SeriesPipeline`]); this
//! runs in parallel and row by row, and its result does not depend on how the rows were split.
//! **Per group**: series are resampled onto the union of their times and aggregated in series order
//! ([`evaluate`]), since floating-point sums depend on the order.

mod accumulator;
mod aggregate;
mod bucketing;
mod calendar;
mod evaluate;
mod fill;
mod group;
mod hourly_buckets;
mod named;
mod rate;
mod resample;
mod series;
mod series_pipeline;
mod span_list;
mod summary_use;
mod time_union;

pub use aggregate::{AggregateInput, aggregate};
pub use evaluate::{GroupEvaluation, OutputSeries, evaluate};
pub use group::{GroupTags, SpanGroup, group_ordered, group_spans};
pub use named::NamedSeries;
pub use series::SeriesBuilder;
pub(crate) use series_pipeline::BucketCursor;
pub use series_pipeline::{DayBuckets, SeriesPipeline};
pub use span_list::{OrderedSpans, Span, SpanList};
pub use summary_use::NoSummaries;
pub(crate) use time_union::TimeUnion;
