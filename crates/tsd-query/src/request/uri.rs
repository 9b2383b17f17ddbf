//! Sub queries in a URI: `m=sum:1m-avg:rate:sys.cpu.user{host=*}{dc=lga}`.
//!
//! Like OpenTSDB, the parser splits at colons. Unlike OpenTSDB, it does not split at the colons of
//! filters, since tag values such as `host:port` may contain colons
//! (`tsd.core.tag.allow_specialchars`).

use super::{RateOptions, RawSubQuery};
use crate::{
    error::{QueryError, UriError},
    filter::{BraceEntry, EntryError, ValueFilter, add_tag, parse_brace_entry},
};

/// Parses the value of an `m` parameter.
pub fn parse_m_parameter(text: &str) -> Result<RawSubQuery, QueryError> {
    let (mut sub, options, last) = split(text, "m")?;
    // The metric is parsed before the options, since errors of filters come first.
    sub.metric = Some(parse_metric(last, &mut sub)?.to_owned());
    for option in options {
        let lower = option.to_lowercase();
        if parse_common_option(option, &lower, &mut sub)? {
            continue;
        }
        if lower.starts_with("pre-agg") {
            sub.pre_aggregate = true;
        } else if lower.starts_with("rollup_") {
            sub.rollup_usage = Some(option.to_owned());
        } else if lower.starts_with("explicit_tags") {
            sub.explicit_tags = true;
        } else {
            sub.ignore(option)?;
        }
    }
    Ok(sub)
}

/// Parses the value of a `tsuid` parameter.
pub fn parse_tsuid_parameter(text: &str) -> Result<RawSubQuery, QueryError> {
    let (mut sub, options, last) = split(text, "tsuid")?;
    for option in options {
        if !parse_common_option(option, &option.to_lowercase(), &mut sub)? {
            sub.ignore(option)?;
        }
    }
    sub.tsuids = last.trim_end_matches(',').split(',').map(str::to_owned).collect();
    Ok(sub)
}

impl RawSubQuery {
    /// Records an unknown option. OpenTSDB ignores every unknown text, and dashboards have words
    /// such as `all-sum`. Text that is not a word is half of another request and is rejected.
    fn ignore(&mut self, option: &str) -> Result<(), UriError> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if !option.chars().all(is_word) {
            return Err(UriError::UnknownOption(option.to_owned()));
        }
        self.ignored_options.push(option.to_owned());
        Ok(())
    }
}

/// Splits at colons into the aggregator, the options, and the last part.
fn split<'a>(
    text: &'a str,
    parameter: &'static str,
) -> Result<(RawSubQuery, Vec<&'a str>, &'a str), QueryError> {
    if text.is_empty() {
        return Err(UriError::Empty.into());
    }
    let mut pieces = split_at_colons(text);
    if pieces.len() > 5 {
        return Err(UriError::TooManyParts { parameter, text: text.to_owned() }.into());
    }
    let last = pieces
        .pop()
        .filter(|_| !pieces.is_empty())
        .ok_or_else(|| UriError::TooFewParts { parameter, text: text.to_owned() })?;
    let aggregator = pieces.remove(0).to_owned();
    let sub = RawSubQuery { aggregator: Some(aggregator), ..RawSubQuery::default() };
    Ok((sub, pieces, last))
}

