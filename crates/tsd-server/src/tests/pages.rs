//! Pages outside the API: files, icon and logs; and the list of serializers.

use std::{fs, path::PathBuf, sync::Arc};

use hyper::Method;
use serde_json::json;
use tracing::Level;

use super::harness::{Tsd, config, engine_config};
use crate::{
    AdminPeers, LogControl, LogEvent, LogLevelError, RecentLogs, ServerConfig, ServerMode,
};

/// A directory of static files that is removed on drop.
struct StaticRoot(PathBuf);

impl StaticRoot {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tsd-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("sub")).unwrap();
        fs::write(path.join("a.js"), "let a = 1;".repeat(100)).unwrap();
        fs::write(path.join("x.nocache.js"), "").unwrap();
        fs::write(path.join("sub/photo.jpg"), "jpg").unwrap();
        fs::write(path.join("large.png"), vec![7; 300_000]).unwrap();
        Self(path)
    }
}

impl Drop for StaticRoot {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn files_of_the_static_root_are_served() {
    let root = StaticRoot::new("files");
    let config = ServerConfig { static_root: Some(root.0.clone()), ..config() };
    let tsd = Tsd::start_with(config, engine_config()).await;
    for (uri, content_type, max_age, length) in [
        ("/s/a.js", "text/javascript; charset=UTF-8", "max-age=31536000", 1_000),
        ("/s/a.js?x=nocache", "text/javascript; charset=UTF-8", "max-age=0", 1_000),
        ("/s/x.nocache.js", "text/javascript; charset=UTF-8", "max-age=0", 0),
        ("/s/sub/photo.jpg", "text/plain; charset=UTF-8", "max-age=31536000", 3),
        ("/S/large.png", "image/png", "max-age=31536000", 300_000),
    ] {
        let headers = [("accept-encoding", "gzip")];
        let answer = tsd.send(Method::GET, uri, &headers, "").await;
        assert_eq!((answer.status, answer.body.len()), (200, length), "{uri}");
        assert_eq!(answer.header("content-type"), Some(content_type), "{uri}");
        assert_eq!(answer.header("cache-control"), Some(max_age), "{uri}");
        assert_eq!(answer.header("content-length"), Some(length.to_string().as_str()), "{uri}");
        assert!(answer.header("age").unwrap().parse::<u64>().unwrap() < 3_600, "{uri}");
        assert_eq!(answer.header("content-encoding"), None, "{uri}");
        let head = tsd.send(Method::HEAD, uri, &[], "").await;
        assert_eq!(head.header("content-length"), answer.header("content-length"), "{uri}");
    }
    for uri in ["/s/", "/s/sub", "/s/missing", "/s/a.js/", "/s/%61.js", "/s//etc/passwd"] {
        let missing = r#"404 {"error":{"code":404,"message":"Page not found"}}"#;
        assert_eq!(tsd.get(uri).await.line(), missing, "{uri}");
    }
    for uri in ["/s", "/s/../a.js", "/s/sub/..", "/s/a.js?.."] {
        assert_eq!(tsd.get(uri).await.status, 400, "{uri}");
    }
    let posted = tsd.post("/s/a.js?json", "").await;
    assert_eq!(posted.line(), r#"400 {"err":"Method not allowed"}"#);
}

#[tokio::test]
async fn icon_is_built_in_and_can_be_replaced() {
    let tsd = Tsd::start().await;
    for uri in ["/favicon.ico", "/s/favicon.ico", "/favicon.ico?x"] {
        let icon = tsd.get(uri).await;
        assert_eq!((icon.status, icon.header("content-type")), (200, Some("image/x-icon")));
        assert_eq!(icon.header("cache-control"), Some("no-cache"));
    }
    assert_eq!(tsd.get("/s/a.js").await.status, 404);
    let root = StaticRoot::new("icon");
    fs::write(root.0.join("favicon.ico"), "mine").unwrap();
    let with_root = ServerConfig { static_root: Some(root.0.clone()), ..config() };
    let tsd = Tsd::start_with(with_root, engine_config()).await;
    assert_eq!(tsd.get("/favicon.ico").await.line(), "200 mine");
    let write_only = ServerConfig { mode: ServerMode::WriteOnly, ..config() };
    let tsd = Tsd::start_with(write_only, engine_config()).await;
    assert_eq!(tsd.get("/favicon.ico").await.status, 404);
}

/// Starts a daemon with two log events and `tsd_engine::uid` as its only logger.
async fn logging(peers: &str) -> Tsd {
    let recent = Arc::new(RecentLogs::default());
    for (epoch_secs, text) in [(1, "first"), (2, "second")] {
        let (thread, logger) = ("main".to_owned(), "tsd_engine::uid".to_owned());
        recent.add(LogEvent { epoch_secs, level: Level::INFO, thread, logger, text: text.into() });
    }
    let log = LogControl::new(recent, |_, logger| match logger {
        None => Ok(7),
        Some("tsd_engine::uid") => Ok(1),
        Some(other) => Err(LogLevelError::UnknownLogger { logger: other.to_owned() }),
    });
    let admin_peers = AdminPeers::try_new(peers).unwrap();
    Tsd::start_with(ServerConfig { log: Some(log), admin_peers, ..config() }, engine_config()).await
}

#[tokio::test]
async fn last_log_events_are_listed_newest_first() {
    let tsd = logging("").await;
    let lines = "2\tINFO\tmain\ttsd_engine::uid\tsecond\n1\tINFO\tmain\ttsd_engine::uid\tfirst\n";
    let text = tsd.get("/logs").await;
    assert_eq!(text.text(), lines);
    assert_eq!(text.header("content-type"), Some("text/plain; charset=UTF-8"));
    let expected: Vec<&str> = lines.lines().collect();
    // `json` takes precedence over `level`.
    for uri in ["/logs?json", "/logs?json&level=debug"] {
        assert_eq!(tsd.get(uri).await.json(), json!(expected), "{uri}");
    }
    let without = Tsd::start().await.get("/logs?json").await;
    assert_eq!(without.line(), r#"400 {"err":"This daemon does not keep its last log events"}"#);
}

#[tokio::test]
async fn levels_are_set_by_administrators() {
    let tsd = logging("127.0.0.1").await;
    for (uri, expected) in [
        ("/logs?level=debug", "200 Set the log level to DEBUG on 7 loggers.\n"),
        ("/logs?level=Off&logger=tsd_engine::uid", "200 Set the log level to OFF on 1 logger.\n"),
    ] {
        assert_eq!(tsd.get(uri).await.line(), expected);
    }
    for (uri, reason) in [
        ("/logs?level=loud", "Invalid level: loud"),
        ("/logs?level=", "Invalid level: "),
        ("/logs?level=info&logger=nothing", "Invalid logger: nothing"),
    ] {
        let answer = tsd.get(uri).await;
        assert_eq!(answer.status, 400, "{uri}");
        assert!(answer.text().contains(reason), "{}", answer.text());
    }
    let tsd = logging("10.0.0.1").await;
    assert_eq!(tsd.get("/logs?level=debug").await.status, 403);
    assert_eq!(tsd.get("/logs").await.status, 200);
}

#[tokio::test]
async fn serializers_are_listed_as_by_opentsdb_2_3() {
    let tsd = Tsd::start().await;
    for uri in ["/api/serializers", "/api/v1/serializers"] {
        let answer = tsd.get(uri).await;
        let json = answer.json();
        assert_eq!(json[0]["serializer"], "json");
        assert_eq!(json[0]["request_content_type"], "application/json");
        assert_eq!(json[0]["response_content_type"], "application/json; charset=UTF-8");
        assert!(json[0]["parsers"].as_array().unwrap().contains(&json!("PutV1")));
        assert!(json[0]["formatters"].as_array().unwrap().contains(&json!("QueryV1")));
        assert_eq!(json.as_array().unwrap().len(), 1);
        assert_eq!(tsd.post(uri, "").await.body, answer.body);
    }
    let refused = tsd.send(Method::PUT, "/api/serializers", &[], "").await;
    assert_eq!(refused.status, 405);
}
