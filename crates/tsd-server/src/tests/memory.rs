//! Connections, bodies and queries while the memory limit is used up.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};
use tsd_engine::{MemoryPart, MemoryPermit, ProcessMemory};

use super::harness::{POINTS, RANGE, Tsd, engine_config, read_to_end, with_limits};
use crate::Limits;

const LIMIT: u64 = 8 << 20;
/// Long enough for a server on a busy machine to do what it should not do.
const SOON: Duration = Duration::from_millis(100);

/// Longer than any test.
const LONG: Duration = Duration::from_mins(10);
/// Bytes of a body that takes a part of the memory.
const PART: usize = 128 << 10;

/// A server with a small memory limit.
async fn start() -> (Tsd, ProcessMemory) {
    let memory = ProcessMemory::new(LIMIT, Vec::new());
    let mut engine = engine_config();
    engine.memory = memory.clone();
    let limits = Limits { memory_wait: SOON, ..Limits::default() };
    (Tsd::start_with(with_limits(limits), engine).await, memory)
}

/// Takes all that a part can get.
fn take_all(memory: &ProcessMemory, part: MemoryPart) -> MemoryPermit {
    let mut permit = memory.try_reserve(part, 0).unwrap();
    let mut more = memory.most(part) as usize;
    while more > 0 {
        if !permit.try_grow(permit.bytes() + more) {
            more /= 2;
        }
    }
    permit
}

async fn released(memory: &ProcessMemory) {
    while MemoryPart::ALL.iter().any(|part| memory.reserved(*part) > 0) {
        sleep(Duration::from_millis(1)).await;
    }
}

async fn tsd_has_one_connection(tsd: &Tsd) {
    while tsd.server.open_connections() > 1 {
        sleep(Duration::from_millis(1)).await;
    }
}

