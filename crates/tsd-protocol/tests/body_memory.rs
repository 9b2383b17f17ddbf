//! Parsing the worst bodies allocates no more memory than their reservations.
//!
//! This is a single test, since the allocator counts the whole process.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

use std::hint::black_box;

use peak_alloc::PeakAlloc;
use tsd_protocol::{
    BodyShape, CommonTag, HistogramBatch, ParseMemory, ParsedKind, PutBatch, PutOptions,
    PutOutcome, RollupBatch, parse_annotation_body, parse_annotation_range_body,
    parse_annotations_body, parse_exp_body, parse_gexp_body, parse_last_body, parse_lookup_body,
    parse_query_body, render_annotations, render_exp_query, render_query,
};
use tsd_query::{Clock, GexpQuery};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const NOW_MS: i64 = 1_500_000_000_000;
/// Bytes of a body.
const BYTES: usize = 300_000;
/// Bytes that a request may allocate in addition to its reservation.
const SMALL: usize = 64 << 10;
/// Bytes of the tags and buckets of one point, which are read before their size is known.
const ONE_POINT: usize = 5 << 20;

/// Returns the peak of allocated bytes during a call.
fn peak<T>(call: impl FnOnce() -> T) -> usize {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    black_box(call());
    ALLOCATOR.peak_usage().saturating_sub(before)
}

/// Returns `head`, `count` elements and `tail`.
fn few(head: &str, element: &str, count: usize, tail: &str) -> String {
    format!("{head}{}{tail}", vec![element; count].join(","))
}

/// Like [`few`], with elements up to [`BYTES`].
fn list(head: &str, element: &str, tail: &str) -> String {
    few(head, element, BYTES / (element.len() + 1), tail)
}

fn array(element: &str) -> String {
    list("[", element, "]")
}

/// Sums the reserved bytes.
#[derive(Default)]
struct Counted(usize);

impl ParseMemory for Counted {
    fn take(&mut self, bytes: usize) -> bool {
        self.0 += bytes;
        true
    }
}

