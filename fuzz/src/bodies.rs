//! Bodies and parameters of HTTP requests.

use bytes::Bytes;
use tsd_graph::{Plot, PlotSeries, PlotSize, TerminalSize, render_terminal};
use tsd_model::{HistogramCodecs, PointColumns, Value};
use tsd_protocol::{
    CommonTag, HistogramBatch, PutBatch, PutOptions, PutOutcome, QueryString, RollupBatch,
    SeriesRules, UnlimitedMemory, inflate_body, parse_annotation_body, parse_annotation_range_body,
    parse_annotations_body, parse_gexp_uri, parse_graph_request, parse_last_body, parse_last_uri,
    parse_lookup_body, parse_lookup_uri, parse_query_body, parse_query_uri, query_error,
    render_annotation, render_sub_query,
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
        all_documents_count(body, |body| {
            batch.read(body, common.as_ref(), &mut UnlimitedMemory).ok()?;
            Some(batch.points().len() + batch.rejected().len())
        });
        let response = PutOutcome::new(&batch).response(PutOptions::default(), body);
        assert!(response.status >= 200, "a status");
        let details = PutOptions { details: true, ..PutOptions::default() };
        let response = PutOutcome::new(&batch).response(details, body);
        assert!(std::str::from_utf8(&response.body).is_ok(), "a response is UTF-8");
    }
}

/// Checks that a second copy of an accepted body adds all of its elements, and that any other text
/// after it is an error. `count` returns the number of elements of a body; the last call counts
/// `body`.
fn all_documents_count(body: &str, mut count: impl FnMut(&str) -> Option<usize>) {
    let elements = count(body);
    let twice = elements.map(|elements| elements * 2);
    for between in ["", "\n"] {
        assert_eq!(count(&format!("{body}{between}{body}")), twice, "all documents count");
    }
    for after in ["x", ",", "null", "{", "[{}", "]"] {
        assert_eq!(
            count(&format!("{body}{after}")),
            None,
            "text after {body:?} is an error: {after}"
        );
    }
    assert_eq!(count(body), elements, "a batch is reused");
}

/// A compressed body of `/api/put`.
pub(crate) fn inflated_body(input: &[u8]) {
    /// Most bytes of the decompressed body.
    const LIMIT: usize = 256 << 10;
    for encoding in ["gzip", "deflate"] {
        let inflated = inflate_body(encoding, Bytes::copy_from_slice(input), LIMIT);
        if let Ok(body) = inflated.expect("a known encoding") {
            assert!(body.len() <= LIMIT, "a body keeps to the limit");
            let mut batch = PutBatch::default();
            let _ = batch.read(text(&body), None, &mut UnlimitedMemory);
        }
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
        all_documents_count(body, |body| {
            rollups.read(body, None, &mut UnlimitedMemory).ok()?;
            Some(rollups.points().len() + rollups.rejected().len())
        });
        let response = PutOutcome::of_rollups(&rollups).response(details, body);
        assert!(std::str::from_utf8(&response.body).is_ok(), "a response is UTF-8");
    }
    if histograms.read(body, None, &mut UnlimitedMemory).is_ok() {
        let rules = SeriesRules::default();
        for point in histograms.points() {
            let _ = point.value.encode(&HistogramCodecs::simple(42));
            let _ = point.tags(&rules);
        }
        all_documents_count(body, |body| {
            histograms.read(body, None, &mut UnlimitedMemory).ok()?;
            Some(histograms.points().len() + histograms.rejected().len())
        });
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

/// The parameters of `/q`. The requested graph of a few points is drawn as a small picture and as
/// text.
pub(crate) fn graph(input: &[u8]) {
    let Ok(parameters) = QueryString::parse(text(input)) else { return };
    let Ok(mut request) = parse_graph_request(&parameters) else { return };
    let Ok(graph) = request.validate(&Clock::utc(NOW_MS)) else { return };
    assert_eq!(graph.axes.len(), graph.query.sub_queries.len(), "an axis for each sub query");
    request.plot.size = PlotSize { width: 160, height: 120 };
    let (start_ms, end_ms) = (graph.query.start_ms, graph.query.end_ms);
    let step = ((end_ms - start_ms) / 8).max(1);
    let mut points = PointColumns::default();
    for (value, number) in [0.0, 1.5, f64::NAN, -3e7, 1e300, 5e-324, 7.0, -0.0].iter().zip(0..) {
        points.push(start_ms + number * step, Value::Float(*value));
    }
    let series = |axis: &_| PlotSeries {
        label: String::from_utf8_lossy(input).into_owned(),
        axis: *axis,
        points: points.clone(),
    };
    let plot = Plot {
        range_ms: (start_ms, end_ms),
        zone: graph.zone.clone(),
        options: request.plot,
        series: graph.axes.iter().take(3).map(series).collect(),
        notes: Vec::new(),
    };
    let characters = render_terminal(&plot, TerminalSize { columns: 60, rows: 20 }, false);
    assert!(!characters.contains('\x1b'), "no escape sequences");
    let file = plot.draw_png(&mut || true);
    assert!(file.is_ok_and(|file| file.len() > 200), "a picture");
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
