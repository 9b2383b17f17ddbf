//! An in-process server for tests, and clients for it.

use std::{net::Ipv4Addr, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Method, Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tsd_engine::{Engine, EngineConfig, EngineHandle};
use tsd_storage::{FaultyStorage, MemoryStorage};

use crate::{Limits, Server, ServerConfig};

/// A running server with its engine and storage.
pub(super) struct Tsd {
    pub(super) server: Server,
    pub(super) engine: EngineHandle,
    pub(super) storage: Arc<FaultyStorage<MemoryStorage>>,
}

/// A parsed response.
#[derive(Debug)]
pub(super) struct TestResponse {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl TestResponse {
    pub(super) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Status and body on one line.
    pub(super) fn line(&self) -> String {
        format!("{} {}", self.status, self.text())
    }
}

/// Test settings: a free port, no stack traces, and a host name.
pub(super) fn config() -> ServerConfig {
    ServerConfig {
        bind: vec![Ipv4Addr::LOCALHOST.into()],
        port: 0,
        show_stack_trace: false,
        host_name: "box".to_owned(),
        hosts: crate::HostNames::try_new("test").unwrap(),
        ..ServerConfig::default()
    }
}

pub(super) fn with_limits(limits: Limits) -> ServerConfig {
    ServerConfig { limits, ..config() }
}

pub(super) fn engine_config() -> EngineConfig {
    let mut config = EngineConfig::default();
    config.uids.auto_create_metrics = true;
    config
}

impl Tsd {
    pub(super) async fn start() -> Self {
        Self::start_with(config(), engine_config()).await
    }

    pub(super) async fn start_with(config: ServerConfig, engine: EngineConfig) -> Self {
        let mut tables = vec![
            engine.tables.data.clone(),
            engine.tables.uid.clone(),
            engine.tables.meta.clone(),
            engine.tables.tree.clone(),
        ];
        tables.extend(engine.rollups.iter().flat_map(tsd_engine::Rollups::tables));
        let storage = Arc::new(FaultyStorage::new(Arc::new(MemoryStorage::new(tables))));
        let engine = Engine::start(engine, Arc::clone(&storage) as _).unwrap();
        let server = Server::bind(config, engine.clone()).await.unwrap();
        Self { server, engine, storage }
    }

    pub(super) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.server.local_addr()).await.unwrap()
    }

    /// Sends bytes and the end of input; returns all received text.
    pub(super) async fn exchange(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        read_to_end(&mut stream).await
    }

    pub(super) async fn get(&self, uri: &str) -> TestResponse {
        self.send(Method::GET, uri, &[], "").await
    }

    pub(super) async fn post(&self, uri: &str, body: &str) -> TestResponse {
        self.send(Method::POST, uri, &[], body.to_owned()).await
    }

    /// Sends one request on a new connection.
    pub(super) async fn send(
        &self,
        method: Method,
        uri: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> TestResponse {
        let io = TokioIo::new(self.connect().await);
        let (mut sender, connection) = http1::handshake(io).await.unwrap();
        let driver = tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(uri).header("host", "test");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        driver.abort();
        TestResponse { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// Waits until no connection is open.
    pub(super) async fn no_connections(&self) {
        while self.server.open_connections() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Reads until the other side closes or resets the connection.
pub(super) async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Points of two metrics.
pub(crate) const POINTS: &str = r#"[
    {"metric":"m","timestamp":1356998400,"value":1,"tags":{"host":"a","dc":"x"}},
    {"metric":"m","timestamp":1356998410,"value":2,"tags":{"host":"a","dc":"x"}},
    {"metric":"m","timestamp":1356998400,"value":10,"tags":{"host":"b","dc":"x"}},
    {"metric":"m","timestamp":1356998410,"value":2.5,"tags":{"host":"b","dc":"x"}},
    {"metric":"n","timestamp":1356998400,"value":4,"tags":{"host":"a","dc":"x"}}]"#;
/// Their time range, as query parameters.
pub(crate) const RANGE: &str = "start=1356998400&end=1356998500";

/// Starts a server with these points.
pub(crate) async fn with_points(config: ServerConfig) -> Tsd {
    let tsd = Tsd::start_with(config, engine_config()).await;
    assert_eq!(tsd.post("/api/put", POINTS).await.status, 204);
    tsd
}
