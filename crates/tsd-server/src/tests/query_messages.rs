//! Error responses of queries: status, message and details, verbatim.

mod endpoints;

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use tsd_engine::{EngineConfig, QueryConfig};
use tsd_storage::{Fault, Operation, StorageError};

use super::harness::{Tsd, config, engine_config};
use crate::ServerConfig;

/// Expected `details`.
#[derive(Clone, Copy, Debug)]
enum Details {
    /// No details.
    None,
    /// The same text as the message.
    Message,
    /// A dump of the query.
    Dump,
    /// The valid names.
    Names,
    /// This text.
    Is(&'static str),
    /// Any text; OpenTSDB's differs.
    Any,
}
use Details::{Any, Dump, Is, Message, Names, None as Nothing};

/// `{"start":…,"queries":[{"aggregator":"sum","metric":"m",…}]}`
fn body(sub_query: &Value) -> String {
    let mut sub = json!({"aggregator": "sum", "metric": "m"});
    for (key, value) in sub_query.as_object().unwrap() {
        sub[key] = value.clone();
    }
    json!({"start": 1_356_998_400, "queries": [sub]}).to_string()
}

struct Case {
    method: Method,
    uri: String,
    body: String,
    status: u16,
    message: String,
    details: Details,
}

fn get(uri: &str, status: u16, message: &str, details: Details) -> Case {
    let (uri, body) = (uri.to_owned(), String::new());
    Case { method: Method::GET, uri, body, status, message: message.to_owned(), details }
}

fn post(uri: &str, body: impl Into<String>, status: u16, message: &str, details: Details) -> Case {
    let message = message.to_owned();
    Case { method: Method::POST, uri: uri.to_owned(), body: body.into(), status, message, details }
}

/// `GET /api/query?start=…&<rest>`
fn uri(rest: &str, status: u16, message: &str, details: Details) -> Case {
    get(&format!("/api/query?start=1356998400&{rest}"), status, message, details)
}

/// Details of a request without a body that needs one.
const SUPPLY: &str = "Supply valid JSON formatted data in the body of your request";

/// `POST /api/query` with one sub query of these fields.
fn sub(fields: &Value, status: u16, message: &str, details: Details) -> Case {
    post("/api/query", body(fields), status, message, details)
}

/// `GET /api/query?start=<start>&m=sum:m`
fn start(start: &str, status: u16, message: &str) -> Case {
    let start = start.replace(' ', "+");
    get(&format!("/api/query?start={start}&m=sum:m"), status, message, Dump)
}

async fn ask_all(tsd: &Tsd, cases: Vec<Case>) {
    for Case { method, uri, body, status, message, details } in cases {
        let answer = tsd.send(method.clone(), &uri, &[], body.clone()).await;
        let what = format!("{method} {uri} {body}\n{}", answer.line());
        assert_eq!(answer.status, status, "{what}");
        let error = answer.json()["error"].clone();
        assert_eq!(error["code"], status, "{what}");
        assert_eq!(error["message"].as_str(), Some(message.as_str()), "{what}");
        let shown = error["details"].as_str();
        match details {
            Nothing => assert_eq!(shown, None, "{what}"),
            Message => assert_eq!(shown, Some(message.as_str()), "{what}"),
            Dump => assert!(shown.is_some_and(|text| text.starts_with("TSQuery(")), "{what}"),
            Is(text) => assert_eq!(shown, Some(text), "{what}"),
            Names => assert!(shown.is_some_and(|text| text.contains("Valid names: ")), "{what}"),
            Any => assert!(shown.is_some_and(|text| !text.is_empty()), "{what}"),
        }
    }
}

async fn daemon(config: ServerConfig) -> Tsd {
    let tsd = Tsd::start_with(config, engine_config()).await;
    let points = r#"[{"metric":"m","timestamp":1356998400,"value":1,"tags":{"host":"a"}},
        {"metric":"m","timestamp":1356998410,"value":1,"tags":{"host":"a"}},
        {"metric":"big","timestamp":1356998400,"value":1e308,"tags":{"host":"a"}},
        {"metric":"big","timestamp":1356998400,"value":1e308,"tags":{"host":"b"}}]"#;
    assert_eq!(tsd.post("/api/put", points).await.status, 204);
    tsd
}

