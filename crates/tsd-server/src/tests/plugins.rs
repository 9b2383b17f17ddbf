//! The publisher and the spool behind a server.

use std::{
    fs,
    net::Ipv4Addr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
    sync::mpsc,
};
use tsd_engine::{HistogramCodecs, OnFull, PluginQueue, PointPlugins, plugin_queue};
use tsd_storage::{Fault, Operation, StorageError};
use tsd_tls::ServerOptions;

use super::{
    harness::{Tsd, config, engine_config},
    rollups::rollups,
    tls::{data, with_tls},
};
use crate::{PluginTask, PublisherConfig, SpoolConfig, start_publisher, start_spool};

const LIMIT: usize = 16 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts a server with a publisher.
async fn publishing(config_of: PublisherConfig) -> (Tsd, PluginTask, Arc<PluginQueue>) {
    let (queue, items) = plugin_queue("publish", LIMIT, OnFull::Drop);
    let task = start_publisher(config_of, items).await.unwrap();
    let mut engine = engine_config();
    engine.plugins.publisher = Some(Arc::clone(&queue));
    engine.histograms = Some(HistogramCodecs::simple(0));
    (Tsd::start_with(config(), engine).await, task, queue)
}

fn http(url: &str) -> PublisherConfig {
    PublisherConfig::Http { url: url.parse().unwrap(), authorities: None }
}

/// Puts a point over each protocol, a histogram, and an annotation.
async fn put_all_kinds(tsd: &Tsd) {
    assert_eq!(tsd.exchange(b"put m 1600000000 1 host=a\n").await, "");
    let body = r#"{"metric":"m","timestamp":1600000000500,"value":0.1,"tags":{"host":"\"é"}}"#;
    let refused = tsd.post("/api/put?details", body).await;
    assert_eq!(refused.status, 400, "a quote is no character of a name");
    let body = r#"{"metric":"m","timestamp":1600000000500,"value":0.1,"tags":{"host":"é"}}"#;
    assert_eq!(tsd.post("/api/put", body).await.line(), "204 ");
    let body =
        r#"{"metric":"h","timestamp":1600000000,"id":0,"buckets":{"0,1":2},"tags":{"host":"a"}}"#;
    assert_eq!(tsd.post("/api/histogram", body).await.line(), "204 ");
    let body = r#"{"startTime":1600000000,"description":"release"}"#;
    assert_eq!(tsd.post("/api/annotation", body).await.status, 200);
}

/// Checks the lines of [`put_all_kinds`].
#[track_caller]
fn check_all_kinds(lines: &[String]) {
    let mut values: Vec<Value> =
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let histogram = values.remove(2);
    assert_eq!(
        values,
        [
            json!({"type": "point", "metric": "m", "timestamp": 1_600_000_000, "value": 1,
                "tags": {"host": "a"}, "tsuid": "000001000001000001"}),
            json!({"type": "point", "metric": "m", "timestamp": 1_600_000_000_500_i64, "value": 0.1,
                "tags": {"host": "é"}, "tsuid": "000001000001000002"}),
            json!({"type": "annotation", "annotation": {"startTime": 1_600_000_000, "endTime": 0,
                "description": "release", "notes": "", "custom": null}}),
        ]
    );
    assert_eq!((&histogram["type"], &histogram["id"]), (&json!("histogram"), &json!(0)));
    assert!(histogram["value"].as_str().is_some_and(|value| !value.is_empty()), "{histogram}");
}

async fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn lines_of(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_file_gets_every_kind_and_its_lines_can_be_put_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("points");
    let file = PublisherConfig::File { path: path.clone(), max_bytes: 1 << 20, keep: 1 };
    let (tsd, task, queue) = publishing(file).await;
    put_all_kinds(&tsd).await;
    wait_until("four lines", || queue.delivered() == 4).await;
    let lines = lines_of(&path);
    check_all_kinds(&lines);
    assert_eq!(tsd.post("/api/put", lines.first().unwrap()).await.line(), "204 ");
    assert_eq!(tsd.post("/api/histogram", lines.get(2).unwrap()).await.line(), "204 ");
    task.stop(PATIENCE).await;
    assert_eq!(lines_of(&path).len(), 6, "a stop delivers what is queued");
}