fn point_bodies() -> Vec<String> {
    let long = "m".repeat(50_000);
    let long = |time: &str| {
        array(&format!(r#"{{"metric":"{long}","timestamp":{time},"value":1,"tags":{{"a":1}}}}"#))
    };
    let point = r#"{"metric":"sys.cpu.user","timestamp":1500000000,"value":42.5,"tags":{"host":"web01","dc":"lga"}}"#;
    let far = "99999999999999999";
    vec![
        array("null"),
        array("{}"),
        array(point),
        array(r#"{"metric":1,"timestamp":1,"value":1,"tags":{"a":1}}"#),
        array(r#"{"metric":1,"timestamp":-1,"value":1,"tags":{"a":1}}"#),
        array(&format!(r#"{{"metric":1,"timestamp":{far},"value":1,"tags":{{"a":1}}}}"#)),
        array(r#"{"metric":1,"timestamp":1,"value":"1e999","tags":{"a":1}}"#),
        array(r#"{"metric":"é€","timestamp":1,"value":1,"tags":{"a":1}}"#),
        array(r#"{"metric":"\n","timestamp":1,"value":1,"tags":{"a":1}}"#),
        array(r#"{"metric":1,"timestamp":1,"value":1,"tags":{"a":null}}"#),
        long("-1"),
        long(far),
        few(r#"{"metric":"m","timestamp":1,"value":1,"tags":{"#, r#""":1"#, 4_000, "}}"),
        // Fields of rolled-up points and histograms.
        array(
            r#"{"metric":1,"timestamp":1,"value":1,"interval":"1h","aggregator":"sum","groupByAggregator":"sum","tags":{"a":1}}"#,
        ),
        array(r#"{"metric":1,"timestamp":1,"buckets":{"0,1":1},"tags":{"a":1}}"#),
        array(r#"{"metric":1,"timestamp":1,"buckets":{"":1},"tags":{"a":1}}"#),
        array(r#"{"metric":1,"timestamp":1,"value":"AAAA","tags":{"a":1}}"#),
        few(
            r#"[{"metric":1,"timestamp":1,"tags":{"a":1},"buckets":{"#,
            r#""0,1":1"#,
            60_000,
            "}}]",
        ),
    ]
}

/// Prints the memory of a body and checks it.
fn check_within(kind: &str, body: &str, used: usize, reserved: usize, beside: usize) {
    let per_byte = |bytes: usize| bytes as f64 / body.len() as f64;
    let (used_per, reserved_per) = (per_byte(used), per_byte(reserved));
    let head: String = body.chars().take(90).collect();
    eprintln!("{kind:12} {used_per:6.1} of {reserved_per:6.1} bytes a byte: {head}");
    assert!(used <= reserved + beside, "{kind}: {used} of {reserved} for {head}");
}

/// Checks the batches of points, including the memory of an outcome.
fn check_points(body: &str) {
    let options = PutOptions::default();
    let common = CommonTag::parse("datacenter=lga");
    let mut memory = Counted::default();
    let used = peak(|| {
        let mut batch = PutBatch::default();
        batch.read(body, common.as_ref(), &mut memory).unwrap();
        let outcome = PutOutcome::new(&batch);
        (outcome.response(options, body), batch)
    });
    check_within("put", body, used, memory.0, ONE_POINT);
    let mut memory = Counted::default();
    let used = peak(|| {
        let mut batch = RollupBatch::default();
        batch.read(body, common.as_ref(), &mut memory).unwrap();
        let outcome = PutOutcome::of_rollups(&batch);
        (outcome.response(options, body), batch)
    });
    check_within("rollup", body, used, memory.0, ONE_POINT);
    let mut memory = Counted::default();
    let used = peak(|| {
        let mut batch = HistogramBatch::default();
        let read = batch.read(body, common.as_ref(), &mut memory);
        let outcome = PutOutcome::of_histograms(&batch);
        (outcome.response(options, body), batch, read)
    });
    check_within("histogram", body, used, memory.0, ONE_POINT);
}

/// Checks a body of another kind.
fn check<T>(kind: ParsedKind, body: &str, parse: impl FnOnce(&str) -> T) {
    let reserved = kind.memory(BodyShape::of(body.as_bytes()));
    let used = peak(|| parse(body));
    check_within(&format!("{kind:?}"), body, used, reserved, SMALL);
}

fn sub_queries() -> Vec<String> {
    let filter = r#"{"type":"wildcard","tagk":"a","filter":"*"}"#;
    let tags =
        |value: &str| format!(r#"{{"aggregator":"sum","metric":"m","tags":{{"a":"{value}"}}}}"#);
    let filters = r#"{"aggregator":"sum","metric":"m","filters":["#;
    let regexp = |pattern: &str| {
        few(filters, &format!(r#"{{"type":"regexp","tagk":"a","filter":"{pattern}"}}"#), 200, "]}")
    };
    let tsuids = r#"{"aggregator":"sum","tsuids":["#;
    vec![
        few("", "{}", 4_000, ""),
        few("", r#"{"aggregator":"sum","metric":"m"}"#, 4_000, ""),
        few(
            "",
            r#"{"aggregator":"sum","metric":"m","downsample":"1m-avg","rate":true,"rateOptions":{"counter":true}}"#,
            4_000,
            "",
        ),
        few("", &few(filters, filter, 6, "]}"), 1_000, ""),
        few("", &few(filters, filter, 1_000, "]}"), 6, ""),
        tags(&"a|".repeat(90_000)),
        tags(&"a*".repeat(90_000)),
        list(tsuids, r#""""#, "]}"),
        list(tsuids, r#""000001000001000001""#, "]}"),
        few(r#"{"aggregator":"sum","metric":"m","percentiles":["#, "99", 4_000, "]}"),
        few(
            r#"{"aggregator":"sum","metric":"m","valueFilters":["#,
            r#"{"type":"gt","filter":"1"}"#,
            1_000,
            "]}",
        ),
        regexp("(a{90}){90}"),
        regexp(r"\\p{L}{9}"),
        regexp("a"),
    ]
}

#[test]
fn parsed_bodies_stay_within_their_reservations() {
    for body in point_bodies() {
        check_points(&body);
    }
    let clock = Clock::utc(NOW_MS);
    for subs in sub_queries() {
        let body = format!(r#"{{"start":"1h-ago","queries":[{subs}]}}"#);
        check(ParsedKind::Query, &body, |body| {
            let raw = parse_query_body(body).ok()?;
            let query = raw.validate(&clock).ok()?;
            let echo = render_query(&raw, &query, &[]);
            Some((query.clone(), query, raw, echo))
        });
    }
    check_functions(&clock);
    check_expressions(&clock);
    for body in [
        few(r#"{"queries":["#, r#"{"metric":"m"}"#, 4_000, "]}"),
        few(r#"{"queries":[{"metric":"m","tags":{"#, r#""":"""#, 1_000, "}}]}"),
        list(r#"{"queries":[{"tsuids":["#, r#""""#, "]}]}"),
        list(r#"{"queries":[{"tsuids":["#, r#""00""#, "]}]}"),
    ] {
        check(ParsedKind::List, &body, parse_last_body);
    }
    let body = few(r#"{"metric":"m","tags":["#, "{}", 1_000, "]}");
    check(ParsedKind::List, &body, parse_lookup_body);
    for body in [
        few("[", "{}", 60_000, "]"),
        array(r#"{"startTime":1}"#),
        array(r#"{"custom":{"":""}}"#),
        list(r#"[{"custom":{"#, r#""":"""#, "}}]"),
        list("[{", r#""":1"#, "}]"),
    ] {
        check(ParsedKind::List, &body, |body| {
            let annotations = parse_annotations_body(body).ok()?;
            let rendered = render_annotations(&annotations);
            Some((annotations.clone(), annotations, rendered))
        });
        let one = body.trim_matches(['[', ']']);
        check(ParsedKind::List, one, parse_annotation_body);
    }
    let body = few(r#"{"startTime":"1","tsuids":["#, r#""""#, 60_000, "]}");
    check(ParsedKind::List, &body, |body| parse_annotation_range_body(body, &clock));
}

fn check_functions(clock: &Clock) {
    for text in [
        "a".repeat(BYTES),
        format!("{}sum:m{}", "absolute(".repeat(1_000), ")".repeat(1_000)),
        format!("sum({})", vec!["sum:m"; BYTES / 6].join(",")),
        format!("sum({})", vec!["sum:m{a=*}"; 4_000].join(",")),
    ] {
        let body = format!(r#"{{"start":"1h-ago","exp":["{text}"]}}"#);
        check(ParsedKind::Query, &body, |body| {
            let (raw, texts) = parse_gexp_body(body).ok()?;
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let parsed = GexpQuery::new(raw.clone(), &texts, clock);
            let echo = parsed.as_ref().ok().map(|parsed| render_query(&raw, &parsed.query, &texts));
            Some((raw, parsed, echo))
        });
    }
    let body = few(r#"{"start":"1h-ago","exp":["#, r#""m""#, 1_000, "]}");
    check(ParsedKind::Query, &body, parse_gexp_body);
}

fn check_expressions(clock: &Clock) {
    let head = r#"{"time":{"start":"1h-ago","aggregator":"sum"},"#;
    let expression = |text: &str| {
        format!(
            r#""metrics":[{{"id":"a","metric":"m"}}],"expressions":[{{"id":"e","expr":"{text}"}}]}}"#
        )
    };
    let metric = |n: usize| format!(r#"{{"id":"m{n}","metric":"m"}}"#);
    let metrics: Vec<String> = (0..4_000).map(metric).collect();
    let metrics = metrics.join(",");
    for rest in [
        few(r#""metrics":["#, "{}", 4_000, "]}"),
        format!(r#""metrics":[{metrics}],"expressions":[{{"id":"e","expr":"m1+m2"}}]}}"#),
        few(r#""expressions":["#, "{}", 4_000, "]}"),
        few(r#""outputs":["#, "{}", 4_000, "]}"),
        few(r#""filters":[{"id":"f","tags":["#, "{}", 1_000, "]}]}"),
        expression(&format!("{}a", "a+".repeat(100_000))),
        expression(&format!("{}a", "-".repeat(100_000))),
        expression(&"(".repeat(100_000)),
        expression(&format!("{}a{}", "(".repeat(100), ")".repeat(100))),
    ] {
        check(ParsedKind::Expressions, &format!("{head}{rest}"), |body| {
            let raw = parse_exp_body(body).ok()?;
            let query = raw.validate(clock);
            let echo = render_exp_query(&raw);
            Some((raw, query, echo))
        });
    }
}
