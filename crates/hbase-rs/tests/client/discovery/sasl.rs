//! Sessions that authenticate.

use std::collections::BTreeMap;

use hbase_fake::{FakeSasl, ProxyFault, SaslAnswer, damaging_proxy};
use hbase_rs::security::{ZooKeeperSasl, ZooKeeperSecurity};
use md5::{Digest, Md5};

use super::{sessions::check, *};

fn digest(user: &str, password: &str) -> ZooKeeperSecurity {
    let (user, password) = (user.to_owned(), password.to_owned());
    ZooKeeperSecurity {
        sasl: ZooKeeperSasl::Digest { user, password },
        ..ZooKeeperSecurity::default()
    }
}

fn with(quorum: &str, security: &ZooKeeperSecurity) -> ZooKeeperDiscovery {
    ZooKeeperDiscovery::with_security(quorum, "/hbase", security).unwrap()
}

/// The server's side of DIGEST-MD5 (RFC 2831), as in a ZooKeeper whose JAAS file has a user.
#[derive(Default)]
struct DigestServer {
    is_challenged: bool,
    /// Sends a wrong proof that it knows the password.
    is_impostor: bool,
}

const REALM: &str = "zk-sasl-md5";
const NONCE: &str = "c2VydmVyIG5vbmNl";

fn hex(hash: impl Into<[u8; 16]>) -> String {
    format!("{:032x}", u128::from_be_bytes(hash.into()))
}

/// Directives `name=value` or `name="value"` without commas in values.
fn directives(token: &[u8]) -> BTreeMap<String, String> {
    let text = std::str::from_utf8(token).unwrap();
    let pair = |one: &str| {
        let (name, value) = one.split_once('=').unwrap();
        (name.to_owned(), value.trim_matches('"').to_owned())
    };
    text.split(',').map(pair).collect()
}

impl FakeSasl for DigestServer {
    fn step(&mut self, token: &[u8]) -> SaslAnswer {
        if !std::mem::replace(&mut self.is_challenged, true) {
            assert_eq!(token, b"");
            let challenge = format!(
                "realm=\"{REALM}\",nonce=\"{NONCE}\",qop=\"auth\",charset=utf-8,algorithm=md5-sess"
            );
            return SaslAnswer::Continue(challenge.into_bytes());
        }
        let response = directives(token);
        assert_eq!(response["digest-uri"], "zookeeper/zk-sasl-md5");
        assert_eq!(response["qop"], "auth");
        let user = Md5::digest(format!("{}:{REALM}:secret", response["username"]));
        let cnonce = &response["cnonce"];
        let key = Md5::new().chain_update(user).chain_update(format!(":{NONCE}:{cnonce}"));
        let key = hex(key.finalize());
        let proof = |method: &str| {
            let request = hex(Md5::digest(format!("{method}:zookeeper/zk-sasl-md5")));
            hex(Md5::digest(format!("{key}:{NONCE}:00000001:{cnonce}:auth:{request}")))
        };
        if response["username"] != "hbase" || response["response"] != proof("AUTHENTICATE") {
            return SaslAnswer::Reject;
        }
        let method = if self.is_impostor { "x" } else { "" };
        SaslAnswer::Done(format!("rspauth={}", proof(method)).into_bytes())
    }
}

/// An ensemble that requires an authentication and has the znode of the server of hbase:meta.
async fn ensemble(start: impl Fn() -> Box<dyn FakeSasl> + Send + Sync + 'static) -> FakeEnsemble {
    let ensemble = FakeEnsemble::start().await;
    ensemble.set("/hbase/meta-region-server", meta(&ServerName::new("rs1", 16020, 5)));
    ensemble.require_sasl(start);
    ensemble
}

#[tokio::test]
async fn users_with_passwords_read_znodes() {
    let ensemble = ensemble(|| Box::<DigestServer>::default()).await;
    let discovery = with(ensemble.quorum(), &digest("hbase", "secret"));
    for _ in 0..2 {
        assert_eq!(discovery.meta_server().await.unwrap().host(), "rs1");
    }
    for (user, password) in [("hbase", "wrong"), ("hb\"ase", "secret")] {
        let discovery = with(ensemble.quorum(), &digest(user, password));
        let error = discovery.meta_server().await.unwrap_err();
        check(&error, true, &[ensemble.quorum(), user, "JAAS"]);
    }
    let discovery = with(ensemble.quorum(), &ZooKeeperSecurity::default());
    check(&discovery.meta_server().await.unwrap_err(), true, &["requires SASL"]);
    assert!(!format!("{:?}", digest("hbase", "secret")).contains("secret"));
}

