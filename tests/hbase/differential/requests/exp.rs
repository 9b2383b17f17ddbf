//! `/api/query/exp`.

use serde_json::{Map, Value, json};

use super::query::{aggregator, range, time_text};
use crate::differential::{data::Data, random::Random, request::Request};

const EXPRESSIONS: &[&str] = &[
    "a + b",
    "a - b",
    "a * b",
    "a / b",
    "a % b",
    "a + b + 1",
    "a * 0.5",
    "b / 3",
    "7 / 2 * a",
    "a > b",
    "a >= 5 && b < 10",
    "a ? b : a",
    "-a",
    "!a",
    "(a + b) * 2",
    "a",
    "a + a",
    "a * 0.1D",
    "a * 100L",
    "a == b || b != 0",
    "a / (b - b)",
    "a + 0x10",
    "a gt b and a lt 100",
    "a eq b",
    "a > b ? a : b",
    "a * (a > 4)",
    "a + '1'",
    "a - 16777217.0",
    "a * 0.123456789",
    "1.5 / 2 + a",
    "a + true",
];
const BAD_EXPRESSIONS: &[&str] = &[
    "a ^ 2",
    "a > 5 ? 1 : 0",
    "1e3 + a",
    "a +",
    "1 + 2",
    "a + q",
    "e + a",
    "Math.sqrt(a)",
    "a; b",
    "",
    "a | 1",
    "f(a)",
    "a b",
    "a ++ b",
    "x = a + b",
    "null",
    "a + null",
    "a.b",
    "a[0]",
    "'text'",
];

fn fill(random: &mut Random) -> Value {
    match random.below(8) {
        0 => json!({"policy": "nan"}),
        1 => json!({"policy": "zero"}),
        2 => json!({"policy": "scalar", "value": random.between(-9, 9)}),
        3 => json!({"policy": "scalar", "value": 1.5}),
        4 => json!({"policy": "none"}),
        5 => json!({"policy": "null"}),
        6 => json!({"policy": random.pick(&["zero", "NAN", "nope", "scalar"])}),
        _ => json!({"policy": "zero", "value": random.between(0, 1)}),
    }
}

pub(super) fn request(data: &Data, random: &mut Random) -> Request {
    let (start, end) = range(random);
    let mut time = Map::new();
    time.insert("start".to_owned(), json!(time_text(start, random)));
    time.insert("end".to_owned(), json!(time_text(end, random)));
    time.insert("aggregator".to_owned(), json!(aggregator(random)));
    if random.chance(50) {
        let interval = random.pick(&["1m", "10s", "1h", "1d", "30s", "15m"]);
        let mut downsampler = json!({"interval": interval, "aggregator": aggregator(random)});
        if random.chance(40) {
            downsampler["fillPolicy"] = fill(random);
        }
        time.insert("downsampler".to_owned(), downsampler);
    }
    if random.chance(15) {
        time.insert("rate".to_owned(), json!(true));
    }
    if random.chance(10) {
        time.insert("timezone".to_owned(), json!(random.pick(super::query::ZONES)));
    }
    let mut metrics = Vec::new();
    let names = ["a", "b", "c2"];
    for id in names.iter().take(random.between(1, 10).clamp(2, 3) as usize) {
        let name = if random.chance(2) { "no.such" } else { data.metric(random) };
        let mut metric = json!({"id": id, "metric": name});
        if random.chance(70) {
            metric["filter"] = json!(random.pick(&["f1", "f1", "f2"]));
        }
        if random.chance(30) {
            metric["aggregator"] = json!(aggregator(random));
        }
        if random.chance(50) {
            metric["fillPolicy"] = fill(random);
        }
        if random.chance(3) {
            metric["timeOffset"] = json!(random.pick(&["1m", "1h-ago", "1356998400", "0"]));
        }
        metrics.push(metric);
    }
    let mut expressions = Vec::new();
    for (at, id) in ["e", "e2", "e3"].iter().take(random.between(0, 5).min(3) as usize).enumerate()
    {
        let text = if random.chance(6) {
            random.pick(BAD_EXPRESSIONS)
        } else if at > 0 && random.chance(40) {
            random.pick(&["e + a", "e * 2", "e - e", "a / e"])
        } else {
            random.pick(EXPRESSIONS)
        };
        let mut expression = json!({"id": id, "expr": text});
        if random.chance(60) {
            let mut join = json!({"operator": random.pick(&["union", "intersection", "intersection", "UNION"])});
            if random.chance(30) {
                join["useQueryTags"] = json!(random.chance(70));
            }
            if random.chance(30) {
                join["includeAggTags"] = json!(random.chance(50));
            }
            expression["join"] = join;
        }
        if random.chance(20) {
            expression["fillPolicy"] = fill(random);
        }
        expressions.push(expression);
    }
    let filters = json!([
        {"id": "f1", "tags": [{
            "type": "wildcard", "tagk": "host", "filter": "*", "groupBy": random.chance(85)
        }]},
        {"id": "f2", "explicitTags": random.chance(20), "tags": [
            {"type": "wildcard", "tagk": "host", "filter": "*", "groupBy": true},
            {"type": "wildcard", "tagk": "dc", "filter": "*", "groupBy": random.chance(70)}
        ]},
    ]);
    let mut body = json!({
        "time": time, "filters": filters, "metrics": metrics, "expressions": expressions,
    });
    if random.chance(40) {
        let id = |random: &mut Random| random.pick(&["e", "a", "b", "e2", "zz"]);
        let first = id(random);
        let mut outputs = vec![json!({"id": first})];
        if random.chance(40) {
            outputs.push(json!({"id": id(random), "alias": "other name"}));
        }
        body["outputs"] = outputs.into();
    }
    if random.chance(5) {
        let (name, value) = [
            ("time", Value::Null),
            ("time", json!({"start": "1356998400"})),
            ("time", json!({"aggregator": "sum"})),
            ("time", json!({"start": "nope", "aggregator": "sum"})),
            ("metrics", json!([])),
            ("metrics", json!([{"id": "a"}])),
            ("metrics", json!([{"id": "1", "metric": "m"}])),
            ("filters", json!([])),
            ("filters", json!([{"id": "f1"}, {"id": "f1"}])),
            ("expressions", json!([{"id": "a", "expr": "a + b"}])),
            ("expressions", json!([{"expr": "a + b"}])),
            ("outputs", json!([{"alias": "x"}])),
            ("name", json!("a name")),
            ("unknown", json!(1)),
        ][random.index(14)]
        .clone();
        body[name] = value;
    }
    Request::post("/api/query/exp", body)
}
