//! TLS on the port: both protocols, failed handshakes, slow and broken clients, replaced certificates.

use std::{path::Path, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{ClientConfig, ClientConnection, crypto::ring, version::TLS12},
};
use tsd_tls::{
    ClientAuth, ClientFiles, ClientTls, LeastVersion, PemFile, ServerFiles, ServerOptions,
    ServerTls, TlsFileError,
};

use super::harness::{Tsd, config, engine_config, read_to_end};
use crate::{Limits, PortTls, ServerConfig};

/// Certificates of two authorities.
pub(super) fn data(file: &str) -> std::path::PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/tls")).join(file)
}

/// The TLS of a port with the certificate of a file, which trusts the clients of authority `one`.
pub(super) fn load(certificate: &str, options: ServerOptions) -> Result<ServerTls, TlsFileError> {
    let pem = |name: String| PemFile::read(&data(&name));
    let files = ServerFiles {
        certificate: pem(format!("{certificate}.pem"))?,
        key: pem(format!("{certificate}.key"))?,
        client_ca: Some(pem("one/ca.pem".to_owned())?),
    };
    ServerTls::try_new(&files, options)
}

pub(super) fn with_tls(options: ServerOptions) -> (ServerConfig, Arc<PortTls>) {
    let tls = Arc::new(PortTls::new(load("one/node", options).unwrap(), false));
    (ServerConfig { tls: Some(Arc::clone(&tls)), ..config() }, tls)
}

async fn start() -> Tsd {
    Tsd::start_with(with_tls(ServerOptions::default()).0, engine_config()).await
}

pub(super) fn client(authority: &str, identity: Option<&str>) -> ClientTls {
    let identity =
        identity.map(|name| (data(&format!("{name}.pem")), data(&format!("{name}.key"))));
    let authorities = Some(data(&format!("{authority}/ca.pem")));
    ClientTls::load(ClientFiles { authorities, identity }).unwrap()
}

pub(super) async fn encrypted(tsd: &Tsd) -> TlsStream<TcpStream> {
    client("one", None).connect("localhost", tsd.connect().await).await.unwrap()
}

/// Sends bytes and the end of input; returns all received text.
pub(super) async fn exchange(mut stream: TlsStream<TcpStream>, bytes: &[u8]) -> String {
    stream.write_all(bytes).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text).await;
    String::from_utf8(text).unwrap()
}

pub(super) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n")
}

/// The first flight of a client.
fn client_hello() -> Vec<u8> {
    let roots = PemFile::read(&data("one/ca.pem")).unwrap().authorities().unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    let mut hello = Vec::new();
    ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut hello).unwrap();
    hello
}

#[tokio::test]
async fn one_port_serves_both_protocols_plain_and_encrypted() {
    let tsd = start().await;
    for _ in 0..2 {
        let answer = exchange(encrypted(&tsd).await, get("/api/version").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("short_revision"));
        assert_eq!(
            exchange(encrypted(&tsd).await, b"status\nput x\nstatus\n").await,
            "ok\nput: illegal argument: not enough arguments (need least 4, got 1)\nok\n"
        );
        assert_eq!(tsd.exchange(b"status\n").await, "ok\n");
        assert!(tsd.exchange(get("/api/version").as_bytes()).await.starts_with("HTTP/1.1 200 OK"));
    }
    assert_eq!(exchange(encrypted(&tsd).await, b"").await, "");
    // TLS inside TLS is refused.
    assert_eq!(exchange(encrypted(&tsd).await, &client_hello()).await, "");
    tsd.no_connections().await;
}

#[tokio::test]
async fn pipelined_requests_and_half_closed_clients_get_their_answers() {
    let tsd = start().await;
    let requests = get("/api/aggregators").repeat(300) + &get("/api/nothing");
    let answer = exchange(encrypted(&tsd).await, requests.as_bytes()).await;
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 300);
    assert!(answer.contains("HTTP/1.1 404") && answer.ends_with('}'), "{answer:.200}");
    // A client that does not tell the end of its input gets no answer to half a request.
    let mut cut = encrypted(&tsd).await;
    cut.write_all(b"POST /api/put HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\n[")
        .await
        .unwrap();
    cut.flush().await.unwrap();
    cut.get_mut().0.shutdown().await.unwrap();
    let mut rest = Vec::new();
    let _ = cut.read_to_end(&mut rest).await;
    assert!(!String::from_utf8_lossy(&rest).contains(" 204 "));
    tsd.no_connections().await;
}

