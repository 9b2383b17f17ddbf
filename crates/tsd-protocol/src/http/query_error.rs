//! OpenTSDB's responses to queries without a result: status, message and details of each cause.
//!
//! Dashboards show these texts and some clients match on them, so they are part of the interface.

mod dump;
mod expression;
mod java_texts;
mod request;

use tsd_model::{UidKind, java_byte_list};
use tsd_query::{
    DataError, LimitError, LookupStep, MissingName, PointConflict, QueryError, RawQuery,
    RollupError, SeriesError,
};

use self::{
    dump::invalid,
    expression::{exp_error, gexp_error},
    java_texts::{NULL_POINTER, not_a_number},
    request::{body_error, rate_error, request_error, uri_error},
};
use crate::ApiError;

pub(crate) use self::request::time_text;

/// OpenTSDB's advice to clients whose query is too large.
const ADVICE: &str = "Please try filtering using more tags or decrease your time range.";

/// Returns the API error of a query error. `raw` is the query, if it was parsed; some errors have it in
/// their details.
pub fn query_error(error: &QueryError, raw: Option<&RawQuery>) -> ApiError {
    match error {
        QueryError::Uri(error) => uri_error(error),
        QueryError::Body(error) => body_error(error),
        QueryError::Rate(error) => rate_error(error),
        QueryError::ValueFilter(error) => ApiError::new(400, error.to_string()),
        QueryError::Time(error) => invalid(time_text(error), raw),
        QueryError::Request(error) => request_error(error, raw),
        QueryError::Exp(error) => exp_error(error, |error| query_error(error, None).message),
        QueryError::Gexp(error) => gexp_error(error),
        QueryError::Series(error) => series_error(error),
        QueryError::Rollup(error) => ApiError::wrapped(400, rollup_text(error)),
        QueryError::Data(error) => data_error(error),
        QueryError::Limit(error) => ApiError::new(413, limit_text(error)),
        QueryError::Duplicate { endpoint } => {
            ApiError::internal(format!("Query is already executing for endpoint: {endpoint}"))
        }
        QueryError::CancelledByOperator => ApiError::new(400, CANCELLED_BY_OPERATOR),
        QueryError::Ended => ApiError::internal("the query was cancelled"),
    }
}

impl From<QueryError> for ApiError {
    /// The error of a query that is not shown in the details.
    fn from(error: QueryError) -> Self {
        query_error(&error, None)
    }
}

/// Message for a query that an operator cancelled.
pub(super) const CANCELLED_BY_OPERATOR: &str = "The query was cancelled by an operator";

/// Message for a name without a UID.
pub(super) fn no_such_name(kind: UidKind, name: &str) -> String {
    format!("No such name for '{kind}': '{name}'")
}

/// Message for a query that finds no memory, of which others have the rest.
pub(super) fn no_memory(limit_mb: u64, key: &str) -> String {
    format!(
        "Sorry, what runs now uses all of the {limit_mb}MB of memory ({key}). Please try again \
         later, or filter using more tags or decrease your time range."
    )
}

fn series_error(error: &SeriesError) -> ApiError {
    let failed = |text: &str| ApiError::wrapped(400, text);
    match error {
        SeriesError::NoSuchName { kind, name } => ApiError::wrapped(400, no_such_name(*kind, name)),
        SeriesError::NoSuchUid { kind, uid } => ApiError::wrapped(
            400,
            format!("No such unique ID for '{kind}': {}", java_byte_list(uid)),
        ),
        SeriesError::EmptyTagValue => failed("Missing UID name"),
        SeriesError::MixedMetrics { first, other } => ApiError::internal(format!(
            "One or more TSUIDs did not share the same metric [{first}] [{other}]"
        )),
        SeriesError::TsuidLength(text) => {
            ApiError::internal(format!("TSUID has a wrong length: {text}"))
        }
        SeriesError::TsuidDigits(text) => ApiError::internal(not_a_number(text)),
        SeriesError::TsuidWithoutTags => failed("UID was empty"),
        SeriesError::TsuidIncomplete => {
            failed("TSUID must not be null and must have a metric and at least one tag pair")
        }
        SeriesError::MissingTags => failed("Tags cannot be null or empty when getting a TSUID"),
        SeriesError::Key(error) => ApiError::internal(error.to_string()),
        SeriesError::EmptyLookupTag => {
            ApiError::new(400, "Unable to parse query").with_details("A tag needs a key or a value")
        }
        SeriesError::NotFound { lookup, missing } => {
            let message = match lookup {
                LookupStep::Names => UNRESOLVED_UIDS,
                LookupStep::Tsuids => "Unable to resolve one or more TSUIDs",
            };
            ApiError::new(404, message).with_details(missing_name(missing))
        }
        SeriesError::NoSuchMetric(name) => ApiError::new(404, no_such_name(UidKind::Metric, name)),
        SeriesError::NoSeriesIndex => ApiError::new(
            400,
            "The store has no series index; with HBase tsd.storage.hbase.series_index adds one",
        ),
    }
}

