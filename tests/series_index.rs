//! Tests the series index of the embedded store from outside: kills, damage and stores without an
//! index.

use std::{fs, net::SocketAddr, path::Path, time::Duration};

use serde_json::{Value, json};
use tsd_testkit::{Daemon, DaemonBuilder, exchange, http, metric, wait_for};

use crate::tsdb;

const FIRST_SECOND: u64 = 1_600_000_000 / 3_600 * 3_600;
const HOSTS: u64 = 200;

/// Small memtables that are flushed soon, and queries by the index or by scans.
fn daemon(data: &Path, index_use: &str) -> DaemonBuilder {
    tsdb(data)
        .env("TSD_STORAGE_MEMTABLE_SIZE", "1048576")
        .env("TSD_STORAGE_LOG_SEGMENT_SIZE", "262144")
        .env("TSD_STORAGE_MEMTABLE_MAX_AGE", "1")
        .env("TSD_QUERY_SERIES_INDEX", index_use)
}

/// Puts a point of every host in a round; a round is an hour.
fn put(address: SocketAddr, round: u64) {
    let second = FIRST_SECOND + round * 3_600;
    let points: Vec<_> = (0..HOSTS)
        .map(|host| {
            format!(
                r#"{{"metric":"m","timestamp":{second},"value":{},"tags":{{"host":"h{host}","dc":"d{}"}}}}"#,
                host * 1_000 + round,
                host % 3
            )
        })
        .collect();
    let body = format!("[{}]", points.join(","));
    assert_eq!(http(address, "POST", "/api/put", Some(&body)).status, 204);
}

/// The answer to a query of `m`, and the number of rows that it read.
fn query(address: SocketAddr, function: &str, tags: &str) -> (Value, u64) {
    let (start, end) = (FIRST_SECOND - 1, FIRST_SECOND + 1_000_000);
    let m =
        format!("{function}:m{tags}").replace('{', "%7B").replace('}', "%7D").replace('|', "%7C");
    let uri = format!("/api/query?start={start}&end={end}&show_summary=true&m={m}");
    let response = http(address, "GET", &uri, None);
    assert_eq!(response.status, 200, "{}", response.body);
    let mut json: Value = serde_json::from_str(&response.body).expect("JSON");
    let list = json.as_array_mut().expect("a list");
    let summary = list.pop().expect("a summary");
    let rows = summary["statsSummary"]["rowsFromStorage"].as_u64();
    (json, rows.unwrap_or_else(|| panic!("no rows in {summary}")))
}

fn gauge(address: SocketAddr, name: &str) -> f64 {
    metric(address, name).unwrap_or_else(|| panic!("no {name}"))
}

fn await_index(running: &Daemon) {
    await_index_of(running, HOSTS);
}

fn await_index_of(running: &Daemon, series: u64) {
    let address = running.address();
    let is_complete = || (gauge(address, "tsd_parts_series_index_complete") > 0.0).then_some(());
    wait_for(is_complete).expect("a complete index");
    assert_eq!(gauge(address, "tsd_parts_series_index_series") as u64, series);
}

/// The answers to some queries after `rounds`, each checked in one value.
fn answers(address: SocketAddr, rounds: u64) -> Vec<Value> {
    let filters = ["{host=h7}", "{host=h7|h9|h150}", "{}{host=regexp(h1.7)}", "{dc=*,host=h8}", ""];
    let all: Vec<Value> = filters.iter().map(|tags| query(address, "sum", tags).0).collect();
    let last = FIRST_SECOND + (rounds - 1) * 3_600;
    assert_eq!(all[0][0]["dps"][last.to_string()], (7_000 + rounds - 1) as f64, "{}", all[0]);
    assert_eq!(all[0][0]["dps"].as_object().map(serde_json::Map::len), Some(rounds as usize));
    all
}

#[test]
fn index_survives_kills_and_damage_and_answers_as_scans_do() {
    let dir =
        tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory");
    let data = dir.path().join("data");
    let mut running = daemon(&data, "auto").start();
    for round in 0..30 {
        put(running.address(), round);
        // Kills at any step of a flush of full memtables, of a flush by age, or without a flush.
        if round % 6 == 5 {
            std::thread::sleep(Duration::from_millis(round * 37 % 300));
            running.kill();
            running = daemon(&data, "auto").start();
            await_index(&running);
        }
    }
    let expected = answers(running.address(), 30);
    let (_, rows) = query(running.address(), "sum", "{host=h7}");
    assert_eq!(rows, 30, "only the rows of one host are read");
    let lookup = "/api/search/lookup?m=m%7Bhost=*,dc=d1%7D&limit=500&use_meta=false";
    let lookup = http(running.address(), "GET", lookup, None).body;
    let found: Value = serde_json::from_str(&lookup).expect("JSON");
    assert_eq!(found["totalResults"], 67, "{lookup}");
    assert!(running.terminate().success());

    let scanning = daemon(&data, "never").start();
    assert_eq!(answers(scanning.address(), 30), expected);
    let (_, rows) = query(scanning.address(), "sum", "{}{host=regexp(h7)}");
    assert_eq!(rows, 30 * HOSTS);
    assert!(scanning.terminate().success());

    // Without its files, and with damaged ones, it is built again.
    let files = data.join("store/points/series");
    let original: Vec<_> = fs::read_dir(&files)
        .expect("files")
        .map(|entry| entry.expect("an entry").path())
        .map(|path| (fs::read(&path).expect("a file"), path))
        .collect();
    assert_eq!(original.len(), 2);
    for damage in 0..3 {
        for (bytes, path) in &original {
            match damage {
                0 => fs::remove_file(path).expect("remove"),
                1 => fs::write(path, &bytes[..bytes.len() / 2]).expect("write"),
                _ => {
                    let mut bytes = bytes.clone();
                    let at = bytes.len() / 2;
                    bytes[at] ^= 1;
                    fs::write(path, bytes).expect("write");
                }
            }
        }
        let running = daemon(&data, "always").start();
        await_index(&running);
        assert_eq!(answers(running.address(), 30), expected, "damage {damage}");
        let log = running.events_at_level("ERROR");
        let is_named =
            log.iter().any(|event| event.to_string().contains("series index is damaged"));
        assert_eq!(is_named, damage > 0, "{log:?}");
        assert_eq!(running.events("series index built").len(), 1);
        assert!(running.terminate().success());
        for (_, path) in &original {
            let _ = fs::remove_file(path);
        }
    }
}