/// Splits at the colons outside of braces. Braces of rate options enclose no colon.
fn split_at_colons(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((piece, after)) = split_once_at_colon(rest) {
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

fn split_once_at_colon(text: &str) -> Option<(&str, &str)> {
    if text.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("rate{")) {
        return text.split_once(':');
    }
    let mut depth = 0_usize;
    let at = text.find(|c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ':' && depth == 0
    })?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// Parses an option that both parameters have; returns false for any other.
fn parse_common_option(
    option: &str,
    lower: &str,
    sub: &mut RawSubQuery,
) -> Result<bool, QueryError> {
    let Some(first) = lower.chars().next() else {
        return Err(UriError::EmptyOption.into());
    };
    if lower.starts_with("rate") {
        sub.rate = true;
        // Without braces any text that begins so means the default options.
        sub.rate_options =
            if option.contains('{') { Some(RateOptions::parse(option)?) } else { None };
    } else if first.is_ascii_digit() {
        sub.downsample = Some(option.to_owned());
    } else if lower.starts_with("percentiles") {
        sub.percentiles = parse_percentiles(option)?;
    } else if lower.starts_with("show-histogram-buckets") {
        sub.show_histogram_buckets = true;
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// `percentiles[50,99.9]`
fn parse_percentiles(option: &str) -> Result<Vec<f32>, QueryError> {
    let malformed = || UriError::Percentiles(option.to_owned());
    let (_, rest) = option.split_once('[').ok_or_else(malformed)?;
    let (list, _) = rest.split_once(']').ok_or_else(malformed)?;
    let number = |p: &str| p.parse().map_err(|_| UriError::Percentile(p.to_owned()).into());
    list.split(',').map(|p| number(p.trim())).collect()
}

/// Parses `name{group by}{filter}` and returns the name.
fn parse_metric<'a>(text: &'a str, sub: &mut RawSubQuery) -> Result<&'a str, QueryError> {
    let Some((name, _)) = text.split_once('{') else { return Ok(text) };
    let open = || UriError::OpenBrace(text.to_owned());
    let braces = text.get(name.len()..).unwrap_or_default();
    let (grouping, rest) = split_braces(braces).ok_or_else(open)?;
    let (filtering, rest) =
        if rest.starts_with('{') { split_braces(rest).ok_or_else(open)? } else { ("", rest) };
    if !rest.is_empty() {
        return Err(UriError::TextBehindFilters(rest.to_owned()).into());
    }
    parse_entries(filtering, false, sub)?;
    parse_entries(grouping, true, sub)?;
    Ok(name)
}

/// Splits `{inside}rest` at the brace that closes the first brace. Braces inside belong to regular
/// expressions.
fn split_braces(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    let end = text.find(|c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        depth == 0
    })?;
    Some((text.get(1..end)?, text.get(end + 1..)?))
}

fn parse_entries(text: &str, group_by: bool, sub: &mut RawSubQuery) -> Result<(), QueryError> {
    if text.is_empty() {
        return Ok(());
    }
    let mut pieces = text.split(',');
    while let Some(piece) = pieces.next() {
        let joined;
        let mut entry = piece;
        if is_open_value_filter(piece)
            && let Some(rest) = pieces.clone().next()
        {
            // The comma between the bounds of a range does not separate entries.
            pieces.next();
            joined = format!("{piece},{rest}");
            entry = &joined;
        }
        match parse_brace_entry(entry, group_by) {
            Ok(BraceEntry::Value(filter)) => sub.value_filters.push(filter),
            Ok(BraceEntry::Tag(filter)) => add_tag(&mut sub.filters, filter),
            Err(EntryError::Value(error)) => return Err(error.into()),
            Err(EntryError::Tag(problem)) => {
                return Err(UriError::Tag { group_by, entry: entry.to_owned(), problem }.into());
            }
        }
    }
    Ok(())
}

