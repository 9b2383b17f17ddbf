//! Authentication: permissions over HTTP and telnet, and several users on one connection.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::Method;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tsd_engine::{EngineConfig, ProcessMemory, SystemClock};

use super::harness::{RANGE, TestResponse, Tsd, config, engine_config};
use crate::{
    AllowAll, AuthenticationConfig, OpenPaths, UserFileAuthenticator, Users,
    auth::{
        cheap_hash,
        jwt_tests::{TestKey, claims_until, key_set, token_rules},
    },
    hash_token,
};

pub(super) const POINT: &str =
    r#"{"metric":"m","timestamp":1356998400,"value":1,"tags":{"host":"a"}}"#;

/// A server and its users. The password of each user is its name; `agent` has a token. The user `jwt:NAME` has a signed
/// token with the role NAME.
pub(super) struct Guarded {
    pub(super) tsd: Tsd,
    pub(super) file: Arc<UserFileAuthenticator>,
    pub(super) key: TestKey,
    /// When the signed tokens expire, seconds since 1970.
    pub(super) expires: i64,
}

/// Creates users, and roles of signed tokens, from entries of the form `name roles`.
pub(super) fn users(roles: &[&str]) -> Users {
    let line = |entry: &&str| {
        let (name, roles) = entry.split_once(' ').unwrap();
        format!("{name} {} {roles}\n{name} claim {roles}\n", cheap_hash(name))
    };
    let mut text: String = roles.iter().map(line).collect();
    text.push_str(&format!("agent {} WRITER,CREATE_METRIC,CREATE_TAGK\n", hash_token("t0k3n")));
    Users::parse(&text).unwrap()
}

impl Guarded {
    pub(super) async fn start(roles: &[&str]) -> Self {
        Self::start_with(roles, false).await
    }

    async fn start_with(roles: &[&str], per_connection: bool) -> Self {
        Self::start_as(roles, per_connection, OpenPaths::default()).await
    }

    async fn start_as(roles: &[&str], per_connection: bool, open_paths: OpenPaths) -> Self {
        Self::start_on(roles, per_connection, open_paths, engine_config()).await
    }

    /// Starts a server whose engine has this configuration.
    pub(super) async fn start_on(
        roles: &[&str],
        per_connection: bool,
        open_paths: OpenPaths,
        engine: EngineConfig,
    ) -> Self {
        let (memory, clock) = (ProcessMemory::unlimited(), Arc::new(SystemClock));
        let key = TestKey::ed25519("a");
        let file = UserFileAuthenticator::new(users(roles), memory, clock).unwrap();
        let file = Arc::new(file.with_tokens(token_rules(), key_set(&[&key])));
        let expires = jiff::Timestamp::now().as_second() + 3_600;
        let authenticator = Arc::clone(&file) as _;
        let authentication =
            Some(AuthenticationConfig { authenticator, open_paths, per_connection });
        let config = crate::ServerConfig { allow_delete: true, authentication, ..config() };
        Self { tsd: Tsd::start_with(config, engine).await, file, key, expires }
    }

    /// A signed token of a user with one role.
    pub(super) fn token(&self, user: &str, role: &str) -> String {
        self.key.sign(&claims_until(self.expires, user, &["other", role]))
    }

    pub(super) async fn send(
        &self,
        user: &str,
        method: Method,
        uri: &str,
        body: &str,
    ) -> TestResponse {
        let header = match user.strip_prefix("jwt:") {
            Some(role) => format!("Bearer {}", self.token(role, role)),
            None if user == "agent" => "Bearer t0k3n".to_owned(),
            None => basic(user),
        };
        let headers: &[(&str, &str)] =
            if user.is_empty() { &[] } else { &[("authorization", &header)] };
        self.tsd.send(method, uri, headers, body.to_owned()).await
    }

    pub(super) async fn status(&self, user: &str, method: Method, uri: &str, body: &str) -> u16 {
        self.send(user, method, uri, body).await.status
    }
}

fn basic(user: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{user}")))
}

