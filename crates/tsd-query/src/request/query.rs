//! A checked query: everything in it is known to be meaningful.

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
    /// First millisecond of the answer.
    pub start_ms: i64,
    /// Last millisecond of the answer.
    pub end_ms: i64,
    /// Zone of calendar downsampling.
    pub zone: TimeZone,
    /// Sub queries in request order, each once.
    pub sub_queries: Vec<SubQuery>,
    /// Timestamps of the answer are in milliseconds.
    pub ms_resolution: bool,
    /// The answer names the series' TSUIDs.
    pub show_tsuids: bool,
    /// The answer repeats the sub query.
    pub show_query: bool,
    /// The answer has statistics per series.
    pub show_stats: bool,
    /// The answer ends with a summary of statistics.
    pub show_summary: bool,
    /// No annotations at all.
    pub no_annotations: bool,
    /// Global annotations too.
    pub global_annotations: bool,
    /// Delete the rows that are read.
    pub delete: bool,
    /// Asks to lift the byte limit.
    pub override_byte_limit: bool,
    /// Asks to lift the data point limit.
    pub override_data_point_limit: bool,
}

/// One sub query.
#[derive(Clone, Debug, PartialEq)]
pub struct SubQuery {
    /// Place in the request.
    pub index: usize,
    /// What makes one series of a group.
    pub aggregator: Aggregator,
    /// What is read.
    pub source: SeriesSource,
    /// Filters on tags, in request order. TSUID queries ignore them.
    pub filters: Vec<TagFilter>,
    /// Filters on point values, all of which must hold.
    pub value_filters: Vec<ValueFilter>,
    /// How each series is thinned first.
    pub downsample: Option<DownsampleSpec>,
    /// Whether and how rates are taken of each series.
    pub rate: Option<RateOptions>,
    /// Rate options as given even where `rate` is off; for the echo.
    pub rate_options: Option<RateOptions>,
    /// Series with other tag keys than those filtered on are left out.
    pub explicit_tags: bool,
    /// Percentiles asked of histograms.
    pub percentiles: Vec<f32>,
    /// Bucket counts asked of histograms.
    pub show_histogram_buckets: bool,
    /// Read pre-aggregated data.
    pub pre_aggregate: bool,
    /// Which rollup tables may be read.
    pub rollup_usage: RollupUsage,
}

/// What a sub query reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeriesSource {
    /// All series of a metric that pass the filters.
    Metric(String),
    /// These series, as hexadecimal TSUIDs.
    Tsuids(Vec<String>),
}

/// Which rollup tables a sub query may read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RollupUsage {
    /// None: raw data.
    Raw,
    /// The best one or nothing.
    #[default]
    NoFallback,
    /// The best one, else the next shorter ones, down to raw data.
    Fallback,
    /// The best one, else raw data.
    FallbackRaw,
}

impl RollupUsage {
    /// The usage of that name in any case; the default for unknown names.
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
    /// Whether histograms are read instead of numbers.
    #[must_use]
    pub fn is_histogram(&self) -> bool {
        !self.percentiles.is_empty() || self.show_histogram_buckets
    }
}
