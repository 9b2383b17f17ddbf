//! Authentication with delegation tokens, and protected connections.

use std::{path::Path, sync::Arc, time::Duration};

use hbase_fake::{FakeCluster, FakeTokens, FaultKind, InjectedFault, SaslFault};
use hbase_rs::{
    Client, ClientConfig, Get, OperationError, Row, Scan, ServerName, Table,
    discovery::FixedDiscovery,
    errors::CallError,
    security::{Authentication, Protection, SecurityConfig, TokenConfig},
    transport::{Transport, TransportErrorKind},
};
use tempfile::TempDir;

use super::{chain, config, get, put, tls, value};

const IDENTIFIER: &[u8] = b"the identifier of a token";
const PASSWORD: &[u8] = b"its password";

const ALL: [Protection; 3] =
    [Protection::Authentication, Protection::Integrity, Protection::Privacy];

/// A cluster that requires a token, and a client with a file of it.
struct Fixture {
    cluster: FakeCluster,
    security: SecurityConfig,
    directory: TempDir,
}

impl Fixture {
    async fn new(protections: &[Protection]) -> Self {
        let cluster = FakeCluster::start(2).await;
        cluster.create_table("t", &["g", "p"]);
        cluster.require_tokens(Some(tokens()));
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        write_token(&file, IDENTIFIER, PASSWORD);
        let protections = protections.to_vec();
        let security = SecurityConfig {
            authentication: Authentication::Token(TokenConfig { file, protections }),
            ..SecurityConfig::default()
        };
        Self { cluster, security, directory }
    }

    fn transport(&self) -> Arc<dyn Transport> {
        self.security.transport().unwrap()
    }

    fn table(&self) -> Table {
        self.table_with(config())
    }

    fn table_with(&self, mut config: ClientConfig) -> Table {
        config.transport = self.transport();
        Client::new(config, self.cluster.discovery()).table("t".parse().unwrap())
    }

    /// Returns the result of a client that makes one attempt.
    async fn first_result(&self) -> Result<Row, OperationError> {
        let mut config = config();
        config.max_attempts = 1;
        self.table_with(config).get(&get("a")).await
    }

    /// The same with servers that close each connection after this many bytes.
    async fn first_result_after(&self, bytes: usize) -> Result<Row, OperationError> {
        assert!(bytes < 10_000, "the responses are short");
        let fault = Some(SaslFault::CloseAfter(bytes));
        self.cluster.require_tokens(Some(FakeTokens { fault, ..tokens() }));
        self.first_result().await
    }
}

fn tokens() -> FakeTokens {
    FakeTokens::new(IDENTIFIER, PASSWORD)
}

/// Writes a token file of format 0.
fn write_token(file: &Path, identifier: &[u8], password: &[u8]) {
    let fields: [&[u8]; 5] = [b"alias", identifier, password, b"HBASE_AUTH_TOKEN", b"cluster"];
    let mut bytes = b"HDTS\0\x01".to_vec();
    for field in fields {
        bytes.push(field.len() as u8);
        bytes.extend_from_slice(field);
    }
    bytes.push(0);
    std::fs::write(file, bytes).unwrap();
}

#[track_caller]
fn check_permanent(error: &OperationError, texts: &[&str]) {
    let text = chain(error);
    assert_eq!(error.attempts, 1, "{text}");
    for expected in texts {
        assert!(text.contains(expected), "{text:?} lacks {expected:?}");
    }
}

#[tokio::test]
async fn calls_and_scans_pass_every_protection() {
    for (protection, word) in ALL.into_iter().zip(["auth", "auth-int", "auth-conf"]) {
        let fixture = Fixture::new(&[protection]).await;
        let table = fixture.table();
        let long: String = (0..300_000).map(|at| char::from(b'a' + (at % 26) as u8)).collect();
        for row in ["a", "h", "z"] {
            table.mutate(put(row, &long)).await.unwrap();
            assert_eq!(value(&table.get(&get(row)).await.unwrap()), long, "{word}");
        }
        let mut rows = table.scan(Scan::all());
        let mut count = 0;
        while let Some(row) = rows.next().await {
            assert_eq!(value(&row.unwrap().row), long);
            count += 1;
        }
        assert_eq!(count, 3);
        let used = fixture.cluster.protections();
        assert!(used.len() >= 3 && used.iter().all(|one| one == word), "{used:?}");
    }
}

