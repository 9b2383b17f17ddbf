#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use proptest::prelude::*;

use super::*;
use crate::error::QueryErrorClass;

#[track_caller]
fn refuse(text: &str, status: u16, message: &str) {
    let error = parse_m_parameter(text).unwrap_err();
    assert_eq!((error.class.status(), error.message.as_str()), (status, message), "{text}");
}

#[test]
fn middle_pieces_come_in_any_order() {
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
fn first_braces_group_and_second_do_not() {
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
fn either_pair_of_braces_may_be_empty() {
    for text in ["sum:m{}", "sum:m{}{}", "sum:m"] {
        assert_eq!(parse_m_parameter(text).unwrap().filters.len(), 0, "{text}");
    }
    let sub = parse_m_parameter("sum:m{}{host=web*}").unwrap();
    assert_eq!(sub.filters.len(), 1);
    assert!(!sub.filters[0].group_by);
    assert_eq!(sub.filters[0].type_name(), "iwildcard");
}

#[test]
fn an_equal_filter_of_the_second_braces_becomes_grouping() {
    let sub = parse_m_parameter("sum:m{host=web01}{host=web01}").unwrap();
    assert_eq!(sub.filters.len(), 1);
    assert!(sub.filters[0].group_by);
}

#[test]
fn value_filters_stand_in_either_braces() {
    let sub = parse_m_parameter("sum:m{value=gt(1),value=*}{value=BETWEEN( 0 , 10 )}").unwrap();
    assert_eq!(sub.value_filters.len(), 2);
    assert_eq!(sub.filters.len(), 1);
    assert_eq!(sub.filters[0].tagk, "value");
    let range = parse_m_parameter("sum:m{value=outside(0,10),host=a}").unwrap();
    assert_eq!((range.value_filters.len(), range.filters.len()), (1, 1));
}

#[test]
fn tsuids_are_listed_with_commas() {
    let sub = parse_tsuid_parameter("sum:rate:000001000001000001,000001000001000002").unwrap();
    assert_eq!(sub.tsuids, ["000001000001000001", "000001000001000002"]);
    assert!(sub.rate);
    assert_eq!(sub.metric, None);
}

#[test]
fn refusals_have_the_original_words() {
    refuse("sum", 400, "Invalid parameter m=sum (not enough :-separated parts)");
    refuse("a:b:c:d:e:f", 400, "Invalid parameter m=a:b:c:d:e:f (too many :-separated parts)");
    refuse("", 400, "The query string was empty");
    refuse("sum:m{host=a", 500, "Missing '}' at the end of: m{host=a");
    refuse("sum:m{host}", 500, "When parsing tag 'host': invalid tag: host");
    refuse("sum:m{host=a=b}", 500, "When parsing tag 'host=a=b': invalid tag: host=a=b");
    refuse(
        "sum:m{host=nope(a)}",
        500,
        "When parsing tag 'host=nope(a)': Could not find a tag value filter of the type: nope",
    );
    refuse("sum:rate{:m", 400, "Invalid rate options specification: rate{");
    refuse("sum:percentiles[x]:m", 400, "Malformated percentile query paramater: percentiles[x]");
    refuse("sum:m{value=gt()}", 400, "Missing number in value filter: gt()");
    let error = parse_m_parameter("sum::m").unwrap_err();
    assert_eq!(error.class, QueryErrorClass::Internal);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*") {
        let _ = parse_m_parameter(&text);
        let _ = parse_tsuid_parameter(&text);
    }

    #[test]
    fn texts_near_the_grammar_are_read_or_refused(
        text in "sum:(rate\\{?[a-z,0-9]{0,9}\\}?:)?m[{}a-z=*|(),0-9é]{0,24}",
    ) {
        let _ = parse_m_parameter(&text);
    }
}
