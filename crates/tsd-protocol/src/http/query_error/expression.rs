//! Responses to expressions without a result.

use tsd_query::{ExpError, FillError, Gexp, GexpError, QueryError, valid_names};

use super::fault::RequestFault;

/// Maps an error. Errors of the execution repeat their message in the details. `query_text` is the message for an
/// error of the metrics.
pub(super) fn exp_error(
    error: &ExpError,
    query_text: impl FnOnce(&QueryError) -> String,
) -> RequestFault {
    RequestFault::bad_request(match error {
        ExpError::NoTime => "missing time".to_owned(),
        ExpError::InvalidTime => "Invalid time".to_owned(),
        ExpError::NoMetrics => "missing or empty metrics".to_owned(),
        ExpError::DuplicateMetric(id) => format!("duplicated metric id: {id}"),
        ExpError::DuplicateFilter(id) => format!("duplicated filter id: {id}"),
        ExpError::DuplicateId(id) => format!("Duplicated variable or expression id: {id}"),
        ExpError::Metric(index) => format!("Invalid metric at index {index}"),
        ExpError::Filter(index) => format!("Invalid filter at index {index}"),
        ExpError::Expression(index) => format!("Invalid expression at index {index}"),
        ExpError::UnknownFilter { filter, metric } => {
            format!("unrecognized filter id {filter} in metric {metric}")
        }
        ExpError::TagFilter(error) => {
            return RequestFault::bad_json(error.to_string());
        }
        ExpError::MissingInput { expression, variable } => {
            format!("Expression [{expression}] was missing input {variable}")
        }
        ExpError::NoVariables => "The expression didn't appear to have any variables".to_owned(),
        ExpError::Grammar(text) => format!("Unable to parse expression: {text}"),
        ExpError::TooLarge(id) => {
            format!("The expression {id} is too long or nested too deeply")
        }
        ExpError::SetOperator(name) => format!("Unrecognized set operator: {name}"),
        ExpError::Fill(FillError::Unknown(name)) => format!("Unrecognized fill policy: {name}"),
        ExpError::Fill(FillError::Zero) => "The value for ZERO must be 0".to_owned(),
        ExpError::Fill(FillError::Null) => "The value for NULL must be 0".to_owned(),
        ExpError::Fill(FillError::NotANumber) => {
            "The value for NONE and NAN must be NaN".to_owned()
        }
        ExpError::Query(error) => query_text(error),
        ExpError::SelfReference(id) => {
            return RequestFault::wrapped(format!("Self referencing expression found: {id}"));
        }
        ExpError::Cycle(id) => {
            return RequestFault::wrapped(format!("Circular reference found: {id}"));
        }
        ExpError::NoIntersection(text) => {
            return RequestFault::wrapped(format!("No intersections found: {text}"));
        }
        ExpError::NoResults(variable) => {
            return RequestFault::wrapped(format!("Missing results for variable {variable}"));
        }
        ExpError::NotANumber { class, expression } => {
            return RequestFault::wrapped(format!(
                "Expression returned a result of type: {class} for expression {expression}"
            ));
        }
    })
}

pub(super) fn gexp_error(error: &GexpError) -> RequestFault {
    RequestFault::wrapped(match error {
        GexpError::TooLong { limit } => {
            let message = format!("An expression is longer than {limit} bytes");
            return RequestFault::bad_request(message);
        }
        GexpError::TooDeep { limit } => {
            let message = format!("An expression nests more than {limit} functions");
            return RequestFault::bad_request(message);
        }
        GexpError::Grammar(text) => {
            return RequestFault::bad_request(format!("Failed to parse {text}"));
        }
        GexpError::UnknownFunction(name) => {
            let names = valid_names(name, Gexp::function_names());
            let message = format!("Function {name} has not been implemented");
            return RequestFault::bad_request(message).with_details(names);
        }
        GexpError::ParameterBeforeInput(word) => format!("Unknown parameter type: {word}"),
        GexpError::Sets { min, max, given } => {
            format!("Must have {min} to {max} series, got {given} instead")
        }
        GexpError::DifferentLengths => "The series have different numbers of points".to_owned(),
        GexpError::NoFactor => "Missing scaling factor".to_owned(),
        // OpenTSDB shows its variable instead of the text.
        GexpError::Factor => "Unparseable scale factor value: 0.0".to_owned(),
        GexpError::FactorNumber => {
            "Invalid parameter, must be an integer or floating point".to_owned()
        }
        GexpError::NoAlias => "Missing the alias".to_owned(),
        GexpError::NoOffset => "Need amount of timeshift".to_owned(),
        GexpError::Offset(error) => error.to_string(),
        GexpError::NoWindow => "Missing moving average window size".to_owned(),
        GexpError::Window(text) => format!("Unparseable window size: {text}"),
        GexpError::WindowNotPositive => {
            "Moving average window must be an integer greater than zero".to_owned()
        }
        GexpError::WindowUnit { unit, window } => {
            format!("Unknown time unit={unit} in window={window}")
        }
        // As in OpenTSDB, which shares the check with the moving average.
        GexpError::NoCount => "Need aggregation window for moving average".to_owned(),
        GexpError::Count(text) => format!("Unparseable top n value: {text}"),
        GexpError::CountNumber => "Invalid parameter, must be an integer".to_owned(),
        GexpError::CountNotPositive => "Top n value must be greater than zero: 0".to_owned(),
    })
}