fn query() -> String {
    format!("/api/query?{RANGE}&m=sum:m")
}

fn graph() -> String {
    format!("/q?{RANGE}&m=sum:m&ascii")
}

#[tokio::test]
async fn without_credentials_only_open_paths_are_served() {
    let server = Guarded::start(&[]).await;
    for (method, uri, body) in [
        (Method::POST, "/api/put", POINT),
        (Method::GET, "/api/query?start=1&m=sum:m", ""),
        (Method::GET, "/api/suggest?type=metrics", ""),
        (Method::GET, "/api/config", ""),
        (Method::GET, "/api/nothing", ""),
        (Method::GET, "/version", ""),
        (Method::GET, "/", ""),
        (Method::GET, "/diediedie", ""),
        (Method::GET, "/API/v1/Stats/query", ""),
    ] {
        let answer = server.send("", method, uri, body).await;
        assert_eq!(answer.status, 401, "{uri}: {}", answer.text());
        let challenges: Vec<_> = answer.headers.get_all("www-authenticate").iter().collect();
        assert_eq!(challenges.len(), 2, "{uri}");
        assert_eq!(challenges[0], "Basic realm=\"tsdb\", charset=\"UTF-8\"");
        assert_eq!(challenges[1], "Bearer realm=\"tsdb\"");
    }
    let answer = server.send("", Method::POST, "/api/put", POINT).await;
    assert_eq!(
        answer.json(),
        json!({"error": {"code": 401, "message": "Unauthorized for /api/put",
            "details": "credentials are required; send the header Authorization: Basic with name and password \
                (curl --user NAME), or Authorization: Bearer with a token; the tsdb command takes --user NAME or \
                TSDB_TOKEN"}})
    );
    for uri in ["/api/health/live", "/api/health/ready", "/API/v1/HEALTH/live"] {
        assert_eq!(server.status("", Method::GET, uri, "").await, 200, "{uri}");
    }
    // A preflight has no credentials. Without an allowed origin it is rejected.
    assert_eq!(server.status("", Method::OPTIONS, "/api/put", "").await, 405);
}

/// Issue 37: the page of an open `/` was served, but its scripts got a 401.
#[tokio::test]
async fn the_open_page_is_served_with_its_files() {
    let open_paths = OpenPaths::try_new("/").unwrap();
    let server = Guarded::start_as(&[], false, open_paths).await;
    for (uri, status) in [
        ("/", 200),
        ("/s/page/main.js", 200),
        ("/s/favicon.ico", 401),
        ("/s/other.js", 401),
        ("/api/config", 401),
    ] {
        assert_eq!(server.status("", Method::GET, uri, "").await, status, "{uri}");
    }
}

#[tokio::test]
async fn wrong_and_unreadable_credentials_are_401() {
    let server = Guarded::start(&["alice READER"]).await;
    let big = "A".repeat(4_000);
    for header in [
        format!("Basic {}", STANDARD.encode("alice:x")),
        format!("Basic {}", STANDARD.encode("bob:alice")),
        "Bearer nobody".to_owned(),
        "Basic %%%".to_owned(),
        "Digest a".to_owned(),
        format!("Bearer {big}"),
        "x".to_owned(),
    ] {
        for uri in ["/api/version", "/api/health/live"] {
            let answer = server.tsd.send(Method::GET, uri, &[("authorization", &header)], "").await;
            assert_eq!(answer.status, 401, "{uri}: {}", answer.text());
            assert!(!answer.text().contains("alice"), "{}", answer.text());
        }
    }
    let alice = basic("alice");
    let twice = [("authorization", alice.as_str()), ("authorization", alice.as_str())];
    assert_eq!(server.tsd.send(Method::GET, "/api/version", &twice, "").await.status, 401);
    assert_eq!(server.status("alice", Method::GET, "/api/version", "").await, 200);
}

