//! Telnet while the store accepts no points.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
};
use tsd_engine::EngineConfig;
use tsd_storage::{ByteBudget, Fault, Operation, StorageError};

use super::harness::{Tsd, config, engine_config, read_to_end};
use crate::ServerConfig;

/// First time of the points.
const START: u64 = 1_356_998_400;
/// More faults than any test consumes.
const MANY: usize = 100_000;

/// One write actor with a small queue that few points fill.
fn small_queue() -> EngineConfig {
    let mut engine = engine_config();
    engine.ingest.write_actors = 1;
    engine.ingest.budget = ByteBudget::new(64 << 10);
    engine.ingest.session_chunks_in_flight = 2;
    engine
}

async fn start() -> Tsd {
    let tsd = Tsd::start_with(config(), small_queue()).await;
    tsd.exchange(format!("put m {START} 0 host=a\n").as_bytes()).await;
    tsd
}

fn fail(tsd: &Tsd, operation: Operation, error: &StorageError) {
    tsd.storage.script(operation, vec![Fault::Error(error.clone()); MANY]);
}

/// Sends points of a series, one per second after `START`, until the end or an error.
/// Returns the stream and the number of complete lines sent.
fn send(mut stream: TcpStream, points: u64) -> JoinHandle<(TcpStream, u64)> {
    tokio::spawn(async move {
        for first in (1..=points).step_by(1_000) {
            let last = (first + 999).min(points);
            let lines: String =
                (first..=last).map(|n| format!("put m {} {n} host=a\n", START + n)).collect();
            if stream.write_all(lines.as_bytes()).await.is_err() {
                return (stream, first - 1);
            }
        }
        (stream, points)
    })
}

/// Number of stored points of the series, without the first.
async fn stored(tsd: &Tsd) -> u64 {
    let end = START + 10_000_000;
    let uri = format!("/api/query?start={START}&end={end}&m=sum:0all-count:m");
    let response = tsd.get(&uri).await;
    let json = response.json();
    let buckets = json[0]["dps"].as_object().unwrap();
    buckets
        .values()
        .map(|count| count.as_u64().unwrap_or(count.as_f64().unwrap() as u64))
        .sum::<u64>()
        - 1
}

/// Waits until points are held and no further ones are read.
async fn wait_until_held(tsd: &Tsd) {
    let mut before = 0;
    let mut unchanged = 0;
    while unchanged < 20 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let held = tsd.engine.held_points();
        unchanged = if held > 0 && held == before { unchanged + 1 } else { 0 };
        before = held;
    }
}

