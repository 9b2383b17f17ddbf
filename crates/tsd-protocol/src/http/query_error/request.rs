//! Responses to requests that are not queries.

use tsd_query::{
    BodyQueryError, RateError, RawQuery, RequestError, TagEntryError, TimeError, TimeProblem,
    UriError,
};

use super::{
    dump::invalid,
    java_texts::{NULL_POINTER, not_a_number},
};
use crate::ApiError;

pub(super) fn uri_error(error: &UriError) -> ApiError {
    let parts = |parameter: &str, text: &str, how: &str| {
        let message = format!("Invalid parameter {parameter}={text} ({how} :-separated parts)");
        ApiError::new(400, message)
    };
    match error {
        UriError::Empty => ApiError::new(400, "The query string was empty"),
        UriError::TooFewParts { parameter, text } => parts(parameter, text, "not enough"),
        UriError::TooManyParts { parameter, text } => parts(parameter, text, "too many"),
        UriError::EmptyOption => ApiError::internal("String index out of range: 0"),
        UriError::Percentiles(option) => {
            ApiError::new(400, format!("Malformated percentile query paramater: {option}"))
        }
        UriError::Percentile(text) => ApiError::internal(not_a_number(text)),
        UriError::OpenBrace(text) => {
            ApiError::internal(format!("Missing '}}' at the end of: {text}"))
        }
        UriError::Tag { group_by, entry, problem } => {
            let what = if *group_by { "tag" } else { "filter" };
            let why = match problem {
                TagEntryError::NoPair => format!("invalid tag: {entry}"),
                TagEntryError::Filter(error) => error.to_string(),
            };
            ApiError::internal(format!("When parsing {what} '{entry}': {why}"))
        }
    }
}

pub(super) fn body_error(error: &BodyQueryError) -> ApiError {
    ApiError::bad_json(match error {
        BodyQueryError::Filter(error) => error.to_string(),
        BodyQueryError::UnknownValueFilter(kind) => {
            format!("Could not find a value filter of the type: {kind}")
        }
        BodyQueryError::UnknownRateOption(name) => {
            format!("Unrecognized field \"{name}\" of the rate options")
        }
    })
}

pub(super) fn rate_error(error: &RateError) -> ApiError {
    let not_a_number = |what: &str, text: &str| {
        format!("{what} value of counter was not a number, received '{text}'")
    };
    let message = match error {
        RateError::TooShort(text) => format!("Invalid rate options specification: {text}"),
        RateError::TooManyParts(parts) => format!(
            "Incorrect number of values in rate options specification, must be counter[,counter \
             max value,reset value], recieved: {parts} parts"
        ),
        RateError::CounterMax(text) => not_a_number("Max", text),
        RateError::ResetValue(text) => not_a_number("Reset", text),
    };
    ApiError::new(400, message)
}

pub(crate) fn time_text(error: &TimeError) -> String {
    match error {
        TimeError::Invalid { text, problem } => {
            format!("Invalid time: {text}. {}", problem_text(text, problem))
        }
        TimeError::Duration(error) => error.to_string(),
        TimeError::DateLength(text) => format!("Invalid absolute date: {text}"),
        TimeError::Date(text) => format!("Invalid date: {text}. Unparseable date: \"{text}\""),
        TimeError::Zone(name) => format!("Invalid timezone name: {name}"),
    }
}

fn problem_text(text: &str, problem: &TimeProblem) -> String {
    match problem {
        TimeProblem::TooLong(digits) => format!("Value too long: {digits}"),
        TimeProblem::OnlySign => format!("Just a sign, no value: {text}"),
        TimeProblem::Character(c) => format!("Invalid character '{c}' in {text}"),
        TimeProblem::Overflow => format!("Overflow in {text}"),
        TimeProblem::Underflow => format!("Underflow in {text}"),
        TimeProblem::Negative => "Negative timestamps are not supported.".to_owned(),
        TimeProblem::Fraction => "Millisecond timestamps must be in the format <seconds>.<ms> \
                                  where the milliseconds are limited to 3 digits"
            .to_owned(),
    }
}

pub(super) fn request_error(error: &RequestError, raw: Option<&RawQuery>) -> ApiError {
    let message = match error {
        RequestError::AbsentQueries => return ApiError::internal(NULL_POINTER),
        RequestError::Timestamp(time) => {
            return ApiError::internal(format!("Invalid timestamp: {time}"));
        }
        RequestError::HistogramValueFilter => {
            return ApiError::new(400, "Value filters cannot be used with histograms");
        }
        RequestError::NoQueries => "Missing queries".to_owned(),
        RequestError::NoStart => "Missing start time".to_owned(),
        RequestError::EndBeforeStart { start_ms, end_ms } => format!(
            "End time [{end_ms}] must be greater than or equal to the start time [{start_ms}]"
        ),
        RequestError::UnknownZone => "The timezone specification could not be found".to_owned(),
        RequestError::NoAggregator => "Missing the aggregation function".to_owned(),
        RequestError::UnknownAggregator(name) => format!("No such aggregation function: {name}"),
        RequestError::NoSource => "Missing the metric or tsuids, provide at least one".to_owned(),
        RequestError::Downsample(error) => error.to_string(),
        RequestError::HistogramAggregator => {
            "Only NONE or SUM aggregation function supported for histogram query".to_owned()
        }
        RequestError::HistogramDownsample => {
            "Only SUM downsampling aggregation supported for histogram query".to_owned()
        }
        RequestError::HistogramPercentile(percentile) => {
            format!("Invalid percentile parameters: {percentile}")
        }
    };
    invalid(message, raw)
}
