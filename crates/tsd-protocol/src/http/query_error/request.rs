//! Responses to requests that are not valid queries.

use tsd_query::{
    Aggregator, BodyQueryError, RateError, RawQuery, RequestError, TagEntryError, TimeError,
    TimeProblem, UriError, valid_names,
};

use super::fault::RequestFault;

pub(super) fn uri_error(error: &UriError) -> RequestFault {
    let parts = |parameter: &str, text: &str, how: &str| {
        format!("Invalid parameter {parameter}={text} ({how} :-separated parts)")
    };
    RequestFault::bad_request(match error {
        UriError::Empty => "The query string was empty".to_owned(),
        UriError::TooFewParts { parameter, text } => parts(parameter, text, "not enough"),
        UriError::TooManyParts { parameter, text } => parts(parameter, text, "too many"),
        UriError::EmptyOption => "An option is empty: two colons follow each other".to_owned(),
        UriError::Percentiles(option) => {
            format!("Malformated percentile query paramater: {option}")
        }
        UriError::Percentile(text) => {
            format!("Invalid percentile \"{text}\": must be a number from 0 to 100")
        }
        UriError::UnknownOption(text) => {
            format!("Unknown option \"{text}\"; several metrics need several m parameters")
        }
        UriError::TextBehindFilters(text) => format!(
            "Unexpected text \"{text}\" behind the filters; a metric has at most two pairs of braces"
        ),
        UriError::OpenBrace(text) => format!("Missing '}}' at the end of: {text}"),
        UriError::Tag { group_by, entry, problem } => {
            let what = if *group_by { "tag" } else { "filter" };
            let why = match problem {
                TagEntryError::NoPair => format!("invalid tag: {entry}"),
                TagEntryError::Filter(error) => error.to_string(),
            };
            format!("When parsing {what} '{entry}': {why}")
        }
    })
}

pub(super) fn body_error(error: &BodyQueryError) -> RequestFault {
    RequestFault::bad_json(match error {
        BodyQueryError::Filter(error) => error.to_string(),
        BodyQueryError::UnknownValueFilter(kind) => {
            format!("Could not find a value filter of the type: {kind}")
        }
        BodyQueryError::UnknownRateOption(name) => {
            format!("Unrecognized field \"{name}\" of the rate options")
        }
    })
}

pub(super) fn rate_error(error: &RateError) -> RequestFault {
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
    RequestFault::bad_request(message)
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

pub(super) fn request_error(error: &RequestError, raw: Option<&RawQuery>) -> RequestFault {
    let message = match error {
        RequestError::Timestamp(time) => {
            return RequestFault::bad_request(format!("Invalid timestamp: {time}"));
        }
        RequestError::HistogramValueFilter => {
            return RequestFault::bad_request("Value filters cannot be used with histograms");
        }
        RequestError::NoQueries => "Missing queries".to_owned(),
        RequestError::NoStart => "Missing start time".to_owned(),
        RequestError::EndBeforeStart { start_ms, end_ms } => format!(
            "End time [{end_ms}] must be greater than or equal to the start time [{start_ms}]"
        ),
        RequestError::UnknownZone => "The timezone specification could not be found".to_owned(),
        RequestError::NoAggregator => "Missing the aggregation function".to_owned(),
        RequestError::UnknownAggregator(name) => {
            // Instead of a dump of the query: clients match on the message.
            return RequestFault::bad_request(format!("No such aggregation function: {name}"))
                .with_details(valid_names(name, Aggregator::names()));
        }
        RequestError::NoSource => "Missing the metric or tsuids, provide at least one".to_owned(),
        RequestError::Downsample(error) => {
            if let Some(names) = error.valid_names() {
                return RequestFault::bad_request(error.to_string()).with_details(names);
            }
            error.to_string()
        }
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
    RequestFault::invalid(message, raw)
}
