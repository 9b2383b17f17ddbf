//! Tests `allow_damaged`: every endpoint has it, and its answers have every point that a rebuild keeps.

use std::{collections::BTreeMap, fs, net::SocketAddr, path::Path};

use serde_json::Value;
use tsd_testkit::{BinaryResponse, Xorshift64, http, http_binary, wait_for};

use super::{
    FIRST_SECOND, Fault, METRICS, POINTS, copy, daemon, directory, metric_value, part_files,
    part_number, populated, put, quarantine, query,
};
use crate::{report, tsdb};

/// A request whose answer needs the damaged block.
struct Asked {
    name: &'static str,
    method: &'static str,
    uri: String,
    body: Option<String>,
    /// The request with `allow_damaged`.
    allowed: (String, Option<String>),
    /// Number of points in an answer.
    points: fn(&str) -> usize,
}

impl Asked {
    fn get(name: &'static str, uri: String, points: fn(&str) -> usize) -> Self {
        let allowed = (format!("{uri}&allow_damaged"), None);
        Self { name, method: "GET", uri, body: None, allowed, points }
    }

    /// A request with `allow_damaged` in its body.
    fn post(name: &'static str, uri: &str, body: &str, points: fn(&str) -> usize) -> Self {
        let allowed = body.replacen('{', r#"{"allow_damaged":true,"#, 1);
        let (uri, allowed) = (uri.to_owned(), (uri.to_owned(), Some(allowed)));
        Self { name, method: "POST", uri, body: Some(body.to_owned()), allowed, points }
    }

    fn send(&self, address: SocketAddr, is_allowed: bool) -> BinaryResponse {
        let (uri, body) =
            if is_allowed { (&self.allowed.0, &self.allowed.1) } else { (&self.uri, &self.body) };
        // The body follows the last header.
        let body =
            body.as_ref().map(|body| format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        http_binary(address, self.method, uri, &body.unwrap_or_default())
    }

    /// Checks an answer that has what is left, and returns its number of points.
    #[track_caller]
    fn check_left(&self, response: &BinaryResponse, file: &str) -> usize {
        let body = String::from_utf8_lossy(&response.body);
        assert_eq!(response.status, 200, "{}: {body}", self.name);
        assert_eq!(response.header("x-partial-result"), Some(file), "{}: {body}", self.name);
        let cached = response.header("cache-control").unwrap_or("max-age=0");
        assert_eq!(cached, "max-age=0", "{}", self.name);
        (self.points)(&body)
    }
}

fn json(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

fn dps(body: &str) -> usize {
    json(body)[0]["dps"].as_object().map_or(0, serde_json::Map::len)
}

/// One request for each endpoint that has the parameter.
fn requests(metric: u64) -> Vec<Asked> {
    let (start, end) = (FIRST_SECOND - 1, FIRST_SECOND + 86_400);
    let m = format!("zimsum:m{metric}");
    let of_last = |host| format!("timeseries=m{metric}%7Bhost=h{host}%7D");
    let last = [of_last(0), of_last(1), of_last(2)].join("&");
    let exp = format!(
        r#"{{"time":{{"start":"{start}","end":"{end}","aggregator":"sum"}},"metrics":[{{"id":"a","metric":"m{metric}"}}],
            "expressions":[{{"id":"e","expr":"a + 0"}}]}}"#
    );
    let outputs = |body: &str| json(body)["outputs"][0]["dps"].as_array().map_or(0, Vec::len);
    vec![
        Asked::get("query", format!("/api/query?start={start}&end={end}&m={m}"), dps),
        Asked::post(
            "query with a body",
            "/api/query",
            &format!(
                r#"{{"start":{start},"end":{end},"queries":[{{"aggregator":"zimsum","metric":"m{metric}"}}]}}"#
            ),
            dps,
        ),
        Asked {
            allowed: ("/api/query/exp?allow_damaged".to_owned(), Some(exp.clone())),
            ..Asked::post("exp", "/api/query/exp", &exp, outputs)
        },
        Asked::get(
            "gexp",
            format!("/api/query/gexp?start={start}&end={end}&exp=scale({m},1)"),
            dps,
        ),
        Asked::post(
            "gexp with a body",
            "/api/query/gexp",
            &format!(r#"{{"start":{start},"end":{end},"exp":["scale({m},1)"]}}"#),
            dps,
        ),
        Asked::get("last", format!("/api/query/last?{last}&back_scan=100000"), |body| {
            json(body).as_array().map_or(0, Vec::len)
        }),
        Asked::get("q", format!("/q?start={start}&end={end}&m={m}&ascii"), |body| {
            body.lines().count()
        }),
    ]
}

/// Issue 37: without `allow_damaged`, each endpoint fails with the name of the file; with it, each returns the
/// remaining points and names the file in a header.
#[test]
fn every_endpoint_returns_the_remaining_points_with_allow_damaged() {
    let dir = directory();
    let data = dir.path().join("data");
    let (running, file) = populated(&data);
    running.kill();
    Fault::Flip.apply(&file);
    let name = format!("t.tsdb-{}", part_number(&file));
    let running = daemon(&data).start();
    let address = running.address();
    let failing = (0..METRICS).find(|metric| query(address, *metric).is_err()).expect("damage");
    // A newer point of each series in the last damaged hour is left.
    assert_eq!(put(address, failing, POINTS, POINTS + 3), 204);
    let (asked, mut partial) = (requests(failing), 0);
    let mut left = BTreeMap::new();
    for asked in &asked {
        let refused = asked.send(address, false);
        let body = String::from_utf8_lossy(&refused.body);
        assert!(refused.status >= 400, "{}: {body}", asked.name);
        assert!(body.contains(&format!("accept {name}")), "{}: {body}", asked.name);
        assert_eq!(refused.header("x-partial-result"), None, "{}", asked.name);
        let before = metric_value(address, "tsd_query_partial_total");
        assert_eq!(before, partial, "{}", asked.name);
        let points = asked.check_left(&asked.send(address, true), &name);
        assert!((3..POINTS as usize + 3).contains(&points), "{}: {points}", asked.name);
        left.insert(asked.name, points);
        partial += 1;
        assert_eq!(metric_value(address, "tsd_query_partial_total"), partial, "{}", asked.name);
    }
    for name in ["query with a body", "gexp", "gexp with a body", "q"] {
        assert_eq!(left[name], left["query"], "{name}");
    }
    assert_eq!(left["last"], 3);
    // The setting does the same for requests without the parameter.
    assert!(running.terminate().success());
    let running = daemon(&data).env("TSD_QUERY_ALLOW_DAMAGED", "true").start();
    let address = running.address();
    for asked in &asked {
        let points = asked.check_left(&asked.send(address, false), &name);
        assert_eq!(points, left[asked.name], "{}", asked.name);
    }
    assert_eq!(metric_value(address, "tsd_query_partial_total"), asked.len() as u64);
    running.kill();
}

const SERIES_METRICS: u64 = 3;
/// Series of a metric: their names fill several blocks.
const SERIES: u64 = 400;

/// Points by series and second.
type Points = BTreeMap<(String, String), String>;

/// Puts points of series with long tags, so that all blocks of a part are small against the part.
fn put_series(address: SocketAddr) {
    for metric in 0..SERIES_METRICS {
        let mut points = Vec::new();
        for series in 0..SERIES {
            let mut random = Xorshift64::new((metric * 7_919 + series * 104_729) | 1);
            let tag = |key| format!(r#""{key}":"v{}""#, random.below(40));
            let tags: Vec<String> = ["a", "b", "c", "d", "e", "f"].map(tag).into();
            for at in 0..15 {
                let (second, value) = (FIRST_SECOND + at * 600, random.below(1 << 40));
                points.push(format!(
                    r#"{{"metric":"s{metric}","timestamp":{second},"value":{value},"tags":{{{}}}}}"#,
                    tags.join(",")
                ));
            }
        }
        for points in points.chunks(1_500) {
            let body = format!("[{}]", points.join(","));
            assert_eq!(http(address, "POST", "/api/put", Some(&body)).status, 204);
        }
    }
}

/// All points, of each series alone.
fn points(address: SocketAddr, context: &str) -> Points {
    let mut points = Points::new();
    for metric in 0..SERIES_METRICS {
        let (start, end) = (FIRST_SECOND - 1, FIRST_SECOND + 86_400);
        let uri = format!("/api/query?start={start}&end={end}&m=none:s{metric}&allow_damaged");
        let response = http(address, "GET", &uri, None);
        assert_eq!(response.status, 200, "{context}: {response:?}");
        for series in json(&response.body).as_array().expect("series") {
            for (second, value) in series["dps"].as_object().expect("points") {
                let name = format!("s{metric}{}", series["tags"]);
                points.insert((name, second.clone()), value.to_string());
            }
        }
    }
    points
}

/// Flips any one byte of a part file. Then a query with `allow_damaged` has the same points before and after the
/// loss is accepted. `DAMAGE_SEEDS` sets the number of cases, `DAMAGE_SEED` the first.
#[test]
fn a_query_with_allow_damaged_has_every_point_that_a_rebuild_keeps() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
    };
    let (seeds, first) = (number("DAMAGE_SEEDS", 16), number("DAMAGE_SEED", 1));
    let dir = directory();
    let original = dir.path().join("original");
    let running = daemon(&original).start();
    put_series(running.address());
    wait_for(|| (metric_value(running.address(), "tsd_wal_memtable_rows") == 0).then_some(()))
        .expect("a flush");
    let all = points(running.address(), "intact");
    assert!(running.terminate().success());
    let file = part_files(&original)
        .into_iter()
        .max_by_key(|path| fs::metadata(path).map_or(0, |file| file.len()))
        .expect("a file");
    let file_name = file.file_name().expect("a name");
    let (mut lost, mut accepted) = (0, 0);
    for seed in first..first + seeds {
        let mut random = Xorshift64::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let data = dir.path().join("copy");
        let _ = fs::remove_dir_all(&data);
        copy(&original, &data);
        let path = data.join("store/points/t.tsdb").join(file_name);
        let bytes = fs::metadata(&path).expect("a file").len();
        // The start, the indexes and footers at the end, or any byte.
        let at = match seed % 8 {
            0 => random.below(40),
            1 => bytes - 1 - random.below(bytes / 20),
            _ => random.below(bytes),
        };
        let mask = 1 << random.below(8);
        flip(&path, at as usize, mask);
        let context = format!("DAMAGE_SEED={seed}: byte {at} of {bytes}, ^ {mask:#x}");
        let running = tsdb(&data).start();
        let address = running.address();
        // Once while the damage is unknown, and once from the quarantine.
        let (unknown, known) = (points(address, &context), points(address, &context));
        if metric_value(address, "tsd_parts_quarantined_files") > 0 {
            let output = quarantine(&data, &["accept", "--all", "--yes"]);
            assert!(output.status.success(), "{context}: {output:?}");
            accepted += 1;
        }
        let kept = points(address, &context);
        for (when, left) in [("unknown", &unknown), ("known", &known)] {
            let lacking: Vec<_> =
                kept.iter().filter(|(point, value)| left.get(*point) != Some(*value)).collect();
            assert!(
                lacking.is_empty(),
                "{context}, {when}: {} lack, as {:?}",
                lacking.len(),
                lacking[0]
            );
        }
        assert!(kept.iter().all(|(point, value)| all.get(point) == Some(value)), "{context}");
        lost += all.len() - kept.len();
        running.kill();
    }
    report(&format!(
        "allow_damaged: {seeds} cases from seed {first}: {accepted} losses, {lost} of {} points lost",
        all.len() as u64 * seeds
    ));
    assert!(accepted > 0 && lost > 0, "{accepted} losses");
}

fn flip(path: &Path, at: usize, mask: u8) {
    let mut bytes = fs::read(path).expect("a file");
    bytes[at] ^= mask;
    fs::write(path, bytes).expect("write");
}