#[tokio::test]
async fn routes_need_the_permissions_of_their_kind() {
    let server = Guarded::start(&[
        "admin ADMINISTRATOR",
        "reader READER",
        "writer PUTONLY",
        "telnet TELNET_PUT",
        "guest GUEST",
    ])
    .await;
    assert_eq!(server.status("admin", Method::POST, "/api/put", POINT).await, 204);
    let annotation = "/api/annotation?start_time=1356998400&description=d&method_override=post";
    for (method, uri, body, allowed) in [
        (Method::POST, "/api/put", POINT, &["admin", "writer"][..]),
        (Method::POST, "/api/rollup", "[]", &["admin", "writer"]),
        (Method::POST, "/api/histogram", "[]", &["admin", "writer"]),
        (Method::GET, annotation, "", &["admin", "writer"]),
        (Method::POST, "/api/annotation/bulk", "[]", &["admin", "writer"]),
        (Method::GET, "/api/annotation?start_time=1356998400", "", &["admin", "reader"]),
        (Method::GET, "/api/annotations?start_time=1356998400", "", &["admin", "reader"]),
        (Method::GET, &query(), "", &["admin", "reader"]),
        (Method::GET, &graph(), "", &["admin", "reader"]),
        (Method::GET, "/api/query/last?timeseries=m", "", &["admin", "reader"]),
        (Method::POST, "/api/query/exp", "{}", &["admin", "reader"]),
        (Method::GET, "/api/query/gexp?start=1&exp=x", "", &["admin", "reader"]),
        (Method::GET, "/api/suggest?type=metrics", "", &["admin", "reader"]),
        (Method::GET, "/suggest?type=metrics", "", &["admin", "reader"]),
        (Method::GET, "/api/search/lookup?m=m", "", &["admin", "reader"]),
        (Method::GET, "/api/version", "", &["admin", "reader", "writer", "telnet", "guest"]),
        (Method::GET, "/api/dropcaches", "", &["admin"]),
        (Method::GET, "/api/uid/assign?metric=new", "", &["admin"]),
        (Method::GET, "/api/uid/rename?metric=m&name=o", "", &["admin"]),
        (Method::DELETE, "/api/stats/query?id=1", "", &["admin"]),
        (Method::DELETE, "/api/annotation?start_time=1356998400", "", &["admin"]),
        (Method::DELETE, "/api/query?start=1&m=sum:o", "", &["admin"]),
    ] {
        for user in ["guest", "telnet", "writer", "reader", "admin"] {
            let answer = server.send(user, method.clone(), uri, body).await;
            let refused = answer.status == 403;
            assert_eq!(
                refused,
                !allowed.contains(&user),
                "{user} {method} {uri} {}",
                answer.text()
            );
            assert_ne!(answer.status, 401, "{user} {uri}");
        }
    }
    let refused = server.send("reader", Method::POST, "/api/put", POINT).await;
    assert_eq!(
        refused.json()["error"],
        json!({"code": 403, "message": "Forbidden for /api/put",
            "details": "user \"reader\" does not have the permission HTTP_PUT"})
    );
}