#[tokio::test]
async fn a_tcp_receiver_that_returns_gets_what_waited_for_it() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tsd, task, queue) = publishing(PublisherConfig::Tcp(address.to_string())).await;
    assert_eq!(tsd.exchange(b"put m 1600000000 1 host=a\n").await, "");
    let (stream, _) = listener.accept().await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    assert!(lines.next_line().await.unwrap().unwrap().contains("1600000000"));
    drop((lines, listener));
    assert_eq!(tsd.exchange(b"put m 1600000001 1 host=a\n").await, "");
    wait_until("a failed connection", || queue.failures() > 0).await;
    let listener = TcpListener::bind(address).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    assert!(lines.next_line().await.unwrap().unwrap().contains("1600000001"));
    wait_until("both points", || queue.delivered() == 2).await;
    assert_eq!(queue.dropped(), 0);
    task.stop(PATIENCE).await;
}

/// Starts an HTTP receiver that answers with a status and passes on the accepted bodies.
async fn receiver(
    status: impl Fn(&str) -> u16 + Clone + Send + Sync + 'static,
) -> (PublisherConfig, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/in", listener.local_addr().unwrap());
    let (sender, bodies) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (sender, status) = (sender.clone(), status.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let (sender, status) = (sender.clone(), status.clone());
                async move {
                    assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/in"));
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let body = String::from_utf8(body.to_vec()).unwrap();
                    let status = status(&body);
                    if status == 200 {
                        sender.send(body).unwrap();
                    }
                    Response::builder().status(status).body(Full::<Bytes>::default())
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (http(&url), bodies)
}

#[tokio::test]
async fn an_http_receiver_gets_batches_and_those_it_failed_on_again() {
    let failed = Arc::new(AtomicBool::new(false));
    let (config, mut bodies) =
        receiver(move |_| if failed.swap(true, Ordering::Relaxed) { 200 } else { 503 }).await;
    let (tsd, task, queue) = publishing(config).await;
    put_all_kinds(&tsd).await;
    wait_until("every kind", || queue.delivered() == 4).await;
    let mut lines = Vec::new();
    while let Ok(body) = bodies.try_recv() {
        lines.extend(body.lines().map(str::to_owned));
    }
    check_all_kinds(&lines);
    assert_eq!((queue.failures(), queue.dropped()), (1, 0));
    task.stop(PATIENCE).await;
}

#[tokio::test]
async fn a_receiver_with_https_must_be_trusted() {
    let receiver = Tsd::start_with(with_tls(ServerOptions::default()).0, engine_config()).await;
    let url = format!("https://localhost:{}/api/put", receiver.server.local_addr().port());
    let url = url.parse::<crate::PublisherUrl>().unwrap();
    let trusting = |authority: &str| PublisherConfig::Http {
        url: url.clone(),
        authorities: Some(data(&format!("{authority}/ca.pem"))),
    };
    let (tsd, task, queue) = publishing(trusting("one")).await;
    assert_eq!(tsd.exchange(b"put m 1600000000 1 host=a\n").await, "");
    wait_until("the point", || queue.delivered() == 1).await;
    let names = receiver.get("/api/suggest?type=metrics").await;
    assert_eq!(names.line(), r#"200 ["m"]"#);
    task.stop(PATIENCE).await;
    let (tsd, task, queue) = publishing(trusting("two")).await;
    assert_eq!(tsd.exchange(b"put n 1600000000 1 host=a\n").await, "");
    wait_until("a failed handshake", || queue.failures() > 0).await;
    assert_eq!(queue.delivered(), 0);
    task.stop(Duration::from_millis(50)).await;
    let (_, items) = plugin_queue("publish", LIMIT, OnFull::Drop);
    let error = start_publisher(trusting("none"), items).await.unwrap_err().to_string();
    assert!(error.contains("none/ca.pem: No such file"), "{error}");
}

#[tokio::test]
async fn what_an_http_receiver_refuses_is_dropped_and_counted() {
    let (config, mut bodies) =
        receiver(|body| if body.contains("\"bad\"") { 422 } else { 200 }).await;
    let (tsd, task, queue) = publishing(config).await;
    assert_eq!(tsd.exchange(b"put bad 1600000000 1 host=a\n").await, "");
    wait_until("the refusal", || queue.dropped() == 1).await;
    assert_eq!(tsd.exchange(b"put good 1600000000 1 host=a\n").await, "");
    let body = tokio::time::timeout(PATIENCE, bodies.recv()).await.unwrap().unwrap();
    assert!(body.contains("\"good\""), "{body}");
    task.stop(PATIENCE).await;
    let stats = tsd.exchange(b"stats\n").await;
    for line in ["plugin.delivered", "plugin.dropped"] {
        let line = stats.lines().find(|stat| stat.contains(line)).unwrap_or_default();
        assert!(line.contains(" 1 plugin=publish "), "{line}");
    }
}

#[tokio::test]
async fn a_receiver_that_never_answers_does_not_delay_points_or_a_stop() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (tsd, task, queue) = publishing(http(&url)).await;
    for _ in 0..3 {
        assert_eq!(tsd.exchange(b"put m 1600000000 1 host=a\n").await, "");
    }
    task.stop(Duration::from_millis(50)).await;
    wait_until("the end of the task", || queue.dropped() == 3).await;
}

/// Starts a server with a spool whose store rejects the next writes.
async fn spooling(directory: &Path, max_bytes: u64) -> (Tsd, PluginTask, Arc<PluginQueue>) {
    let (queue, items) = plugin_queue("storageExceptionHandler", LIMIT, OnFull::Drop);
    let config_of = SpoolConfig { directory: directory.to_owned(), max_bytes };
    let mut engine = engine_config();
    engine.rollups = Some(rollups());
    engine.histograms = Some(HistogramCodecs::simple(42));
    let task = start_spool(config_of, engine.rollups.clone(), items).await.unwrap();
    engine.plugins = PointPlugins { publisher: None, exception_handler: Some(Arc::clone(&queue)) };
    (Tsd::start_with(config(), engine).await, task, queue)
}

fn refuse(tsd: &Tsd, calls: usize) {
    let refused = || Fault::Error(StorageError::DiskFull);
    tsd.storage.script(Operation::Put, (0..calls).map(|_| refused()));
}

/// Returns the lines of all complete files.
fn spooled(directory: &Path) -> Vec<String> {
    let mut files: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "import"));
    files.sort();
    files.iter().flat_map(|path| lines_of(path)).collect()
}

