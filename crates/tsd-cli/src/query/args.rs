//! Parser of the arguments of `tsdb query`.

use tsd_query::{RateOptions, RawQuery, RawSubQuery};

use crate::error_text::query_text;

/// Invalid arguments.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueryArgsError {
    /// Fewer than three arguments.
    #[error("expected START [END] QUERY...")]
    TooFew,
    /// The arguments end inside a query.
    #[error("the query ends where {0} should follow")]
    Ended(&'static str),
    /// A number was expected.
    #[error("{what} must be a number, not {word:?}")]
    NotANumber {
        /// Meaning of the number.
        what: &'static str,
        /// The argument.
        word: String,
    },
    /// A downsampling interval that is not positive.
    #[error("the downsampling interval is {0} ms; it must be at least 1")]
    Interval(String),
    /// An invalid tag.
    #[error("{0}")]
    Tag(String),
    /// Too few words behind `gexp`, `last` or `exp`.
    #[error("expected {0}")]
    Expected(&'static str),
    /// A flag or an output that this form of a query does not have.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The body of a query cannot be read.
    #[error("cannot read {file}: {reason}")]
    Body {
        /// Path of the file.
        file: String,
        /// What the system reported.
        reason: String,
    },
}

/// The parsed arguments.
#[derive(Clone, Debug)]
pub(crate) struct ParsedArgs {
    /// The query.
    pub(crate) query: RawQuery,
    /// Tags of each sub query as written.
    pub(crate) tags: Vec<Vec<(String, String)>>,
    /// Options of a graph, `+name=value`.
    pub(crate) options: Vec<(String, String)>,
}

/// Parses `START [END] [+opt=val...] QUERY...`.
pub(crate) fn parse(words: &[String]) -> Result<ParsedArgs, QueryArgsError> {
    let (start, rest) = words.split_first().ok_or(QueryArgsError::TooFew)?;
    if words.len() < 3 {
        return Err(QueryArgsError::TooFew);
    }
    let (end, rest) = match rest.split_first() {
        Some((end, rest)) if words.len() > 3 && is_time(end) => (Some(end.clone()), rest),
        _ => (None, rest),
    };
    let mut words = Words { rest, options: Vec::new() };
    let (mut queries, mut tags) = (Vec::new(), Vec::new());
    while words.take_options() {
        let (query, tags_of_query) = words.query()?;
        queries.push(query);
        tags.push(tags_of_query);
    }
    if queries.is_empty() {
        return Err(QueryArgsError::Ended("FUNC"));
    }
    let query = RawQuery {
        start: Some(start.clone()),
        end,
        queries: Some(queries),
        ms_resolution: true,
        no_annotations: true,
        ..RawQuery::default()
    };
    Ok(ParsedArgs { query, tags, options: words.options })
}

/// True if the second argument is an end time and not an aggregator.
pub(super) fn is_time(word: &str) -> bool {
    !word.starts_with('+')
        && (word == "now"
            || word.contains([':', '/', '-'])
            || word.parse::<u64>().is_ok_and(|n| n > 0))
}

struct Words<'w> {
    rest: &'w [String],
    options: Vec<(String, String)>,
}

impl<'w> Words<'w> {
    fn next(&mut self, what: &'static str) -> Result<&'w str, QueryArgsError> {
        let (word, rest) = self.rest.split_first().ok_or(QueryArgsError::Ended(what))?;
        self.rest = rest;
        Ok(word)
    }

    fn take_if(&mut self, wanted: impl Fn(&str) -> bool) -> Option<&'w str> {
        let (word, rest) = self.rest.split_first().filter(|(word, _)| wanted(word))?;
        self.rest = rest;
        Some(word)
    }

    /// Consumes `+opt=val`; returns true if arguments remain.
    fn take_options(&mut self) -> bool {
        while let Some(option) = self.take_if(|word| word.starts_with('+')) {
            let option = option.trim_start_matches('+');
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            self.options.push((name.to_owned(), value.to_owned()));
        }
        !self.rest.is_empty()
    }