fn transient_errors() -> Vec<StorageError> {
    vec![
        StorageError::DiskFull,
        StorageError::Throttled("the log is full"),
        StorageError::Timeout("put"),
        StorageError::Unavailable("no region server".into()),
        StorageError::io("syncing the log", io::ErrorKind::Other.into()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn telnet_stops_reading_until_the_store_accepts_points_again_and_loses_none() {
    // More points than fit the socket buffers of both sides and the queues.
    const POINTS: u64 = 600_000;
    let tsd = start().await;
    for error in transient_errors().into_iter().take(1) {
        fail(&tsd, Operation::Put, &error);
        let sender = send(tsd.connect().await, POINTS);
        wait_until_held(&tsd).await;
        assert!(!sender.is_finished(), "{error}: the sender is not held up");
        assert_eq!(stored(&tsd).await, 0);
        tsd.storage.heal();
        let (mut stream, sent) = sender.await.unwrap();
        assert_eq!(sent, POINTS);
        stream.shutdown().await.unwrap();
        assert_eq!(read_to_end(&mut stream).await, "");
        assert_eq!(stored(&tsd).await, POINTS);
        assert_eq!(tsd.engine.held_points(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_transient_failure_is_retried_without_a_word_to_the_client() {
    let tsd = start().await;
    for (n, error) in (1..).zip(transient_errors()) {
        tsd.storage.script(Operation::Put, vec![Fault::Error(error.clone()); 3]);
        let line = format!("put m {} 1 host=a\n", START + n);
        assert_eq!(tsd.exchange(line.as_bytes()).await, "", "{error}");
        assert_eq!(stored(&tsd).await, n, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn points_of_new_series_are_held_too_and_keep_their_order() {
    let tsd = start().await;
    for operation in [Operation::Increment, Operation::CompareAndSet, Operation::MultiGet] {
        tsd.storage.script(operation, vec![Fault::Error(StorageError::DiskFull); 3]);
        let name = format!("n{operation:?}");
        let lines = format!("put {name} {START} 1 new=a\nput {name} {START} 2 new=a\n");
        assert_eq!(tsd.exchange(lines.as_bytes()).await, "", "{name}");
        let uri = format!("/api/query?start={START}&m=sum:{name}");
        let json = tsd.get(&uri).await.json();
        assert_eq!(json[0]["dps"][START.to_string()], 2, "{name}: {json}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_on_a_held_connection_get_their_replies() {
    let tsd = start().await;
    for operation in [Operation::Put, Operation::CompareAndSet] {
        fail(&tsd, operation, &StorageError::DiskFull);
        let mut stream = tsd.connect().await;
        let line = format!("put m {} 1 host={operation:?}\nversion\n", START + 1);
        stream.write_all(line.as_bytes()).await.unwrap();
        let mut reply = [0; 16];
        stream.read_exact(&mut reply).await.unwrap();
        assert!(reply.starts_with(b"net.opentsdb"));
        while tsd.engine.held_points() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Later commands are executed, too, even after the end of input.
        stream.write_all(b"help\n").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut replies = String::new();
        while !replies.contains("available commands") {
            let mut bytes = [0; 256];
            let n = stream.read(&mut bytes).await.unwrap();
            replies.push_str(std::str::from_utf8(&bytes[..n]).unwrap());
        }
        tsd.storage.heal();
        assert_eq!(read_to_end(&mut stream).await, "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_gets_its_error_while_telnet_points_are_held() {
    let tsd = start().await;
    fail(&tsd, Operation::Put, &StorageError::DiskFull);
    let sender = send(tsd.connect().await, 600_000);
    wait_until_held(&tsd).await;
    let body = format!(r#"{{"metric":"m","timestamp":{START},"value":1,"tags":{{"host":"a"}}}}"#);
    let response = tsd.post("/api/put?details", &body).await;
    assert!(response.text().contains("no space left on the data disk"), "{}", response.line());
    tsd.storage.heal();
    let (stream, _) = sender.await.unwrap();
    drop(stream);
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_ends_held_connections_and_tells_what_was_not_stored() {
    let Tsd { server, engine, storage } = start().await;
    storage.script(Operation::Put, vec![Fault::Error(StorageError::DiskFull); MANY]);
    let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
    let lines: String = (1..=50).map(|n| format!("put m {} 1 host=a\n", START + n)).collect();
    stream.write_all(lines.as_bytes()).await.unwrap();
    while engine.held_points() < 50 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let reader = tokio::spawn(async move { read_to_end(&mut stream).await });
    let report = server.shutdown(Duration::from_mins(1)).await;
    assert_eq!(report.cut_off, 0);
    let reported = reader.await.unwrap();
    let last = reported.lines().last().unwrap();
    assert_eq!(
        last,
        "put: closing the connection: no space left on the data disk; 50 points were not stored, \
         0 lines were not processed"
    );
    assert_eq!(reported.lines().filter(|line| line.contains("HBase error")).count(), 50);
    assert!(engine.shutdown(Duration::from_mins(1)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn permanent_refusals_are_all_reported_to_a_client_that_reads() {
    const POINTS: u64 = 50_000;
    let tsd = start().await;
    fail(&tsd, Operation::Put, &StorageError::Rejected("too large".into()));
    let (mut reader, mut writer) = tsd.connect().await.into_split();
    let reported = tokio::spawn(async move {
        let mut text = String::new();
        reader.read_to_string(&mut text).await.unwrap();
        text
    });
    let lines: String = (1..=POINTS).map(|n| format!("put m {} 1 host=a\n", START + n)).collect();
    writer.write_all(lines.as_bytes()).await.unwrap();
    writer.shutdown().await.unwrap();
    let reported = reported.await.unwrap();
    assert!(reported.lines().all(|line| line == "put: HBase error: too large"));
    assert_eq!(reported.lines().count() as u64, POINTS);
    assert_eq!(stored(&tsd).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_is_closed_with_the_reason_if_points_are_not_held() {
    let config = ServerConfig { telnet_holds_points: false, ..config() };
    let tsd = Tsd::start_with(config, small_queue()).await;
    tsd.exchange(format!("put m {START} 0 host=a\n").as_bytes()).await;
    fail(&tsd, Operation::Put, &StorageError::DiskFull);
    let stream = tsd.connect().await;
    let (stream, _) = send(stream, 1).await.unwrap();
    // The server closes the connection, not the client.
    let mut stream = stream;
    let reported = read_to_end(&mut stream).await;
    assert_eq!(
        reported,
        "put: HBase error: no space left on the data disk\nput: closing the connection: no space \
         left on the data disk; 1 points were not stored, 0 lines were not processed\n"
    );
    drop(stream);
    tsd.no_connections().await;
    assert_eq!(stored(&tsd).await, 0);
}
