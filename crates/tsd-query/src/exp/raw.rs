//! The request before validation, as a body parser fills it in.

use crate::request::BodyFilter;

/// A request before validation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawExpQuery {
    /// `name`; unused.
    pub name: Option<String>,
    /// `time`
    pub time: Option<RawExpTime>,
    /// `filters`
    pub filters: Vec<RawExpFilter>,
    /// `metrics`
    pub metrics: Vec<RawExpMetric>,
    /// `expressions`
    pub expressions: Vec<RawExpExpression>,
    /// `outputs`
    pub outputs: Vec<RawExpOutput>,
    /// Names of lists that the request gives as `[]`; the echo repeats them.
    pub empty_lists: Vec<&'static str>,
}

/// `time`: the range and the settings of all metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawExpTime {
    /// Time expression; JSON numbers as their text.
    pub start: Option<String>,
    /// Time expression.
    pub end: Option<String>,
    /// Zone name.
    pub timezone: Option<String>,
    /// Aggregator of metrics without one.
    pub aggregator: Option<String>,
    /// `downsampler.interval`
    pub downsample_interval: Option<String>,
    /// `downsampler.aggregator`
    pub downsample_aggregator: Option<String>,
    /// `downsampler.fillPolicy`; validated but unused.
    pub downsample_fill: Option<RawExpFill>,
    /// True to compute rates.
    pub rate: bool,
}

/// An entry of `filters`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawExpFilter {
    /// Id that metrics refer to.
    pub id: Option<String>,
    /// Tag filters; value filters may be among them.
    pub tags: Vec<BodyFilter>,
    /// True to exclude series with other tag keys.
    pub explicit_tags: bool,
}

/// An entry of `metrics`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawExpMetric {
    /// Id that expressions and outputs refer to.
    pub id: Option<String>,
    /// Name of the metric.
    pub metric: Option<String>,
    /// Id of its entry in `filters`.
    pub filter: Option<String>,
    /// Aggregator.
    pub aggregator: Option<String>,
    /// Value used for a missing point.
    pub fill: Option<RawExpFill>,
    /// Validated but unused.
    pub time_offset: Option<String>,
    /// Filters on point values.
    pub value_filters: Vec<crate::request::BodyValueFilter>,
}

/// An entry of `expressions`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawExpExpression {
    /// Id that outputs and other expressions refer to.
    pub id: Option<String>,
    /// The expression.
    pub expr: Option<String>,
    /// How series are joined.
    pub join: Option<RawExpJoin>,
    /// Value used for a missing point.
    pub fill: Option<RawExpFill>,
}

/// `join` of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawExpJoin {
    /// `union` or `intersection`
    pub operator: Option<String>,
    /// Join by the tags of the metrics' filters only.
    pub use_query_tags: bool,
    /// Join by aggregated tags, too.
    pub include_agg_tags: bool,
}

impl Default for RawExpJoin {
    fn default() -> Self {
        Self { operator: None, use_query_tags: false, include_agg_tags: true }
    }
}

/// An entry of `outputs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawExpOutput {
    /// Id of a metric or expression.
    pub id: Option<String>,
    /// Alias in the response.
    pub alias: Option<String>,
}

/// `fillPolicy`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawExpFill {
    /// `none`, `nan`, `null`, `zero` or `scalar`
    pub policy: Option<String>,
    /// Value of `scalar`.
    pub value: Option<f64>,
}