    /// The next sub query and its tags as written.
    fn query(&mut self) -> Result<(RawSubQuery, Vec<(String, String)>), QueryArgsError> {
        let mut query = RawSubQuery {
            aggregator: Some(self.next("FUNC")?.to_owned()),
            ..RawSubQuery::default()
        };
        if self.take_if(|word| word == "rate").is_some() {
            query.rate = true;
            let options = self.take_if(|word| word == "counter" || word.starts_with("counter,"));
            query.rate_options = options.map(rate_options).transpose()?;
        }
        if self.take_if(|word| word == "downsample").is_some() {
            let word = self.next("MS")?;
            let interval = number("the downsampling interval", word)?;
            if interval <= 0 {
                return Err(QueryArgsError::Interval(word.to_owned()));
            }
            let function = self.next("FUNC")?;
            query.downsample = Some(format!("{interval}ms-{function}"));
        }
        query.metric = Some(self.next("METRIC")?.to_owned());
        let mut tags = Vec::new();
        while let Some(tag) = self.take_if(|word| word.find('=').is_some_and(|at| at > 0)) {
            tags.push(tag.split_once('=').unwrap_or((tag, "")));
        }
        let given = tags.iter().map(|(tagk, tagv)| ((*tagk).to_owned(), (*tagv).to_owned()));
        let given = given.collect();
        query.set_tags(tags).map_err(|e| QueryArgsError::Tag(query_text(&e)))?;
        Ok((query, given))
    }
}

/// `counter[,max[,reset]]`
fn rate_options(word: &str) -> Result<RateOptions, QueryArgsError> {
    let mut parts = word.split(',').skip(1);
    let mut options = RateOptions { counter: true, ..RateOptions::default() };
    if let Some(max) = parts.next().filter(|max| !max.is_empty()) {
        options.counter_max = number("the largest counter value", max)?;
    }
    if let Some(reset) = parts.next().filter(|reset| !reset.is_empty()) {
        options.reset_value = number("the reset value", reset)?;
    }
    Ok(options)
}

fn number(what: &'static str, word: &str) -> Result<i64, QueryArgsError> {
    word.parse().map_err(|_| QueryArgsError::NotANumber { what, word: word.to_owned() })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn parse_text(text: &str) -> Result<RawQuery, QueryArgsError> {
        parse_args(text).map(|args| args.query)
    }

    fn parse_args(text: &str) -> Result<ParsedArgs, QueryArgsError> {
        parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_may_stand_between_queries() {
        let options = parse_args("1h-ago +wxh=9x9 sum m +nokey avg n").unwrap().options;
        let option = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(options, [option("wxh", "9x9"), option("nokey", "")]);
    }

    #[test]
    fn end_times_and_aggregators_are_distinguished() {
        for (text, end) in [
            ("1h-ago sum m", None),
            ("1h-ago 30m-ago sum m", Some("30m-ago")),
            ("1h-ago now sum m", Some("now")),
            ("1356998400 1357002000 sum m", Some("1357002000")),
            ("2013/01/01 2013/01/02-03:04 sum m", Some("2013/01/02-03:04")),
        ] {
            assert_eq!(parse_text(text).unwrap().end.as_deref(), end, "{text}");
        }
    }

    #[test]
    fn every_part_of_a_query_is_read() {
        let query = parse_text(
            "1h-ago +wxh=9x9 sum rate counter,255,30 downsample 60000 avg m host=a avg n",
        )
        .unwrap();
        let [first, second] = <[_; 2]>::try_from(query.queries.unwrap()).unwrap();
        assert_eq!(first.aggregator.as_deref(), Some("sum"));
        assert_eq!(first.downsample.as_deref(), Some("60000ms-avg"));
        assert_eq!(first.metric.as_deref(), Some("m"));
        let options = first.rate_options.unwrap();
        assert_eq!((options.counter_max, options.reset_value), (255, 30));
        assert_eq!(first.filters.len(), 1);
        assert_eq!(second.metric.as_deref(), Some("n"));
        assert!(second.filters.is_empty());
    }

    #[test]
    fn a_metric_may_begin_like_a_rate_option() {
        let query = parse_text("1h-ago sum rate counters.total").unwrap();
        let [query] = <[_; 1]>::try_from(query.queries.unwrap()).unwrap();
        assert_eq!(query.metric.as_deref(), Some("counters.total"));
        assert!(query.rate);
    }

    #[test]
    fn errors_name_what_is_missing() {
        for (text, expected) in [
            ("1h-ago sum", "expected START [END] QUERY..."),
            ("1h-ago sum rate", "the query ends where METRIC should follow"),
            (
                "1h-ago sum downsample x avg m",
                "the downsampling interval must be a number, not \"x\"",
            ),
            ("1h-ago +a=b +c=d", "the query ends where FUNC should follow"),
            // Issue 37: the text was about a missing duration.
            (
                "1h-ago sum downsample -5 avg m",
                "the downsampling interval is -5 ms; it must be at least 1",
            ),
            // Issue 37: the text was a debug output.
            ("1h-ago sum m h=", "Filter cannot be null or empty"),
        ] {
            assert_eq!(parse_text(text).unwrap_err().to_string(), expected);
        }
    }
}