#[tokio::test]
async fn tokens_authenticate_inside_tls() {
    for protection in ALL {
        let mut fixture = Fixture::new(&[protection]).await;
        fixture.cluster.set_tls(Some(tls::server_tls()));
        fixture.security.tls = Some(tls::trusting("one"));
        let table = fixture.table();
        let long = "some text ".repeat(30_000);
        table.mutate(put("a", &long)).await.unwrap();
        assert_eq!(value(&table.get(&get("a")).await.unwrap()), long);
        assert!(fixture.cluster.protections().len() >= 2);
        let fault = Some(SaslFault::CloseAfter(0));
        fixture.cluster.require_tokens(Some(FakeTokens { fault, ..tokens() }));
        let text = chain(&fixture.first_result().await.unwrap_err());
        assert!(text.contains("may require a client certificate"), "{text}");
    }
}

#[tokio::test]
async fn concurrent_calls_share_protected_connections() {
    for protection in [Protection::Integrity, Protection::Privacy] {
        let fixture = Fixture::new(&[protection]).await;
        // Messages and writes that fit no frame.
        let tokens = FakeTokens { message_size: 1_000, write_size: 7_777, ..tokens() };
        fixture.cluster.require_tokens(Some(tokens));
        let table = fixture.table();
        let tasks: Vec<_> = (0..60)
            .map(|at| {
                let table = table.clone();
                tokio::spawn(async move {
                    let row = format!("{}{at}", char::from(b'a' + at % 26));
                    let text = row.repeat(10_000);
                    table.mutate(put(&row, &text)).await.unwrap();
                    assert_eq!(value(&table.get(&get(&row)).await.unwrap()), text);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    }
}

#[tokio::test]
async fn messages_and_writes_of_a_server_may_be_short() {
    for (message_size, write_size) in [(1, usize::MAX), (3, 2), (usize::MAX, 1)] {
        let fixture = Fixture::new(&[Protection::Privacy]).await;
        fixture.cluster.require_tokens(Some(FakeTokens { message_size, write_size, ..tokens() }));
        let table = fixture.table();
        table.mutate(put("a", "some value")).await.unwrap();
        assert_eq!(value(&table.get(&get("a")).await.unwrap()), "some value");
    }
}

#[tokio::test]
async fn the_preferred_protection_is_chosen_from_the_offer() {
    let fixture = Fixture::new(&[Protection::Privacy, Protection::Integrity]).await;
    let offer = |protections| {
        fixture.cluster.require_tokens(Some(FakeTokens { protections, ..tokens() }));
    };
    fixture.table().get(&get("a")).await.unwrap();
    offer("auth,auth-int");
    fixture.table().get(&get("a")).await.unwrap();
    let used = fixture.cluster.protections();
    assert_eq!((&used[0][..], &used[used.len() - 1][..]), ("auth-conf", "auth-int"));
    offer("auth");
    let error = fixture.table().get(&get("a")).await.unwrap_err();
    check_permanent(
        &error,
        &["\"authentication\"", "\"privacy,integrity\"", "hbase.rpc.protection"],
    );
}

#[tokio::test]
async fn rejected_tokens_fail_at_once() {
    let fixture = Fixture::new(&ALL).await;
    let file = fixture.directory.path().join("token");
    let path = file.display().to_string();
    write_token(&file, IDENTIFIER, b"another password");
    let error = fixture.table().get(&get("a")).await.unwrap_err();
    check_permanent(&error, &[&path, "get a new one", "Mismatched response"]);
    write_token(&file, b"another token", PASSWORD);
    let error = fixture.table().get(&get("a")).await.unwrap_err();
    check_permanent(&error, &[&path, "InvalidToken", "Unknown master key"]);
    write_token(&file, IDENTIFIER, PASSWORD);
    let fault = Some(SaslFault::WrongProof);
    fixture.cluster.require_tokens(Some(FakeTokens { fault, ..tokens() }));
    let error = fixture.table().get(&get("a")).await.unwrap_err();
    check_permanent(&error, &["the server does not know the token's password"]);
    let fault = SaslFault::Reject { class: "javax.security.sasl.SaslException", text: "no" };
    fixture.cluster.require_tokens(Some(FakeTokens { fault: Some(fault), ..tokens() }));
    let error = fixture.table().get(&get("a")).await.unwrap_err();
    check_permanent(&error, &["SaslException: no"]);
}

#[tokio::test]
async fn an_expired_token_is_retried_until_it_is_replaced() {
    let fixture = Fixture::new(&ALL).await;
    let class = "org.apache.hadoop.security.token.SecretManager$InvalidToken";
    let fault = Some(SaslFault::Reject { class, text: "Token has expired" });
    fixture.cluster.require_tokens(Some(FakeTokens { fault, ..tokens() }));
    let table = fixture.table();
    let waiting = tokio::spawn(async move { table.get(&get("a")).await });
    while fixture.cluster.connections() < 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    write_token(&fixture.directory.path().join("token"), b"new token", b"new password");
    fixture.cluster.require_tokens(Some(FakeTokens::new(b"new token", b"new password")));
    waiting.await.unwrap().unwrap();
    assert!(!fixture.cluster.protections().is_empty());
}

#[tokio::test]
async fn a_failure_after_the_last_token_fails_at_once() {
    for protection in ALL {
        let fixture = Fixture::new(&[protection]).await;
        let class = "javax.security.sasl.SaslException";
        let fault = Some(SaslFault::RejectLate { class, text: "Problem with callback handler" });
        fixture.cluster.require_tokens(Some(FakeTokens { fault, ..tokens() }));
        let error = fixture.table().get(&get("a")).await.unwrap_err();
        let texts = ["rejected the authentication", "SaslException: Problem with callback handler"];
        check_permanent(&error, &texts);
    }
}

#[tokio::test]
async fn a_close_at_any_byte_is_no_permanent_error() {
    // The length of the server's messages depends on its nonce.
    let (min_exchange, max_exchange) = (180, 200);
    for protection in ALL {
        let fixture = Fixture::new(&[protection]).await;
        let mut bytes = 0;
        while let Err(error) = fixture.first_result_after(bytes).await {
            let hbase_rs::errors::Failure::Call(cause) = &*error.cause else { panic!("{error:?}") };
            let text = chain(&error);
            match cause {
                CallError::Connect { source, .. } => {
                    assert_eq!(source.kind(), TransportErrorKind::Unreachable, "{bytes}: {text}");
                    assert!(bytes < max_exchange, "{bytes}: {text}");
                    let expected = if bytes == 0 { "closed without a byte" } else { "closed by" };
                    assert!(text.contains(expected), "{bytes}: {text}");
                }
                CallError::Disconnected { .. } => assert!(bytes >= min_exchange, "{bytes}: {text}"),
                _ => panic!("{bytes}: {text}"),
            }
            bytes += 1;
        }
        // Each byte of the responses was the last one of a connection.
        assert!(bytes > max_exchange + 100, "{bytes}");
        fixture.cluster.require_tokens(Some(tokens()));
        fixture.table().get(&get("a")).await.unwrap();
    }
}

#[tokio::test]
async fn responses_that_are_cut_at_any_byte_are_requested_again() {
    for protection in ALL {
        let fixture = Fixture::new(&[protection]).await;
        // A response is several messages.
        fixture.cluster.require_tokens(Some(FakeTokens { message_size: 7, ..tokens() }));
        let table = fixture.table();
        table.mutate(put("a", "some value")).await.unwrap();
        for bytes in 0..60 {
            fixture.cluster.inject(InjectedFault::once("Get", FaultKind::CloseAfter(bytes)));
            assert_eq!(value(&table.get(&get("a")).await.unwrap()), "some value", "{bytes}");
        }
    }
}

#[tokio::test]
async fn a_damaged_message_ends_its_connection_only() {
    let fixture = Fixture::new(&[Protection::Integrity]).await;
    let fault = Some(SaslFault::DamagedMessage);
    fixture.cluster.require_tokens(Some(FakeTokens { fault, ..tokens() }));
    let table = fixture.table();
    for _ in 0..4 {
        table.get(&get("a")).await.unwrap();
    }
    // One for hbase:meta; the second response of each other connection is damaged.
    assert!(fixture.cluster.connections() >= 4, "{}", fixture.cluster.connections());
}

#[tokio::test]
async fn a_server_without_authentication_is_refused_unless_allowed() {
    let mut fixture = Fixture::new(&ALL).await;
    fixture.cluster.require_tokens(None);
    let error = fixture.table().get(&get("a")).await.unwrap_err();
    check_permanent(&error, &["no authentication", "fallback-to-simple-auth-allowed"]);
    fixture.security.allow_simple_fallback = true;
    let table = fixture.table();
    table.mutate(put("a", "1")).await.unwrap();
    assert_eq!(value(&table.get(&get("a")).await.unwrap()), "1");
    assert!(fixture.cluster.protections().is_empty());
}

#[tokio::test]
async fn simple_authentication_is_refused_by_a_secured_server() {
    let fixture = Fixture::new(&ALL).await;
    let client = Client::new(config(), fixture.cluster.discovery());
    let error = client.table("t".parse().unwrap()).get(&get("a")).await.unwrap_err();
    check_permanent(&error, &["AccessDeniedException: Authentication is required"]);
}

#[tokio::test]
async fn a_silent_server_costs_the_connect_timeout() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = ServerName::new("127.0.0.1", listener.local_addr().unwrap().port(), 1);
    let fixture = Fixture::new(&ALL).await;
    let mut config = config();
    config.connect_timeout = Duration::from_millis(30);
    config.max_attempts = 1;
    config.transport = fixture.transport();
    let client = Client::new(config, FixedDiscovery::new(Some(server), None));
    let error = client.table("t".parse().unwrap()).get(&Get::try_new("a").unwrap()).await;
    let text = chain(&error.unwrap_err());
    assert!(text.contains("no authentication within 30ms"), "{text}");
}

#[tokio::test]
async fn a_new_token_file_is_used_by_the_next_connection() {
    let fixture = Fixture::new(&ALL).await;
    let mut config = config();
    config.transport = fixture.transport();
    let table = |config: &ClientConfig| {
        Client::new(config.clone(), fixture.cluster.discovery()).table("t".parse().unwrap())
    };
    let old = table(&config);
    old.get(&get("a")).await.unwrap();
    fixture.cluster.require_tokens(Some(FakeTokens::new(b"new token", b"new password")));
    write_token(&fixture.directory.path().join("token"), b"new token", b"new password");
    table(&config).get(&get("a")).await.unwrap();
    // Open connections outlive their token.
    old.get(&get("a")).await.unwrap();
}

#[tokio::test]
async fn an_issued_token_authenticates() {
    let mut fixture = Fixture::new(&ALL).await;
    let mut config = config();
    config.transport = fixture.transport();
    let admin = Client::new(config, fixture.cluster.discovery()).admin();
    let token = admin.authentication_token().await.unwrap().unwrap();
    assert_eq!(token.cluster_id(), "cluster");
    let file = fixture.directory.path().join("issued");
    std::fs::write(&file, token.encode_file()).unwrap();
    let protections = vec![Protection::Privacy];
    let config = TokenConfig { file, protections };
    fixture.security.authentication = Authentication::Token(config);
    fixture.table().get(&get("a")).await.unwrap();
    assert!(fixture.cluster.protections().iter().any(|one| one == "auth-conf"));
}

#[tokio::test]
async fn a_cluster_without_tokens_issues_none() {
    let cluster = FakeCluster::start(1).await;
    let admin = Client::new(config(), cluster.discovery()).admin();
    let error = admin.authentication_token().await.unwrap_err();
    check_permanent(&error, &["UnknownProtocolException", "AuthenticationService"]);
}

#[tokio::test]
async fn a_missing_token_file_is_no_permanent_error() {
    let fixture = Fixture::new(&ALL).await;
    let table = fixture.table();
    let file = fixture.directory.path().join("token");
    std::fs::remove_file(&file).unwrap();
    let error = fixture.security.transport().unwrap_err();
    assert!(chain(&error).contains("cannot read"), "{error}");
    // A process may be about to replace it.
    let waiting = tokio::spawn(async move { table.get(&get("a")).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    write_token(&file, IDENTIFIER, PASSWORD);
    waiting.await.unwrap().unwrap();
}

#[test]
fn wrong_configurations_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, b"HDTS\0\x01\x05").unwrap();
    let transport = |protections: &[Protection]| {
        let config = TokenConfig { file: file.clone(), protections: protections.to_vec() };
        let authentication = Authentication::Token(config);
        SecurityConfig { authentication, ..SecurityConfig::default() }.transport()
    };
    let text = chain(&transport(&ALL).unwrap_err());
    let path = file.display().to_string();
    assert!(text.contains(&path) && text.contains("cut or damaged"), "{text}");
    let text = chain(&transport(&[]).unwrap_err());
    assert!(text.contains("hbase.rpc.protection"), "{text}");
    let plain = SecurityConfig::default().transport().unwrap();
    assert_eq!(plain.description(), "plain text and simple authentication");
}