#[tokio::test]
async fn new_names_need_the_permission_of_their_kind() {
    let server = Guarded::start(&["writer WRITER", "putter PUTONLY", "creator CREATOR"]).await;
    assert_eq!(server.status("agent", Method::POST, "/api/put", POINT).await, 204);
    let point = |metric: &str, tagk: &str, tagv: &str| {
        json!({"metric": metric, "timestamp": 1, "value": 1, "tags": {tagk: tagv}}).to_string()
    };
    for (user, point, expected) in [
        ("putter", point("m", "host", "a"), None),
        ("putter", point("m", "host", "b"), Some("'tagv': 'b'")),
        ("writer", point("m", "host", "b"), None),
        ("putter", point("m", "host", "b"), None),
        ("writer", point("m", "dc", "b"), Some("'tagk': 'dc'")),
        ("writer", point("n", "host", "b"), Some("'metrics': 'n'")),
        ("agent", point("n", "dc", "b"), None),
    ] {
        let answer = server.send(user, Method::POST, "/api/put?details", &point).await;
        let error = answer.json()["errors"][0]["error"].as_str().map(str::to_owned);
        assert_eq!(answer.status == 200, expected.is_none(), "{user} {point}: {}", answer.text());
        if let Some(name) = expected {
            let error = error.unwrap();
            assert!(error.contains("may not create names of") && error.contains(name), "{error}");
        }
    }
    // No name was created.
    let tagks = server.tsd.engine.uids().suggest(tsd_engine::UidKind::Tagk, "", 9).await.unwrap();
    assert_eq!(tagks, ["dc", "host"]);
    let metrics =
        server.tsd.engine.uids().suggest(tsd_engine::UidKind::Metric, "", 9).await.unwrap();
    assert_eq!(metrics, ["m", "n"]);
    let assign = "/api/uid/assign?metric=o&tagk=k&tagv=v";
    assert_eq!(server.status("creator", Method::GET, assign, "").await, 200);
    assert_eq!(server.status("writer", Method::GET, "/api/uid/assign?tagv=w", "").await, 200);
    let refused = server.send("writer", Method::GET, "/api/uid/assign?tagk=w&tagv=w", "").await;
    assert_eq!(refused.status, 403);
    // Issue 37: the text named only the role.
    let needed = "it needs the role ADMINISTRATOR, or CREATE_TAGK and CREATE_TAGV";
    assert!(refused.text().contains(needed), "{}", refused.text());
}

/// Sends requests on one connection; returns the statuses.
async fn statuses(server: &Guarded, requests: &[(&str, &str)]) -> Vec<u16> {
    let mut stream = BufReader::new(server.tsd.connect().await);
    let mut statuses = Vec::new();
    for (uri, header) in requests {
        let header = match *header {
            "" => String::new(),
            user => format!("Authorization: {}\r\n", basic(user)),
        };
        let request = format!("GET {uri} HTTP/1.1\r\nHost: test\r\n{header}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        statuses.push(line.split(' ').nth(1).unwrap().parse().unwrap());
        let mut length = 0;
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).await.unwrap();
            let field = line.to_ascii_lowercase();
            if let Some(value) = field.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
    }
    statuses
}

#[tokio::test]
async fn requests_of_a_connection_have_users_of_their_own() {
    let server = Guarded::start(&["alice READER", "bob GUEST"]).await;
    let suggest = "/api/suggest?type=metrics";
    let requests = [
        (suggest, "alice"),
        (suggest, "bob"),
        (suggest, ""),
        (suggest, "alice"),
        ("/api/version", ""),
        ("/api/health/live", ""),
        ("/api/version", "bob"),
    ];
    assert_eq!(statuses(&server, &requests).await, [200, 403, 401, 200, 401, 200, 200]);
}

#[tokio::test]
async fn by_setting_a_request_inherits_the_user_of_its_connection() {
    let server = Guarded::start_with(&["alice READER", "bob GUEST"], true).await;
    let suggest = "/api/suggest?type=metrics";
    let requests = [
        (suggest, ""),
        (suggest, "alice"),
        (suggest, ""),
        (suggest, "bob"),
        (suggest, ""),
        (suggest, "alice"),
        ("/api/version", "nobody"),
        (suggest, ""),
    ];
    assert_eq!(statuses(&server, &requests).await, [401, 200, 200, 403, 403, 200, 401, 401]);
    let mut first = BufReader::new(server.tsd.connect().await);
    let request =
        format!("GET {suggest} HTTP/1.1\r\nHost: t\r\nAuthorization: {}\r\n\r\n", basic("alice"));
    first.write_all(request.as_bytes()).await.unwrap();
    let mut line = String::new();
    first.read_line(&mut line).await.unwrap();
    assert!(line.contains("200"), "{line}");
    // Another connection has no user.
    assert_eq!(statuses(&server, &[(suggest, "")]).await, [401]);
}

