//! Tests the memory limit of the process with slow clients and wide queries at the same time.

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    sync::Barrier,
    thread,
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use serde_json::Value;
use tsd_testkit::{Daemon, HttpResponse, connect, http, is_whole_response, metric, wait_for};

use crate::{report, tsdb};

const LIMIT: u64 = 320 << 20;
/// Memory that the process may use above its limit: pages of the program itself, which are many in a test build.
const PROGRAM: u64 = 64 << 20;
/// Slow connections of each protocol. Their minimum and the minimum of the queries fit into the memory that the other
/// consumers leave.
const SLOW_CONNECTIONS: usize = 200;
const BODY_BYTES: usize = 200_000;
const WIDE_QUERIES: usize = 16;
const SERIES: usize = 200;
const POINTS: usize = 1_000;
const START: usize = 1_600_000_000;

/// Largest resident memory of a process so far, in bytes.
fn peak_memory(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    let kilobytes = line.trim().strip_suffix("kB").expect("kilobytes").trim();
    kilobytes.parse::<u64>().expect("a number") << 10
}

fn gauge(daemon: &Daemon, name: &str) -> Option<u64> {
    metric(daemon.address(), name).map(|value| value as u64)
}

fn reserved(daemon: &Daemon, part: &str) -> u64 {
    gauge(daemon, &format!("tsd_memory_reserved_bytes{{part=\"{part}\"}}")).expect("a gauge")
}

/// Writes the series, and waits until they are stored.
fn fill(daemon: &Daemon) {
    let mut connection = connect(daemon.address());
    let mut lines = Vec::new();
    for second in 0..POINTS {
        for series in 0..SERIES {
            let time = START + second;
            writeln!(lines, "put wide {time} {second} host=h{series}").expect("memory");
        }
    }
    connection.write_all(&lines).expect("send");
    let (from, to) = (START - 3_600, START + 3_600);
    let count = format!("/api/query?start={from}&end={to}&m=sum:1h-count:wide");
    let all = wait_for(|| {
        let counted: Value =
            serde_json::from_str(&http(daemon.address(), "GET", &count, None).body).ok()?;
        let dps = counted[0]["dps"].as_object()?;
        let points: f64 = dps.values().filter_map(Value::as_f64).sum();
        (points as usize == SERIES * POINTS).then_some(())
    });
    all.expect("all points are stored");
}

fn wide_query(daemon: &Daemon) -> HttpResponse {
    let uri = format!("/api/query?start={}&end={}&m=none:wide", START - 1, START + 3_600);
    http(daemon.address(), "GET", &uri, None)
}

