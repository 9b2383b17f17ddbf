//! Error responses of the endpoints other than `/api/query`.

use super::*;

#[tokio::test]
async fn of_expressions() {
    let tsd = daemon(config()).await;
    let exp = |fields: Value, status, message: &str, details| {
        let mut body = json!({
            "time": {"start": 1_356_998_400, "end": 1_356_998_500, "aggregator": "sum"},
            "metrics": [{"id": "a", "metric": "m"}],
        });
        for (key, value) in fields.as_object().unwrap() {
            body[key] = value.clone();
        }
        post("/api/query/exp", body.to_string(), status, message, details)
    };
    let expressions = |expressions: &[(&str, &str)]| {
        let list = expressions.iter().map(|(id, expr)| json!({"id": id, "expr": expr}));
        json!({"expressions": list.collect::<Vec<_>>()})
    };
    let deep = format!("{}a{}", "(".repeat(200), ")".repeat(200));
    let too_deep = "The expression e is too long or nested too deeply";
    ask_all(
        &tsd,
        vec![
            post("/api/query/exp", "", 400, "Incoming data was null or empty", Nothing),
            get("/api/query/exp", 400, "Incoming data was null or empty", Nothing),
            post("/api/query/exp", "{", 400, UNREADABLE, Any),
            exp(json!({"time": null}), 400, "missing time", Nothing),
            exp(json!({"time": {"start": "x", "aggregator": "sum"}}), 400, "Invalid time", Nothing),
            exp(json!({"metrics": []}), 400, "missing or empty metrics", Nothing),
            exp(
                json!({"metrics": [{"id": "a", "metric": "m"}, {"id": "a", "metric": "m"}]}),
                400,
                "duplicated metric id: a",
                Nothing,
            ),
            exp(
                json!({"metrics": [{"id": "a", "metric": "m", "timeOffset": "1m"}]}),
                400,
                "Invalid metric at index 0",
                Nothing,
            ),
            exp(
                json!({"metrics": [{"id": "a", "metric": "m", "filter": "f1"}]}),
                400,
                "unrecognized filter id f1 in metric a",
                Nothing,
            ),
            exp(
                expressions(&[("e", "a + b")]),
                400,
                "Expression [a + b] was missing input b",
                Nothing,
            ),
            exp(
                expressions(&[("e", "e + a")]),
                400,
                "Self referencing expression found: e",
                Message,
            ),
            exp(
                expressions(&[("e", "f + a"), ("f", "e + a")]),
                400,
                "Circular reference found: e",
                Message,
            ),
            exp(expressions(&[("e", "a +")]), 400, "Unable to parse expression: a +", Nothing),
            exp(expressions(&[("e", &deep)]), 400, too_deep, Nothing),
            exp(expressions(&[("e", &"a+".repeat(5_000))]), 400, too_deep, Nothing),
            exp(
                expressions(&[("e", "A + a"), ("A", "a * 2")]),
                400,
                "Missing results for variable A",
                Message,
            ),
            exp(
                json!({"metrics": [{"id": "a", "metric": "nowhere"}]}),
                400,
                "No such name for 'metrics': 'nowhere'",
                Message,
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn of_functions() {
    let tsd = daemon(config()).await;
    let gexp = |rest: &str, status, message: &str, details| {
        get(&format!("/api/query/gexp?start=1356998400&{rest}"), status, message, details)
    };
    let deep = format!("exp={}sum:m{}", "absolute(".repeat(80), ")".repeat(80));
    ask_all(
        &tsd,
        vec![
            get(
                "/api/query/gexp?exp=scale(sum:m,2)",
                400,
                "Missing parameter <code>start</code>",
                Nothing,
            ),
            gexp("", 400, "Missing sub queries", Nothing),
            gexp("exp=scale(sum:m,2", 400, "Failed to parse scale(sum:m,2", Nothing),
            gexp("exp=nope(sum:m)", 400, "Function nope has not been implemented", Names),
            gexp(&deep, 400, "An expression nests more than 64 functions", Nothing),
            gexp("exp=scale(nope:m,2)", 400, "No such aggregation function: nope", Names),
            post("/api/query/gexp", "", 400, "Missing message content", Is(SUPPLY)),
            post("/api/query/gexp", "{", 400, UNREADABLE, Any),
            post("/api/query/gexp", "{}", 400, "Missing start time", Dump),
            gexp("exp=scale(sum:nowhere,2)", 400, "No such name for 'metrics': 'nowhere'", Message),
            gexp("exp=scale(sum:m,x)", 400, "Unparseable scale factor value: 0.0", Message),
            gexp("exp=scale(5,sum:m)", 400, "Unknown parameter type: 5", Message),
            gexp("exp=alias(sum:m)", 400, "Missing the alias", Message),
            gexp(
                "exp=movingAverage(sum:m,0)",
                400,
                "Moving average window must be an integer greater than zero",
                Message,
            ),
            gexp("exp=sumSeries(sum:m)", 400, "Must have 2 to 26 series, got 1 instead", Message),
        ],
    )
    .await;
}

#[tokio::test]
async fn of_last_points_and_look_ups() {
    let tsd = daemon(config()).await;
    let supply = "Missing metric and tags. Please supply at least one value.";
    let number = "Unable to convert 'limit' to a valid number";
    ask_all(
        &tsd,
        vec![
            get("/api/query/last", 400, "Missing sub queries", Nothing),
            get(
                "/api/query/last?timeseries=m&back_scan=x",
                400,
                "Unable to parse back_scan parameter",
                Nothing,
            ),
            get(
                "/api/query/last?timeseries=m&back_scan=1",
                400,
                "Tags cannot be null or empty when getting a TSUID",
                Message,
            ),
            get(
                "/api/query/last?tsuids=0001&back_scan=1",
                400,
                "TSUID must not be null and must have a metric and at least one tag pair",
                Message,
            ),
            get(
                "/api/query/last?tsuids=000001000001000001&back_scan=-1",
                400,
                "Backscan must be zero or a positive number",
                Message,
            ),
            get(
                "/api/query/last?timeseries=nowhere%7Bhost=a%7D",
                400,
                "No such name for 'metrics': 'nowhere'",
                Message,
            ),
            post("/api/query/last", "", 400, "Missing message content", Is(SUPPLY)),
            post("/api/query/last", "{", 400, UNREADABLE, Any),
            post("/api/query/last", "{}", 400, "Missing sub queries", Nothing),
            get(
                "/api/search",
                400,
                "Invalid search query type supplied",
                Is("Type provided was null or empty"),
            ),
            get(
                "/api/search/nothing",
                400,
                "Invalid search query type supplied",
                Is("Unknown type: nothing"),
            ),
            get("/api/search/uidmeta", 400, "Missing parameter <code>query</code>", Nothing),
            post("/api/search/tsuids", "{}", 400, "Missing query", Nothing),
            get("/api/search/lookup", 400, "Missing parameter <code>m</code>", Nothing),
            get("/api/search/lookup?m=m&limit=x", 400, number, Nothing),
            get("/api/search/lookup?m=%7B%7D", 400, "Unable to parse query", Any),
            get("/api/search/lookup?m=m%7Bhost", 400, "Unable to parse query", Any),
            get("/api/search/lookup?m=m%7Bhost%7D", 400, "Unable to parse query", Any),
            get("/api/search/lookup?m=%7B*=%7D", 400, "Unable to parse query", Any),
            get("/api/search/lookup?m=%7B*=*%7D", 400, "Unable to parse query", Any),
            get(
                "/api/search/lookup?m=nowhere",
                404,
                "Unable to resolve one or more UIDs",
                Is("No such name for 'metrics': 'nowhere'"),
            ),
            get(
                "/api/search/lookup?m=m%7Bhost=a%7Cb%7D",
                404,
                "Unable to resolve one or more UIDs",
                Is("No such name for 'tagv': 'a|b'"),
            ),
            post("/api/search/lookup", r#"{"metric":null}"#, 400, supply, Nothing),
            post("/api/search/lookup", "{", 400, UNREADABLE, Any),
            get("/api/suggest", 400, "Missing parameter <code>type</code>", Nothing),
            post("/api/suggest", "{}", 400, "Missing 'type' parameter", Nothing),
            get("/api/suggest?type=x", 400, "Invalid 'type' parameter:x", Nothing),
            get(
                "/api/suggest?type=metrics&max=x",
                400,
                "Unable to parse 'max' as a number",
                Nothing,
            ),
        ],
    )
    .await;
}
