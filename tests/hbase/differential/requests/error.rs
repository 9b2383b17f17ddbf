//! Invalid requests: bodies that are not queries, wrong types, bad times, wrong methods.

use serde_json::json;

use crate::differential::{
    data::{BASE, Data},
    random::Random,
    request::Request,
};

/// Bodies of `/api/query`, with `M` for a metric.
const BODIES: &[&str] = &[
    "",
    "{",
    "[]",
    "nope",
    "null",
    "{}",
    r#"{"queries":[]}"#,
    r#"{"start":1356998400}"#,
    r#"{"start":1356998400,"queries":[]}"#,
    r#"{"start":1356998400,"queries":{}}"#,
    r#"{"start":1356998400,"queries":[{}]}"#,
    r#"{"start":1356998400,"queries":[null]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"metric":"M"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":5}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":null,"metric":"M"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","rate":"true"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","rate":"x"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","rate":1}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","downsample":""}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","downsample":5}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","downsample":"1m-"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","downsample":"-1m-sum"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","downsample":"1m-none"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","downsample":"1M-sum"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","downsample":"all-sum"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","tags":[]}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","tags":{"host":5}}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","tags":{"host":""}}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","tags":{"host":"nope"}}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","tags":{"nokey":"*"}}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","tags":{"host":"regexp(web.*)"}}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","filters":{}}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","filters":[{}]}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","filters":[{"tagk":"host"}]}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","filters":[{"tagk":"host","type":"wildcard"}]}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","filters":[{"type":"wildcard","filter":"*"}]}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","filters":[{"tagk":"","type":"wildcard","filter":"*"}]}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","filters":[{"tagk":"host","type":"literal_or","filter":""}]}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","filters":[{"tagk":"host","type":"literal_or","filter":"|"}]}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","filters":[{"tagk":"host","type":"not_key","filter":""}]}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","filters":[{"tagk":"dc","type":"not_key","filter":""}]}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","filters":[{"tagk":"dc","type":"not_key","filter":"x"}]}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","filters":[{"tagk":"host","type":"WILDCARD","filter":"*"}]}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","filters":[{"tagk":"host","type":"wildcard","filter":"**"}]}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"SUM","metric":"M"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":" sum","metric":"M"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"no.such"},{"aggregator":"nope","metric":"M"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","tsuids":["zz"]}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","tsuids":[""]}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","tsuids":["000001"]}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","tsuids":"000001000001000001"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","tsuids":["FFFFFF000001000001"]}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","rate":true,"rateOptions":{"counterMax":"x"}}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","rate":true,"rateOptions":{"counter":true,"counterMax":-5}}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","rate":true,"rateOptions":null}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","rate":true,"rateOptions":{"counter":true,"resetValue":-1}}]}"#,
    r#"{"start":1356998400,"end":1357002000,"timezone":"Nope/Nope","queries":[{"aggregator":"sum","metric":"M"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"timezone":"","queries":[{"aggregator":"sum","metric":"M"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"timezone":"Nope/Nope","useCalendar":true,"queries":[{"aggregator":"sum","metric":"M","downsample":"1d-sum"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"useCalendar":"x","queries":[{"aggregator":"sum","metric":"M"}]}"#,
    r#"{"start":"","end":1357002000,"queries":[{"aggregator":"sum","metric":"M"}]}"#,
    r#"{"start":null,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M"}]}"#,
    r#"{"start":1356998400,"end":"","queries":[{"aggregator":"sum","metric":"no.such"}]}"#,
    r#"{"start":1356998400,"end":null,"queries":[{"aggregator":"sum","metric":"no.such"}]}"#,
    r#"{"start":1356998400.5,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M"}]}"#,
    r#"{"start":true,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M"}]}"#,
    r#"{"start":[1],"end":1357002000,"queries":[{"aggregator":"sum","metric":"M"}]}"#,
    r#"{"start":-5,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M"}]}"#,
    r#"{"start":0,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"msResolution":"x","queries":[{"aggregator":"sum","metric":"M"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"nope":{"a":[1]},"queries":[{"aggregator":"sum","metric":"M","nope":1}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","percentiles":[]}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","percentiles":["x"]}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M","percentiles":50}]}"#,
    r#"{"start":1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M"},{"aggregator":"sum","metric":"M"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"options":{"a":["b"]},"queries":[{"aggregator":"sum","metric":"M"}]}"#,
    r#"{"start":1356998400,"end":1357002000,"overrideByteLimit":true,"queries":[{"aggregator":"sum","metric":"M"}]}"#,
    r#"{'start':1356998400,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M"}]}"#,
    r#"{"start":1356998400,"start":1356999000,"end":1357002000,"queries":[{"aggregator":"sum","metric":"M"}]}"#,
];