#[tokio::test]
async fn a_peer_that_guesses_gets_429() {
    let server = Guarded::start(&["alice READER"]).await;
    assert_eq!(server.status("alice", Method::GET, "/api/version", "").await, 200);
    let guess = [("authorization", "Bearer guess")];
    let mut statuses = Vec::new();
    for _ in 0..12 {
        statuses.push(server.tsd.send(Method::GET, "/api/version", &guess, "").await.status);
    }
    assert_eq!(statuses[..10], [401; 10]);
    let limited = server.tsd.send(Method::GET, "/api/version", &guess, "").await;
    assert_eq!(limited.status, 429);
    let seconds: u64 = limited.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=4).contains(&seconds), "{seconds}");
    assert_eq!(server.status("alice", Method::GET, "/api/version", "").await, 200);
    assert_eq!(server.status("agent", Method::GET, "/api/version", "").await, 200);
}

#[tokio::test]
async fn the_first_telnet_line_is_credentials() {
    let server = Guarded::start(&["alice PUTONLY,CREATOR", "bob READER"]).await;
    let put = "put m 1356998400 1 host=a\n";
    let stored =
        server.tsd.exchange(format!("auth basic alice alice\r\n{put}version\n").as_bytes()).await;
    assert!(stored.starts_with("AUTH_SUCCESS\r\nnet.opentsdb.tools"), "{stored}");
    let refused = format!("auth basic bob bob\n{put}rollup x\nhistogram x\nhelp\n");
    let refused = server.tsd.exchange(refused.as_bytes()).await;
    let lines: Vec<&str> = refused.lines().collect();
    assert_eq!(
        lines[..4],
        [
            "AUTH_SUCCESS",
            "put: illegal argument: Unauthorized command: put",
            "rollup: illegal argument: Unauthorized command: rollup",
            "histogram: illegal argument: Unauthorized command: histogram",
        ]
    );
    assert!(lines[4].starts_with("available commands"), "{refused}");
    let admin = server.tsd.exchange(b"auth basic alice alice\ndiediedie\ndropcaches\n").await;
    assert_eq!(
        admin,
        "AUTH_SUCCESS\r\n\
         diediedie is not allowed to user \"alice\": it needs the role ADMINISTRATOR\n\
         dropcaches is not allowed to user \"alice\": it needs the role ADMINISTRATOR\n"
    );
    assert_eq!(server.tsd.exchange(b"auth bearer t0k3n\nexit\n").await, "AUTH_SUCCESS\r\n");
    assert_eq!(
        server.tsd.engine.uids().suggest(tsd_engine::UidKind::Metric, "", 9).await.unwrap(),
        ["m"]
    );
}

#[tokio::test]
async fn telnet_credentials_may_be_repeated_a_few_times() {
    let server = Guarded::start(&["alice PUTONLY"]).await;
    let fail = "AUTH_FAIL\r\n";
    // The lines are never executed as commands, and the connection closes in the end.
    let commands = server.tsd.exchange(b"version\ndiediedie\nexit\n\nhelp\nstats\n").await;
    assert_eq!(commands, fail.repeat(5));
    let second = server.tsd.exchange(b"put m 1 1 a=b\nauth basic alice alice\nput x\n").await;
    assert_eq!(
        second,
        format!(
            "{fail}AUTH_SUCCESS\r\nput: illegal argument: not enough arguments (need least 4, got 1)\n"
        )
    );
    let long = format!("auth basic alice {}\n", "x".repeat(10_000));
    let long = server.tsd.exchange(long.as_bytes()).await;
    assert!(long == fail || long.is_empty(), "{long}");
    server.tsd.no_connections().await;
}

#[tokio::test]
async fn a_changed_user_is_followed_by_open_connections() {
    let server = Guarded::start(&["alice PUTONLY", "bob PUTONLY"]).await;
    let mut alice = BufReader::new(server.tsd.connect().await);
    let mut line = String::new();
    alice.write_all(b"auth bearer t0k3n\n").await.unwrap();
    alice.read_line(&mut line).await.unwrap();
    assert_eq!(line, "AUTH_SUCCESS\r\n");
    // The token stays, with other permissions.
    let token = hash_token("t0k3n");
    server.file.replace(Users::parse(&format!("agent {token} READER")).unwrap());
    alice.write_all(b"put m 1 1 a=b\n").await.unwrap();
    line.clear();
    alice.read_line(&mut line).await.unwrap();
    assert_eq!(line, "put: illegal argument: Unauthorized command: put\n");
    server.file.replace(Users::parse("").unwrap());
    alice.write_all(b"version\n").await.unwrap();
    let mut rest = String::new();
    alice.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "AUTH_FAIL\r\n");
    assert_eq!(server.status("bob", Method::GET, "/api/version", "").await, 401);
}

