//! Sub queries in a URI: `m=sum:1m-avg:rate:sys.cpu.user{host=*}{dc=lga}`.
//!
//! Like OpenTSDB the parser splits at colons, so a filter cannot contain a colon.

use super::{RateOptions, RawSubQuery};
use crate::{
    error::{QueryError, UriError},
    filter::{BraceEntry, EntryError, ValueFilter, add_tag, parse_brace_entry},
};

/// Parses the value of an `m` parameter.
pub fn parse_m_parameter(text: &str) -> Result<RawSubQuery, QueryError> {
    let (mut sub, options, last) = split(text, "m")?;
    // Before the options, whose errors come after those of the filters.
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
        }
    }
    Ok(sub)
}

/// Parses the value of a `tsuid` parameter.
pub fn parse_tsuid_parameter(text: &str) -> Result<RawSubQuery, QueryError> {
    let (mut sub, options, last) = split(text, "tsuid")?;
    for option in options {
        parse_common_option(option, &option.to_lowercase(), &mut sub)?;
    }
    sub.tsuids = last.trim_end_matches(',').split(',').map(str::to_owned).collect();
    Ok(sub)
}

/// Splits at colons into the aggregator, the options, and the last part.
fn split<'a>(
    text: &'a str,
    parameter: &'static str,
) -> Result<(RawSubQuery, Vec<&'a str>, &'a str), QueryError> {
    if text.is_empty() {
        return Err(UriError::Empty.into());
    }
    let mut pieces: Vec<&str> = text.split(':').collect();
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
    let Some((name, braces)) = text.split_once('{') else { return Ok(text) };
    let open = || UriError::OpenBrace(text.to_owned());
    let braces = braces.strip_suffix('}').ok_or_else(open)?;
    let grouping = match braces.split_once('}') {
        None => braces,
        Some((grouping, _)) => {
            // As in OpenTSDB, what follows the last opening brace, even if that is the first one.
            let filtering = braces.rsplit_once('{').map_or(braces, |(_, inner)| inner);
            parse_entries(filtering, false, sub)?;
            grouping
        }
    };
    parse_entries(grouping, true, sub)?;
    Ok(name)
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
        let sub = parse_m_parameter("sum:m{host=a}}").unwrap();
        let filters: Vec<_> = sub.filters.iter().map(|f| (f.filter.as_str(), f.group_by)).collect();
        assert_eq!(filters, [("a}", false), ("a", true)]);
        for text in ["sum:m{}", "sum:m{}{}", "sum:m"] {
            assert_eq!(parse_m_parameter(text).unwrap().filters.len(), 0, "{text}");
        }
        let sub = parse_m_parameter("sum:m{}{host=web*}").unwrap();
        assert_eq!(sub.filters.len(), 1);
        assert!(!sub.filters[0].group_by);
        assert_eq!(sub.filters[0].type_name(), "iwildcard");
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