const UNREADABLE: &str = "Unable to parse the given JSON";

/// Issue 37: percentiles over a plain metric say so.
const NUMBERS: &str = "m has numbers and no histograms in this range. Percentiles and buckets need \
                       histograms; for numbers use an aggregator such as p99";

#[tokio::test]
async fn of_uris() {
    let tsd = daemon(config()).await;
    let too_few = "Invalid parameter m=sum (not enough :-separated parts)";
    let too_many = "Invalid parameter m=a:b:c:d:e:f (too many :-separated parts)";
    let rate = "Incorrect number of values in rate options specification, must be counter[,counter \
                max value,reset value], recieved: 4 parts";
    ask_all(
        &tsd,
        vec![
            get("/api/query", 400, "Missing parameter <code>start</code>", Nothing),
            get("/api/query?start=", 400, "Missing parameter <code>start</code>", Nothing),
            uri("", 400, "Missing sub queries", Nothing),
            uri("m=sum", 400, too_few, Nothing),
            uri("m=a:b:c:d:e:f", 400, too_many, Nothing),
            uri("m=", 400, "The query string was empty", Nothing),
            uri("m=sum::m", 400, "An option is empty: two colons follow each other", Nothing),
            uri("m=sum:m%7Bhost=a", 400, "Missing '}' at the end of: m{host=a", Nothing),
            uri("m=sum:m%7Bhost%7D", 400, "When parsing tag 'host': invalid tag: host", Nothing),
            uri(
                "m=sum:m%7Bhost=nope(a)%7D",
                400,
                "When parsing tag 'host=nope(a)': Could not find a tag value filter of the type: nope",
                Nothing,
            ),
            uri("m=sum:rate%7B:m", 400, "Invalid rate options specification: rate{", Nothing),
            uri("m=sum:rate%7Bcounter,1,2,3%7D:m", 400, rate, Nothing),
            uri(
                "m=sum:rate%7Bcounter,x%7D:m",
                400,
                "Max value of counter was not a number, received 'x'",
                Nothing,
            ),
            uri(
                "m=sum:rate%7Bcounter,1,y%7D:m",
                400,
                "Reset value of counter was not a number, received 'y'",
                Nothing,
            ),
            uri(
                "m=sum:percentiles%5Bx%5D:m",
                400,
                "Invalid percentile \"x\": must be a number from 0 to 100",
                Nothing,
            ),
            uri("m=nope:m", 400, "No such aggregation function: nope", Names),
            uri("m=sum:nowhere", 400, "No such name for 'metrics': 'nowhere'", Message),
            uri("m=sum:m%7Brack=a%7D", 400, "No such name for 'tagk': 'rack'", Message),
            uri("m=sum:m%7Bhost=zz%7D", 400, "No such name for 'tagv': 'zz'", Message),
            uri("m=sum:m%7Bvalue=gt()%7D", 400, "Missing number in value filter: gt()", Nothing),
            uri("m=sum:m%7Bvalue=gt(x)%7D", 400, "Invalid number in value filter: gt(x)", Nothing),
            uri(
                "m=sum:m%7Bvalue=between(5,1)%7D",
                400,
                "Value filter between(5,1) has its bounds in the wrong order",
                Nothing,
            ),
            get(
                "/api/query?start=2000&end=1000&m=sum:m",
                400,
                "End time [1000000] must be greater than or equal to the start time [2000000]",
                Dump,
            ),
            uri("tsuid=sum:zz", 400, "TSUID has a wrong length: zz", Nothing),
            uri("tsuid=sum:00", 400, "TSUID has a wrong length: 00", Nothing),
            uri(
                "tsuid=sum:000001000001000001,000002000001000001",
                400,
                "One or more TSUIDs did not share the same metric [000001] [000002]",
                Nothing,
            ),
            uri("end=1356998500&m=sum:1s-avg-scalar:m%7Bhost=a%7D", 400, "unhandled fill policy", Message),
            uri("m=sum:big", 400, "Got Infinity: Infinity", Message),
            uri("m=sum:percentiles%5B50%5D:m", 400, NUMBERS, Message),
            uri("m=sum:show-histogram-buckets:m", 400, NUMBERS, Message),
            uri("exp=scale(sum:m,2", 400, "Failed to parse scale(sum:m,2", Nothing),
            uri("m=sum:m&method_override=", 405, "Missing method override value", Nothing),
            uri(
                "m=sum:m&method_override=patch",
                405,
                "Unknown or unsupported method override value",
                Nothing,
            ),
            uri("m=sum:m&serializer=xml", 400, "Requested serializer was not found", Any),
        ],
    )
    .await;
}