#[tokio::test]
async fn refused_points_are_spooled_and_the_response_is_as_without_a_spool() {
    let directory = tempfile::tempdir().unwrap();
    let (tsd, task, queue) = spooling(directory.path(), 1 << 20).await;
    assert_eq!(tsd.exchange(b"put m 1600000000 1 host=a\n").await, "");
    refuse(&tsd, 1);
    let body = r#"[{"metric":"m","timestamp":1600000001,"value":0.1,"tags":{"host":"a"}},
        {"metric":"é","timestamp":1600000001500,"value":-2,"tags":{"host":"b","dc":"x"}}]"#;
    let answer = tsd.post("/api/put?details&sync", body).await;
    assert_eq!(answer.status, 200);
    let answer = answer.json();
    assert_eq!((&answer["success"], &answer["failed"]), (&json!(0), &json!(2)));
    let error = answer["errors"][0]["error"].as_str().unwrap();
    assert!(error.starts_with("Storage exception: "), "{error}");
    wait_until("both points", || queue.delivered() == 2).await;
    assert_eq!(lines_of(&directory.path().join("refused.part")).len(), 2);
    task.stop(PATIENCE).await;
    let mut lines = spooled(directory.path());
    lines.sort();
    assert_eq!(lines, ["m 1600000001 0.1 host=a", "é 1600000001500 -2 host=b dc=x"]);
}

