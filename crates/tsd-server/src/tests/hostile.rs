//! Hostile queries: each gets an error response quickly, and the server keeps working.

use hyper::Method;

use super::harness::{TestResponse, Tsd, config, engine_config, with_limits};
use crate::Limits;

const POINT: &str = r#"{"metric":"m","timestamp":1356998400,"value":1,"tags":{"host":"a"}}"#;

async fn daemon() -> Tsd {
    let tsd = Tsd::start_with(config(), engine_config()).await;
    assert_eq!(tsd.post("/api/put", POINT).await.status, 204);
    tsd
}

/// Checks the status and the beginning of the message.
#[track_caller]
fn check(answer: &TestResponse, status: u16, message: &str) {
    let shown: String = answer.text().chars().take(300).collect();
    assert_eq!(answer.status, status, "{shown}");
    let actual = answer.json()["error"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(actual.starts_with(message), "{shown}");
}

/// Checks that the server still works.
async fn works(tsd: &Tsd) {
    let answer = tsd.get("/api/query?start=1356998400&end=1356998500&m=sum:m").await;
    assert_eq!(answer.text().matches("1356998400").count(), 1);
}

fn query(sub_queries: &str) -> String {
    format!(r#"{{"start":1356998400,"end":1356998500,"queries":[{sub_queries}]}}"#)
}

fn sub(fields: &str) -> String {
    query(&format!(r#"{{"aggregator":"sum","metric":"m",{fields}}}"#))
}

const UNREADABLE: &str = "Unable to parse the given JSON";

#[tokio::test]
async fn large_bodies() {
    let tsd = daemon().await;
    // Ten megabytes of an unknown field are skipped.
    let padding = format!("[\"{}\"],", "x".repeat(1_024)).repeat(10 << 10);
    let body = sub(&format!(r#""nobody":[{padding}0]"#));
    assert!(body.len() > 10 << 20);
    assert_eq!(tsd.post("/api/query", &body).await.status, 200);
    check(&tsd.post("/api/query", &"[".repeat(10 << 20)).await, 400, UNREADABLE);
    check(&tsd.post("/api/query/exp", &"[".repeat(10 << 20)).await, 400, UNREADABLE);
    check(&tsd.post("/api/query/last", &"[".repeat(10 << 20)).await, 400, UNREADABLE);
    let over = " ".repeat((16 << 20) + 1);
    for uri in ["/api/query", "/api/query/exp", "/api/query/last", "/api/search/lookup"] {
        check(&tsd.post(uri, &over).await, 413, "The request body is larger than");
    }
    let small = with_limits(Limits { body_bytes: 1_000, ..Limits::default() });
    let small = Tsd::start_with(small, engine_config()).await;
    check(&small.post("/api/query", &body).await, 413, "The request body is larger than 1000");
    works(&tsd).await;
}

#[tokio::test]
async fn many_parts() {
    let tsd = daemon().await;
    let subs = |count| query(&vec![r#"{"aggregator":"sum","metric":"m"}"#; count].join(","));
    check(&tsd.post("/api/query", &subs(10_000)).await, 413, "Too many sub queries");
    // Equal sub queries are merged.
    let answer = tsd.post("/api/query", &subs(4_000)).await;
    assert_eq!(answer.json().as_array().unwrap().len(), 1);
    let filters = vec![r#"{"type":"wildcard","tagk":"host","filter":"*"}"#; 100_000].join(",");
    let filters = sub(&format!(r#""filters":[{filters}]"#));
    check(&tsd.post("/api/query", &filters).await, 413, "Too many filters");
    let alternatives = sub(&format!(r#""tags":{{"host":"{}"}}"#, "a|".repeat(1 << 20)));
    check(&tsd.post("/api/query", &alternatives).await, 413, "Too many alternatives");
    let regexps =
        vec![r#"{"type":"regexp","tagk":"host","filter":"(a{50}){50}"}"#; 1_000].join(",");
    let regexps = sub(&format!(r#""filters":[{regexps}]"#));
    check(&tsd.post("/api/query", &regexps).await, 413, "Too many regular expressions");
    let tsuids = sub(&format!(r#""tsuids":[{}]"#, vec!["\"00\""; 200_000].join(",")));
    check(&tsd.post("/api/query", &tsuids).await, 413, "Too many TSUIDs");
    let metrics = vec![r#"{"id":"a","metric":"m"}"#; 10_000].join(",");
    let metrics = format!(r#"{{"metrics":[{metrics}]}}"#);
    check(&tsd.post("/api/query/exp", &metrics).await, 413, "Too many metrics");
    let last = format!(r#"{{"queries":[{}]}}"#, vec!["{}"; 10_000].join(","));
    check(&tsd.post("/api/query/last", &last).await, 413, "Too many sub queries");
    let tags = format!(r#"{{"tags":[{}]}}"#, vec!["{}"; 10_000].join(","));
    check(&tsd.post("/api/search/lookup", &tags).await, 413, "Too many tags");
    let functions = vec![r#""scale(sum:m,2)""#; 10_000].join(",");
    let functions = format!(r#"{{"start":1,"exp":[{functions}]}}"#);
    check(&tsd.post("/api/query/gexp", &functions).await, 413, "Too many expressions");
    works(&tsd).await;
}

#[tokio::test]
async fn deep_nesting() {
    let tsd = daemon().await;
    for depth in [2_000, 1 << 20] {
        let value = format!("{}{}", "{\"a\":[".repeat(depth), "]}".repeat(depth));
        check(&tsd.post("/api/query", &sub(&format!(r#""x":{value}"#))).await, 400, UNREADABLE);
    }
    let exp = |expr: &str| {
        format!(
            r#"{{"time":{{"start":1,"aggregator":"sum"}},"metrics":[{{"id":"a","metric":"m"}}],"expressions":[{{"id":"e","expr":"{expr}"}}]}}"#
        )
    };
    let deep = "The expression e is too long or nested too deeply";
    for expr in [
        format!("{}a{}", "(".repeat(50_000), ")".repeat(50_000)),
        format!("{}a", "-".repeat(50_000)),
        format!("{}a", "a?".repeat(50_000)),
        format!("{}a", "if(a)".repeat(20_000)),
        format!("{}a", "{".repeat(50_000)),
        format!("{}a", "a+".repeat(50_000)),
    ] {
        check(&tsd.post("/api/query/exp", &exp(&expr)).await, 400, deep);
    }
    let long = exp(&"a+".repeat(1 << 20));
    check(&tsd.post("/api/query/exp", &long).await, 413, "Too many bytes of expressions");
    let functions = |depth: usize| {
        let text = format!("{}sum:m{}", "absolute(".repeat(depth), ")".repeat(depth));
        format!(r#"{{"start":1,"exp":"{text}"}}"#)
    };
    check(
        &tsd.post("/api/query/gexp", &functions(100)).await,
        400,
        "An expression nests more than",
    );
    let long = functions(100_000);
    check(&tsd.post("/api/query/gexp", &long).await, 400, "An expression is longer than");
    works(&tsd).await;
}

#[tokio::test]
async fn exponential_patterns() {
    let tsd = daemon().await;
    for pattern in ["(a{1000}){1000}", "((a*)*)*b", "(x+x+)+y", "a{999999999}"] {
        let body =
            sub(&format!(r#""filters":[{{"type":"regexp","tagk":"host","filter":"{pattern}"}}]"#));
        let answer = tsd.post("/api/query", &body).await;
        assert!(matches!(answer.status, 200 | 400), "{pattern}: {}", answer.line());
    }
    let nested = format!("{}a{}", "(".repeat(10_000), ")".repeat(10_000));
    let nested =
        sub(&format!(r#""filters":[{{"type":"regexp","tagk":"host","filter":"{nested}"}}]"#));
    check(&tsd.post("/api/query", &nested).await, 400, UNREADABLE);
    // A megabyte of pattern that no tag value can match.
    let wildcard = format!("{}*", "a".repeat(1 << 20));
    let body =
        sub(&format!(r#""filters":[{{"type":"wildcard","tagk":"host","filter":"{wildcard}"}}]"#));
    assert_eq!(tsd.post("/api/query", &body).await.line(), "200 []");
    let literal = sub(&format!(r#""tags":{{"host":"{}"}}"#, "a".repeat(1 << 20)));
    check(&tsd.post("/api/query", &literal).await, 400, "No such name for 'tagv'");
    works(&tsd).await;
}

#[tokio::test]
async fn odd_texts_and_numbers() {
    let tsd = daemon().await;
    let huge = "9".repeat(100_000);
    for (body, status) in [
        // Of repeated fields, the last one counts.
        (sub(r#""metric":"x","metric":"m""#), 200),
        (sub(r#""metric":"\u0000""#), 400),
        (sub(r#""metric":"\ud800""#), 400),
        (sub(r#""metric":"m\n""#), 400),
        (sub("\"metric\":\"m\n\""), 400),
        (sub(&format!(r#""percentiles":[{huge}]"#)), 400),
        (sub(&format!(r#""rate":true,"rateOptions":{{"counterMax":{huge}}}"#)), 400),
        (sub(&format!(r#""rate":true,"rateOptions":{{"counterMax":1e{huge}}}"#)), 400),
        (sub(&format!(r#""downsample":"{huge}s-avg""#)), 400),
        (sub(r#""downsample":"9223372036854775807y-avg""#), 400),
        (sub(r#""downsample":"1ms-avg-zero""#), 200),
        (format!(r#"{{"start":{huge},"queries":[{{"aggregator":"sum","metric":"m"}}]}}"#), 400),
        (r#"{"start":1e400,"queries":[{"aggregator":"sum","metric":"m"}]}"#.to_owned(), 400),
        (r#"{"start":NaN,"queries":[{"aggregator":"sum","metric":"m"}]}"#.to_owned(), 400),
    ] {
        let answer = tsd.post("/api/query", &body).await;
        let shown: String = body.chars().take(200).collect();
        let actual: String = answer.line().chars().take(200).collect();
        assert_eq!(answer.status, status, "{shown}\n{actual}");
    }
    for bytes in [&b"{\"start\":\"\xff\"}"[..], b"\xff\xfe\x00", b"\0\0\0"] {
        for uri in ["/api/query", "/api/query/last"] {
            let answer = tsd.send(Method::POST, uri, &[], bytes).await;
            check(&answer, 400, UNREADABLE);
        }
        for uri in ["/api/query/exp", "/api/search/lookup"] {
            let answer = tsd.send(Method::POST, uri, &[], bytes).await;
            check(&answer, 400, UNREADABLE);
        }
    }
    for uri in [
        "/api/query?start=1356998400&m=sum:m%7Bhost=%00%7D",
        "/api/query?start=1356998400&m=sum:%ff%fe",
        "/api/query?start=%00&m=sum:m",
        "/api/query?start=1356998400&m=%zz",
        "/api/query/last?timeseries=%00&tsuids=%ff",
        "/api/search/lookup?m=%00",
    ] {
        let answer = tsd.get(uri).await;
        assert!(matches!(answer.status, 400 | 404), "{uri}: {}", answer.line());
    }
    works(&tsd).await;
}

#[tokio::test]
async fn cyclic_expressions() {
    let tsd = daemon().await;
    let chain: Vec<String> = (0..2_000)
        .map(|n| format!(r#"{{"id":"e{n}","expr":"e{} + a"}}"#, (n + 1) % 2_000))
        .collect();
    let body = format!(
        r#"{{"time":{{"start":1,"aggregator":"sum"}},"metrics":[{{"id":"a","metric":"m"}}],"expressions":[{}]}}"#,
        chain.join(",")
    );
    check(&tsd.post("/api/query/exp", &body).await, 400, "Circular reference found: e");
    works(&tsd).await;
}