#[test]
fn series_are_counted_by_metric_and_tags() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let running = tsdb(directory.path()).start();
    let address = running.address();
    let day = 1_600_041_600;
    let line = |metric: &str, at: u64, tags: &str| format!("put {metric} {at} 1 {tags}\n");
    let mut lines = String::new();
    for host in 0..5 {
        lines += &line("m.a", day, &format!("host=h{host} dc=d{}", host % 2));
    }
    lines += &line("m.a", day + 86_400, "host=h0 dc=d0");
    lines += &line("m.b", day, "host=h0");
    assert_eq!(exchange(address, lines.as_bytes()), b"");
    let get = |parameters: &str| {
        let uri = format!("/api/stats/cardinality{parameters}");
        let response = http(address, "GET", &uri, None);
        let body: Value = serde_json::from_str(&response.body).expect("JSON");
        (response.status, body)
    };
    let expected = json!({
        "complete": true,
        "metrics": 2,
        "series": 6,
        "topMetrics": [{ "metric": "m.a", "series": 5 }, { "metric": "m.b", "series": 1 }],
        "topTagKeys": [
            { "tagk": "host", "series": 6, "values": 5 },
            { "tagk": "dc", "series": 5, "values": 2 },
        ],
        "topTagPairs": [
            { "tagk": "dc", "tagv": "d0", "series": 3 },
            { "tagk": "host", "tagv": "h0", "series": 2 },
        ],
        "activeSeries": [
            { "start": day + 86_400, "series": 1 },
            { "start": day, "series": 6 },
        ],
    });
    assert_eq!(get("?limit=2"), (200, expected));
    let (status, one) = get("?metric=m.b");
    assert_eq!((status, &one["metrics"], &one["series"]), (200, &json!(1), &json!(1)));
    assert_eq!(one["topTagPairs"], json!([{ "tagk": "host", "tagv": "h0", "series": 1 }]));
    assert_eq!(get("?metric=no").0, 404);
    let (status, error) = get("?limit=0");
    assert_eq!(status, 400);
    assert_eq!(error["error"]["message"], "'limit' must be a number from 1 to 1000: '0'");
    assert!(running.terminate().success());
}

#[test]
fn points_of_series_beyond_the_limit_are_refused_and_counted() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let start = || tsdb(directory.path()).env("TSD_LIMITS_SERIES_PER_METRIC", "3").start();
    let running = start();
    let put = |running: &Daemon, metric: &str, host: &str| {
        let line = format!("put {metric} {FIRST_SECOND} 1 host={host}\n");
        let reply = exchange(running.address(), line.as_bytes());
        String::from_utf8(reply).expect("UTF-8")
    };
    for host in ["a", "b", "c"] {
        assert_eq!(put(&running, "limited", host), "");
    }
    assert_eq!(put(&running, "other", "x"), "");
    let refusal = "metric 'limited' has 3 series, the most it may have \
                   (tsd.limits.series_per_metric): a new series is refused";
    // A new name, and names that all have UIDs.
    for host in ["d", "x"] {
        let reply = put(&running, "limited", host);
        assert!(reply.contains(refusal), "{reply}");
    }
    let body = format!(
        r#"[{{"metric":"limited","timestamp":{FIRST_SECOND},"value":2,"tags":{{"host":"b"}}}},
            {{"metric":"limited","timestamp":{FIRST_SECOND},"value":2,"tags":{{"host":"e"}}}}]"#
    );
    let response = http(running.address(), "POST", "/api/put?details", Some(&body));
    let answer: Value = serde_json::from_str(&response.body).expect("JSON");
    assert_eq!(
        (response.status, &answer["success"], &answer["failed"]),
        (400, &json!(1), &json!(1))
    );
    assert_eq!(answer["errors"][0]["datapoint"]["tags"]["host"], "e");
    let refused = || metric(running.address(), "tsd_limits_refused_series_points_total");
    assert_eq!(refused(), Some(3.0));
    let names = http(running.address(), "GET", "/api/suggest?type=tagv&max=100", None).body;
    assert_eq!(names, r#"["a","b","c","x"]"#, "a refused name gets no UID");
    assert!(running.terminate().success());

    let running = start();
    await_index_of(&running, 4);
    assert_eq!(put(&running, "limited", "a"), "");
    assert!(put(&running, "limited", "d").contains(refusal));
    assert!(running.terminate().success());
}
