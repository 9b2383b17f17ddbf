//! `/api/query`, by URI and by body.

use serde_json::{Map, Value, json};

use crate::differential::{
    data::{BASE, Data},
    random::Random,
    request::Request,
};

pub(super) const AGGREGATORS: &[&str] = &[
    "sum",
    "min",
    "max",
    "avg",
    "median",
    "none",
    "mult",
    "dev",
    "diff",
    "count",
    "first",
    "last",
    "zimsum",
    "mimmin",
    "mimmax",
    "pfsum",
    "squareSum",
    "p50",
    "p75",
    "p90",
    "p95",
    "p99",
    "p999",
    "ep50r3",
    "ep50r7",
    "ep75r3",
    "ep75r7",
    "ep90r3",
    "ep90r7",
    "ep95r3",
    "ep95r7",
    "ep99r3",
    "ep99r7",
    "ep999r3",
    "ep999r7",
];

const INTERVALS: &[&str] = &[
    "1s", "10s", "30s", "1m", "7m", "15m", "1h", "2h", "1d", "500ms", "250ms", "0all", "1w", "1n",
    "1y", "3h", "2d",
];
const CALENDAR: &[&str] =
    &["1hc", "6hc", "1dc", "1wc", "1nc", "1yc", "3nc", "15mc", "7hc", "10sc", "2dc", "2wc"];
pub(super) const ZONES: &[&str] =
    &["UTC", "America/New_York", "Asia/Kabul", "Europe/Berlin", "Pacific/Funafuti", "EST"];

/// An aggregator, mostly one of the usual.
pub(super) fn aggregator(random: &mut Random) -> &'static str {
    if random.chance(40) {
        return random.pick(&["sum", "avg", "max", "none", "count"]);
    }
    random.pick(AGGREGATORS)
}

fn downsample(calendar: bool, is_long: bool, random: &mut Random) -> String {
    let interval = random.pick(if calendar { CALENDAR } else { INTERVALS });
    let function = if random.chance(60) {
        random.pick(&["sum", "avg", "max", "count"])
    } else {
        random.pick(AGGREGATORS)
    };
    let fill = if random.chance(45) {
        random.pick(&["-none", "-nan", "-null", "-zero", "-NaN", "-scalar"])
    } else {
        ""
    };
    // A fill over many short intervals takes all memory of OpenTSDB.
    let is_short = interval.contains('s') || interval == "1m";
    let fill = if is_short && is_long { "" } else { fill };
    match random.below(60) {
        0 => "1m".to_owned(),
        1 => "1m-nope".to_owned(),
        2 => "1m-avg-nope".to_owned(),
        3 => "0s-avg".to_owned(),
        4 => "1q-avg".to_owned(),
        5 => "1m-avg-nan-x".to_owned(),
        _ => format!("{interval}-{function}{fill}"),
    }
}

fn filter(random: &mut Random) -> (&'static str, &'static str, String) {
    let key = random.pick(&["host", "host", "dc", "dc", "cpu"]);
    let (kind, filter) = match random.below(12) {
        2 => ("literal_or", random.pick(&["web01", "web01|db01", "lga|ams", "DB02"])),
        3 => ("iliteral_or", random.pick(&["WEB01|db02", "LGA"])),
        4 => ("not_literal_or", random.pick(&["web01", "web01|web02", "lga"])),
        5 => ("not_iliteral_or", random.pick(&["WEB01", "db02"])),
        6 => ("wildcard", random.pick(&["web*", "*01", "*e*", "w*1", "*b0*"])),
        7 => ("iwildcard", random.pick(&["WEB*", "db*", "*A"])),
        8 => ("regexp", random.pick(&["web.*", "^db", "0[12]$", "(?i)DB", "a"])),
        _ => ("wildcard", "*"),
    };
    (key, kind, filter.to_owned())
}

/// Start and end around the data, in one of the notations.
pub(super) fn range(random: &mut Random) -> (i64, i64) {
    match random.below(10) {
        0 => (BASE - 86_400, BASE + 200 * 86_400),
        1 => (BASE, BASE + 90 * 86_400),
        2 => (BASE + random.between(0, 4_000), BASE + 3_599 + 3_600 * random.between(0, 3)),
        3 => (BASE + random.between(0, 20) * 86_400, BASE + random.between(21, 120) * 86_400),
        4 => {
            let start = BASE + random.between(0, 7_200);
            (start, start + random.between(0, 300))
        }
        5 => (BASE - 7_200, BASE - 3_600),
        _ => (BASE - random.between(0, 3_600), BASE + random.between(1, 20_000)),
    }
}

