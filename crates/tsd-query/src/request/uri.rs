//! Sub queries in a URI: `m=sum:1m-avg:rate:sys.cpu.user{host=*}{dc=lga}`.
//!
//! Like OpenTSDB the parser splits at colons, so a filter cannot contain a colon.

use super::{RateOptions, RawSubQuery};
use crate::{
    error::QueryError,
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
    parameter: &str,
) -> Result<(RawSubQuery, Vec<&'a str>, &'a str), QueryError> {
    if text.is_empty() {
        return Err(QueryError::bad_request("The query string was empty"));
    }
    let mut pieces: Vec<&str> = text.split(':').collect();
    let invalid = |how: &str| {
        QueryError::bad_request(format!(
            "Invalid parameter {parameter}={text} ({how} :-separated parts)"
        ))
    };
    if pieces.len() > 5 {
        return Err(invalid("too many"));
    }
    let last = pieces.pop().filter(|_| !pieces.is_empty()).ok_or_else(|| invalid("not enough"))?;
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
        return Err(QueryError::internal("String index out of range: 0"));
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
    let malformed =
        || QueryError::bad_request(format!("Malformated percentile query paramater: {option}"));
    let (_, rest) = option.split_once('[').ok_or_else(malformed)?;
    let (list, _) = rest.split_once(']').ok_or_else(malformed)?;
    let not_a_number = |p: &str| {
        QueryError::internal(match p {
            "" => "empty String".to_owned(),
            _ => format!("For input string: \"{p}\""),
        })
    };
    list.split(',').map(|p| p.trim().parse().map_err(|_| not_a_number(p.trim()))).collect()
}

/// Parses `name{group by}{filter}` and returns the name.
fn parse_metric<'a>(text: &'a str, sub: &mut RawSubQuery) -> Result<&'a str, QueryError> {
    let Some((name, braces)) = text.split_once('{') else { return Ok(text) };
    let missing = || QueryError::internal(format!("Missing '}}' at the end of: {text}"));
    let braces = braces.strip_suffix('}').ok_or_else(missing)?;
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
    let what = if group_by { "tag" } else { "filter" };
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
            Err(EntryError::Value(e)) => return Err(QueryError::bad_request(e.to_string())),
            Err(EntryError::Tag(why)) => {
                return Err(QueryError::internal(format!("When parsing {what} '{entry}': {why}")));
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
    use crate::error::QueryErrorClass;

    #[track_caller]
    fn check_error(text: &str, status: u16, message: &str) {
        let error = parse_m_parameter(text).unwrap_err();
        assert_eq!((error.class.status(), error.message.as_str()), (status, message), "{text}");
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
    fn errors_match_opentsdb() {
        check_error("sum", 400, "Invalid parameter m=sum (not enough :-separated parts)");
        check_error(
            "a:b:c:d:e:f",
            400,
            "Invalid parameter m=a:b:c:d:e:f (too many :-separated parts)",
        );
        check_error("", 400, "The query string was empty");
        check_error("sum:m{host=a", 500, "Missing '}' at the end of: m{host=a");
        check_error("sum:m{host}", 500, "When parsing tag 'host': invalid tag: host");
        check_error("sum:m{}{host}", 500, "When parsing filter 'host': invalid tag: host");
        check_error(
            "sum:m{host=wildcard(a*}",
            500,
            "When parsing tag 'host=wildcard(a*': Filter must end with a ')': wildcard(a*",
        );
        check_error("sum:m{host=a=b}", 500, "When parsing tag 'host=a=b': invalid tag: host=a=b");
        check_error(
            "sum:m{host=nope(a)}",
            500,
            "When parsing tag 'host=nope(a)': Could not find a tag value filter of the type: nope",
        );
        check_error("sum:rate{:m", 400, "Invalid rate options specification: rate{");
        check_error(
            "sum:percentiles:m",
            400,
            "Malformated percentile query paramater: percentiles",
        );
        check_error("sum:percentiles[]:m", 500, "empty String");
        check_error("sum:percentiles[x]:m", 500, "For input string: \"x\"");
        check_error("sum:m{value=gt()}", 400, "Missing number in value filter: gt()");
        let error = parse_m_parameter("sum::m").unwrap_err();
        assert_eq!(error.class, QueryErrorClass::Internal);
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
