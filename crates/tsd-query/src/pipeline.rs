//! From the points of series to the points of an answer.
//!
//! Two steps. **Per series**: value filters, downsampling, fill, rate ([`SeriesPipeline`]); this
//! runs wherever the series' rows arrive, in parallel and row by row, and what a series becomes does
//! not depend on how its rows were cut up. **Per group**: series are brought onto the union of
//! their times and aggregated in series order ([`evaluate`]), since floating sums depend on it.

mod accumulator;
mod aggregate;
mod calendar;
mod evaluate;
mod fill;
mod group;
mod named;
mod rate;
mod resample;
mod series;
mod series_pipeline;
mod time_union;

pub use aggregate::{AggregateInput, aggregate, aggregate_with};
pub use evaluate::{OutputSeries, evaluate};
pub use group::{GroupTags, SpanGroup, group_spans, sort_spans};
pub use named::NamedSeries;
pub use series::{SeriesBuilder, Span};
pub(crate) use series_pipeline::BucketChain;
pub use series_pipeline::SeriesPipeline;
pub(crate) use time_union::TimeUnion;
