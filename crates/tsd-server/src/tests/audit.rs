//! The audit log: acts over HTTP and telnet, refusals, and a log that cannot be written.

use std::{fs, path::PathBuf, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::Method;
use serde_json::Value;
use tempfile::TempDir;
use tsd_engine::{FileProblems, ProcessMemory, SystemClock};

use super::{
    authentication::POINT,
    harness::{RANGE, TestResponse, Tsd, config, engine_config},
};
use crate::{
    AuditConfig, AuditLog, AuthenticationConfig, OpenPaths, ServerConfig, UserFileAuthenticator,
    Users,
    auth::{cheap_hash, requirement_table},
};

/// A server with an audit log. The password of each user is its name.
struct Audited {
    tsd: Tsd,
    directory: TempDir,
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

fn log_path(directory: &TempDir) -> PathBuf {
    directory.path().join("log").join("audit.json")
}

impl Audited {
    /// Starts a server with users of these roles, named after them; without roles, without users.
    async fn start(roles: &[&str], required: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = log_path(&directory);
        fs::create_dir(file.parent().unwrap()).unwrap();
        let audit = AuditConfig { file, max_bytes: 1 << 20, max_age: None, keep: 1, required };
        let audit = Some(AuditLog::open(audit, FileProblems::default()).unwrap());
        let users: String =
            roles.iter().map(|role| format!("{role} {} {role}\n", cheap_hash(role))).collect();
        let (memory, clock) = (ProcessMemory::unlimited(), Arc::new(SystemClock));
        let users = Users::parse(&users).unwrap();
        let authentication = (!roles.is_empty()).then(|| AuthenticationConfig {
            authenticator: Arc::new(UserFileAuthenticator::new(users, memory, clock).unwrap()),
            open_paths: OpenPaths::default(),
            per_connection: false,
        });
        let config = ServerConfig {
            audit,
            authentication,
            allow_delete: true,
            no_diediedie: false,
            ..config()
        };
        let tsd = Tsd::start_with(config, engine_config()).await;
        let server = Self { tsd, directory };
        assert_eq!(server.take(), [line("start", "done", None)]);
        server
    }

    async fn send(&self, user: &str, method: Method, uri: &str, body: &str) -> TestResponse {
        let header = basic(user, user);
        self.tsd.send(method, uri, &[("authorization", &header)], body.to_owned()).await
    }

    /// Takes the lines as objects.
    fn take_objects(&self) -> Vec<Value> {
        let path = log_path(&self.directory);
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Takes the acts, outcomes and users of the lines.
    fn take(&self) -> Vec<(String, String, Option<String>)> {
        let text = |line: &Value, name: &str| line[name].as_str().map(str::to_owned);
        let parse = |line: &Value| {
            (text(line, "act").unwrap(), text(line, "outcome").unwrap(), text(line, "user"))
        };
        self.take_objects().iter().map(parse).collect()
    }

    /// True if there is no line.
    fn is_empty(&self) -> bool {
        !log_path(&self.directory).exists()
    }
}

fn line(act: &str, outcome: &str, user: Option<&str>) -> (String, String, Option<String>) {
    (act.to_owned(), outcome.to_owned(), user.map(str::to_owned))
}

#[tokio::test]
async fn changes_and_refusals_have_lines_and_points_and_reads_do_not() {
    let server = Audited::start(&["ADMINISTRATOR", "READER"], false).await;
    let admin = Some("ADMINISTRATOR");
    assert_eq!(server.send("ADMINISTRATOR", Method::POST, "/api/put", POINT).await.status, 204);
    let query = format!("/api/query?{RANGE}&m=sum:m");
    assert_eq!(server.send("READER", Method::GET, &query, "").await.status, 200);
    assert_eq!(server.tsd.get(&query).await.status, 401);
    assert!(server.is_empty(), "no credentials are no attempt to sign in");
    let renamed = r#"{"metric":"m","name":"renamed"}"#;
    let rename = "/api/uid/rename";
    assert_eq!(server.send("ADMINISTRATOR", Method::POST, rename, renamed).await.status, 200);
    let lines = server.take_objects();
    let [object] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(object["act"], "uid rename");
    assert_eq!((&object["outcome"], &object["user"]), (&"done".into(), &"ADMINISTRATOR".into()));
    assert_eq!(object["protocol"], "http");
    assert!(object["client"].as_str().unwrap().starts_with("127.0.0.1:"), "{object}");
    assert!(object["id"].is_string() && object["time"].is_string(), "{object}");
    assert_eq!(
        (&object["request"], &object["body"]),
        (&"POST /api/uid/rename".into(), &renamed.into())
    );
    let again = server.send("ADMINISTRATOR", Method::POST, rename, renamed).await;
    assert_eq!(again.status, 400, "{}", again.text());
    let failed = server.take_objects();
    assert_eq!((&failed[0]["outcome"], &failed[0]["status"]), (&"failed".into(), &400.into()));
    for (user, status) in [("READER", 403), ("ADMINISTRATOR", 200)] {
        let delete = query.replace("sum:m", "sum:renamed");
        assert_eq!(server.send(user, Method::DELETE, &delete, "").await.status, status);
        let by_body =
            r#"{"start":1,"delete":true,"queries":[{"aggregator":"sum","metric":"renamed"}]}"#;
        assert_eq!(server.send(user, Method::POST, "/api/query", by_body).await.status, status);
    }
    let refused = line("query delete", "refused", Some("READER"));
    let done = line("query delete", "done", admin);
    assert_eq!(server.take(), [refused.clone(), refused, done.clone(), done]);
    let header = basic("READER", "guess");
    let guess = server.tsd.send(Method::GET, &query, &[("authorization", &header)], "").await;
    assert_eq!(guess.status, 401);
    let lines = server.take_objects();
    assert_eq!((&lines[0]["act"], &lines[0]["user"]), (&"sign-in".into(), &"READER".into()));
    assert_eq!(lines[0]["reason"], "unknown user or wrong credentials");
}

#[tokio::test]
async fn every_act_of_the_table_has_a_line() {
    let server = Audited::start(&["ADMINISTRATOR", "GUEST"], false).await;
    for (path, method, act) in requirement_table::acts() {
        for user in ["GUEST", "ADMINISTRATOR"] {
            let response = server.send(user, method.clone(), &path, "").await;
            let context = format!("{user} {method} {path}: {}", response.status);
            assert!(!server.is_empty(), "{context}");
            let lines = server.take();
            let [(found, outcome, by)] = &lines[..] else { panic!("{context}: {lines:?}") };
            assert_eq!((found.as_str(), by.as_deref()), (act, Some(user)), "{context}");
            assert_eq!(outcome == "refused", response.status == 403, "{context}");
        }
    }
}

#[tokio::test]
async fn telnet_commands_and_logins_have_lines() {
    let server = Audited::start(&["ADMINISTRATOR", "READER"], false).await;
    let admin = b"auth basic ADMINISTRATOR ADMINISTRATOR\nversion\ndropcaches\n";
    server.tsd.exchange(admin).await;
    let lines = server.take_objects();
    assert_eq!((&lines[0]["act"], &lines[0]["outcome"]), (&"dropcaches".into(), &"done".into()));
    assert_eq!(lines[0]["protocol"], "telnet");
    assert!(lines[0]["id"].is_u64(), "{lines:?}");
    server.tsd.exchange(b"auth basic READER READER\ndropcaches\n").await;
    assert_eq!(server.take(), [line("dropcaches", "refused", Some("READER"))]);
    server.tsd.exchange(b"auth basic READER guess\n").await;
    assert_eq!(server.take(), [line("sign-in", "refused", Some("READER"))]);
}

#[tokio::test]
async fn a_required_log_that_cannot_be_written_refuses_acts_only() {
    let server = Audited::start(&[], true).await;
    assert_eq!(server.tsd.get("/api/uid/assign?metric=a").await.status, 200);
    let assigned = [line("uid assign", "started", None), line("uid assign", "done", None)];
    assert_eq!(server.take(), assigned);
    fs::remove_dir_all(log_path(&server.directory).parent().unwrap()).unwrap();
    let refused = server.tsd.get("/api/uid/assign?metric=b").await;
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("tsd.audit.required"), "{}", refused.text());
    let delete = format!("/api/query?{RANGE}&m=sum:a");
    assert_eq!(server.tsd.send(Method::DELETE, &delete, &[], "").await.status, 503);
    let reply = server.tsd.exchange(b"dropcaches\nversion\n").await;
    assert!(
        reply.starts_with("the audit log cannot be written") && !reply.contains("Caches"),
        "{reply}"
    );
    assert_eq!(server.tsd.post("/api/put", POINT).await.status, 204);
    let names = server.tsd.get("/api/suggest?type=metrics").await.text();
    assert_eq!(names, r#"["a","m"]"#, "b was not assigned");
}
