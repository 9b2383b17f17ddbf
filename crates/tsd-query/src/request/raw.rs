//! The query before validation, as a body or URI parser fills it in.

use super::RateOptions;
use crate::{
    error::{BodyQueryError, QueryError},
    filter::{TagFilter, ValueFilter, add_tag, short_filter},
};

/// A query before validation.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches of the request")]
pub struct RawQuery {
    /// Time expression; JSON numbers as their text.
    pub start: Option<String>,
    /// Time expression; now by default.
    pub end: Option<String>,
    /// Time zone name.
    pub timezone: Option<String>,
    /// Sub queries; `None` if the body has no `queries`.
    pub queries: Option<Vec<RawSubQuery>>,
    /// Accepted but unused; repeated in the response.
    pub padding: bool,
    /// Return the plan instead of the data.
    pub explain: bool,
    /// Accept a partial result from damaged data. An extension of OpenTSDB's queries.
    pub allow_damaged: bool,
    /// All downsampling intervals are calendar intervals.
    pub use_calendar: bool,
    /// See [`super::Query::ms_resolution`].
    pub ms_resolution: bool,
    /// See [`super::Query::show_tsuids`].
    pub show_tsuids: bool,
    /// See [`super::Query::show_query`].
    pub show_query: bool,
    /// See [`super::Query::show_stats`].
    pub show_stats: bool,
    /// See [`super::Query::show_summary`].
    pub show_summary: bool,
    /// See [`super::Query::no_annotations`].
    pub no_annotations: bool,
    /// See [`super::Query::global_annotations`].
    pub global_annotations: bool,
    /// See [`super::Query::delete`].
    pub delete: bool,
    /// See [`super::Query::dry_run`].
    pub dry_run: bool,
    /// See [`super::Query::override_byte_limit`].
    pub override_byte_limit: bool,
    /// See [`super::Query::override_data_point_limit`].
    pub override_data_point_limit: bool,
}

/// A sub query before validation.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches of the request")]
pub struct RawSubQuery {
    /// Name of the aggregator.
    pub aggregator: Option<String>,
    /// Name of the metric.
    pub metric: Option<String>,
    /// Hexadecimal TSUIDs; they take precedence over the metric.
    pub tsuids: Vec<String>,
    /// Downsampling specification.
    pub downsample: Option<String>,
    /// True to compute rates.
    pub rate: bool,
    /// Options of the rates.
    pub rate_options: Option<RateOptions>,
    /// Filters on tags. Bodies use [`Self::set_filters`] and [`Self::set_tags`].
    pub filters: Vec<TagFilter>,
    /// Filters on point values.
    pub value_filters: Vec<ValueFilter>,
    /// See [`super::SubQuery::explicit_tags`].
    pub explicit_tags: bool,
    /// See [`super::SubQuery::percentiles`].
    pub percentiles: Vec<f32>,
    /// See [`super::SubQuery::show_histogram_buckets`].
    pub show_histogram_buckets: bool,
    /// See [`super::SubQuery::pre_aggregate`].
    pub pre_aggregate: bool,
    /// Name of the rollup usage.
    pub rollup_usage: Option<String>,
    /// Words between the colons of a URI that are not options. OpenTSDB ignores them.
    pub ignored_options: Vec<String>,
    /// See [`super::SubQuery::offset_ms`]. No request states it.
    pub offset_ms: i64,
}

/// An entry of `filters` in a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyFilter {
    /// `type`
    pub kind: Option<String>,
    /// `tagk`
    pub tagk: Option<String>,
    /// `filter`; numbers as their text.
    pub filter: Option<String>,
    /// `groupBy` or `group_by`
    pub group_by: bool,
}

/// An entry of `valueFilters` in a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyValueFilter {
    /// `type`
    pub kind: Option<String>,
    /// `filter`; numbers as their text.
    pub filter: Option<String>,
}

impl RawSubQuery {
    /// Sets the filters of a body's `filters`, which replace the filters of `tags` or of an earlier
    /// `filters`.
    ///
    /// An entry with the key `value` and the type of a value filter becomes a value filter.
    pub fn set_filters(&mut self, filters: &[BodyFilter]) -> Result<(), QueryError> {
        self.filters.clear();
        for entry in filters {
            let kind = entry.kind.as_deref().unwrap_or_default();
            let tagk = entry.tagk.as_deref().unwrap_or_default();
            let filter = entry.filter.as_deref().unwrap_or_default();
            if tagk == ValueFilter::KEY && ValueFilter::is_kind(kind) {
                self.value_filters.push(value_filter(kind, filter)?);
            } else {
                let filter = TagFilter::try_new(tagk, kind, filter, entry.group_by)
                    .map_err(BodyQueryError::Filter)?;
                self.filters.push(filter);
            }
        }
        Ok(())
    }

    /// Sets the filters of a body's `tags`, group-by filters in short notation, which replace the
    /// filters of `filters`.
    pub fn set_tags<'a>(
        &mut self,
        tags: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), QueryError> {
        self.filters.clear();
        for (tagk, expr) in tags {
            let filter = short_filter(tagk, expr, true).map_err(BodyQueryError::Filter)?;
            add_tag(&mut self.filters, filter);
        }
        Ok(())
    }

    /// Adds the filters of a body's `valueFilters` to the value filters of `filters`.
    pub fn add_value_filters(&mut self, filters: &[BodyValueFilter]) -> Result<(), QueryError> {
        for entry in filters {
            let kind = entry.kind.as_deref().unwrap_or_default();
            if !ValueFilter::is_kind(kind) {
                return Err(BodyQueryError::UnknownValueFilter(kind.to_owned()).into());
            }
            self.value_filters
                .push(value_filter(kind, entry.filter.as_deref().unwrap_or_default())?);
        }
        Ok(())
    }
}

fn value_filter(kind: &str, filter: &str) -> Result<ValueFilter, QueryError> {
    ValueFilter::try_new(kind, filter).map_err(QueryError::ValueFilter)
}