#[tokio::test]
async fn a_telnet_connection_closes_when_its_credential_expires() {
    let server = Guarded::start(&[]).await;
    let expires = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(700);
    let line = format!("agent {} PUTONLY expires={expires}", hash_token("t0k3n"));
    server.file.replace(Users::parse(&line).unwrap());
    let mut agent = server.tsd.connect().await;
    agent.write_all(b"auth bearer t0k3n\n").await.unwrap();
    let mut replies = String::new();
    // The connection is idle, and nobody changes the file.
    agent.read_to_string(&mut replies).await.unwrap();
    assert_eq!(replies, "AUTH_SUCCESS\r\nAUTH_FAIL\r\n");
    let refused = server.send("agent", Method::GET, "/api/version", "").await;
    assert_eq!(refused.status, 401);
    assert!(refused.text().contains("the credentials expired at 20"), "{}", refused.text());
}

#[tokio::test]
async fn allow_all_accepts_every_first_line_and_leaves_administration_to_peers() {
    let authenticator = Arc::new(AllowAll);
    let authentication = Some(AuthenticationConfig {
        authenticator,
        open_paths: OpenPaths::default(),
        per_connection: false,
    });
    let admin_peers = crate::AdminPeers::try_new("10.0.0.0/8").unwrap();
    let config = crate::ServerConfig { admin_peers, authentication, ..config() };
    let tsd = Tsd::start_with(config, engine_config()).await;
    let answer = tsd.exchange(b"hello world\nput m 1356998400 1 host=a\ndropcaches\n").await;
    assert_eq!(
        answer,
        "AUTH_SUCCESS\r\ndropcaches is not allowed from 127.0.0.1, which is not in tsd.core.admin.peers\n"
    );
    assert_eq!(tsd.get(&query()).await.status, 200);
    let header = [("authorization", "whatever")];
    assert_eq!(tsd.send(Method::POST, "/api/put", &header, POINT).await.status, 204);
}

#[tokio::test]
async fn refusals_are_counted_and_queries_name_their_user() {
    let server = Guarded::start(&["alice READER", "bob GUEST"]).await;
    assert_eq!(server.status("agent", Method::POST, "/api/put", POINT).await, 204);
    assert_eq!(server.status("alice", Method::GET, &query(), "").await, 200);
    for uri in [query(), graph()] {
        assert_eq!(server.status("bob", Method::GET, &uri, "").await, 403);
        assert_eq!(server.status("", Method::GET, &uri, "").await, 401);
    }
    server.tsd.exchange(b"auth basic bob x\n").await;
    let stats = server.send("alice", Method::GET, "/stats", "").await.text();
    for (name, value) in [
        ("tsd.rpc.unauthorized type=telnet", "1"),
        ("tsd.rpc.unauthorized type=http", "2"),
        ("tsd.rpc.forbidden type=http", "2"),
        ("tsd.http.query.unauthorized", "2"),
        ("tsd.http.query.forbidden", "2"),
    ] {
        let (name, tag) = name.split_once(' ').unwrap_or((name, ""));
        let line = stats.lines().find(|l| l.starts_with(&format!("{name} ")) && l.contains(tag));
        assert_eq!(line.unwrap().split(' ').nth(2), Some(value), "{name} {tag}");
    }
    let list = server.send("alice", Method::GET, "/api/stats/query", "").await;
    assert_eq!(list.json()["completed"][0]["user"], "alice");
    assert!(!list.text().contains(&basic("alice")), "{}", list.text());
}