#[tokio::test]
async fn histograms_and_rolled_up_values_are_spooled_as_they_were_sent() {
    let directory = tempfile::tempdir().unwrap();
    let (tsd, task, queue) = spooling(directory.path(), 1 << 20).await;
    refuse(&tsd, 3);
    for (number, (path, body)) in [
        (
            "/api/rollup",
            r#"{"metric":"m","timestamp":1600000000,"value":0.1,"interval":"1h","aggregator":"SUM","groupByAggregator":"max","tags":{"host":"a"}}"#,
        ),
        (
            "/api/rollup",
            r#"{"metric":"m","timestamp":1600000000,"value":5,"groupByAggregator":"sum","tags":{"host":"a"}}"#,
        ),
        (
            "/api/histogram",
            r#"{"metric":"h","timestamp":1600000000,"buckets":{"0,1":42},"tags":{"host":"a"}}"#,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(tsd.post(path, body).await.status, 503, "{path}");
        wait_until("its line", || queue.delivered() > number as u64).await;
    }
    task.stop(PATIENCE).await;
    let (lines, mut found) = (spooled(directory.path()), Vec::new());
    for line in &lines {
        let mut value: Value = serde_json::from_str(line).unwrap();
        value.as_object_mut().unwrap().remove("tsuid");
        found.push(value);
    }
    let histogram = found.pop().unwrap();
    assert_eq!(
        found,
        [
            json!({"type": "rollup", "metric": "m", "timestamp": 1_600_000_000, "value": 0.1,
                "tags": {"host": "a"}, "interval": "1h", "aggregator": "sum", "groupByAggregator": "MAX"}),
            json!({"type": "rollup", "metric": "m", "timestamp": 1_600_000_000, "value": 5,
                "tags": {"host": "a"}, "groupByAggregator": "SUM"}),
        ]
    );
    assert_eq!((&histogram["type"], &histogram["id"]), (&json!("histogram"), &json!(42)));
    // The endpoints accept the lines.
    for (path, line) in ["/api/rollup", "/api/rollup", "/api/histogram"].into_iter().zip(&lines) {
        assert_eq!(tsd.post(path, line).await.line(), "204 ", "{line}");
    }
}

#[tokio::test]
async fn points_that_the_store_can_never_take_are_not_spooled() {
    let directory = tempfile::tempdir().unwrap();
    let (tsd, task, queue) = spooling(directory.path(), 1 << 20).await;
    let put = async |second: u32| {
        let body =
            format!(r#"{{"metric":"m","timestamp":{second},"value":1,"tags":{{"host":"a"}}}}"#);
        tsd.post("/api/put", &body).await.status
    };
    let too_large = StorageError::Rejected("too large".into());
    tsd.storage.script(Operation::Put, [Fault::Error(too_large)]);
    assert_eq!(put(1_600_000_000).await, 400);
    refuse(&tsd, 1);
    assert_eq!(put(1_600_000_001).await, 503);
    wait_until("the second point", || queue.delivered() == 1).await;
    task.stop(PATIENCE).await;
    assert_eq!(spooled(directory.path()), ["m 1600000001 1 host=a"]);
}

#[tokio::test]
async fn points_beyond_the_bound_of_the_spool_are_dropped_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let (tsd, task, queue) = spooling(directory.path(), 40).await;
    refuse(&tsd, 3);
    for second in 0..3 {
        let body = format!(
            r#"{{"metric":"m","timestamp":{},"value":1,"tags":{{"host":"a"}}}}"#,
            1_600_000_000 + second
        );
        assert_eq!(tsd.post("/api/put", &body).await.status, 503);
        wait_until("its end", || queue.delivered() + queue.dropped() > second).await;
    }
    assert_eq!((queue.delivered(), queue.dropped()), (1, 2));
    task.stop(PATIENCE).await;
    assert_eq!(spooled(directory.path()), ["m 1600000000 1 host=a"]);
}
