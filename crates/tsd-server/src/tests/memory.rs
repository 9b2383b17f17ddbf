//! Connections, bodies and queries while the memory limit is used up.

use std::{num::NonZeroUsize, time::Duration};

use socket2::{Domain, Socket, Type};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::{sleep, timeout},
};
use tsd_engine::{MemoryConsumer, MemoryPermit, ProcessMemory};

use super::harness::{POINTS, RANGE, Tsd, engine_config, read_to_end, with_limits};
use crate::Limits;

const LIMIT: u64 = 8 << 20;
/// Long enough for a faulty server on a busy machine to act.
const SOON: Duration = Duration::from_millis(100);

/// Longer than any test.
const LONG: Duration = Duration::from_mins(10);
/// Bytes of a body that needs a share of the memory.
const HALF: usize = 128 << 10;

/// A server with a small memory limit.
async fn start() -> (Tsd, ProcessMemory) {
    let memory = ProcessMemory::new(LIMIT, Vec::new());
    let mut engine = engine_config();
    engine.memory = memory.clone();
    let limits = Limits { memory_wait: SOON, ..Limits::default() };
    (Tsd::start_with(with_limits(limits), engine).await, memory)
}

/// Reserves all memory that a kind of work can get.
fn take_all(memory: &ProcessMemory, consumer: MemoryConsumer) -> MemoryPermit {
    let mut permit = memory.try_reserve(consumer, 0).unwrap();
    let mut more = memory.most(consumer) as usize;
    while more > 0 {
        if !permit.try_grow(permit.bytes() + more) {
            more /= 2;
        }
    }
    permit
}

