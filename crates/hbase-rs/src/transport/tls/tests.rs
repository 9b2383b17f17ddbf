//! TLS against servers of this process.

// Files of the crate `hbase-fake`, which a package of this crate cannot depend on.
#[expect(unreachable_pub, reason = "public in that crate")]
mod fake_proxy;
#[expect(dead_code, unreachable_pub, reason = "public in that crate, and used there")]
mod fake_tls;
mod files;

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use self::{
    fake_proxy::{ProxyFault, damaging_proxy},
    fake_tls::FakeTls,
};
use super::{HBASE_SETTINGS, TlsConnector, TlsSocket, ZOOKEEPER_SETTINGS};
use crate::{
    security::TlsConfig,
    transport::{TransportError, TransportErrorKind},
};

/// A file of `tests/data/tls`.
fn data(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tls")).join(name)
}

/// Trusts an authority.
fn config(authority: &str) -> TlsConfig {
    TlsConfig { authorities: Some(data(&format!("{authority}/ca.pem"))), ..TlsConfig::default() }
}

/// A file with the certificate and the key of a node.
fn identity(directory: &Path, node: &str) -> PathBuf {
    let read = |end: &str| std::fs::read(data(&format!("{node}.{end}"))).unwrap();
    let file = directory.join(format!("{}.pem", node.replace('/', "-")));
    std::fs::write(&file, [read("pem"), read("key")].concat()).unwrap();
    file
}

fn tls(node: &str) -> FakeTls {
    FakeTls::new(&data(&format!("{node}.pem")), &data(&format!("{node}.key")))
}

/// Starts a server that returns the bytes of each connection.
async fn echo(tls: FakeTls) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let tls = tls.clone();
            tokio::spawn(async move {
                let mut stream = tls.accept(socket).await?;
                let mut buffer = vec![0; 64 << 10];
                loop {
                    let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
                    stream.write_all(&buffer[..count]).await.ok()?;
                    stream.flush().await.ok()?;
                }
                #[expect(unreachable_code, reason = "type of the block")]
                Some(())
            });
        }
    });
    port
}

/// Starts a server that sends bytes to each connection, without reading, and closes it.
async fn answer(bytes: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut hello = [0; 5];
            socket.read_exact(&mut hello).await.unwrap();
            socket.write_all(bytes).await.unwrap();
            socket.shutdown().await.unwrap();
            let _ = tokio::io::copy(&mut socket, &mut tokio::io::sink()).await;
        }
    });
    port
}

async fn connect_to(
    config: &TlsConfig,
    host: &str,
    port: u16,
) -> Result<TlsSocket, TransportError> {
    let connector = TlsConnector::new(config, &HBASE_SETTINGS).unwrap();
    let socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    connector.connect(socket, host).await
}

async fn connect(config: &TlsConfig, port: u16) -> Result<TlsSocket, TransportError> {
    connect_to(config, "localhost", port).await
}

/// Sends bytes and reads them back.
async fn exchange(stream: &mut TlsSocket, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await?;
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).await?;
    assert!(back == bytes);
    Ok(())
}

/// The error of a connection, at the handshake or at the first read.
async fn failure(config: &TlsConfig, port: u16) -> TransportError {
    match connect(config, port).await {
        Ok(mut stream) => TransportError::from(exchange(&mut stream, b"x").await.unwrap_err()),
        Err(error) => error,
    }
}

