//! The request as it was written: what a body parser fills in.

use crate::request::BodyFilter;

/// A request before validation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawExpQuery {
    /// `name`, not used.
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
}

/// `time`: the range and what holds for all metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawExpTime {
    /// Time expression; JSON numbers as their text.
    pub start: Option<String>,
    /// Time expression.
    pub end: Option<String>,
    /// Zone name.
    pub timezone: Option<String>,
    /// Aggregator of metrics that name none.
    pub aggregator: Option<String>,
    /// `downsampler.interval`
    pub downsample_interval: Option<String>,
    /// `downsampler.aggregator`
    pub downsample_aggregator: Option<String>,
    /// `downsampler.fillPolicy`, checked and not used.
    pub downsample_fill: Option<RawExpFill>,
    /// Whether rates are taken.
    pub rate: bool,
}

/// An entry of `filters`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawExpFilter {
    /// What metrics refer to it by.
    pub id: Option<String>,
    /// Filters on tags; value filters may stand among them.
    pub tags: Vec<BodyFilter>,
    /// Whether series with other tag keys are left out.
    pub explicit_tags: bool,
}

/// An entry of `metrics`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawExpMetric {
    /// What expressions and outputs refer to it by.
    pub id: Option<String>,
    /// Name of the metric.
    pub metric: Option<String>,
    /// Id of its filter.
    pub filter: Option<String>,
    /// Aggregator.
    pub aggregator: Option<String>,
    /// What stands for a missing point.
    pub fill: Option<RawExpFill>,
    /// Checked and not used.
    pub time_offset: Option<String>,
    /// Filters on point values.
    pub value_filters: Vec<crate::request::BodyValueFilter>,
}

/// An entry of `expressions`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawExpExpression {
    /// What outputs and other expressions refer to it by.
    pub id: Option<String>,
    /// The expression.
    pub expr: Option<String>,
    /// How series are joined.
    pub join: Option<RawExpJoin>,
    /// What stands for a missing point.
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
    /// Name shown beside the id.
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
