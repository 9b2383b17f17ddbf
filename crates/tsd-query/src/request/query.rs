//! A validated query.

use jiff::tz::TimeZone;

use super::{DownsampleSpec, RateOptions};
use crate::{
    aggregator::Aggregator,
    filter::{TagFilter, ValueFilter},
};

/// A query that passed validation.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches of the request")]
pub struct Query {
    /// First millisecond of the query range.
    pub start_ms: i64,
    /// Last millisecond of the query range.
    pub end_ms: i64,
    /// Zone of calendar downsampling.
    pub zone: TimeZone,
    /// Distinct sub queries in request order.
    pub sub_queries: Vec<SubQuery>,
    /// Timestamps of the response are in milliseconds.
    pub ms_resolution: bool,
    /// The response has the TSUIDs of the series.
    pub show_tsuids: bool,
    /// The response repeats the sub query.
    pub show_query: bool,
    /// The response has statistics per series.
    pub show_stats: bool,
    /// The response has a summary of statistics.
    pub show_summary: bool,
    /// The response has no annotations.
    pub no_annotations: bool,
    /// The response has global annotations too.
    pub global_annotations: bool,
    /// Return all points that were read, also those outside the query range: graphs show them.
    pub all_points: bool,
    /// Delete the points that are read and in the query range.
    pub delete: bool,
    /// Count what `delete` would delete, and delete nothing.
    pub dry_run: bool,
    /// Ignore the byte limit, if the server allows it.
    pub override_byte_limit: bool,
    /// Ignore the data point limit, if the server allows it.
    pub override_data_point_limit: bool,
}

impl Query {
    /// First and last millisecond of a sub query: the query range, moved back by its offset.
    #[must_use]
    pub fn range_of(&self, sub: &SubQuery) -> (i64, i64) {
        let moved = |time: i64| time.saturating_sub(sub.offset_ms).max(0);
        (moved(self.start_ms), moved(self.end_ms))
    }
}

/// One sub query.
#[derive(Clone, Debug, PartialEq)]
pub struct SubQuery {
    /// Index in the request.
    pub index: usize,
    /// Aggregator of the series of a group.
    pub aggregator: Aggregator,
    /// The series to read.
    pub source: SeriesSource,
    /// Filters on tags, in request order. TSUID queries ignore them.
    pub filters: Vec<TagFilter>,
    /// The metric as given, also if TSUIDs select the series; the response repeats it.
    pub given_metric: Option<String>,
    /// Filters on point values, all of which must hold.
    pub value_filters: Vec<ValueFilter>,
    /// Downsampling of each series.
    pub downsample: Option<DownsampleSpec>,
    /// Rate of each series.
    pub rate: Option<RateOptions>,
    /// Rate options as given even without `rate`, to repeat them in the response.
    pub rate_options: Option<RateOptions>,
    /// Exclude series with tag keys that no filter names.
    pub explicit_tags: bool,
    /// Percentiles of histograms to compute.
    pub percentiles: Vec<f32>,
    /// Return the bucket counts of histograms.
    pub show_histogram_buckets: bool,
    /// Read pre-aggregated data.
    pub pre_aggregate: bool,
    /// Use of rollup tables.
    pub rollup_usage: Option<RollupUsage>,
    /// Milliseconds by which the read range precedes the query range; 0 except for series that an
    /// expression moves.
    pub offset_ms: i64,
}

/// The series that a sub query reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeriesSource {
    /// All series of a metric that pass the filters.
    Metric(String),
    /// Series by their hexadecimal TSUIDs.
    Tsuids(Vec<String>),
}

/// Rollup tables that a sub query may read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RollupUsage {
    /// Only raw data.
    Raw,
    /// Only the best table.
    #[default]
    NoFallback,
    /// The best table, then tables of shorter intervals, then raw data.
    Fallback,
    /// The best table, then raw data.
    FallbackRaw,
}

impl RollupUsage {
    /// The usage of that name, ignoring case; the default for unknown names.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        [Self::Raw, Self::Fallback, Self::FallbackRaw]
            .into_iter()
            .find(|usage| usage.name().eq_ignore_ascii_case(name))
            .unwrap_or_default()
    }

    /// Name in requests.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "ROLLUP_RAW",
            Self::NoFallback => "ROLLUP_NOFALLBACK",
            Self::Fallback => "ROLLUP_FALLBACK",
            Self::FallbackRaw => "ROLLUP_FALLBACK_RAW",
        }
    }
}

impl SubQuery {
    /// True if histograms are read instead of numbers.
    #[must_use]
    pub fn is_histogram(&self) -> bool {
        !self.percentiles.is_empty() || self.show_histogram_buckets
    }
}
