//! Sessions with TLS, and servers that are no ZooKeeper.

use std::path::{Path, PathBuf};

use hbase_fake::FakeTls;
use hbase_rs::security::{TlsConfig, ZooKeeperSecurity};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::*;
use crate::chain;

fn data(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tls")).join(name)
}

/// TLS that trusts an authority.
fn trusting(authority: &str) -> ZooKeeperSecurity {
    let file = data(&format!("{authority}/ca.pem"));
    let authorities = Some(file);
    let tls = Some(TlsConfig { authorities, ..TlsConfig::default() });
    ZooKeeperSecurity { tls, ..ZooKeeperSecurity::default() }
}

fn server_tls() -> FakeTls {
    FakeTls::new(&data("one/node.pem"), &data("one/node.key"))
}

fn with(quorum: &str, security: &ZooKeeperSecurity) -> ZooKeeperDiscovery {
    ZooKeeperDiscovery::with_security(quorum, "/hbase", security).unwrap()
}

/// An ensemble with TLS that has the znode of the server of hbase:meta.
async fn encrypted() -> (FakeEnsemble, ServerName) {
    let ensemble = FakeEnsemble::start().await;
    let server = ServerName::new("rs1", 16020, 5);
    ensemble.set("/hbase/meta-region-server", meta(&server));
    ensemble.set_tls(Some(server_tls()));
    (ensemble, server)
}

/// Starts a server that answers each connection with bytes, and closes it.
async fn answer(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let _ = socket.read(&mut [0; 100]).await;
                let _ = socket.write_all(bytes).await;
                let _ = socket.shutdown().await;
                let _ = tokio::io::copy(&mut socket, &mut tokio::io::sink()).await;
            });
        }
    });
    address
}

/// An address that accepts no connections.
fn closed_address() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[track_caller]
pub(super) fn check(error: &DiscoveryError, permanent: bool, expected: &[&str]) {
    let text = chain(error);
    assert_eq!(error.is_permanent(), permanent, "{text}");
    for one in expected {
        assert!(text.contains(one), "{one}: {text}");
    }
}

#[tokio::test]
async fn encrypted_sessions_read_znodes_and_end() {
    let (ensemble, server) = encrypted().await;
    let quorum = format!("{},localhost:{}", closed_address(), port(ensemble.quorum()));
    let discovery = with(&quorum, &trusting("one"));
    for _ in 0..5 {
        assert_eq!(discovery.meta_server().await.unwrap(), server);
    }
    assert_eq!(ensemble.sessions(), 5);
    let missing = discovery.master().await.unwrap_err();
    assert!(matches!(missing, DiscoveryError::Unknown { .. }), "{missing:?}");
    ensemble.set("/chroot/hbase-secure/running", "");
    for (chroot, root, expected) in
        [("", "/x", "/hbase, /chroot"), ("/chroot", "/x", "there are /hbase-secure")]
    {
        let quorum = format!("{}{chroot}", ensemble.quorum());
        let discovery = ZooKeeperDiscovery::with_security(&quorum, root, &trusting("one"));
        let error = discovery.unwrap().meta_server().await.unwrap_err();
        assert!(matches!(error, DiscoveryError::NoRoot { .. }), "{error:?}");
        check(&error, true, &["no znode /x", &quorum, expected]);
    }
}

fn port(address: &str) -> &str {
    address.rsplit(':').next().unwrap()
}

#[tokio::test]
async fn refused_certificates_name_the_settings_of_zookeeper() {
    let (ensemble, server) = encrypted().await;
    let error = with(ensemble.quorum(), &trusting("two")).meta_server().await.unwrap_err();
    check(&error, true, &[ensemble.quorum(), "zookeeper.ssl.trustStore.location"]);
    ensemble.set_tls(Some(server_tls().require_clients_of(&data("two/ca.pem"))));
    let error = with(ensemble.quorum(), &trusting("one")).meta_server().await.unwrap_err();
    check(&error, true, &["client certificate", "zookeeper.ssl.keyStore.location"]);
    // A server that does not encrypt.
    ensemble.set_tls(None);
    let error = with(ensemble.quorum(), &trusting("one")).meta_server().await.unwrap_err();
    check(&error, false, &["zookeeper.client.secure"]);
    let plain = ZooKeeperDiscovery::new(ensemble.quorum(), "/hbase");
    assert_eq!(plain.meta_server().await.unwrap(), server);
    let missing = TlsConfig { authorities: Some(data("none")), ..TlsConfig::default() };
    let security = ZooKeeperSecurity { tls: Some(missing), ..ZooKeeperSecurity::default() };
    let error = ZooKeeperDiscovery::with_security("zk", "/hbase", &security).unwrap_err();
    assert!(error.to_string().contains("cannot read"), "{error}");
}

#[tokio::test]
async fn plain_client_of_an_encrypting_server_learns_that() {
    let (ensemble, _) = encrypted().await;
    let plain = ZooKeeperDiscovery::new(ensemble.quorum(), "/hbase");
    let error = plain.meta_server().await.unwrap_err();
    check(&error, true, &["not a ZooKeeper", ensemble.quorum()]);
    // Netty closes the connection.
    let plain = ZooKeeperDiscovery::new(&answer(b"").await, "/hbase");
    let error = plain.meta_server().await.unwrap_err();
    check(&error, false, &["zookeeper.client.secure", "closes the connection"]);
}

#[tokio::test]
async fn servers_of_other_protocols_are_not_taken_for_a_zookeeper() {
    for bytes in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"\0\0\0\x05hello", b"\0\0\0\0"] {
        for secure in [false, true] {
            let address = answer(bytes).await;
            let discovery = if secure {
                // Any security selects sessions of this crate; this one is not used before the answer.
                with(&address, &trusting("one"))
            } else {
                ZooKeeperDiscovery::new(&address, "/hbase")
            };
            let error = discovery.meta_server().await.unwrap_err();
            let expected = if secure { "zookeeper.client.secure" } else { "Lindorm" };
            check(&error, true, &[&address, expected]);
        }
    }
}

#[tokio::test]
async fn error_codes_have_causes_of_their_own() {
    for tls in [false, true] {
        let (ensemble, _) = encrypted().await;
        if !tls {
            ensemble.set_tls(None);
        }
        let security = if tls { trusting("one") } else { ZooKeeperSecurity::default() };
        for (code, permanent, expected) in [
            (-102, true, &["/hbase/meta-region-server", "access list"][..]),
            (
                -115,
                true,
                &["SASL authentication", "rejects the authentication"]
                    [usize::from(tls)..=usize::from(tls)],
            ),
            (-124, true, &["requires SASL", "zookeeper.sasl.client"]),
            (-4, false, &["the server of hbase:meta"]),
        ] {
            ensemble.set_read_error(code);
            let discovery = with(ensemble.quorum(), &security);
            let error = discovery.meta_server().await.unwrap_err();
            check(&error, permanent, expected);
        }
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_leaves_time_for_others() {
    let (ensemble, server) = encrypted().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let quorum = format!("{},{}", silent.local_addr().unwrap(), ensemble.quorum());
    let discovery = with(&quorum, &trusting("one"));
    for _ in 0..2 {
        assert_eq!(discovery.meta_server().await.unwrap(), server);
    }
}