#[tokio::test]
async fn a_slow_reader_gets_a_large_answer_whole() {
    let tsd = start().await;
    let mut stream = encrypted(&tsd).await;
    let requests = get("/api/aggregators").repeat(2_000);
    let (mut read, mut write) = tokio::io::split(&mut stream);
    let sending = async {
        write.write_all(requests.as_bytes()).await.unwrap();
        write.shutdown().await.unwrap();
    };
    let reading = async {
        let (mut text, mut part) = (Vec::new(), [0; 700]);
        loop {
            match read.read(&mut part).await.unwrap_or(0) {
                0 => return text,
                n => text.extend_from_slice(&part[..n]),
            }
            if text.len() % 50 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    };
    let ((), text) = tokio::join!(sending, reading);
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 2_000);
    drop(stream);
    tsd.no_connections().await;
}

/// The records of an unread answer wait in TLS, not in the socket.
#[tokio::test]
async fn a_client_that_does_not_read_is_disconnected() {
    let (mut config, _) = with_tls(ServerOptions::default());
    config.limits = Limits { write_timeout: Duration::from_millis(50), ..Limits::default() };
    let tsd = Tsd::start_with(config, engine_config()).await;
    for flood in [get("/api/stats").repeat(1_000), "stats\n".repeat(10_000)] {
        let mut stream = encrypted(&tsd).await;
        // Fails when the server closes the connection.
        while stream.write_all(flood.as_bytes()).await.is_ok() {}
        tsd.no_connections().await;
    }
}

#[tokio::test]
async fn a_cut_handshake_ends_its_connection() {
    let tsd = start().await;
    let hello = client_hello();
    for cut in (1..10).chain((10..hello.len()).step_by(23)) {
        let mut stream = tsd.connect().await;
        stream.write_all(&hello[..cut]).await.unwrap();
        if cut % 2 == 0 {
            stream.shutdown().await.unwrap();
            read_to_end(&mut stream).await;
        }
        drop(stream);
    }
    // A client that goes away after its first flight.
    let mut stream = tsd.connect().await;
    stream.write_all(&hello).await.unwrap();
    let mut part = [0; 5];
    stream.read_exact(&mut part).await.unwrap();
    assert_eq!(part[0], 22, "the server has answered with a handshake");
    drop(stream);
    tsd.no_connections().await;
    assert_eq!(exchange(encrypted(&tsd).await, b"status\n").await, "ok\n");
}

/// Sends bytes and returns the received ones.
async fn answer(tsd: &Tsd, bytes: &[u8]) -> Vec<u8> {
    let mut stream = tsd.connect().await;
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

#[tokio::test]
async fn clients_that_do_not_speak_tls_get_an_alert() {
    let tsd = start().await;
    for garbage in
        [&b"\x16garbage that is long enough"[..], b"\x16\x03\x01\x00\x05\x01\x00\x00\x01x"]
    {
        let answer = answer(&tsd, garbage).await;
        assert_eq!(answer.first(), Some(&21), "{garbage:?}: {answer:?}");
    }
    // A client of TLS 1.1 with a cipher suite that exists in TLS 1.2, too.
    let mut body = vec![3, 2];
    body.extend_from_slice(&[7; 32]);
    body.extend_from_slice(&[0, 0, 2, 0xc0, 0x13, 1, 0]);
    let length = body.len() as u8;
    let hello = [&[0x16, 3, 1, 0, length + 4, 1, 0, 0, length][..], &body].concat();
    let alert = answer(&tsd, &hello).await;
    let is_fatal = alert.first() == Some(&21) && alert.get(5) == Some(&2);
    assert!(is_fatal, "protocol_version or handshake_failure: {alert:?}");
    tsd.no_connections().await;
}

#[tokio::test]
async fn a_port_without_tls_sends_an_alert() {
    let tsd = Tsd::start().await;
    assert_eq!(answer(&tsd, &client_hello()).await, [21, 3, 3, 0, 2, 2, 40]);
    let refused = client("one", None).connect("localhost", tsd.connect().await).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("HandshakeFailure"), "{error}");
    tsd.no_connections().await;
}

#[tokio::test]
async fn a_slow_handshake_is_given_up() {
    let (mut config, _) = with_tls(ServerOptions::default());
    config.limits.tls_handshake_timeout = Duration::from_millis(50);
    let tsd = Tsd::start_with(config, engine_config()).await;
    let mut slow = tsd.connect().await;
    slow.write_all(&client_hello()[..20]).await.unwrap();
    assert_eq!(read_to_end(&mut slow).await, "");
    tsd.no_connections().await;
}

#[tokio::test]
async fn a_handshake_ends_with_the_server() {
    let tsd = start().await;
    let mut slow = tsd.connect().await;
    slow.write_all(&client_hello()[..20]).await.unwrap();
    let _idle = encrypted(&tsd).await;
    while tsd.server.open_connections() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(tsd.server.shutdown(Duration::from_mins(1)).await.cut_off, 0);
}