#[tokio::test]
async fn a_server_that_does_not_know_the_password_is_refused() {
    let start = || -> Box<dyn FakeSasl> {
        Box::new(DigestServer { is_impostor: true, ..DigestServer::default() })
    };
    let ensemble = ensemble(start).await;
    let discovery = with(ensemble.quorum(), &digest("hbase", "secret"));
    check(
        &discovery.meta_server().await.unwrap_err(),
        true,
        &["does not know the user's password"],
    );
}

#[tokio::test]
async fn sessions_cut_at_every_byte_are_transient_errors() {
    let ensemble = ensemble(|| Box::<DigestServer>::default()).await;
    let port = ensemble.quorum().rsplit(':').next().unwrap().parse().unwrap();
    for bytes in 0.. {
        let cut = damaging_proxy(port, ProxyFault::Cut(bytes)).await;
        let discovery = with(&format!("127.0.0.1:{cut}"), &digest("hbase", "secret"));
        match discovery.meta_server().await {
            Ok(server) => {
                assert_eq!(server.host(), "rs1");
                assert!(bytes > 200, "{bytes}");
                break;
            }
            Err(error) => assert!(!error.is_permanent(), "{bytes}: {error:?}"),
        }
    }
}

#[tokio::test]
async fn damaged_bytes_do_not_hang_a_session() {
    let ensemble = ensemble(|| Box::<DigestServer>::default()).await;
    let port = ensemble.quorum().rsplit(':').next().unwrap().parse().unwrap();
    let mut failures = 0;
    // The first packet ends at byte 41.
    for byte in (0..60).chain((60..280).step_by(7)) {
        let damaged = damaging_proxy(port, ProxyFault::Flip(byte)).await;
        let discovery = with(&format!("127.0.0.1:{damaged}"), &digest("hbase", "secret"));
        // A longer length waits for bytes that do not come, until the time of the lookup.
        let found = timeout(Duration::from_millis(100), discovery.meta_server()).await;
        failures += usize::from(!matches!(found, Ok(Ok(_))));
    }
    // Some bytes mean nothing to the client, such as the id of the session.
    assert!(failures > 30, "{failures}");
}