#[tokio::test]
async fn of_times_and_durations() {
    let tsd = daemon(config()).await;
    let dotted = "Invalid time: 1356998400.1234. Millisecond timestamps must be in the format \
                  <seconds>.<ms> where the milliseconds are limited to 3 digits";
    ask_all(
        &tsd,
        vec![
            start("2013/1/1", 400, "Invalid absolute date: 2013/1/1"),
            start(
                "2013/ab/01",
                400,
                "Invalid date: 2013/ab/01. Unparseable date: \"2013/ab/01\"",
            ),
            start("1356998400.1234", 400, dotted),
            start("-1", 400, "Invalid time: -1. Negative timestamps are not supported."),
            start("12x4", 400, "Invalid time: 12x4. Invalid character 'x' in 12x4"),
            start("-ago", 400, "Cannot parse null or empty duration"),
            start("5-ago", 400, "Invalid duration, must have an integer and unit: 5"),
            start("h-ago", 400, "Invalid duration (number): h"),
            start("0h-ago", 400, "Zero or negative duration: 0h"),
            start("1x-ago", 400, "Invalid duration (suffix): 1x"),
            start(
                "9223372036854775807h-ago",
                400,
                "Duration must be < Long.MAX_VALUE ms: 9223372036854775807h",
            ),
            get(
                "/api/query?start=12345678901234&end=12345678901235&m=sum:m",
                400,
                "Invalid timestamp: 12345678901234",
                Nothing,
            ),
            post(
                "/api/query",
                r#"{"start":"2013/01/01","timezone":"Nowhere/At_All","queries":[{"aggregator":"sum","metric":"m"}]}"#,
                400,
                "Invalid timezone name: Nowhere/At_All",
                Dump,
            ),
            post(
                "/api/query",
                r#"{"start":1,"timezone":"Nowhere/At_All","queries":[{"aggregator":"sum","metric":"m","downsample":"1m-sum"}]}"#,
                400,
                "The timezone specification could not be found",
                Dump,
            ),
        ],
    )
    .await;
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one table")]
async fn of_bodies() {
    let tsd = daemon(config()).await;
    let histogram = |fields: Value| {
        let mut sub = json!({"percentiles": [99]});
        for (key, value) in fields.as_object().unwrap() {
            sub[key] = value.clone();
        }
        sub
    };
    ask_all(
        &tsd,
        vec![
            post("/api/query", "", 400, "Missing message content", Is(SUPPLY)),
            post("/api/query", "{", 400, UNREADABLE, Any),
            post("/api/query", "[]", 400, UNREADABLE, Any),
            post("/api/query", r#"{"start":1,"queries":[]}"#, 400, "Missing queries", Dump),
            post(
                "/api/query",
                r#"{"start":1}"#,
                400,
                "Missing queries",
                Dump,
            ),
            post(
                "/api/query",
                r#"{"queries":[{"aggregator":"sum","metric":"m"}]}"#,
                400,
                "Missing start time",
                Dump,
            ),
            sub(&json!({"aggregator": null}), 400, "Missing the aggregation function", Dump),
            sub(&json!({"aggregator": "SUM"}), 400, "No such aggregation function: SUM", Names),
            sub(
                &json!({"metric": null}),
                400,
                "Missing the metric or tsuids, provide at least one",
                Dump,
            ),
            sub(
                &json!({"downsample": "1m"}),
                400,
                "Invalid downsampling specifier '1m': must provide at least interval and function",
                Dump,
            ),
            sub(
                &json!({"downsample": "1m-avg-nan-x"}),
                400,
                "Invalid downsampling specifier '1m-avg-nan-x': must consist of interval, function, \
                 and optional fill policy",
                Dump,
            ),
            sub(&json!({"downsample": "1m-what"}), 400, "No such downsampling function: what", Names),
            sub(
                &json!({"downsample": "1m-none"}),
                400,
                "cannot use the NONE aggregator for downsampling",
                Dump,
            ),
            sub(&json!({"downsample": "1m-avg-what"}), 400, "Unrecognized fill policy: what", Names),
            sub(&json!({"downsample": "1q-avg"}), 400, "Invalid duration (suffix): 1q", Dump),
            sub(&json!({"downsample": "1h30mc-sum"}), 400, "Invalid count \"1h30\" of a calendar interval: must be a whole number", Dump),
            sub(&json!({"percentiles": [101]}), 400, "Invalid percentile parameters: 101.0", Dump),
            sub(
                &histogram(json!({"aggregator": "max"})),
                400,
                "Only NONE or SUM aggregation function supported for histogram query",
                Dump,
            ),
            sub(
                &histogram(json!({"downsample": "1m-avg"})),
                400,
                "Only SUM downsampling aggregation supported for histogram query",
                Dump,
            ),
            sub(
                &histogram(json!({"valueFilters": [{"type": "gt", "filter": 1}]})),
                400,
                "Value filters cannot be used with histograms",
                Nothing,
            ),
            sub(&json!({"tags": null}), 400, UNREADABLE, Any),
            sub(&json!({"rateOptions": {"nope": 1}}), 400, UNREADABLE, Any),
            sub(
                &json!({"filters": [{"type": "not_key", "tagk": "host", "filter": "a"}]}),
                400,
                UNREADABLE,
                Is("Could not find a tag value filter of the type: not_key"),
            ),
            sub(
                &json!({"filters": [{"type": "wildcard", "tagk": "host", "filter": "a"}]}),
                400,
                UNREADABLE,
                Is("Filter must contain an asterisk"),
            ),
            sub(
                &json!({"filters": [{"type": "literal_or", "tagk": "host", "filter": "||"}]}),
                400,
                UNREADABLE,
                Is("Filter must contain more than just a pipe"),
            ),
            sub(
                &json!({"filters": [{"type": "literal_or", "tagk": "host", "filter": ""}]}),
                400,
                UNREADABLE,
                Is("Filter cannot be null or empty"),
            ),
            sub(
                &json!({"filters": [{"type": "regexp", "tagk": "host", "filter": "(("}]}),
                400,
                UNREADABLE,
                Any,
            ),
            sub(&json!({"metric": "nowhere"}), 400, "No such name for 'metrics': 'nowhere'", Message),
            sub(&json!({"tags": {"host": "zz"}}), 400, "No such name for 'tagv': 'zz'", Message),
        ],
    )
    .await;
}

#[tokio::test]
async fn of_methods_and_deletes() {
    let rejected = Is("Deleting data is not enabled (tsd.http.query.allow_delete=false)");
    let case = |method: Method, uri: &str, message: &str, status, details| Case {
        method,
        ..get(uri, status, message, details)
    };
    let put = Is("The HTTP method [PUT] is not permitted for this endpoint");
    let delete = Is("The HTTP method [DELETE] is not permitted for this endpoint");
    let query = "/api/query?start=1&m=sum:m";
    let body = r#"{"start":1,"delete":true,"queries":[{"aggregator":"sum","metric":"m"}]}"#;
    let tsd = daemon(config()).await;
    ask_all(
        &tsd,
        vec![
            case(Method::PUT, query, "Method not allowed", 405, put),
            case(Method::DELETE, query, "Bad request", 400, rejected),
            case(Method::DELETE, "/api/query/last?timeseries=m", "Bad request", 400, rejected),
            case(Method::DELETE, "/api/query/gexp?start=1", "Bad request", 400, rejected),
            post("/api/query", body, 400, "Bad request", rejected),
            case(Method::PUT, "/api/search/lookup?m=m", "Method not allowed", 405, put),
            case(Method::DELETE, "/api/search/lookup?m=m", "Method not allowed", 405, delete),
        ],
    )
    .await;
    // Other spellings of a delete are plain queries.
    let plain = format!("{query}&delete&method_override=delete");
    assert_eq!(tsd.get(&plain).await.status, 200);
    assert_eq!(tsd.get(&format!("{query}&end=2000000000")).await.json()[0]["metric"], "m");
}

/// Error of a query over five hours.
async fn refusal(engine: EngineConfig) -> (u16, String) {
    let tsd = Tsd::start_with(config(), engine).await;
    for hour in 0..5 {
        let time = 1_356_998_400 + 3_600 * hour;
        let point =
            format!(r#"{{"metric":"m","timestamp":{time},"value":1,"tags":{{"host":"a"}}}}"#);
        assert_eq!(tsd.post("/api/put", &point).await.status, 204);
    }
    let answer = tsd.get("/api/query?start=1356998400&end=1357020000&m=sum:m").await;
    (answer.status, answer.json()["error"]["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn of_limits() {
    let advice = "Please try filtering using more tags or decrease your time range.";
    let limited = |limit: fn(&mut QueryConfig)| {
        let mut engine = engine_config();
        engine.query.scan_batch_rows = 1;
        limit(&mut engine.query);
        engine
    };
    assert_eq!(
        refusal(limited(|query| query.max_data_points = 2)).await,
        (
            413,
            format!(
                "Sorry, you have attempted to fetch more than our limit of 2 data points. {advice}"
            )
        )
    );
    assert_eq!(
        refusal(limited(|query| query.max_bytes = 1)).await,
        (
            413,
            format!(
                "Sorry, you have attempted to fetch more than our maximum amount of 0MB from \
                 storage. {advice}"
            )
        )
    );
    let (status, message) = refusal(limited(|query| query.timeout = Some(Duration::ZERO))).await;
    let (head, tail) = ("Sorry, your query timed out. Time limit: 0 ms, fetch time: ", advice);
    assert!(status == 413 && message.starts_with(head) && message.ends_with(tail), "{message}");
}

#[tokio::test]
async fn of_a_store_that_fails() {
    let tsd = daemon(config()).await;
    for (error, status, message) in [
        (StorageError::Backend("gone".into()), 424, "gone"),
        (StorageError::Timeout("a region server"), 408, "timed out: a region server"),
        // Issue 37: it was a 424, while a put got a 503.
        (StorageError::DiskFull, 503, "no space left on the data disk"),
    ] {
        tsd.storage.script(Operation::ScanBatch, [Fault::Error(error)]);
        let answer = tsd.get("/api/query?start=1356998400&end=1356998500&m=sum:m").await;
        let expected_text =
            json!({"error": {"code": status, "message": message, "details": message}});
        assert_eq!((answer.status, answer.json()), (status, expected_text));
    }
    // Issue 37: such queries were counted as invalid requests.
    let stats = tsd.get("/stats").await.text();
    let count = |name: &str| {
        let line = stats.lines().find(|line| line.contains(name)).unwrap();
        line.split(' ').nth(2).unwrap().to_owned()
    };
    let counts = ["http.query.exceptions", "http.query.invalid_requests"].map(count);
    assert_eq!(counts, ["3", "0"]);
}

#[tokio::test]
async fn of_lists_of_queries() {
    let tsd = daemon(config()).await;
    let case = |rest: &str, status, message: &str| Case {
        method: Method::DELETE,
        ..get(&format!("/api/stats/query{rest}"), status, message, Nothing)
    };
    ask_all(
        &tsd,
        vec![
            case("", 400, "Missing parameter <code>id</code>"),
            case("?id=x", 400, "Unable to parse 'id' as a number"),
            case("?id=99", 404, "No query with the id 99 is running"),
        ],
    )
    .await;
}
