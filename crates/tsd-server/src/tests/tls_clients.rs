//! Client certificates: which clients a port accepts, and which users they are.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tsd_engine::{ProcessMemory, SystemClock};
use tsd_tls::{ClientAuth, ServerOptions};

use super::{
    harness::{Tsd, engine_config},
    tls::{client, exchange, get, with_tls},
};
use crate::{
    AllowAll, AuthenticationConfig, Authenticator, OpenPaths, UserFileAuthenticator, Users,
    auth::cheap_hash,
};

const PUT: &[u8] = b"put m 1356998400 1 host=a\nversion\n";

fn options(client_auth: ClientAuth) -> ServerOptions {
    ServerOptions { client_auth, ..ServerOptions::default() }
}

async fn start(client_auth: ClientAuth, authenticator: Option<Arc<dyn Authenticator>>) -> Tsd {
    let (mut config, _) = with_tls(options(client_auth));
    config.authentication = authenticator.map(|authenticator| AuthenticationConfig {
        authenticator,
        open_paths: OpenPaths::default(),
        per_connection: false,
    });
    Tsd::start_with(config, engine_config()).await
}

fn users() -> Arc<UserFileAuthenticator> {
    let hash = cheap_hash("alice");
    // The names of `node.pem` and `nameless.pem`: a DNS name, and a common name.
    let text = format!(
        "localhost certificate WRITER,CREATOR\nnameless certificate READER\nalice {hash} READER\n"
    );
    let (memory, clock) = (ProcessMemory::unlimited(), Arc::new(SystemClock));
    Arc::new(UserFileAuthenticator::new(Users::parse(&text).unwrap(), memory, clock).unwrap())
}

/// Connects with a client certificate and exchanges bytes; empty if the server refuses the certificate.
async fn with_certificate(tsd: &Tsd, identity: Option<&str>, bytes: &[u8]) -> String {
    let stream = client("one", identity).connect("localhost", tsd.connect().await).await.unwrap();
    // A server of TLS 1.3 refuses the certificate after the client has finished its handshake.
    let (mut stream, mut text) = (stream, Vec::new());
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let _ = stream.read_to_end(&mut text).await;
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn a_certificate_is_asked_for_as_set() {
    let own = Some("one/node");
    for (client_auth, identity, is_served) in [
        (ClientAuth::None, None, true),
        (ClientAuth::None, Some("two/node"), true),
        (ClientAuth::Optional, None, true),
        (ClientAuth::Optional, own, true),
        (ClientAuth::Optional, Some("two/node"), false),
        (ClientAuth::Optional, Some("one/expired"), false),
        (ClientAuth::Required, None, false),
        (ClientAuth::Required, own, true),
        (ClientAuth::Required, Some("two/node"), false),
    ] {
        let tsd = start(client_auth, None).await;
        let text = with_certificate(&tsd, identity, b"status\n").await;
        assert_eq!(text, if is_served { "ok\n" } else { "" }, "{client_auth:?} {identity:?}");
        tsd.no_connections().await;
    }
}

#[tokio::test]
async fn a_certificate_is_a_user_of_the_file() {
    let users = users();
    let tsd = start(ClientAuth::Optional, Some(Arc::clone(&users) as _)).await;
    let node = Some("one/node");
    // Telnet is signed in without a line of credentials.
    let text = with_certificate(&tsd, node, PUT).await;
    assert!(text.contains("Built") && !text.contains("AUTH"), "{text}");
    let text = with_certificate(&tsd, Some("one/nameless"), PUT).await;
    assert!(text.contains("Unauthorized command: put") && text.contains("Built"), "{text}");
    let text = with_certificate(&tsd, None, PUT).await;
    assert!(text.starts_with("AUTH_FAIL"), "{text}");
    // HTTP has the permissions of the certificate, unless the request has credentials.
    let query = get("/api/suggest?type=metrics");
    let status = async |identity, request: &str| {
        let text = with_certificate(&tsd, identity, request.as_bytes()).await;
        text.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(status(node, &query).await, "403");
    assert_eq!(status(Some("one/nameless"), &query).await, "200");
    assert_eq!(status(None, &query).await, "401");
    let alice = query.replace("Host: t", "Host: t\r\nAuthorization: Basic YWxpY2U6YWxpY2U=");
    assert_eq!(status(node, &alice).await, "200");
    let wrong = query.replace("Host: t", "Host: t\r\nAuthorization: Basic YWxpY2U6Ym9i");
    assert_eq!(status(Some("one/nameless"), &wrong).await, "401");
    // An open connection follows changes of its user.
    let stream = client("one", node).connect("localhost", tsd.connect().await).await.unwrap();
    let mut stream = stream;
    stream.write_all(b"version\n").await.unwrap();
    let mut part = [0; 4];
    stream.read_exact(&mut part).await.unwrap();
    users.replace(Users::parse("nobody certificate GUEST").unwrap());
    let text = exchange(stream, b"version\n").await;
    assert!(text.ends_with("AUTH_FAIL\r\n"), "{text}");
    // Without a user, open paths stay open, and other requests need credentials.
    assert_eq!(status(node, &get("/api/health/ready")).await, "200");
    assert_eq!(status(node, &query).await, "401");
}

#[tokio::test]
async fn allow_all_takes_the_name_of_the_certificate() {
    let tsd = start(ClientAuth::Optional, Some(Arc::new(AllowAll))).await;
    let text = with_certificate(&tsd, Some("one/node"), PUT).await;
    assert!(text.contains("Built") && !text.contains("AUTH"), "{text}");
}