/// Message for a series look-up with an unknown name.
pub(super) const UNRESOLVED_UIDS: &str = "Unable to resolve one or more UIDs";

fn missing_name(missing: &MissingName) -> String {
    match missing {
        MissingName::Name { kind, name } => no_such_name(*kind, name),
        MissingName::Uid { kind, uid } => format!("no such unique ID for '{kind}': {uid:?}"),
    }
}

fn rollup_text(error: &RollupError) -> String {
    match error {
        RollupError::NotConfigured => NULL_POINTER.to_owned(),
        RollupError::NoCells(function) => format!("No ID found mapping to aggregator: {function}"),
        RollupError::Deviation => {
            "Standard deviation over rolled up data is not supported".to_owned()
        }
    }
}

fn data_error(error: &DataError) -> ApiError {
    match error {
        DataError::Row(error) => ApiError::wrapped(400, error.to_string()),
        DataError::Conflict(conflict) => {
            ApiError::new(400, conflict.error.to_string()).with_details(conflict_details(conflict))
        }
        DataError::Block(error) => ApiError::wrapped(400, error.to_string()),
        DataError::Histogram(error) => ApiError::wrapped(400, error.to_string()),
        DataError::Infinite { negative } => {
            let sign = if *negative { "-" } else { "" };
            ApiError::wrapped(400, format!("Got Infinity: {sign}Infinity"))
        }
        DataError::NoFillValue => ApiError::wrapped(400, "unhandled fill policy"),
    }
}

/// Names the series and the instant, and both cells, so that an operator finds them; OpenTSDB's message
/// has a row key in bytes.
fn conflict_details(conflict: &PointConflict) -> String {
    let PointConflict { error, metric, tags, time_ms, points } = conflict;
    let tags: Vec<String> = tags.iter().map(|(tagk, tagv)| format!("{tagk}={tagv}")).collect();
    let cells: Vec<String> = points.iter().map(ToString::to_string).collect();
    format!(
        "{error}: metric {metric}, tags {{{}}}, time {time_ms} ms, cells {}",
        tags.join(", "),
        cells.join(" and ")
    )
}

fn limit_text(error: &LimitError) -> String {
    match error {
        LimitError::DataPoints { limit } => format!(
            "Sorry, you have attempted to fetch more than our limit of {limit} data points. \
             {ADVICE}"
        ),
        LimitError::Bytes { limit_mb } => format!(
            "Sorry, you have attempted to fetch more than our maximum amount of {limit_mb}MB from \
             storage. {ADVICE}"
        ),
        LimitError::Memory { limit_mb, key } => format!(
            "Sorry, your query needs more than our maximum of {limit_mb}MB of memory ({key}). \
             {ADVICE}"
        ),
        LimitError::TotalMemory { limit_mb, key } => no_memory(*limit_mb, key),
        LimitError::Time { limit, elapsed } => format!(
            "Sorry, your query timed out. Time limit: {} ms, fetch time: {} ms. {ADVICE}",
            limit.as_millis(),
            elapsed.as_millis()
        ),
        LimitError::SubQueries { count, limit } => format!(
            "Sorry, your query has {count} sub queries and our limit is {limit}. Please split it \
             into several queries."
        ),
        LimitError::LookupRows { limit } => format!(
            "Sorry, more than {limit} rows were read to find the series. Please name a metric and more \
             tags, or give a time range (start, end), or use a series index."
        ),
        LimitError::MovingAverage => "The moving average window has too many points".to_owned(),
    }
}

#[cfg(test)]
mod tests;
