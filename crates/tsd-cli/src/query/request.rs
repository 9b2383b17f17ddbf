//! The forms of a query: OpenTSDB's words, or `gexp`, `last` and `exp` as in the HTTP API.

use std::{
    fs::File,
    io::{self, Read},
};

use tsd_query::{Clock, GexpQuery, QueryError, RawQuery};

use super::{
    args::{ParsedArgs, QueryArgsError, is_time, parse},
    graph::GraphFrame,
    query_output::QueryOutput,
};
use crate::percent_encoding::percent_encoded;

/// Maximum bytes of a body of `/api/query/exp`.
const MAX_BODY: u64 = 16 << 20;

/// A query of the command line.
#[derive(Clone, Debug)]
pub(crate) enum QueryRequest {
    /// `START [END] QUERY...`
    Points(ParsedArgs),
    /// `gexp START [END] EXPRESSION...`
    Gexp(GexpArgs),
    /// `last SERIES...`
    Last(LastArgs),
    /// `exp FILE`: the body of `/api/query/exp`.
    Exp(String),
}

/// Functions over series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GexpArgs {
    start: String,
    end: Option<String>,
    expressions: Vec<String>,
    /// Options of a graph, `+name=value`.
    options: Vec<(String, String)>,
}

/// Series whose newest points are requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastArgs {
    /// `METRIC{TAGK=TAGV,...}`
    pub(super) series: Vec<String>,
    /// Hours before now that are read.
    pub(super) back_scan: Option<u32>,
}

/// Parses the words of a command line, and reads the body of `exp`.
pub(crate) fn parse_request(
    words: &[String],
    back_scan: Option<u32>,
) -> Result<QueryRequest, QueryArgsError> {
    let (form, rest) = words.split_first().ok_or(QueryArgsError::TooFew)?;
    if back_scan.is_some() && form != "last" {
        return Err(QueryArgsError::Unsupported("--back-scan is an option of `tsdb query last`"));
    }
    match form.as_str() {
        "gexp" => gexp(rest).map(QueryRequest::Gexp),
        "last" if rest.is_empty() => Err(QueryArgsError::Expected("last SERIES...")),
        "last" => Ok(QueryRequest::Last(LastArgs { series: rest.to_vec(), back_scan })),
        "exp" => match rest {
            [file] => body(file).map(QueryRequest::Exp),
            _ => Err(QueryArgsError::Expected("exp FILE")),
        },
        _ => parse(words).map(QueryRequest::Points),
    }
}

fn gexp(words: &[String]) -> Result<GexpArgs, QueryArgsError> {
    let expected = || QueryArgsError::Expected("gexp START [END] EXPRESSION...");
    let (start, rest) = words.split_first().ok_or_else(expected)?;
    let (options, rest): (Vec<&String>, Vec<&String>) =
        rest.iter().partition(|word| word.starts_with('+'));
    // An expression has parentheses; its metrics may contain the characters of times.
    let (end, expressions) = match rest.split_first() {
        Some((end, rest)) if is_time(end) && !end.contains('(') => (Some((*end).clone()), rest),
        _ => (None, rest.as_slice()),
    };
    if expressions.is_empty() {
        return Err(expected());
    }
    let option = |word: &String| {
        let word = word.trim_start_matches('+');
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        (name.to_owned(), value.to_owned())
    };
    Ok(GexpArgs {
        start: start.clone(),
        end,
        expressions: expressions.iter().map(|word| (*word).clone()).collect(),
        options: options.into_iter().map(option).collect(),
    })
}

fn body(file: &str) -> Result<String, QueryArgsError> {
    let failed = |reason: String| QueryArgsError::Body { file: file.to_owned(), reason };
    let reader: Box<dyn Read> = if file == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(file).map_err(|error| failed(error.to_string()))?)
    };
    let mut text = String::new();
    let read = reader.take(MAX_BODY + 1).read_to_string(&mut text);
    read.map_err(|error| failed(error.to_string()))?;
    if text.len() as u64 > MAX_BODY {
        return Err(failed(format!("it is longer than {MAX_BODY} bytes")));
    }
    Ok(text)
}

