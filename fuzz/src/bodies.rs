//! Bodies and parameters of HTTP requests.

use tsd_model::HistogramCodecs;
use tsd_protocol::{
    CommonTag, HistogramBatch, PutBatch, PutOptions, PutOutcome, QueryString, RollupBatch,
    SeriesRules, UnlimitedMemory, parse_annotation_body, parse_annotation_range_body,
    parse_annotations_body, parse_gexp_uri, parse_last_body, parse_last_uri, parse_lookup_body,
    parse_lookup_uri, parse_query_body, parse_query_uri, query_error, render_annotation,
    render_sub_query,
};
use tsd_query::{Clock, RawQuery};

/// The time of requests.
const NOW_MS: i64 = 1_500_000_000_000;

fn text(input: &[u8]) -> &str {
    std::str::from_utf8(input).unwrap_or_default()
}

/// A body of `/api/put`, `/api/rollup`, `/api/histogram` or of annotations.
pub(crate) fn put_body(input: &[u8]) {
    let body = text(input);
    rollups_and_histograms(body);
    annotations(body);
    let mut batch = PutBatch::default();
    for common in [None, CommonTag::parse("dc=x")] {
        if batch.read(body, common.as_ref(), &mut UnlimitedMemory).is_err() {
            continue;
        }
        let rules = SeriesRules::default();
        for point in batch.points() {
            assert!((point.offset as usize) < body.len(), "a point is inside the body");
            let _ = point.tags(&rules);
        }
        let response = PutOutcome::new(&batch).response(PutOptions::default(), body);
        assert!(response.status >= 200, "a status");
        let details = PutOptions { details: true, ..PutOptions::default() };
        let response = PutOutcome::new(&batch).response(details, body);
        assert!(std::str::from_utf8(&response.body).is_ok(), "a response is UTF-8");
    }
}

fn rollups_and_histograms(body: &str) {
    let details = PutOptions { details: true, ..PutOptions::default() };
    let (mut rollups, mut histograms) = (RollupBatch::default(), HistogramBatch::default());
    if rollups.read(body, None, &mut UnlimitedMemory).is_ok() {
        for point in rollups.points() {
            assert!((point.offset as usize) < body.len(), "a point is inside the body");
            let _ = point.tags();
        }
        let response = PutOutcome::of_rollups(&rollups).response(details, body);
        assert!(std::str::from_utf8(&response.body).is_ok(), "a response is UTF-8");
    }
    if histograms.read(body, None, &mut UnlimitedMemory).is_ok() {
        let rules = SeriesRules::default();
        for point in histograms.points() {
            let _ = point.value.encode(&HistogramCodecs::simple(42));
            let _ = point.tags(&rules);
        }
        let response = PutOutcome::of_histograms(&histograms).response(details, body);
        assert!(std::str::from_utf8(&response.body).is_ok(), "a response is UTF-8");
    }
}

fn annotations(body: &str) {
    let clock = Clock::utc(NOW_MS);
    let _ = parse_annotation_body(body);
    let _ = parse_annotation_range_body(body, &clock);
    for annotation in parse_annotations_body(body).unwrap_or_default() {
        let rendered = render_annotation(&annotation);
        assert!(std::str::from_utf8(&rendered).is_ok(), "an annotation is UTF-8");
    }
}

/// A body of `/api/query`.
pub(crate) fn query_body(input: &[u8]) {
    if let Ok(raw) = parse_query_body(text(input)) {
        validate(&raw);
    }
}

/// The parameters of `/api/query` in a URI.
pub(crate) fn query_uri(input: &[u8]) {
    let Ok(parameters) = QueryString::parse(text(input)) else { return };
    if let Ok(raw) = parse_query_uri(&parameters) {
        validate(&raw);
    }
    if let Ok(raw) = parse_gexp_uri(&parameters) {
        validate(&raw);
    }
}

fn validate(raw: &RawQuery) {
    match raw.validate(&Clock::utc(NOW_MS)) {
        Ok(query) => {
            assert!(query.start_ms <= query.end_ms, "a range");
            for sub in &query.sub_queries {
                assert!(!render_sub_query(sub, None, None).is_empty(), "a rendered sub query");
            }
        }
        Err(error) => {
            assert!(query_error(&error, Some(raw)).status >= 400, "an error status");
        }
    }
}

/// Requests of `/api/query/last` and `/api/search/lookup`.
pub(crate) fn search(input: &[u8]) {
    let text = text(input);
    let _ = parse_last_body(text);
    let _ = parse_lookup_body(text);
    if let Ok(parameters) = QueryString::parse(text) {
        let _ = parse_last_uri(&parameters);
        let _ = parse_lookup_uri(&parameters);
    }
}