/// A body of one point, without its last byte.
fn start_slow_put(daemon: &Daemon, number: usize) -> TcpStream {
    let mut connection = connect(daemon.address());
    let point =
        format!(r#"{{"metric":"slow","timestamp":{START},"value":1,"tags":{{"n":"{number}"}}}}"#);
    let head =
        format!("POST /api/put HTTP/1.1\r\nHost: t\r\nContent-Length: {BODY_BYTES}\r\n\r\n{point}");
    // A refused request may be reset while its body is sent.
    let _ = connection.write_all(head.as_bytes());
    let _ = connection.write_all(&vec![b' '; BODY_BYTES - point.len() - 1]);
    connection
}

/// Ends the body and returns the response.
fn finish_slow_put(mut connection: TcpStream) -> String {
    let _ = connection.write_all(b" ");
    connection.set_read_timeout(Some(Duration::from_mins(1))).expect("a timeout");
    let mut response = Vec::new();
    let mut chunk = [0; 4_096];
    // The connection stays open after a success, and after a rejection of a completely read body for lack of memory.
    while !is_whole_response(&response) {
        match connection.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => response.extend_from_slice(&chunk[..read]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("no response: {error}"),
        }
    }
    String::from_utf8(response).expect("text")
}

#[test]
fn slow_clients_and_wide_queries_together_stay_within_the_memory_limit() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = tsdb(dir.path()).env("TSD_MEMORY_LIMIT", &LIMIT.to_string()).start();
    assert_eq!(gauge(&daemon, "tsd_memory_limit_bytes"), Some(LIMIT));
    let logged = daemon.wait_for_event("memory limit", |_| true);
    assert_eq!((&logged["limit"], &logged["source"]), (&LIMIT.into(), &"tsd.memory.limit".into()));
    fill(&daemon);
    assert_eq!(wide_query(&daemon).status, 200, "one wide query fits");
    let (bodies, queries) = (reserved(&daemon, "bodies"), reserved(&daemon, "queries"));
    assert_eq!((bodies, queries), (0, 0));

    let mut telnet = Vec::new();
    for number in 0..SLOW_CONNECTIONS {
        let mut connection = connect(daemon.address());
        write!(connection, "put half {START} 1 n={number}").expect("send");
        telnet.push(connection);
    }
    let slow: Vec<_> = (0..SLOW_CONNECTIONS).map(|n| start_slow_put(&daemon, n)).collect();
    let together = Barrier::new(WIDE_QUERIES);
    let answers: Vec<HttpResponse> = thread::scope(|scope| {
        let query = || {
            together.wait();
            wide_query(&daemon)
        };
        let queries: Vec<_> = (0..WIDE_QUERIES).map(|_| scope.spawn(query)).collect();
        queries.into_iter().map(|query| query.join().expect("no panic")).collect()
    });
    for answer in &answers {
        let is_clear = answer.status == 200
            || [413, 503].contains(&answer.status) && answer.body.contains("tsd.memory.limit");
        assert!(is_clear, "{} {:.300}", answer.status, answer.body);
    }
    let responses: Vec<String> = slow.into_iter().map(finish_slow_put).collect();
    let mut refused = 0;
    for response in &responses {
        let is_refused =
            response.starts_with("HTTP/1.1 503 ") && response.contains("tsd.memory.limit");
        assert!(is_refused || response.starts_with("HTTP/1.1 204"), "{response:.300}");
        refused += usize::from(is_refused);
    }
    // Waiting requests are rejected only if the others take long.
    let waits = gauge(&daemon, "tsd_memory_waits_total{part=\"bodies\"}");
    assert!(waits > Some(0), "more bodies than memory");
    assert!(refused < SLOW_CONNECTIONS, "and some fit");
    for mut connection in telnet {
        connection.write_all(b"\nexit\n").expect("send");
        let mut reply = String::new();
        connection.read_to_string(&mut reply).expect("the end");
        assert_eq!(reply, "", "a slow line is stored");
    }

    let peak = peak_memory(&daemon);
    let answered = answers.iter().filter(|answer| answer.status == 200).count();
    report(&format!(
        "memory: limit {} MiB, peak {} MiB; {answered} of {WIDE_QUERIES} queries and {} of \
         {SLOW_CONNECTIONS} bodies at once",
        LIMIT >> 20,
        peak >> 20,
        SLOW_CONNECTIONS - refused
    ));
    assert!(peak < LIMIT + PROGRAM, "{peak}");
    let released = wait_for(|| {
        (reserved(&daemon, "bodies") == 0 && reserved(&daemon, "queries") == 0).then_some(())
    });
    released.expect("all memory is released");
    assert_eq!(wide_query(&daemon).status, 200);
    let after = finish_slow_put(start_slow_put(&daemon, SLOW_CONNECTIONS));
    assert!(after.starts_with("HTTP/1.1 204"), "{after}");
    let uri = format!("/api/query?start={}&end={}&m=sum:half", START - 1, START + 1);
    let stored = http(daemon.address(), "GET", &uri, None).body;
    assert!(stored.contains(&format!(r#""{START}":{SLOW_CONNECTIONS}"#)), "{stored}");
    assert!(daemon.terminate().success());
}

const LOOKED_UP: usize = 20_000;
const LOOK_UPS: usize = 24;

#[test]
fn look_ups_and_newest_points_stay_within_the_memory_limit() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = tsdb(dir.path()).env("TSD_MEMORY_LIMIT", &LIMIT.to_string()).start();
    let long = "v".repeat(150);
    let tags = |n: usize| format!("host=h{n} rack={long} site={long}");
    let mut connection = connect(daemon.address());
    let mut lines = Vec::new();
    for n in 0..LOOKED_UP {
        writeln!(lines, "put wide {START} 1 {}", tags(n)).expect("memory");
    }
    connection.write_all(&lines).expect("send");
    let look_up = |limit: usize| {
        let uri = format!("/api/search/lookup?m=wide&limit={limit}");
        http(daemon.address(), "GET", &uri, None)
    };
    let listed = |response: &HttpResponse| {
        let json: Value = serde_json::from_str(&response.body).expect("JSON");
        json["results"].as_array().expect("results").len()
    };
    let all = wait_for(|| (listed(&look_up(0)) == LOOKED_UP).then_some(()));
    all.expect("all series are found");
    let selected: Vec<String> = (0..1_000)
        .map(|n| {
            format!(
                r#"{{"metric":"wide","tags":{{"host":"h{n}","rack":"{long}","site":"{long}"}}}}"#
            )
        })
        .collect();
    let body =
        format!(r#"{{"queries":[{}],"backScan":1,"resolveNames":true}}"#, selected.join(","));
    let together = Barrier::new(LOOK_UPS);
    let ask = |n: usize| {
        together.wait();
        let is_look_up = n.is_multiple_of(2);
        let answer = if is_look_up {
            look_up(0)
        } else {
            http(daemon.address(), "POST", "/api/query/last", Some(&body))
        };
        (is_look_up, answer)
    };
    let answers: Vec<(bool, HttpResponse)> = thread::scope(|scope| {
        let ask = &ask;
        let asked: Vec<_> = (0..LOOK_UPS).map(|n| scope.spawn(move || ask(n))).collect();
        asked.into_iter().map(|asked| asked.join().expect("no panic")).collect()
    });
    for (is_look_up, answer) in &answers {
        let is_refused =
            [413, 503].contains(&answer.status) && answer.body.contains("tsd.memory.limit");
        assert!(answer.status == 200 || is_refused, "{} {:.300}", answer.status, answer.body);
        if *is_look_up && answer.status == 200 {
            assert_eq!(listed(answer), LOOKED_UP, "complete");
        }
    }
    let peak = peak_memory(&daemon);
    let answered = answers.iter().filter(|(_, answer)| answer.status == 200).count();
    report(&format!("memory: look-ups: peak {} MiB; {answered} of {LOOK_UPS} at once", peak >> 20));
    assert!(peak < LIMIT + PROGRAM, "{peak}");
    let released = wait_for(|| {
        (reserved(&daemon, "bodies") == 0 && reserved(&daemon, "queries") == 0).then_some(())
    });
    released.expect("all memory is released");
    assert!(daemon.terminate().success());
}

/// Bytes of an expanding body, after decompression.
const EXPANDING_BYTES: usize = 1 << 20;
/// Requests of each kind at once.
const OF_EACH: usize = 3;

/// Bodies that need the most memory for their size: endpoint, whether it is compressed, text.
fn expanding_bodies() -> Vec<(&'static str, bool, String)> {
    let elements = |element: &str, bytes: usize| vec![element; bytes / element.len()].join(",");
    let many = |element: &str| format!("[{}]", elements(element, EXPANDING_BYTES));
    let some = |head: &str, element: &str, count: usize, tail: &str| {
        format!("{head}{}{tail}", vec![element; count].join(","))
    };
    let point = |metric: &str, time: &str| {
        format!(r#"{{"metric":{metric},"timestamp":{time},"value":1,"tags":{{"a":1}}}}"#)
    };
    let histogram = r#"{"metric":"known","timestamp":1,"tags":{"a":1},"buckets":{"0,1":1}}"#;
    let rollup =
        r#"{"metric":1,"timestamp":1,"value":1,"interval":"1h","aggregator":"sum","tags":{"a":1}}"#;
    let query = r#"{"start":"1h-ago","queries":["#;
    let filters = r#"{"start":"1h-ago","queries":[{"aggregator":"sum","metric":"m","filters":["#;
    let regexp = r#"{"type":"regexp","tagk":"a","filter":"(a{90}){90}"}"#;
    let exp = r#"{"time":{"start":"1h-ago","aggregator":"sum"},"metrics":[{"id":"a","metric":"m"}],"expressions":[{"id":"e","expr":""#;
    vec![
        ("/api/put?details", false, many("null")),
        ("/api/put", false, many("{}")),
        ("/api/put", true, format!("[{}]", elements("{}", 16 * EXPANDING_BYTES))),
        ("/api/put?details", false, many(&point("1", "99999999999999999"))),
        // A series without UIDs: each point is kept until its names are looked up.
        ("/api/put?details", false, many(&point(r#""unknown""#, "1"))),
        ("/api/put", false, many(&point(r#""known""#, "1"))),
        ("/api/rollup?details", false, many(rollup)),
        ("/api/histogram?details", false, many(histogram)),
        ("/api/query", false, some(query, "{}", 4_000, "]}")),
        ("/api/query", false, some(filters, regexp, 200, "]}]}")),
        ("/api/query/gexp", false, some(filters, regexp, 200, "]}]}")),
        ("/api/query/exp", false, format!("{exp}{}a\"}}]}}", "a+".repeat(125_000))),
        ("/api/query/last", false, some(r#"{"queries":[{"tsuids":["#, r#""""#, 90_000, "]}]}")),
        ("/api/search/lookup", false, some(r#"{"metric":"m","tags":["#, "{}", 1_000, "]}")),
        ("/api/annotation/bulk", false, some("[", r#"{"custom":{"":""}}"#, 60_000, "]")),
        ("/api/uid/assign", false, format!(r#"{{"metric":{}}}"#, many("[]"))),
        ("/api/suggest", false, many(r#"{"":{"":0}}"#)),
    ]
}

/// Sends a body and returns status and text of the response.
fn post(daemon: &Daemon, path: &str, is_compressed: bool, body: &str) -> (u16, String) {
    let (encoding, sent) = if is_compressed {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(body.as_bytes()).expect("memory");
        ("Content-Encoding: gzip\r\n", encoder.finish().expect("memory"))
    } else {
        ("", body.as_bytes().to_vec())
    };
    let mut connection = connect(daemon.address());
    connection.set_read_timeout(Some(Duration::from_mins(2))).expect("a timeout");
    let length = sent.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n{encoding}Content-Length: {length}\r\n\r\n"
    );
    // A refused request may be reset while its body is sent.
    let _ = connection.write_all(head.as_bytes()).and_then(|()| connection.write_all(&sent));
    let mut response = Vec::new();
    let _ = connection.read_to_end(&mut response);
    let text = String::from_utf8_lossy(&response).into_owned();
    let status = text.get(9..12).and_then(|status| status.parse().ok());
    (status.unwrap_or_default(), text)
}

#[test]
fn bodies_that_expand_stay_within_the_memory_limit() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let daemon = tsdb(dir.path())
        .env("TSD_MEMORY_LIMIT", &LIMIT.to_string())
        .env("TSD_CORE_AUTO_CREATE_METRICS", "false")
        .env("TSD_CORE_HISTOGRAMS_CONFIG", r#"{"net.opentsdb.core.SimpleHistogramDecoder": 42}"#)
        .start();
    let assigned = http(
        daemon.address(),
        "POST",
        "/api/uid/assign",
        Some(r#"{"metric":["known"],"tagk":["a"],"tagv":["1"]}"#),
    );
    assert_eq!(assigned.status, 200, "{}", assigned.body);
    let bodies = expanding_bodies();
    let (mut refused, mut answered) = (0, 0);
    // One after the other, then all together.
    for (path, is_compressed, body) in &bodies {
        let (status, text) = post(&daemon, path, *is_compressed, body);
        check_answer(path, status, &text);
        let peak = peak_memory(&daemon);
        report(&format!("memory: {path} {status} {body:.20}: peak {} MiB", peak >> 20));
        assert!(peak < LIMIT + PROGRAM, "{path}: {peak}");
    }
    thread::scope(|scope| {
        let (daemon, bodies) = (&daemon, &bodies);
        let sent: Vec<_> = (0..OF_EACH * bodies.len())
            .map(|n| {
                let (path, is_compressed, body) = &bodies[n % bodies.len()];
                scope.spawn(move || (path, post(daemon, path, *is_compressed, body)))
            })
            .collect();
        for answer in sent {
            let (path, (status, text)) = answer.join().expect("no panic");
            check_answer(path, status, &text);
            *(if text.contains("tsd.memory.limit") { &mut refused } else { &mut answered }) += 1;
        }
    });
    let peak = peak_memory(&daemon);
    report(&format!(
        "memory: bodies that expand: peak {} MiB of {} MiB; {answered} answered, {refused} refused",
        peak >> 20,
        LIMIT >> 20
    ));
    assert!(peak < LIMIT + PROGRAM, "{peak}");
    assert!(refused > 0 && answered > 0, "{refused} {answered}");
    let counted = gauge(&daemon, "tsd_memory_refusals_total{part=\"bodies\"}");
    assert!(counted > Some(0), "refusals are counted");
    let released = wait_for(|| (reserved(&daemon, "bodies") == 0).then_some(()));
    released.expect("all memory is released");
    let after = http(
        daemon.address(),
        "POST",
        "/api/put",
        Some(r#"{"metric":"known","timestamp":1600000000,"value":1,"tags":{"a":"1"}}"#),
    );
    assert_eq!(after.status, 204, "{}", after.body);
    assert!(daemon.terminate().success());
}

/// Checks that a request is handled, rejected for its content, or rejected with the setting of the limit.
fn check_answer(path: &str, status: u16, text: &str) {
    let is_reset = status == 0 && text.is_empty();
    let is_clear = match status {
        503 => {
            let reasons =
                ["tsd.memory.limit", "tsd.http.request.max_total", "please send them again"];
            reasons.iter().any(|reason| text.contains(reason))
        }
        status => (200..=500).contains(&status),
    };
    assert!(is_clear || is_reset, "{path}: {status} {text:.300}");
}