impl GexpArgs {
    /// The query. Fails if an expression or a time is invalid.
    pub(super) fn query(&self, clock: &Clock) -> Result<GexpQuery, QueryError> {
        let raw = RawQuery {
            start: Some(self.start.clone()),
            end: self.end.clone(),
            ms_resolution: true,
            no_annotations: true,
            ..RawQuery::default()
        };
        let texts: Vec<&str> = self.expressions.iter().map(String::as_str).collect();
        GexpQuery::new(raw, &texts, clock)
    }

    /// The path of the request to a daemon.
    pub(super) fn path(&self) -> String {
        let start =
            format!("/api/query/gexp?ms&no_annotations&start={}", percent_encoded(&self.start));
        let ends = self.end.iter().map(|end| ("end", end));
        let expressions = self.expressions.iter().map(|text| ("exp", text));
        let mut parts = vec![start];
        let rest = ends.chain(expressions);
        parts.extend(rest.map(|(name, value)| format!("{name}={}", percent_encoded(value))));
        parts.join("&")
    }
}

impl QueryRequest {
    /// Fails for a form of output that the result does not have.
    pub(crate) fn check_output(&self, output: QueryOutput<'_>) -> Result<(), QueryArgsError> {
        let problem = match (self, output) {
            (Self::Exp(_), QueryOutput::Csv | QueryOutput::Graph(_)) => {
                "`tsdb query exp` prints JSON only"
            }
            (Self::Last(_), QueryOutput::Graph(_)) => "a graph needs more than the newest points",
            _ => return Ok(()),
        };
        Err(QueryArgsError::Unsupported(problem))
    }

    /// The frame of a graph.
    pub(super) fn frame(&self, clock: &Clock) -> Result<GraphFrame<'_>, QueryError> {
        let (query, options) = match self {
            Self::Points(args) => (args.query.validate(clock)?, &*args.options),
            Self::Gexp(args) => (args.query(clock)?.query, &*args.options),
            // These forms have no graph.
            Self::Last(_) | Self::Exp(_) => {
                let range_ms = (0, clock.now_ms);
                return Ok(GraphFrame { range_ms, zone: clock.zone.clone(), options: &[] });
            }
        };
        let range_ms = (query.start_ms, query.end_ms);
        Ok(GraphFrame { range_ms, zone: clock.zone.clone(), options })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn parsed(words: &[&str]) -> Result<QueryRequest, QueryArgsError> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        parse_request(&words, None)
    }

    fn path(words: &[&str]) -> String {
        match parsed(words).unwrap() {
            QueryRequest::Gexp(args) => args.path(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn expressions_follow_the_times() {
        let prefix = "/api/query/gexp?ms&no_annotations&start=2h-ago";
        assert_eq!(
            path(&["gexp", "2h-ago", "scale(sum:1h-avg:m,2)"]),
            format!("{prefix}&exp=scale%28sum%3A1h-avg%3Am%2C2%29")
        );
        assert_eq!(
            path(&["gexp", "2h-ago", "1h-ago", "+nokey", "absolute(sum:m)", "absolute(sum:n)"]),
            format!("{prefix}&end=1h-ago&exp=absolute%28sum%3Am%29&exp=absolute%28sum%3An%29")
        );
    }

    #[test]
    fn incomplete_requests_say_what_is_expected() {
        for (words, expected) in [
            (&["gexp", "1h-ago"][..], "expected gexp START [END] EXPRESSION..."),
            (&["gexp", "1h-ago", "now"], "expected gexp START [END] EXPRESSION..."),
            (&["last"], "expected last SERIES..."),
            (&["exp"], "expected exp FILE"),
            (&["exp", "/dev/null/no"], "cannot read /dev/null/no: Not a directory (os error 20)"),
        ] {
            assert_eq!(parsed(words).unwrap_err().to_string(), expected);
        }
        let words: Vec<String> = ["1h-ago", "sum", "m"].map(str::to_owned).into();
        assert!(parse_request(&words, Some(1)).is_err());
    }
}
