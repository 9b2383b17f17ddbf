//! Renders the errors of commands.
//!
//! Errors of queries have the daemon's texts, which are OpenTSDB's.

use std::error::Error;

use tsd_engine::QueryFailure;
use tsd_protocol::ApiError;
use tsd_query::QueryError;
use tsd_tools::DumpError;

/// The text of an error and its causes.
pub(crate) fn error_text(error: &anyhow::Error) -> String {
    let texts: Vec<String> = error.chain().map(text).collect();
    // A transparent error has the text of its cause.
    let distinct = texts.iter().enumerate().filter(|(at, text)| texts.get(at + 1) != Some(text));
    distinct.map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(": ")
}

fn text(error: &(dyn Error + 'static)) -> String {
    let failure = error.downcast_ref::<QueryFailure>().or_else(|| {
        match error.downcast_ref::<DumpError>()? {
            DumpError::Query(failure) => Some(failure),
            _ => None,
        }
    });
    let query = error.downcast_ref::<QueryError>().or_else(|| match failure? {
        QueryFailure::Rejected(query) => Some(query),
        _ => None,
    });
    query.map_or_else(|| error.to_string(), query_text)
}

/// The text of an error of a query.
pub(crate) fn query_text(error: &QueryError) -> String {
    let ApiError { message, details, .. } = tsd_protocol::query_error(error, None);
    // OpenTSDB repeats the message of an exception as its details.
    if details.is_empty() || details == message {
        return message;
    }
    match error {
        // The message is about a body, which a command line does not have.
        QueryError::Body(_) => details,
        _ => format!("{message}: {details}"),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use tsd_engine::UidKind;
    use tsd_query::{LookupStep, MissingName, SeriesError};

    use super::*;

    fn text_of(result: anyhow::Result<()>) -> String {
        error_text(&result.err().unwrap_or_else(|| panic!("an error")))
    }

    #[test]
    fn queries_fail_in_the_words_of_the_daemon() {
        let absent = QueryError::no_such_name(UidKind::Metric, "m");
        let expected = "No such name for 'metrics': 'm'";
        assert_eq!(text_of(Err(absent.clone().into())), expected);
        let rejected = QueryFailure::Rejected(absent);
        assert_eq!(text_of(Err(rejected.clone().into())), expected);
        assert_eq!(text_of(Err(DumpError::Query(rejected.clone()).into())), expected);
        let within = Err(rejected).context("the sum");
        assert_eq!(text_of(within), format!("the sum: {expected}"));
        let missing = MissingName::Name { kind: UidKind::Metric, name: "m".to_owned() };
        let not_found = SeriesError::NotFound { lookup: LookupStep::Names, missing };
        let looked_up = QueryFailure::Rejected(QueryError::Series(not_found));
        let resolved = format!("Unable to resolve one or more UIDs: {expected}");
        assert_eq!(text_of(Err(looked_up.into())), resolved);
    }

    #[test]
    fn other_errors_have_their_causes() {
        let refused = std::io::Error::other("refused");
        let text = text_of(Err(refused).context("cannot connect").context("no daemon"));
        assert_eq!(text, "no daemon: cannot connect: refused");
    }
}