async fn released(memory: &ProcessMemory) {
    while MemoryConsumer::ALL.iter().any(|consumer| memory.reserved(*consumer) > 0) {
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
    let half = memory.most(MemoryConsumer::Bodies) as usize / 2;
    let mut slow = tsd.connect().await;
    slow.write_all(head(POINTS.len() + half).as_bytes()).await.unwrap();
    slow.write_all(" ".repeat(half).as_bytes()).await.unwrap();
    while memory.reserved(MemoryConsumer::Bodies) < half as u64 {
        sleep(Duration::from_millis(1)).await;
    }
    let rest = take_all(&memory, MemoryConsumer::Bodies);
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
    let all = take_all(&memory, MemoryConsumer::Bodies);
    let put = tsd.post("/api/put", POINTS);
    let release = async {
        sleep(SOON).await;
        drop(all);
    };
    assert_eq!(tokio::join!(put, release).0.status, 204);
    tsd.no_connections().await;
    released(&memory).await;
}

/// Starts a server whose bodies wait for memory without a timeout; all bodies together can have two shares.
async fn start_patient(body_stall: Duration) -> (Tsd, ProcessMemory) {
    let memory = ProcessMemory::new(LIMIT, Vec::new());
    let mut engine = engine_config();
    engine.memory = memory.clone();
    let limits = Limits {
        memory_wait: LONG,
        body_stall,
        half_close_grace: SOON,
        all_bodies_bytes: 2 * HALF,
        inflated_bytes: 2 * HALF,
        ..Limits::default()
    };
    (Tsd::start_with(with_limits(limits), engine).await, memory)
}

/// Sends the beginning of a body that needs the memory of all bodies. Returns the connection when the memory of the
/// body is reserved.
async fn send_beginning(tsd: &Tsd, memory: &ProcessMemory, bytes: usize) -> TcpStream {
    let before = memory.reserved(MemoryConsumer::Bodies);
    let mut stream = tsd.connect().await;
    stream.write_all(head(2 * HALF).as_bytes()).await.unwrap();
    stream.write_all(" ".repeat(bytes).as_bytes()).await.unwrap();
    while memory.reserved(MemoryConsumer::Bodies) < before + bytes as u64 {
        sleep(Duration::from_millis(1)).await;
    }
    stream
}

#[tokio::test]
async fn bodies_that_do_not_arrive_give_their_memory_to_those_that_do() {
    let (tsd, memory) = start_patient(SOON).await;
    // Waits for the limit of all bodies; for the limit of the process, with the body; and with its points.
    for left in [None, Some(0), Some(POINTS.len() + 64)] {
        let silent = send_beginning(&tsd, &memory, HALF).await;
        // The longer body of the first case needs the memory of both bodies.
        let mut slow = match left {
            None => Some(send_beginning(&tsd, &memory, HALF / 2).await),
            Some(_) => None,
        };
        let rest = left.map(|left| {
            let mut rest = take_all(&memory, MemoryConsumer::Bodies);
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
        let body = format!("{POINTS}{}", " ".repeat(left.map_or(HALF, |_| 0)));
        let put = tokio::select! {
            put = tsd.post("/api/put", &body) => put,
            () = trickle => panic!("it does not end"),
        };
        assert_eq!(put.status, 204, "{}", put.line());
        for mut refused in slow.into_iter().chain([silent]) {
            let refused = read_to_end(&mut refused).await;
            assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
            assert!(
                refused.contains("the request body stalled while other requests waited"),
                "{refused}"
            );
        }
        drop(rest);
    }
    tsd.no_connections().await;
    released(&memory).await;
}

#[tokio::test]
async fn a_small_body_does_not_wait_behind_a_large_one() {
    let (tsd, memory) = start_patient(LONG).await;
    let other = send_beginning(&tsd, &memory, HALF / 2).await;
    // Its reservation doubles beyond the available memory.
    let body = format!("{POINTS}{}", " ".repeat(HALF));
    let large = tsd.post("/api/put", &body);
    let small = async {
        while memory.reserved(MemoryConsumer::Bodies) < (HALF + HALF / 2) as u64 {
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

/// Issue 37: while large requests are served, small requests keep a share of the memory of the process.
#[tokio::test]
async fn small_bodies_are_served_while_large_ones_use_up_the_memory_of_bodies() {
    const LARGE: usize = 1 << 20;
    let memory = ProcessMemory::new(LIMIT, Vec::new());
    let mut engine = engine_config();
    engine.memory = memory.clone();
    // The server notices clients that give up when their wait for memory ends.
    let limits = Limits {
        memory_wait: Duration::from_secs(5),
        body_stall: LONG,
        half_close_grace: SOON,
        ..Limits::default()
    };
    let tsd = Tsd::start_with(with_limits(limits), engine).await;
    // More requests than fit: the last of them wait for memory and keep their reservations.
    let mut large = JoinSet::new();
    for _ in 0..8 {
        let mut stream = tsd.connect().await;
        large.spawn(async move {
            stream.write_all(head(LARGE).as_bytes()).await.unwrap();
            // Ends when the server stops reading.
            stream.write_all(" ".repeat(LARGE - 1).as_bytes()).await.unwrap();
            std::future::pending::<()>().await;
        });
    }
    while memory.waits_and_refusals(MemoryConsumer::Bodies).0 == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    for _ in 0..50 {
        let put = tsd.post("/api/put", POINTS).await;
        assert_eq!(put.status, 204, "{}", put.line());
    }
    large.shutdown().await;
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
    while memory.reserved(MemoryConsumer::Connections) > minimum
        || memory.reserved(MemoryConsumer::Reads) > 0
    {
        sleep(Duration::from_millis(1)).await;
    }
    let reads = take_all(&memory, MemoryConsumer::Reads);
    assert_eq!(tsd.get("/api/version").await.status, 200, "others are served");
    tsd_has_one_connection(&tsd).await;
    let all = (take_all(&memory, MemoryConsumer::Connections), reads);
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

/// All points of the connection are stored.
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
        without_memory += usize::from(memory.reserved(MemoryConsumer::Reads) == 0);
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
    let all = take_all(&memory, MemoryConsumer::Queries);
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
    let all = take_all(&memory, MemoryConsumer::Queries);
    for (path, body) in requests {
        let refused = tsd.post(path, body).await;
        assert_eq!(refused.status, 503, "{}", refused.line());
        assert!(refused.text().contains("(tsd.memory.limit)"), "{}", refused.text());
    }
    drop(all);
    let all = take_all(&memory, MemoryConsumer::Bodies);
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
    // More memory than bodies may ever have.
    let refused = tsd.post("/api/put", &body).await;
    assert_eq!(refused.status, 413, "{}", refused.line());
    assert!(refused.text().contains("(tsd.memory.limit)"), "{}", refused.line());
    // More memory than is available now.
    let most = memory.most(MemoryConsumer::Bodies);
    let held = memory.try_reserve(MemoryConsumer::Bodies, most as usize - 400_000).unwrap();
    let body = format!("[{point},{}]", vec!["null"; 4_000].join(","));
    let refused = tsd.post("/api/put?details", &body).await;
    assert_eq!(refused.status, 503, "{}", refused.line());
    assert!(refused.text().contains("(tsd.memory.limit)"), "{}", refused.line());
    assert_ne!(found().await.status, 200, "nothing is stored");
    assert_eq!(memory.waits_and_refusals(MemoryConsumer::Bodies).1, 2);
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
    let all = take_all(&memory, MemoryConsumer::Bodies);
    let refused = tsd.post("/api/query", &query(1)).await;
    assert_eq!(refused.status, 503, "{}", refused.line());
    drop(all);
    assert_eq!(tsd.post("/api/put", POINTS).await.status, 204);
    let found = tsd.post("/api/query", &query(1)).await;
    assert!(!found.text().contains("tsd.memory.limit"), "{}", found.line());
    tsd.no_connections().await;
    released(&memory).await;
}

/// Bytes of all names of [`start_with_long_names`].
const NAMES: usize = 200 * 30_000;

/// Starts a server whose list of all metrics is larger than the buffers of a socket.
async fn start_with_long_names(limits: Limits) -> (Tsd, ProcessMemory) {
    let memory = ProcessMemory::new(8 * LIMIT, Vec::new());
    let mut engine = engine_config();
    engine.memory = memory.clone();
    let tsd = Tsd::start_with(with_limits(limits), engine).await;
    for first in (0..200).step_by(20) {
        let point = |n: i32| {
            let name = format!("{n:03}{}", "a".repeat(29_997));
            format!(r#"{{"metric":"{name}","timestamp":1356998400,"value":1,"tags":{{"a":"b"}}}}"#)
        };
        let points: Vec<String> = (first..first + 20).map(point).collect();
        let put = tsd.post("/api/put", &format!("[{}]", points.join(","))).await;
        assert_eq!(put.status, 204, "{}", put.line());
    }
    tsd.no_connections().await;
    released(&memory).await;
    (tsd, memory)
}

/// Requests the list of all metrics and reads only the first bytes of the response.
async fn request_names(tsd: &Tsd) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.connect(&tsd.server.local_addr().into()).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut stream = TcpStream::from_std(socket.into()).unwrap();
    let request = b"GET /api/suggest?type=metrics&max=1000 HTTP/1.1\r\nHost: t\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    stream
}

/// Issue 37: before its client had read a response, its memory was released and its connection counted as idle.
#[tokio::test]
async fn an_unread_response_keeps_its_memory_and_its_connection() {
    let limits = Limits {
        connections: NonZeroUsize::new(1),
        evict_idle_after: Duration::ZERO,
        ..Limits::default()
    };
    let (tsd, memory) = start_with_long_names(limits).await;
    let mut unread = request_names(&tsd).await;
    sleep(SOON).await;
    assert!(memory.reserved(MemoryConsumer::Bodies) > NAMES as u64);
    let refused = tsd.exchange(b"status\n").await;
    assert_eq!(refused, "error: too many connections: 1 are open\n", "it is not idle");
    let mut rest = vec![0; NAMES];
    unread.read_exact(&mut rest).await.unwrap();
    drop(unread);
    tsd.no_connections().await;
    released(&memory).await;
}

/// Issue 37: clients that did not read their responses blocked the memory of others for ever.
#[tokio::test]
async fn unread_responses_give_their_memory_to_requests_that_wait() {
    let limits = Limits { memory_wait: LONG, response_stall: SOON, ..Limits::default() };
    let (tsd, memory) = start_with_long_names(limits).await;
    let mut unread = request_names(&tsd).await;
    sleep(3 * SOON).await;
    assert!(memory.reserved(MemoryConsumer::Bodies) > NAMES as u64, "nobody waits");
    let all = take_all(&memory, MemoryConsumer::Bodies);
    assert_eq!(tsd.post("/api/put", POINTS).await.status, 204);
    assert!(read_to_end(&mut unread).await.len() < NAMES, "it is cut off");
    drop(all);
    tsd.no_connections().await;
    released(&memory).await;
}

/// Issue 37.
#[tokio::test]
async fn a_response_without_memory_is_refused_with_the_key() {
    let limits = Limits { memory_wait: SOON, ..Limits::default() };
    let (tsd, memory) = start_with_long_names(limits).await;
    let note = format!(r#"{{"startTime":7,"description":"{}"}}"#, "d".repeat(20_000));
    assert_eq!(tsd.post("/api/annotation", &note).await.status, 200);
    let names = "/api/suggest?type=metrics&max=1000";
    let all = take_all(&memory, MemoryConsumer::Bodies);
    // A growing list, and a ready response.
    for path in [names, "/api/annotation?start_time=7"] {
        let refused = tsd.get(path).await;
        assert_eq!(refused.status, 503, "{path} {}", refused.line());
        assert!(refused.text().contains("(tsd.memory.limit)"), "{}", refused.line());
    }
    drop(all);
    assert_eq!(tsd.get(names).await.json().as_array().unwrap().len(), 200);
    tsd.no_connections().await;
    released(&memory).await;
}

/// Issue 37: the memory of global annotations was not accounted for.
#[tokio::test]
async fn global_annotations_without_memory_are_refused_with_the_key() {
    let (tsd, memory) = start().await;
    assert_eq!(tsd.post("/api/put", POINTS).await.status, 204);
    let text = "d".repeat(200_000);
    let write = async |start: u64| {
        let body = format!(r#"{{"startTime":{start},"description":"{text}"}}"#);
        tsd.post("/api/annotation", &body).await
    };
    assert_eq!(write(1_356_998_400).await.status, 200);
    let requests = [
        "/api/annotations?start_time=1356998400&end_time=1356998500".to_owned(),
        format!("/api/query?{RANGE}&m=sum:m&global_annotations"),
        format!("/api/query/gexp?{RANGE}&exp=scale(sum:m,2)&global_annotations"),
    ];
    for uri in &requests {
        let found = tsd.get(uri).await;
        assert_eq!((found.status, found.text().matches(&text).count()), (200, 1), "{uri}");
    }
    let all = take_all(&memory, MemoryConsumer::Queries);
    for uri in &requests {
        let refused = tsd.get(uri).await;
        assert_eq!(refused.status, 503, "{}", refused.line());
        assert!(refused.text().contains("(tsd.memory.limit)"), "{}", refused.text());
    }
    drop(all);
    for second in 1..20 {
        assert_eq!(write(1_356_998_400 + second).await.status, 200);
    }
    for uri in &requests {
        let refused = tsd.get(uri).await;
        assert_eq!(refused.status, 413, "{uri}");
        assert!(refused.text().contains("(tsd.memory.limit)"), "{}", refused.text());
    }
    tsd.no_connections().await;
    released(&memory).await;
}