/// Answers every token with the same one.
struct Repeating(&'static [u8]);

impl FakeSasl for Repeating {
    fn step(&mut self, _: &[u8]) -> SaslAnswer {
        SaslAnswer::Continue(self.0.to_vec())
    }
}

#[tokio::test]
async fn damaged_tokens_end_the_session() {
    for token in [&b""[..], b"junk", b"realm=\"x\"", b"\xff\xfe", b"rspauth=1"] {
        let ensemble = ensemble(move || Box::new(Repeating(token))).await;
        let discovery = with(ensemble.quorum(), &digest("hbase", "secret"));
        let error = discovery.meta_server().await.unwrap_err();
        assert!(matches!(error, DiscoveryError::Security { .. }), "{error:?}");
    }
}

#[cfg(feature = "kerberos")]
mod kerberos {
    use hbase_gss::testing::{Acceptor, Realm, with_realm};
    use hbase_rs::security::{KerberosLogin, ZooKeeperKerberos};

    use super::*;

    /// The server's side of GSSAPI.
    struct GssServer {
        acceptor: Acceptor,
        is_complete: bool,
        offer: &'static [u8],
        has_offered: bool,
    }

    impl FakeSasl for GssServer {
        fn step(&mut self, token: &[u8]) -> SaslAnswer {
            if !self.is_complete {
                let Ok(output) = self.acceptor.step(token) else { return SaslAnswer::Reject };
                self.is_complete = output.complete;
                return SaslAnswer::Continue(output.token);
            }
            if !std::mem::replace(&mut self.has_offered, true) {
                assert_eq!(token, b"");
                return SaslAnswer::Continue(self.acceptor.wrap(self.offer, false).unwrap());
            }
            let choice = self.acceptor.unwrap(token).unwrap().data;
            if choice == [1, 0, 0, 0] { SaslAnswer::Done(Vec::new()) } else { SaslAnswer::Reject }
        }
    }

    async fn gss_ensemble(realm: &Realm, service: &str, offer: &'static [u8]) -> FakeEnsemble {
        let name = format!("{}.keytab", service.replace('/', "-"));
        let keytab = realm.keytab(service, &name).unwrap();
        ensemble(move || {
            let acceptor = Acceptor::new(&keytab).unwrap();
            Box::new(GssServer { acceptor, is_complete: false, offer, has_offered: false })
        })
        .await
    }

    fn client(realm: &Realm, name: &str) -> ZooKeeperKerberos {
        let file = realm.keytab(name, &format!("{name}.keytab")).unwrap();
        ZooKeeperKerberos::new(KerberosLogin::Keytab { file, principal: Some(name.to_owned()) })
    }

    fn security(kerberos: ZooKeeperKerberos) -> ZooKeeperSecurity {
        ZooKeeperSecurity {
            sasl: ZooKeeperSasl::Kerberos(kerberos),
            ..ZooKeeperSecurity::default()
        }
    }

    fn run(test: &str, body: impl AsyncFnOnce(&Realm)) {
        with_realm(&format!("discovery::sasl::kerberos::{test}"), |realm| {
            tokio::runtime::Builder::new_multi_thread()
                .enable_all()
                .build()
                .unwrap()
                .block_on(body(realm));
        });
    }

    #[test]
    fn tickets_open_sessions() {
        run("tickets_open_sessions", async |realm: &Realm| {
            let offer = b"\x07\x01\0\0";
            let ensemble = gss_ensemble(realm, "zookeeper/localhost", offer).await;
            let quorum = ensemble.quorum().replace("127.0.0.1", "localhost");
            let kerberos = client(realm, "zk-reader");
            let discovery = with(&quorum, &security(kerberos.clone()));
            for _ in 0..2 {
                assert_eq!(discovery.meta_server().await.unwrap().host(), "rs1");
            }
            // Another host in the quorum needs the principal of all servers.
            realm.add("zookeeper/127.0.0.1", 60).unwrap();
            let error = with(ensemble.quorum(), &security(kerberos.clone()));
            let error = error.meta_server().await.unwrap_err();
            check(&error, true, &["zookeeper/127.0.0.1", "zk-reader"]);
            let literal = ZooKeeperKerberos {
                server_principal: Some("zookeeper/localhost".to_owned()),
                ..kerberos
            };
            let discovery = with(ensemble.quorum(), &security(literal));
            assert_eq!(discovery.meta_server().await.unwrap().host(), "rs1");
        });
    }

    #[test]
    fn failed_logins_name_the_setting() {
        run("failed_logins_name_the_setting", async |realm: &Realm| {
            let ensemble = gss_ensemble(realm, "zookeeper/refusing", b"\x07\x01\0\0").await;
            let unknown =
                ZooKeeperKerberos { service: "nobody".to_owned(), ..client(realm, "zk-nobody") };
            let error = with(ensemble.quorum(), &security(unknown.clone()));
            let error = error.meta_server().await.unwrap_err();
            check(&error, true, &["nobody/127.0.0.1", "zookeeper.sasl.client.username"]);
            // An optional login is left out, if the server accepts that.
            let optional = ZooKeeperKerberos { is_required: false, ..unknown };
            let discovery = with(ensemble.quorum(), &security(optional.clone()));
            check(&discovery.meta_server().await.unwrap_err(), true, &["nobody/127.0.0.1"]);
            let open = FakeEnsemble::start().await;
            open.set("/hbase/meta-region-server", meta(&ServerName::new("rs2", 16020, 5)));
            let discovery = with(open.quorum(), &security(optional));
            assert_eq!(discovery.meta_server().await.unwrap().host(), "rs2");
        });
    }

    #[test]
    fn offers_without_plain_packets_are_refused() {
        run("offers_without_plain_packets_are_refused", async |realm: &Realm| {
            let kerberos = client(realm, "zk-offers");
            for (offer, service) in [
                (&b"\x04\x01\0\0"[..], "zookeeper/offer1"),
                (b"\x01\0", "zookeeper/offer2"),
                (b"", "zookeeper/offer3"),
            ] {
                let ensemble = gss_ensemble(realm, service, offer).await;
                let literal = ZooKeeperKerberos {
                    server_principal: Some(service.to_owned()),
                    ..kerberos.clone()
                };
                let error = with(ensemble.quorum(), &security(literal));
                let error = error.meta_server().await.unwrap_err();
                check(&error, true, &["protections"]);
            }
        });
    }
}
