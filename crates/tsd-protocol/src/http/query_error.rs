//! OpenTSDB's responses to queries without a result: status, message and details of each cause.
//!
//! Dashboards show these texts and some clients match on them, so they are part of the interface.

mod dump;
mod expression;
mod fault;
mod request;

use jiff::Timestamp;
use tsd_model::{UidKind, java_byte_list};
use tsd_query::{
    DataError, LimitError, LookupStep, MissingName, PointConflict, QueryError, RawQuery,
    RollupError, SeriesError,
};

use self::{
    expression::{exp_error, gexp_error},
    fault::RequestFault,
    request::{body_error, rate_error, request_error, uri_error},
};
use crate::ApiError;

pub(crate) use self::request::time_text;

/// OpenTSDB's advice to clients whose query is too large.
const ADVICE: &str = "Please try filtering using more tags or decrease your time range.";

/// Returns the API error of a query error; its status is always a client error. `raw` is the query, if
/// it was parsed; some errors have it in their details.
pub fn query_error(error: &QueryError, raw: Option<&RawQuery>) -> ApiError {
    fault_of(error, raw).into()
}

fn fault_of(error: &QueryError, raw: Option<&RawQuery>) -> RequestFault {
    match error {
        QueryError::Uri(error) => uri_error(error),
        QueryError::Body(error) => body_error(error),
        QueryError::Rate(error) => rate_error(error),
        QueryError::ValueFilter(error) => RequestFault::bad_request(error.to_string()),
        QueryError::Time(error) => RequestFault::invalid(time_text(error), raw),
        QueryError::Request(error) => request_error(error, raw),
        QueryError::Exp(error) => exp_error(error, |error| fault_of(error, None).message),
        QueryError::Gexp(error) => gexp_error(error),
        QueryError::Series(error) => series_error(error),
        QueryError::Rollup(error) => RequestFault::wrapped(rollup_text(error)),
        QueryError::Data(error) => data_error(error),
        QueryError::Limit(error) => RequestFault::too_large(limit_text(error)),
        QueryError::Duplicate { endpoint } => RequestFault::bad_request(format!(
            "Query is already executing for endpoint: {endpoint}"
        )),
        QueryError::CancelledByOperator => RequestFault::bad_request(CANCELLED_BY_OPERATOR),
        QueryError::Ended => RequestFault::bad_request("the query was cancelled"),
    }
}

impl From<QueryError> for ApiError {
    /// Maps an error without the query in its details.
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

/// Message for a query that cannot get memory because other requests use it.
pub(super) fn no_memory(limit_mb: u64, key: &str) -> String {
    format!(
        "Sorry, running requests use all of the {limit_mb}MB of memory ({key}). Please try again \
         later, or filter using more tags or decrease your time range."
    )
}

fn series_error(error: &SeriesError) -> RequestFault {
    let failed = |text: &str| RequestFault::wrapped(text);
    match error {
        SeriesError::NoSuchName { kind, name } => failed(&no_such_name(*kind, name)),
        SeriesError::NoSuchUid { kind, uid } => {
            failed(&format!("No such unique ID for '{kind}': {}", java_byte_list(uid)))
        }
        SeriesError::EmptyTagValue => failed("Missing UID name"),
        SeriesError::MixedMetrics { first, other } => RequestFault::bad_request(format!(
            "One or more TSUIDs did not share the same metric [{first}] [{other}]"
        )),
        SeriesError::TsuidLength(text) => {
            RequestFault::bad_request(format!("TSUID has a wrong length: {text}"))
        }
        SeriesError::TsuidDigits(text) => {
            RequestFault::bad_request(format!("TSUID is not hexadecimal: {text}"))
        }
        SeriesError::TsuidWithoutTags => failed("UID was empty"),
        SeriesError::TsuidIncomplete => {
            failed("TSUID must not be null and must have a metric and at least one tag pair")
        }
        SeriesError::MissingTags => failed("Tags cannot be null or empty when getting a TSUID"),
        SeriesError::Key(error) => RequestFault::bad_request(error.to_string()),
        SeriesError::EmptyLookupTag => RequestFault::bad_request("Unable to parse query")
            .with_details("A tag needs a key or a value"),
        SeriesError::NotFound { lookup, missing } => {
            let message = match lookup {
                LookupStep::Names => UNRESOLVED_UIDS,
                LookupStep::Tsuids => "Unable to resolve one or more TSUIDs",
            };
            RequestFault::not_found(message).with_details(missing_name(missing))
        }
        SeriesError::NoSuchMetric(name) => {
            RequestFault::not_found(no_such_name(UidKind::Metric, name))
        }
        SeriesError::NoSeriesIndex => RequestFault::bad_request(
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
        RollupError::NotConfigured => {
            "Pre-aggregates need rollups, and none are configured (tsd.rollups.enable)".to_owned()
        }
        RollupError::NoCells(function) => format!("No ID found mapping to aggregator: {function}"),
        RollupError::Deviation => {
            "Standard deviation over rolled up data is not supported".to_owned()
        }
    }
}

fn data_error(error: &DataError) -> RequestFault {
    match error {
        DataError::Row(error) => RequestFault::wrapped(error.to_string()),
        DataError::Conflict(conflict) => conflict_fault(conflict),
        DataError::Block(error) => RequestFault::wrapped(error.to_string()),
        DataError::Histogram(error) => RequestFault::wrapped(error.to_string()),
        DataError::NoHistograms(name) => RequestFault::wrapped(format!(
            "{name} has numbers and no histograms in this range. Percentiles and buckets need histograms; for \
             numbers use an aggregator such as p99"
        )),
        DataError::Infinite { negative } => {
            let sign = if *negative { "-" } else { "" };
            RequestFault::wrapped(format!("Got Infinity: {sign}Infinity"))
        }
        DataError::NoFillValue => RequestFault::wrapped("unhandled fill policy"),
    }
}

/// Names the series and the time, and in the details both cells, so that an operator finds them. OpenTSDB's message
/// has a row key in bytes.
fn conflict_fault(conflict: &PointConflict) -> RequestFault {
    let PointConflict { metric, tags, time_ms, points, .. } = conflict;
    let tags: Vec<String> = tags.iter().map(|(tagk, tagv)| format!("{tagk}={tagv}")).collect();
    let time = match Timestamp::from_millisecond(*time_ms) {
        Ok(time) => format!("{time} ({time_ms} ms)"),
        Err(_) => format!("{time_ms} ms"),
    };
    let message = format!(
        "Duplicate timestamp {time} of metric {metric}, tags {{{}}}: its cells have different values; set \
         tsd.storage.fix_duplicates=true to read the newest one, or run Fsck",
        tags.join(", ")
    );
    let cells: Vec<String> = points.iter().map(ToString::to_string).collect();
    let details = if cells.is_empty() {
        message.clone()
    } else {
        format!("{message}; cells {}", cells.join(" and "))
    };
    RequestFault::bad_request(message).with_details(details)
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
        LimitError::ClientBytes { limit, key } => format!(
            "Sorry, your query reads more than your limit of {limit} bytes from storage ({key}). \
             {ADVICE}"
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