/// True if an entry is a range whose second bound is in the next entry.
fn is_open_value_filter(entry: &str) -> bool {
    let Some((ValueFilter::KEY, expr)) = entry.split_once('=') else { return false };
    let Some((kind, rest)) = expr.split_once('(') else { return false };
    ValueFilter::is_kind(kind.trim()) && !rest.contains(')')
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use proptest::prelude::*;

    use super::*;
    use crate::{
        error::{RateError, TagEntryError},
        filter::{FilterError, ValueFilterError},
    };

    #[track_caller]
    fn check_error(text: &str, expected: impl Into<QueryError>) {
        assert_eq!(parse_m_parameter(text).unwrap_err(), expected.into(), "{text}");
    }

    #[test]
    fn options_may_be_in_any_order() {
        for text in ["sum:rate:1m-max:m", "sum:1m-max:rate:m", "sum:RATE:all-sum:1m-max:m"] {
            let sub = parse_m_parameter(text).unwrap();
            assert_eq!(sub.aggregator.as_deref(), Some("sum"));
            assert_eq!(sub.metric.as_deref(), Some("m"));
            assert!(sub.rate);
            assert_eq!(sub.downsample.as_deref(), Some("1m-max"));
        }
        let sub = parse_m_parameter("sum:explicit_tags:pre-agg:rollup_raw:m").unwrap();
        assert!(sub.explicit_tags && sub.pre_aggregate);
        assert_eq!(sub.rollup_usage.as_deref(), Some("rollup_raw"));
        let sub = parse_m_parameter("sum:percentiles[99.9,50]:show-histogram-buckets:h").unwrap();
        assert_eq!(sub.percentiles, [99.9, 50.0]);
        assert!(sub.show_histogram_buckets);
    }

    #[test]
    fn only_first_braces_group() {
        let sub = parse_m_parameter("sum:m{host=*,dc=lga|phx}{rack=regexp(r[0-9])}").unwrap();
        let got: Vec<_> = sub
            .filters
            .iter()
            .map(|f| (f.tagk.as_str(), f.type_name(), f.filter.as_str(), f.group_by))
            .collect();
        let expected = [
            ("rack", "regexp", "r[0-9]", false),
            ("host", "wildcard", "*", true),
            ("dc", "literal_or", "lga|phx", true),
        ];
        assert_eq!(got, expected);
        assert_eq!(sub.metric.as_deref(), Some("m"));
    }

    #[test]
    fn either_braces_may_be_empty() {
        for text in ["sum:m{}", "sum:m{}{}", "sum:m"] {
            assert_eq!(parse_m_parameter(text).unwrap().filters.len(), 0, "{text}");
        }
        let sub = parse_m_parameter("sum:m{}{host=web*}").unwrap();
        assert_eq!(sub.filters.len(), 1);
        assert!(!sub.filters[0].group_by);
        assert_eq!(sub.filters[0].type_name(), "iwildcard");
    }

    /// Issue 37, case C09.
    #[test]
    fn filters_may_have_colons() {
        let sub =
            parse_m_parameter("sum:1m-avg:rate{counter,,9}:m{host=h:8083,a=b}{c=literal_or(x:y)}");
        let sub = sub.unwrap();
        let filters: Vec<_> = sub.filters.iter().map(|f| f.filter.as_str()).collect();
        assert_eq!(filters, ["x:y", "h:8083", "b"]);
        assert_eq!(sub.metric.as_deref(), Some("m"));
        assert!(sub.rate && sub.downsample.is_some());
        check_error("sum:m{host=a:b", UriError::OpenBrace("m{host=a:b".into()));
    }

    /// Issue 37, cases B72 and B31.
    #[test]
    fn ignored_parts_are_named() {
        let sub = parse_m_parameter("sum:all-sum:rate:nonsense:m").unwrap();
        assert_eq!(sub.ignored_options, ["all-sum", "nonsense"]);
        let sub = parse_tsuid_parameter("sum:explicit_tags:000001000001000001").unwrap();
        assert_eq!(sub.ignored_options, ["explicit_tags"]);
        check_error("sum:a,sum:b", UriError::UnknownOption("a,sum".into()));
        check_error("sum:{x}:b", UriError::UnknownOption("{x}".into()));
        for (text, rest) in [
            ("sum:a{host=*}{}{host=nobody}", "{host=nobody}"),
            ("sum:a{host=x}junk", "junk"),
            ("sum:a{host=x}}", "}"),
            ("sum:a{host=x}{dc=y},b", ",b"),
        ] {
            check_error(text, UriError::TextBehindFilters(rest.into()));
        }
    }

    /// Issue 37.
    #[test]
    fn regular_expressions_may_have_braces() {
        let sub = parse_m_parameter("sum:m{host=regexp(w[0-9]{2})}{dc=regexp(x{3})}").unwrap();
        let filters: Vec<_> = sub.filters.iter().map(|f| f.filter.as_str()).collect();
        assert_eq!(filters, ["x{3}", "w[0-9]{2}"]);
    }

    #[test]
    fn filter_in_both_braces_groups() {
        let sub = parse_m_parameter("sum:m{host=web01}{host=web01}").unwrap();
        assert_eq!(sub.filters.len(), 1);
        assert!(sub.filters[0].group_by);
    }

    #[test]
    fn value_filters_are_allowed_in_either_braces() {
        let sub = parse_m_parameter("sum:m{value=gt(1),value=*}{value=BETWEEN( 0 , 10 )}").unwrap();
        assert_eq!(sub.value_filters.len(), 2);
        assert_eq!(sub.filters.len(), 1);
        assert_eq!(sub.filters[0].tagk, "value");
        let range = parse_m_parameter("sum:m{value=outside(0,10),host=a}").unwrap();
        assert_eq!((range.value_filters.len(), range.filters.len()), (1, 1));
    }

    #[test]
    fn tsuids_are_separated_by_commas() {
        let sub = parse_tsuid_parameter("sum:rate:000001000001000001,000001000001000002").unwrap();
        assert_eq!(sub.tsuids, ["000001000001000001", "000001000001000002"]);
        assert!(sub.rate);
        assert_eq!(sub.metric, None);
    }

    #[test]
    fn invalid_parameters_are_rejected() {
        let text = || "sum".to_owned();
        check_error("sum", UriError::TooFewParts { parameter: "m", text: text() });
        let text = "a:b:c:d:e:f";
        check_error(text, UriError::TooManyParts { parameter: "m", text: text.into() });
        check_error("", UriError::Empty);
        check_error("sum::m", UriError::EmptyOption);
        check_error("sum:m{host=a", UriError::OpenBrace("m{host=a".into()));
        check_error("sum:rate{:m", RateError::TooShort("rate{".into()));
        check_error("sum:percentiles:m", UriError::Percentiles("percentiles".into()));
        check_error("sum:percentiles[]:m", UriError::Percentile(String::new()));
        check_error("sum:percentiles[x]:m", UriError::Percentile("x".into()));
        check_error("sum:m{value=gt()}", ValueFilterError::Missing("gt()".into()));
    }

    #[test]
    fn invalid_entries_between_braces_are_rejected() {
        let check_entry = |text: &str, group_by, entry: &str, problem| {
            check_error(text, UriError::Tag { group_by, entry: entry.into(), problem });
        };
        check_entry("sum:m{host}", true, "host", TagEntryError::NoPair);
        check_entry("sum:m{}{host}", false, "host", TagEntryError::NoPair);
        check_entry("sum:m{host=a=b}", true, "host=a=b", TagEntryError::NoPair);
        let no_end = TagEntryError::Filter(FilterError::NoEnd("wildcard(a*".into()));
        check_entry("sum:m{host=wildcard(a*}", true, "host=wildcard(a*", no_end);
        let unknown = TagEntryError::Filter(FilterError::UnknownType("nope".into()));
        check_entry("sum:m{host=nope(a)}", true, "host=nope(a)", unknown);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_rejected(text in "\\PC*") {
            let _ = parse_m_parameter(&text);
            let _ = parse_tsuid_parameter(&text);
        }

        #[test]
        fn text_near_the_grammar_is_parsed_or_rejected(
            text in "sum:(rate\\{?[a-z,0-9]{0,9}\\}?:)?m[{}a-z=*|(),0-9é]{0,24}",
        ) {
            let _ = parse_m_parameter(&text);
        }
    }
}