/// Texts of times: good, odd and bad.
const TIMES: &[&str] = &[
    "2013/01/01",
    "2013/01/01-00:00",
    "2013/01/01-00:30:00",
    "2013/01/01 00:30",
    "2013/01/01 00:30:15",
    "2013/1/1",
    "2013/13/01",
    "2013/01/32",
    "2013/01/01-25:00",
    "2013/01/01-00:61",
    "2013-01-01",
    "2013/01/01T00:00",
    "2013/01/01-00:00:00.5",
    "1356998400",
    "1356998400000",
    "1356998400.500",
    "1356998400.5",
    "1356998400.1234",
    "1356998400ms",
    "1356998400000ms",
    "135699840",
    "13569984001",
    "135699840012345",
    "+1356998400",
    " 1356998400",
    "0",
    "00",
    "-1",
    "x",
    "ago",
    "1-ago",
    "1x-ago",
    "-1h-ago",
    "h-ago",
    "20000d-ago",
    "30y-ago",
    "999999999999999999999",
    "1e9",
    "1356998400,5",
    "yesterday",
    "30Y-AGO",
    "400N-ago",
    "30y-agoo",
    "30y-Ago",
];

/// `m` of a URI, with `M` for a metric.
const SUB_QUERIES: &[&str] = &[
    "M",
    "sum",
    ":M",
    "sum:",
    "sum::M",
    "sum:M:",
    "sum:rate:1m-avg:explicit_tags:M",
    "sum:rate:rate:M",
    "sum:1m-avg:2m-sum:M",
    "sum:1m-avg:rate{counter:M",
    "sum:rate{counter,1,2}:M",
    "sum:rate{}:M",
    "sum:rate{counter,,}:M",
    "sum:rate{counter,-1,-1}:M",
    "sum:rate{dropcounter,10,5}:M",
    "sum:Rate:M",
    "sum:RATE{COUNTER}:M",
    "sum:M{host=web01",
    "sum:Mhost=web01}",
    "sum:M{host=web01}}",
    "sum:M{{host=web01}}",
    "sum:M{host=web01,host=web02}",
    "sum:M{host=web01}{host=web02}",
    "sum:M{host=*,host=web*}",
    "sum:M{host=,dc=*}",
    "sum:M{,host=*}",
    "sum:M{host=*,}",
    "sum:M{host==web01}",
    "sum:M{host=nope()}",
    "sum:M{host=nope(x)}",
    "sum:M{host=wildcard()}",
    "sum:M{host=wildcard(web*}",
    "sum:M{host=regexp([)}",
    "sum:M{host=regexp(web.*)}{dc=*}",
    "sum:M{host=web01|}",
    "sum:M{host=|}",
    "sum:M{host=not_key()}",
    "sum:M{}{dc=not_key()}",
    "sum:M{HOST=*}",
    "sum:M {host=*}",
    "sum: M",
    "sum:M{host=web01 }",
    "sum:M{ host=web01}",
    "sum:M{host=iwildcard(WEB*)}",
    "sum:M{host=not_iliteral_or(WEB01)}",
    "sum:explicit_tags:M{host=*}",
    "sum:explicit_tags:M{}",
    "sum:EXPLICIT_TAGS:M{host=*}",
    "sum:1m-avg-nan:rate:M{host=*}",
    "none:1m-avg-zero:M",
    "sum:1m:M",
    "sum:1-avg:M",
    "sum:m-avg:M",
    "sum:1m-avg-:M",
    "sum:1m--avg:M",
    "sum:0all-sum:M",
    "sum:1all-sum:M",
    "sum:all-sum:M",
    "sum:1mc-sum:M",
    "sum:1cm-sum:M",
    "sum:1.5m-sum:M",
    "sum:99999999999999m-sum:M",
    "sum:2147483648m-sum:M",
    "sum:percentiles[]:M",
    "sum:percentiles[50:M",
    "sum:percentiles[-1]:M",
    "nope:M",
    "sum:no.such",
    "sum:M{host=no.such}",
    "sum:M{no.such=web01}",
    "",
    "{}",
    "sum:{host=*}",
];