/// A time in one of its notations.
pub(super) fn time_text(seconds: i64, random: &mut Random) -> String {
    match random.below(8) {
        0 => format!("{}", seconds * 1_000 + random.between(0, 999)),
        1 => format!("{}.{:03}", seconds, random.between(0, 999)),
        2 => format!("{}ms", seconds * 1_000),
        3 => date(seconds, random),
        _ => seconds.to_string(),
    }
}

/// A time as a date, which a time zone may shift.
fn date(seconds: i64, random: &mut Random) -> String {
    // Days since BASE, 2013-01-01, within about two years.
    let mut day = (seconds - BASE).div_euclid(86_400);
    let second = (seconds - BASE).rem_euclid(86_400);
    let mut year = 2013;
    while day < 0 {
        year -= 1;
        day += if year == 2012 { 366 } else { 365 };
    }
    while day >= 365 {
        day -= 365;
        year += 1;
    }
    let mut month = 1;
    for length in [31, if year == 2012 { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let (hour, minute, rest) = (second / 3_600, second / 60 % 60, second % 60);
    let separator = random.pick(&["-", " "]);
    let date = format!("{year}/{month:02}/{:02}", day + 1);
    match random.below(3) {
        0 => format!("{date}{separator}{hour:02}:{minute:02}"),
        1 => format!("{date}{separator}{hour:02}:{minute:02}:{rest:02}"),
        _ => date,
    }
}

pub(super) fn request(data: &Data, random: &mut Random) -> Request {
    if random.chance(50) { by_uri(data, random) } else { by_body(data, random) }
}

pub(super) fn flags(mut request: Request, random: &mut Random) -> Request {
    for (flag, percent) in [
        ("ms", 25),
        ("arrays", 25),
        ("show_tsuids", 15),
        ("show_query", 10),
        ("no_annotations", 10),
        ("global_annotations", 15),
        ("padding", 3),
        ("show_stats", 3),
        ("show_summary", 3),
    ] {
        if random.chance(percent) {
            request = request.flag(flag);
        }
    }
    request
}

fn by_uri(data: &Data, random: &mut Random) -> Request {
    let (start, end) = range(random);
    let is_long = end - start > 40_000;
    let mut request = Request::get("/api/query").parameter("start", time_text(start, random));
    request = request.parameter("end", time_text(end, random));
    for _ in 0..=random.between(1, 100) / 70 {
        request = request.parameter("m", metric_text(data, is_long, random));
    }
    flags(request, random)
}

pub(super) fn metric_text(data: &Data, is_long: bool, random: &mut Random) -> String {
    let mut parts = vec![aggregator(random).to_owned()];
    if random.chance(55) {
        let calendar = random.chance(25);
        parts.push(downsample(calendar, is_long, random));
    }
    if random.chance(30) {
        parts.push(
            random
                .pick(&[
                    "rate",
                    "rate",
                    "rate{counter}",
                    "rate{counter,100}",
                    "rate{counter,,50}",
                    "rate{dropcounter}",
                    "rate{counter,65535,10}",
                    "rate{x}",
                    "rate{counter,a}",
                    "rate{counter,1,2,3}",
                    "ratex",
                ])
                .to_owned(),
        );
    }
    if random.chance(10) {
        parts.push("explicit_tags".to_owned());
    }
    if random.chance(2) {
        let extra = ["", "foo", "pre-agg", "percentiles[50]", "rollup_raw", "percentiles[x]"];
        parts.push(random.pick(&extra).to_owned());
    }
    let metric = if random.chance(3) { "no.such" } else { data.metric(random) };
    let braces = |random: &mut Random| {
        let mut used = Vec::new();
        let mut entries = Vec::new();
        for _ in 0..random.between(0, 2) {
            let (key, kind, filter) = filter(random);
            if used.contains(&key) {
                continue;
            }
            used.push(key);
            entries.push(match random.below(4) {
                0 if filter == "*" => format!("{key}=*"),
                1 if kind == "literal_or" => format!("{key}={filter}"),
                _ => format!("{key}={kind}({filter})"),
            });
        }
        format!("{{{}}}", entries.join(","))
    };
    let filters = match random.below(10) {
        0..4 => String::new(),
        4..8 => braces(random),
        8 => format!("{}{}", braces(random), braces(random)),
        _ => {
            random.pick(&["{", "{host}", "{=x}", "{host=nope}", "{nokey=*}", "{}", "}"]).to_owned()
        }
    };
    parts.push(format!("{metric}{filters}"));
    parts.join(":")
}

fn by_body(data: &Data, random: &mut Random) -> Request {
    let (start, end) = range(random);
    let is_long = end - start > 40_000;
    let mut body = Map::new();
    let time = |seconds, random: &mut Random| match random.below(6) {
        0 => json!(seconds),
        1 => json!(seconds * 1_000),
        _ => json!(time_text(seconds, random)),
    };
    body.insert("start".to_owned(), time(start, random));
    body.insert("end".to_owned(), time(end, random));
    for (name, percent) in [
        ("msResolution", 25),
        ("showTSUIDs", 15),
        ("showQuery", 10),
        ("noAnnotations", 10),
        ("globalAnnotations", 15),
        ("padding", 5),
        ("showStats", 3),
        ("showSummary", 3),
    ] {
        if random.chance(percent) {
            body.insert(name.to_owned(), json!(true));
        }
    }
    if random.chance(15) {
        body.insert("delete".to_owned(), json!(false));
    }
    if random.chance(30) {
        body.insert("timezone".to_owned(), json!(random.pick(ZONES)));
        if random.chance(30) {
            body.insert("useCalendar".to_owned(), json!(true));
        }
    }
    let queries: Vec<Value> =
        (0..=random.between(1, 100) / 75).map(|_| sub_query(data, is_long, random)).collect();
    body.insert("queries".to_owned(), queries.into());
    let mut request = Request::post("/api/query", Value::Object(body));
    if random.chance(20) {
        request = request.flag("arrays");
    }
    request
}

fn sub_query(data: &Data, is_long: bool, random: &mut Random) -> Value {
    let mut sub = Map::new();
    let mut set = |name: &str, value: Value| drop(sub.insert(name.to_owned(), value));
    set("aggregator", json!(aggregator(random)));
    if random.chance(8) {
        let series = data.any_series(random);
        let same: Vec<_> =
            data.series.iter().filter(|one| one.metric == series.metric).take(2).collect();
        let tsuids: Vec<_> = same.iter().map(|one| one.tsuid.clone()).collect();
        set("tsuids", json!(tsuids));
    }
    set("metric", json!(data.metric(random)));
    if random.chance(55) {
        let calendar = random.chance(35);
        set("downsample", json!(downsample(calendar, is_long, random)));
    }
    if random.chance(30) {
        set("rate", json!(true));
        if random.chance(60) {
            let mut options = Map::new();
            options.insert("counter".to_owned(), json!(random.chance(70)));
            if random.chance(40) {
                options.insert("counterMax".to_owned(), json!(random.between(1, 100_000)));
            }
            if random.chance(40) {
                options.insert("resetValue".to_owned(), json!(random.between(0, 100)));
            }
            if random.chance(30) {
                options.insert("dropResets".to_owned(), json!(true));
            }
            set("rateOptions", Value::Object(options));
        }
    }
    if random.chance(10) {
        set("explicitTags", json!(true));
    }
    match random.below(5) {
        0 => set("tags", json!({"host": random.pick(&["*", "web01", "web*", "web01|db01"])})),
        1..4 => {
            let mut used = Vec::new();
            let mut filters = Vec::new();
            for _ in 0..random.between(1, 2) {
                let (key, kind, filter) = filter(random);
                if used.contains(&key) {
                    continue;
                }
                used.push(key);
                filters.push(json!({
                    "type": kind, "tagk": key, "filter": filter, "groupBy": random.chance(60)
                }));
            }
            set("filters", filters.into());
        }
        _ => {}
    }
    if random.chance(2) {
        set("percentiles", json!([50.0, 99.9]));
    }
    if random.chance(3) {
        let (name, value) = [
            ("aggregator", json!("nope")),
            ("aggregator", json!("")),
            ("filters", json!([{"type": "nope", "tagk": "host", "filter": "*"}])),
            ("filters", json!([{"type": "regexp", "tagk": "host", "filter": "("}])),
            ("filters", json!([{"type": "wildcard", "tagk": "host", "filter": "web"}])),
            ("tags", Value::Null),
            ("rateOptions", json!({"nope": 1})),
            ("metric", json!("")),
            ("percentiles", json!([101.0])),
        ][random.index(9)]
        .clone();
        set(name, value);
    }
    Value::Object(sub)
}
