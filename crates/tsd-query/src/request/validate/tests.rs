#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use super::*;
use crate::request::{RateOptions, parse_m_parameter};

const NOW_MS: i64 = 1_357_300_800_000;

fn query(start: &str, end: &str, m: &[&str]) -> RawQuery {
    RawQuery {
        start: (!start.is_empty()).then(|| start.to_owned()),
        end: (!end.is_empty()).then(|| end.to_owned()),
        queries: Some(m.iter().map(|m| parse_m_parameter(m).unwrap()).collect()),
        ..RawQuery::default()
    }
}

#[track_caller]
fn refuse(raw: &RawQuery, status: u16, message: &str) {
    let error = raw.validate(&Clock::utc(NOW_MS)).unwrap_err();
    assert_eq!((error.class.status(), error.message.as_str()), (status, message));
}

#[test]
fn end_defaults_to_the_present() {
    let checked = query("1356998400", "", &["sum:m"]).validate(&Clock::utc(NOW_MS)).unwrap();
    assert_eq!((checked.start_ms, checked.end_ms), (1_356_998_400_000, NOW_MS));
    assert!(query("5", "5", &["sum:m"]).validate(&Clock::utc(NOW_MS)).is_ok());
}

#[test]
fn refusals_have_the_original_words() {
    refuse(&query("", "", &["sum:m"]), 400, "Missing start time");
    refuse(
        &query("1356998410", "1356998400", &["sum:m"]),
        400,
        "End time [1356998400000] must be greater than or equal to the start time [1356998410000]",
    );
    refuse(&query("1", "2", &[]), 400, "Missing queries");
    refuse(
        &RawQuery { start: Some("1".into()), ..RawQuery::default() },
        500,
        "An internal null pointer exception was thrown",
    );
    refuse(&query("1", "2", &["nope:m"]), 400, "No such aggregation function: nope");
    refuse(&query("1", "2", &[":m"]), 400, "Missing the aggregation function");
    refuse(&query("1", "2", &["sum:"]), 400, "Missing the metric or tsuids, provide at least one");
    refuse(
        &query("1", "2", &["sum:1m-none:m"]),
        400,
        "cannot use the NONE aggregator for downsampling",
    );
    refuse(
        &query("1", "2", &["sum:percentiles[101]:m"]),
        400,
        "Invalid percentile parameters: 101.0",
    );
    refuse(
        &query("1", "2", &["max:percentiles[50]:m"]),
        400,
        "Only NONE or SUM aggregation function supported for histogram query",
    );
    refuse(
        &query("1", "2", &["sum:1m-max:percentiles[50]:m"]),
        400,
        "Only SUM downsampling aggregation supported for histogram query",
    );
    refuse(
        &query("1", "2", &["sum:percentiles[50]:m{value=gt(1)}"]),
        400,
        "Value filters cannot be used with histograms",
    );
    refuse(
        &query("13569984000000", "13569984000001", &["sum:m"]),
        500,
        "Invalid timestamp: 13569984000000",
    );
}

#[test]
fn zone_is_checked_only_where_something_downsamples() {
    let mut raw = query("1356998400", "", &["sum:m"]);
    raw.timezone = Some("Nowhere".into());
    assert!(raw.validate(&Clock::utc(NOW_MS)).is_ok());
    let mut raw = query("1356998400", "", &["sum:1d-sum:m"]);
    raw.timezone = Some("Nowhere".into());
    refuse(&raw, 400, "The timezone specification could not be found");
}

#[test]
fn equal_sub_queries_collapse_but_for_their_value_filters() {
    let checked = |m: &[&str]| query("1", "2", m).validate(&Clock::utc(NOW_MS)).unwrap();
    assert_eq!(checked(&["max:m", "min:m", "max:m"]).sub_queries.len(), 2);
    assert_eq!(checked(&["max:rollup_raw:m", "max:m"]).sub_queries.len(), 1);
    let two = checked(&["max:m{value=gt(1)}", "max:m{value=gt(2)}"]).sub_queries;
    assert_eq!(two.iter().map(|sub| sub.index).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn rate_options_count_only_with_rate() {
    let mut raw = query("1", "2", &["sum:m"]);
    let options = RateOptions { counter: true, ..RateOptions::default() };
    raw.queries.as_mut().unwrap()[0].rate_options = Some(options);
    let sub = &raw.validate(&Clock::utc(NOW_MS)).unwrap().sub_queries[0];
    assert_eq!(sub.rate, None);
    assert_eq!(sub.rate_options, Some(options));
}