#[tokio::test]
async fn the_least_version_is_a_setting() {
    let options = |least_version| ServerOptions { least_version, ..ServerOptions::default() };
    let roots = PemFile::read(&data("one/ca.pem")).unwrap().authorities().unwrap();
    let old = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let old = TlsConnector::from(Arc::new(old));
    for (least, accepts_old) in [(LeastVersion::Tls12, true), (LeastVersion::Tls13, false)] {
        let tsd = Tsd::start_with(with_tls(options(least)).0, engine_config()).await;
        let stream = old.connect("localhost".try_into().unwrap(), tsd.connect().await).await;
        match stream {
            Ok(stream) => assert!(accepts_old && exchange(stream, b"status\n").await == "ok\n"),
            Err(error) => assert!(!accepts_old && error.to_string().contains("ProtocolVersion")),
        }
        assert_eq!(exchange(encrypted(&tsd).await, b"status\n").await, "ok\n");
    }
}

#[tokio::test]
async fn open_connections_survive_a_replaced_certificate() {
    let (config, tls) = with_tls(ServerOptions::default());
    let tsd = Tsd::start_with(config, engine_config()).await;
    let mut open = encrypted(&tsd).await;
    let mut reply = [0; 3];
    open.write_all(b"status\n").await.unwrap();
    open.read_exact(&mut reply).await.unwrap();
    tls.replace(load("two/node", ServerOptions::default()).unwrap());
    let other = client("two", None).connect("localhost", tsd.connect().await).await.unwrap();
    assert_eq!(exchange(other, b"status\n").await, "ok\n");
    let refused = client("one", None).connect("localhost", tsd.connect().await).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("UnknownIssuer"), "{error}");
    assert_eq!(exchange(open, b"status\n").await, "ok\n");
    tsd.no_connections().await;
}

#[tokio::test]
async fn many_encrypted_connections_are_served_at_once() {
    let tsd = start().await;
    let mut streams = Vec::new();
    for _ in 0..40 {
        streams.push(encrypted(&tsd).await);
    }
    for (n, stream) in streams.iter_mut().enumerate() {
        let line = format!("put m {} 1 host=h{}\nstatus\n", 1_356_998_400 + n, n % 7);
        stream.write_all(line.as_bytes()).await.unwrap();
    }
    for stream in &mut streams {
        let mut reply = [0; 3];
        stream.read_exact(&mut reply).await.unwrap();
        assert_eq!(&reply, b"ok\n");
    }
    drop(streams);
    tsd.no_connections().await;
}

#[test]
fn only_plain_clients_of_other_hosts_are_refused() {
    let load = || load("one/node", ServerOptions::default()).unwrap();
    let required = PortTls::new(load(), true);
    let own = Some("10.0.0.1:4242".parse().unwrap());
    for (peer, refused) in
        [("127.0.0.1:1", false), ("[::1]:1", false), ("10.0.0.1:1", false), ("10.0.0.2:1", true)]
    {
        let peer = peer.parse().unwrap();
        assert_eq!(required.refuses_plain(peer, own), refused, "{peer}");
        assert!(!PortTls::new(load(), false).refuses_plain(peer, own));
    }
    let text = |first| String::from_utf8(crate::refused_connection::tls_required(first)).unwrap();
    assert_eq!(text(b'p'), "error: this port requires TLS (tsd.tls.required): connect with TLS\n");
    assert!(
        text(b'G').starts_with("HTTP/1.1 403 Forbidden\r\n") && text(b'G').contains("https://")
    );
}

#[test]
fn files_that_cannot_be_used_are_named_with_the_reason() {
    let check = |(certificate, key): (&str, &str), named: &str, expected: &str| {
        let pem = |name: &str| PemFile::new(&data(name), std::fs::read(data(name)).unwrap());
        let files = ServerFiles { certificate: pem(certificate), key: pem(key), client_ca: None };
        let error = ServerTls::try_new(&files, ServerOptions::default()).unwrap_err().to_string();
        assert!(error.starts_with(&data(named).display().to_string()), "{error}");
        assert!(error.contains(expected), "{error}");
    };
    let expired = "the certificate expired at 2001-01-01T00:00:00Z; renew it";
    check(("one/expired.pem", "one/expired.key"), "one/expired.pem", expired);
    let mismatch = "the private key does not belong to the certificate in ";
    check(("one/node.pem", "two/node.key"), "two/node.key", mismatch);
    check(("one/node.key", "one/node.key"), "one/node.key", "there is no certificate");
    check(("one/node.pem", "one/node.pem"), "one/node.pem", "there is no certificate or key");
    assert!(
        load("one/none", ServerOptions::default())
            .unwrap_err()
            .to_string()
            .contains("No such file")
    );
    let options = ServerOptions { client_auth: ClientAuth::Required, ..ServerOptions::default() };
    assert!(load("one/node", options).is_ok());
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\n";
    let error = PemFile::new(Path::new("/k"), encrypted).private_key().unwrap_err().to_string();
    assert!(error.contains("openssl pkey -in /k"), "{error}");
}