/// Parameters of a URI other than times.
const PARAMETERS: &[(&str, &str)] = &[
    ("tsuid", "sum:zz"),
    ("tsuid", "sum:"),
    ("tsuid", "000001"),
    ("tsuid", "sum:00000"),
    ("tsuid", "sum:000001,000002"),
    ("tsuid", "sum:FFFFFF000001000001"),
    ("tsuid", "sum:1m-avg:rate:FFFFFF000001000001"),
    ("tsuid", "nope:FFFFFF000001000001"),
    ("serializer", "nope"),
    ("serializer", "json"),
    ("method_override", "nope"),
    ("method_override", "post"),
    ("method_override", "put"),
    ("jsonp", "call"),
    ("ms", "false"),
    ("arrays", "false"),
    ("unknown", "1"),
    ("o", "axis"),
    ("timezone", "Asia/Kabul"),
];

pub(super) fn request(data: &Data, random: &mut Random) -> Request {
    let metric = data.metric(random).to_owned();
    let with_metric = |text: &str| text.replace('M', &metric);
    let start = || (BASE - 10).to_string();
    let end = || (BASE + 20_000).to_string();
    match random.below(20) {
        0..6 => {
            let body = random.pick(BODIES).replace("\"M\"", &format!("{metric:?}"));
            Request::get("/api/query").method("POST").text(&body)
        }
        6..11 => Request::get("/api/query")
            .parameter("start", start())
            .parameter("end", end())
            .parameter("m", with_metric(random.pick(SUB_QUERIES))),
        11..15 => {
            // The daemons read the clock up to about a second apart, and this metric has no points
            // there.
            let request = Request::get("/api/query");
            let time = random.pick(TIMES);
            let other = if random.chance(50) { end() } else { random.pick(TIMES).to_owned() };
            let request = if random.chance(70) {
                request.parameter("start", time).parameter("end", other)
            } else {
                request.parameter("start", other).parameter("end", time)
            };
            request.parameter("m", format!("sum:{metric}"))
        }
        15 => {
            let mut body = json!({
                "start": random.pick(TIMES), "end": random.pick(TIMES),
                "queries": [{"aggregator": "sum", "metric": metric}],
            });
            if random.chance(50) {
                body["timezone"] = json!(random.pick(super::query::ZONES));
            }
            Request::post("/api/query", body)
        }
        16 | 17 => {
            let (name, value) = PARAMETERS[random.index(PARAMETERS.len())];
            let mut request =
                Request::get("/api/query").parameter("start", start()).parameter("end", end());
            if random.chance(70) {
                request = request.parameter("m", format!("sum:{metric}"));
            }
            request.parameter(name, value)
        }
        18 => {
            // Repeated and missing parameters.
            let mut request = Request::get("/api/query");
            for (name, value) in [
                ("start", start()),
                ("start", end()),
                ("end", end()),
                ("m", format!("sum:{metric}")),
                ("m", format!("sum:{metric}")),
            ] {
                if random.chance(60) {
                    request = request.parameter(name, value);
                }
            }
            request
        }
        _ => {
            let body = json!({
                "start": BASE, "end": BASE + 9_000,
                "queries": [{"aggregator": "sum", "metric": metric}],
            });
            let method = [("PUT"), ("DELETE"), ("GET"), ("PATCH")][random.index(4)];
            let request = Request::post("/api/query", body).method(method);
            if method == "DELETE" { Request::get("/api/query").method("PUT") } else { request }
        }
    }
}