fn head(length: usize) -> String {
    format!(
        "POST /api/put HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    )
}

#[tokio::test]
async fn a_body_waits_for_memory_and_then_is_refused_with_the_key() {
    let (tsd, memory) = start().await;
    let half = memory.most(MemoryPart::Bodies) as usize / 2;
    let mut slow = tsd.connect().await;
    slow.write_all(head(POINTS.len() + half).as_bytes()).await.unwrap();
    slow.write_all(" ".repeat(half).as_bytes()).await.unwrap();
    while memory.reserved(MemoryPart::Bodies) < half as u64 {
        sleep(Duration::from_millis(1)).await;
    }
    let rest = take_all(&memory, MemoryPart::Bodies);
    let refused = tsd.post("/api/put", POINTS).await;
    assert_eq!(
        refused.line(),
        r#"503 {"error":{"code":503,"message":"Please throttle: no memory is left for the request body (tsd.memory.limit)"}}"#
    );
    let status = tsd.get("/api/status").await.json();
    assert_eq!(status["status"], "ok");
    assert_eq!(status["problems"][0]["part"], "memory", "{status}");
    assert_eq!(
        status["problems"][0]["reason"],
        "request bodies are refused: the memory of 8MB (tsd.memory.limit) is used up"
    );
    drop(rest);
    slow.write_all(POINTS.as_bytes()).await.unwrap();
    assert!(read_to_end(&mut slow).await.starts_with("HTTP/1.1 204 "));
    assert_eq!(tsd.post("/api/put", POINTS).await.status, 204);
    tsd.no_connections().await;
    released(&memory).await;
}

#[tokio::test]
async fn a_body_that_waits_goes_on_when_memory_is_released() {
    let memory = ProcessMemory::new(LIMIT, Vec::new());
    let mut engine = engine_config();
    engine.memory = memory.clone();
    let limits = Limits { memory_wait: LONG, ..Limits::default() };
    let tsd = Tsd::start_with(with_limits(limits), engine).await;
    let all = take_all(&memory, MemoryPart::Bodies);
    let put = tsd.post("/api/put", POINTS);
    let release = async {
        sleep(SOON).await;
        drop(all);
    };
    assert_eq!(tokio::join!(put, release).0.status, 204);
    tsd.no_connections().await;
    released(&memory).await;
}

/// A server whose bodies wait for memory until there is some; all of them have that of two parts.
async fn start_patient(body_stall: Duration) -> (Tsd, ProcessMemory) {
    let memory = ProcessMemory::new(LIMIT, Vec::new());
    let mut engine = engine_config();
    engine.memory = memory.clone();
    let limits = Limits {
        memory_wait: LONG,
        body_stall,
        half_close_grace: SOON,
        all_bodies_bytes: 2 * PART,
        inflated_bytes: 2 * PART,
        ..Limits::default()
    };
    (Tsd::start_with(with_limits(limits), engine).await, memory)
}

/// Sends a part of a body of a megabyte, and returns the connection when its memory is reserved.
async fn send_part(tsd: &Tsd, memory: &ProcessMemory, bytes: usize) -> TcpStream {
    let before = memory.reserved(MemoryPart::Bodies);
    let mut stream = tsd.connect().await;
    stream.write_all(head(1 << 20).as_bytes()).await.unwrap();
    stream.write_all(" ".repeat(bytes).as_bytes()).await.unwrap();
    while memory.reserved(MemoryPart::Bodies) < before + bytes as u64 {
        sleep(Duration::from_millis(1)).await;
    }
    stream
}

#[tokio::test]
async fn bodies_that_do_not_arrive_give_their_memory_to_those_that_do() {
    let (tsd, memory) = start_patient(SOON).await;
    // Of the limit of all bodies; of the limit of the process, for the body; of that, for its points.
    for left in [None, Some(0), Some(POINTS.len() + 64)] {
        let silent = send_part(&tsd, &memory, PART).await;
        // The longer body of the first case needs the memory of both.
        let mut slow = match left {
            None => Some(send_part(&tsd, &memory, PART / 2).await),
            Some(_) => None,
        };
        let rest = left.map(|left| {
            let mut rest = take_all(&memory, MemoryPart::Bodies);
            rest.shrink(rest.bytes() - left);
            rest
        });
        let trickle = async {
            loop {
                sleep(SOON / 4).await;
                if let Some(slow) = &mut slow {
                    // Fails when the server has closed the connection.
                    let _ = slow.write_all(b" ").await;
                }
            }
        };
        let body = format!("{POINTS}{}", " ".repeat(left.map_or(PART, |_| 0)));
        let put = tokio::select! {
            put = tsd.post("/api/put", &body) => put,
            () = trickle => panic!("it does not end"),
        };
        assert_eq!(put.status, 204, "{}", put.line());
        for mut refused in slow.into_iter().chain([silent]) {
            let refused = read_to_end(&mut refused).await;
            assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
            assert!(refused.contains("of a request body that does not arrive"), "{refused}");
        }
        drop(rest);
    }
    tsd.no_connections().await;
    released(&memory).await;
}

#[tokio::test]
async fn a_small_body_does_not_wait_behind_a_large_one() {
    let (tsd, memory) = start_patient(LONG).await;
    let other = send_part(&tsd, &memory, PART / 2).await;
    // Its reservation doubles beyond what is left.
    let body = format!("{POINTS}{}", " ".repeat(PART));
    let large = tsd.post("/api/put", &body);
    let small = async {
        while memory.reserved(MemoryPart::Bodies) < (PART + PART / 2) as u64 {
            sleep(Duration::from_millis(1)).await;
        }
        sleep(SOON).await;
        let small = tsd.post("/api/put", POINTS).await;
        drop(other);
        small
    };
    let (large, small) = tokio::join!(large, small);
    assert_eq!((large.status, small.status), (204, 204), "{} {}", large.line(), small.line());
    tsd.no_connections().await;
    released(&memory).await;
}

#[tokio::test]
async fn a_telnet_connection_waits_for_memory_and_loses_nothing() {
    let (tsd, memory) = start().await;
    let mut stream = tsd.connect().await;
    let mut reply = [0; 3];
    stream.write_all(b"status\n").await.unwrap();
    stream.read_exact(&mut reply).await.unwrap();
    let minimum = crate::connection_memory::TELNET_BYTES as u64;
    while memory.reserved(MemoryPart::Connections) > minimum
        || memory.reserved(MemoryPart::Reads) > 0
    {
        sleep(Duration::from_millis(1)).await;
    }
    let reads = take_all(&memory, MemoryPart::Reads);
    assert_eq!(tsd.get("/api/version").await.status, 200, "others are served");
    tsd_has_one_connection(&tsd).await;
    let all = (take_all(&memory, MemoryPart::Connections), reads);
    stream.write_all(b"put held 1356998400 7 a=b\nstatus\n").await.unwrap();
    assert!(timeout(SOON, stream.read_u8()).await.is_err(), "nothing is read");
    let refused = tsd.exchange(b"status\n").await;
    assert_eq!(refused, "error: no memory is left (tsd.memory.limit)\n");
    let refused = tsd.exchange(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n").await;
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(refused.contains("no memory is left (tsd.memory.limit)"), "{refused}");
    drop(all);
    stream.read_exact(&mut reply).await.unwrap();
    stream.write_all(b"exit\n").await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, "");
    let found = tsd.get(&format!("/api/query?{RANGE}&m=sum:held")).await;
    assert!(found.text().contains(r#""1356998400":7"#), "{}", found.line());
    tsd.no_connections().await;
    released(&memory).await;
}

/// Its points are stored all the same, and a command gets its reply.
#[tokio::test]
async fn a_connection_that_sends_points_one_by_one_holds_no_memory_between_its_reads() {
    const POINTS: usize = 400;
    let (tsd, memory) = start().await;
    let mut stream = tsd.connect().await;
    let (mut reads, mut without_memory) = (0, 0);
    for second in 0..POINTS {
        let line = format!("put single {} 1 a=b\n", 1_356_998_400 + second);
        stream.write_all(line.as_bytes()).await.unwrap();
        sleep(Duration::from_millis(1)).await;
        reads += 1;
        without_memory += usize::from(memory.reserved(MemoryPart::Reads) == 0);
    }
    assert!(without_memory > reads / 2, "{without_memory} of {reads}");
    let mut reply = [0; 3];
    stream.write_all(b"exit\n").await.unwrap();
    assert!(stream.read_exact(&mut reply).await.is_err(), "exit has no reply");
    let found = tsd.get(&format!("/api/query?{RANGE}&m=sum:1h-count:single")).await;
    assert!(found.text().contains(&format!(":{POINTS}")), "{}", found.line());
    released(&memory).await;
}

#[tokio::test]
async fn a_query_without_memory_is_refused_with_the_key_and_works_later() {
    let (tsd, memory) = start().await;
    assert_eq!(tsd.post("/api/put", POINTS).await.status, 204);
    let uri = format!("/api/query?{RANGE}&m=sum:m");
    let all = take_all(&memory, MemoryPart::Queries);
    let refused = tsd.get(&uri).await;
    assert_eq!(refused.status, 503, "{}", refused.line());
    assert!(refused.text().contains("all of the 8MB of memory (tsd.memory.limit)"));
    assert_eq!(tsd.post("/api/put", POINTS).await.status, 204, "bodies have memory of their own");
    drop(all);
    assert_eq!(tsd.get(&uri).await.status, 200);
    tsd.no_connections().await;
    released(&memory).await;
}

#[tokio::test]
async fn newest_points_and_look_ups_without_memory_are_refused_with_the_key_and_work_later() {
    let (tsd, memory) = start().await;
    assert_eq!(tsd.post("/api/put", POINTS).await.status, 204);
    let last = "/api/query/last";
    let selected = r#"{"queries":[{"metric":"m","tags":{"host":"a","dc":"x"}}],"backScan":200000}"#;
    let look_up = r#"{"metric":"m","useMeta":false}"#;
    let requests = [(last, selected), ("/api/search/lookup", look_up)];
    let all = take_all(&memory, MemoryPart::Queries);
    for (path, body) in requests {
        let refused = tsd.post(path, body).await;
        assert_eq!(refused.status, 503, "{}", refused.line());
        assert!(refused.text().contains("(tsd.memory.limit)"), "{}", refused.text());
    }
    drop(all);
    let all = take_all(&memory, MemoryPart::Bodies);
    for (path, body) in requests {
        let refused = tsd.post(path, body).await;
        assert_eq!(refused.status, 503, "{}", refused.line());
        assert!(refused.text().contains("(tsd.memory.limit)"), "{}", refused.text());
    }
    drop(all);
    for (path, body) in requests {
        let found = tsd.post(path, body).await;
        assert_eq!(found.status, 200, "{}", found.text());
    }
    tsd.no_connections().await;
    released(&memory).await;
}

#[tokio::test]
async fn points_without_memory_are_refused_before_anything_is_stored() {
    let (tsd, memory) = start().await;
    let point = r#"{"metric":"kept","timestamp":1356998400,"value":7,"tags":{"host":"a"}}"#;
    let nulls = vec!["null"; 100_000].join(",");
    let body = format!("[{point},{nulls}]");
    let found = async || tsd.get(&format!("/api/query?{RANGE}&m=sum:kept")).await;
    // More than bodies may ever have.
    let refused = tsd.post("/api/put", &body).await;
    assert_eq!(refused.status, 413, "{}", refused.line());
    assert!(refused.text().contains("(tsd.memory.limit)"), "{}", refused.line());
    // More than is left now.
    let most = memory.most(MemoryPart::Bodies);
    let held = memory.try_reserve(MemoryPart::Bodies, most as usize - 400_000).unwrap();
    let body = format!("[{point},{}]", vec!["null"; 4_000].join(","));
    let refused = tsd.post("/api/put?details", &body).await;
    assert_eq!(refused.status, 503, "{}", refused.line());
    assert!(refused.text().contains("(tsd.memory.limit)"), "{}", refused.line());
    assert_ne!(found().await.status, 200, "nothing is stored");
    assert_eq!(memory.waits_and_refusals(MemoryPart::Bodies).1, 2);
    assert_eq!(tsd.post("/api/put", POINTS).await.status, 204, "small bodies fit");
    drop(held);
    let answer = tsd.post("/api/put?details", &body).await;
    assert_eq!(answer.status, 400, "{}", answer.line());
    assert_eq!(answer.json()["failed"], 4_000);
    assert_eq!(found().await.status, 200);
    tsd.no_connections().await;
    released(&memory).await;
}

#[tokio::test]
async fn other_bodies_are_reserved_by_their_shape() {
    let (tsd, memory) = start().await;
    let regexp = r#"{"type":"regexp","tagk":"host","filter":"a"}"#;
    let query = |count: usize| {
        let filters = vec![regexp; count].join(",");
        format!(
            r#"{{"start":"1h-ago","queries":[{{"aggregator":"sum","metric":"m","filters":[{filters}]}}]}}"#
        )
    };
    let tree = vec!["[]"; 5_000].join(",");
    let parameters = "regexp(a)%7C".repeat(3);
    let uri = format!("/api/query?start=1h-ago&m=sum:m%7Bhost={parameters}%7D");
    for (path, body) in [
        ("/api/query", query(3)),
        ("/api/query/gexp", query(3)),
        (uri.as_str(), String::new()),
        ("/api/suggest", format!(r#"{{"type":[{tree}]}}"#)),
        ("/api/uid/assign", format!(r#"{{"metric":[{tree}]}}"#)),
        ("/api/annotation/bulk", format!("[{}]", vec!["{}"; 9_000].join(","))),
    ] {
        let send = async || {
            if body.is_empty() { tsd.get(path).await } else { tsd.post(path, &body).await }
        };
        let refused = send().await;
        assert_eq!(refused.status, 413, "{path} {}", refused.line());
        assert!(refused.text().contains("(tsd.memory.limit)"), "{}", refused.line());
    }
    let all = take_all(&memory, MemoryPart::Bodies);
    let refused = tsd.post("/api/query", &query(1)).await;
    assert_eq!(refused.status, 503, "{}", refused.line());
    drop(all);
    assert_eq!(tsd.post("/api/put", POINTS).await.status, 204);
    let found = tsd.post("/api/query", &query(1)).await;
    assert!(!found.text().contains("tsd.memory.limit"), "{}", found.line());
    tsd.no_connections().await;
    released(&memory).await;
}