#[track_caller]
fn check(error: &TransportError, kind: TransportErrorKind, texts: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for expected in texts {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[tokio::test]
async fn both_versions_carry_bytes_in_both_directions() {
    for server in [tls("one/node").only_1_2(), tls("one/node").only_1_3()] {
        let port = echo(server).await;
        for host in ["localhost", "127.0.0.1"] {
            let mut stream = connect_to(&config("one"), host, port).await.unwrap();
            for size in [1, 300_000] {
                exchange(&mut stream, &vec![7; size]).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn certificates_of_servers_are_verified() {
    let permanent = TransportErrorKind::Permanent;
    let port = echo(tls("one/node")).await;
    let error = connect(&config("two"), port).await.unwrap_err();
    check(&error, permanent, &["localhost (127.0.0.1:", HBASE_SETTINGS.authorities]);
    let error = connect_to(&config("one"), "rs1.example.org", port).await.unwrap_err();
    check(&error, permanent, &["rs1.example.org", "127.0.0.1", HBASE_SETTINGS.verify_host]);
    let error = connect_to(&config("one"), "not a host", port).await.unwrap_err();
    check(&error, permanent, &["not a host", HBASE_SETTINGS.verify_host]);
    let expired = echo(tls("one/expired")).await;
    let error = connect(&config("one"), expired).await.unwrap_err();
    check(&error, permanent, &["expired", "renew"]);
}

#[tokio::test]
async fn without_verification_of_hosts_authorities_are_still_verified() {
    let any_host = |authority| TlsConfig { verify_host: false, ..config(authority) };
    for server in [tls("one/elsewhere").only_1_2(), tls("one/elsewhere").only_1_3()] {
        let port = echo(server).await;
        for host in ["localhost", "not a host"] {
            let mut stream = connect_to(&any_host("one"), host, port).await.unwrap();
            exchange(&mut stream, b"x").await.unwrap();
        }
        let error = connect(&any_host("two"), port).await.unwrap_err();
        check(&error, TransportErrorKind::Permanent, &[HBASE_SETTINGS.authorities]);
    }
    let expired = echo(tls("one/expired")).await;
    let error = connect(&any_host("one"), expired).await.unwrap_err();
    check(&error, TransportErrorKind::Permanent, &["expired"]);
}

#[tokio::test]
async fn refused_client_certificates_are_permanent_errors_in_both_versions() {
    let directory = tempfile::tempdir().unwrap();
    let permanent = TransportErrorKind::Permanent;
    let server = tls("one/node").require_clients_of(&data("one/ca.pem"));
    for server in [server.clone().only_1_2(), server.only_1_3()] {
        let port = echo(server).await;
        let mut config = config("one");
        check(
            &failure(&config, port).await,
            permanent,
            &["client certificate", HBASE_SETTINGS.identity],
        );
        config.identity = Some(identity(directory.path(), "two/node"));
        check(
            &failure(&config, port).await,
            permanent,
            &["refuses the client certificate", HBASE_SETTINGS.identity],
        );
        config.identity = Some(identity(directory.path(), "one/node"));
        exchange(&mut connect(&config, port).await.unwrap(), b"x").await.unwrap();
    }
}

#[tokio::test]
async fn alerts_name_the_setting() {
    let permanent = TransportErrorKind::Permanent;
    for (alert, kind, texts) in [
        (
            &b"\x15\x03\x03\0\x02\x02\x28"[..],
            permanent,
            &["HandshakeFailure", "CBC", "localhost ("][..],
        ),
        (b"\x15\x03\x03\0\x02\x02\x46", permanent, &["ProtocolVersion", "TLS 1.2 and 1.3"]),
        (b"\x15\x03\x03\0\x02\x02\x2a", permanent, &[HBASE_SETTINGS.identity, "requires"]),
        (
            b"\x15\x03\x03\0\x02\x02\x2e",
            permanent,
            &[HBASE_SETTINGS.identity, "CertificateUnknown"],
        ),
        (b"\x15\x03\x03\0\x02\x02\x2d", permanent, &["CertificateExpired"]),
        (b"\x15\x03\x03\0\x02\x02\x50", TransportErrorKind::Unreachable, &["InternalError"]),
    ] {
        let error = connect(&config("one"), answer(alert).await).await.unwrap_err();
        check(&error, kind, texts);
    }
}

#[tokio::test]
async fn servers_without_tls_are_named() {
    // The length of a response with an exception.
    let port = answer(b"\0\0\0\x40exception").await;
    let error = connect(&config("one"), port).await.unwrap_err();
    check(&error, TransportErrorKind::Permanent, &["localhost (", HBASE_SETTINGS.enabled]);
    let error = connect(&config("one"), answer(b"").await).await.unwrap_err();
    check(&error, TransportErrorKind::Unreachable, &[HBASE_SETTINGS.enabled, "proxy"]);
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let hasty = TlsConfig { handshake_timeout: Duration::from_millis(20), ..config("one") };
    let error = connect(&hasty, port).await.unwrap_err();
    check(&error, TransportErrorKind::Unreachable, &["20ms"]);
    let zookeeper = TlsConnector::new(&config("one"), &ZOOKEEPER_SETTINGS).unwrap();
    let socket = TcpStream::connect(("127.0.0.1", answer(b"\0\0\0\0").await)).await.unwrap();
    let error = zookeeper.connect(socket, "localhost").await.unwrap_err();
    check(&error, TransportErrorKind::Permanent, &[ZOOKEEPER_SETTINGS.enabled]);
}

#[tokio::test]
async fn streams_cut_at_every_byte_end_with_an_error() {
    for server in [tls("one/node").only_1_2(), tls("one/node").only_1_3()] {
        let port = echo(server).await;
        for bytes in (0..).step_by(13) {
            let cut = damaging_proxy(port, ProxyFault::Cut(bytes)).await;
            let mut stream = match connect(&config("one"), cut).await {
                Ok(stream) => stream,
                Err(error) => {
                    check(&error, TransportErrorKind::Unreachable, &[]);
                    continue;
                }
            };
            match exchange(&mut stream, &[7; 2000]).await {
                Ok(()) => break,
                Err(error) => {
                    check(&TransportError::from(error), TransportErrorKind::Unreachable, &[]);
                }
            }
        }
    }
}

#[tokio::test]
async fn damaged_bytes_are_never_accepted() {
    for server in [tls("one/node").only_1_2(), tls("one/node").only_1_3()] {
        let port = echo(server).await;
        let mut failures = 0;
        // The server sends some 800 bytes up to the end of the exchange.
        for byte in (0..600).step_by(17) {
            let damaged = damaging_proxy(port, ProxyFault::Flip(byte)).await;
            let config =
                TlsConfig { handshake_timeout: Duration::from_millis(200), ..config("one") };
            let Ok(mut stream) = connect(&config, damaged).await else {
                failures += 1;
                continue;
            };
            let exchange = exchange(&mut stream, &[7; 100]);
            let exchanged = tokio::time::timeout(Duration::from_millis(200), exchange).await;
            failures += usize::from(!matches!(exchanged, Ok(Ok(()))));
        }
        // A few bytes of the records say nothing, such as their version.
        assert!(failures >= 30, "{failures}");
    }
}
