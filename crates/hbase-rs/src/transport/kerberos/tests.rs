//! Logins with MIT's KDC, and tokens against the library's own acceptor.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    path::Path,
    time::Duration,
};

use futures_util::future::join_all;
use hbase_gss::testing::{Acceptor, Realm, with_realm};
use tokio::{runtime::Builder, time::sleep};

use super::{mechanism::GssStep, *};
use crate::{handshake::Service, server_name::ServerName};

/// Runs a test in a process of its own, on one thread of a runtime.
fn run<F: Future<Output = ()>>(test: &str, body: impl FnOnce(Realm) -> F) {
    with_realm(&format!("transport::kerberos::tests::{test}"), |realm| {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(body(realm.clone()));
    });
}

fn keytab_login(realm: &Realm, client: &str) -> KerberosLogin {
    let file = realm.keytab(client, &format!("{client}.keytab")).unwrap();
    KerberosLogin::Keytab { file, principal: Some(client.to_owned()) }
}

/// Logins with `{name}/_HOST` as the principal of region servers.
fn logins(login: KerberosLogin, name: &str) -> KerberosLogins {
    KerberosLogins::new(KerberosConfig::new(login, format!("{name}/_HOST")))
}

async fn start(
    logins: &KerberosLogins,
    host: &str,
    role: Role,
) -> Result<StartedMechanism, TransportError> {
    let server = ServerName::new(host, 16020, 1);
    logins
        .start(&Destination {
            server: &server,
            address: "",
            service: Service::Client,
            role,
            user: "user",
            connect_timeout: Duration::ZERO,
        })
        .await
}

#[track_caller]
fn assert_failure(
    result: Result<StartedMechanism, TransportError>,
    kind: TransportErrorKind,
    parts: &[&str],
) {
    let error = result.err().unwrap();
    assert_eq!(error.kind(), kind, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "no {part:?} in: {error}");
    }
}

/// Finishes the handshake with the keys of a keytab.
#[track_caller]
fn complete(started: StartedMechanism, service_keytab: &Path) -> (GssMechanism, Acceptor) {
    let (mut mechanism, token) = started;
    let mut acceptor = Acceptor::new(service_keytab).unwrap();
    let reply = acceptor.step(&token).unwrap();
    assert_eq!(mechanism.step(&reply.token).unwrap(), GssStep::Negotiate(Vec::new()));
    assert!(mechanism.is_complete());
    assert_eq!(acceptor.client(), mechanism.principal());
    (mechanism, acceptor)
}

/// A port at which no server accepts connections.
fn closed_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Starts until it succeeds: a pause after a failure may have to pass.
async fn start_later(logins: &KerberosLogins, host: &str) -> StartedMechanism {
    loop {
        if let Ok(started) = start(logins, host, Role::RegionServer).await {
            return started;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn connections_share_one_login() {
    run("connections_share_one_login", async |realm: Realm| {
        let keytab = realm.keytab("share/node.example", "share.keytab").unwrap();
        let logins = logins(keytab_login(&realm, "share-client"), "share");
        assert_eq!(logins.stats(), LoginStats::default());
        let starts = (0..50).map(|_| start(&logins, "Node.Example", Role::RegionServer));
        for started in join_all(starts).await {
            let (mut mechanism, mut acceptor) = complete(started.unwrap(), &keytab);
            assert_eq!(mechanism.principal(), "share-client@LAB.TEST");
            for confidential in [false, true] {
                let message = acceptor.wrap(b"from the server", confidential).unwrap();
                let plain = mechanism.unwrap(&message, confidential).unwrap();
                assert_eq!(plain, b"from the server");
                let message = mechanism.wrap(b"from the client", confidential).unwrap();
                let received = acceptor.unwrap(&message).unwrap();
                assert_eq!(
                    (&received.data[..], received.confidential),
                    (&b"from the client"[..], confidential)
                );
            }
        }
        let stats = logins.stats();
        assert_eq!((stats.logins, stats.login_failures), (1, 0));
        assert!(stats.ticket_seconds_left > Some(3600), "{stats:?}");
    });
}

#[test]
fn wrong_messages_end_the_mechanism() {
    run("wrong_messages_end_the_mechanism", async |realm: Realm| {
        let keytab = realm.keytab("wrong/a.example", "wrong.keytab").unwrap();
        let logins = logins(keytab_login(&realm, "wrong-client"), "wrong");
        let started = start(&logins, "a.example", Role::RegionServer).await.unwrap();
        let (mut mechanism, mut acceptor) = complete(started, &keytab);
        let message = acceptor.wrap(b"readable", false).unwrap();
        let error = mechanism.unwrap(&message, true).unwrap_err();
        assert!(error.to_string().ends_with("a message is not encrypted"), "{error}");
        let error = mechanism.unwrap(b"no message", false).unwrap_err();
        assert_eq!(error.kind(), TransportErrorKind::Unreachable, "{error}");
        let error = mechanism.step(b"").unwrap_err();
        assert_eq!(error.kind(), TransportErrorKind::Permanent, "{error}");
        let (mut mechanism, _) = start(&logins, "a.example", Role::RegionServer).await.unwrap();
        let error = mechanism.step(b"another server").unwrap_err();
        assert_eq!(error.kind(), TransportErrorKind::Permanent, "{error}");
        assert!(error.to_string().contains("does not prove that it is wrong/a.example"), "{error}");
        assert!(!mechanism.is_complete() && mechanism.step(b"").is_err());
    });
}

#[test]
fn the_role_selects_the_principal() {
    run("the_role_selects_the_principal", async |realm: Realm| {
        let servers = realm.keytab("role-rs/a.example", "role-rs.keytab").unwrap();
        let masters = realm.keytab("role-master/fixed.name", "role-master.keytab").unwrap();
        let mut config =
            KerberosConfig::new(keytab_login(&realm, "role-client"), "role-rs/_HOST@LAB.TEST");
        let without = KerberosLogins::new(config.clone());
        let started = start(&without, "a.example", Role::Master).await;
        complete(started.unwrap(), &servers);
        config.master_principal = Some("role-master/fixed.name".to_owned());
        let logins = KerberosLogins::new(config);
        complete(start(&logins, "a.example", Role::RegionServer).await.unwrap(), &servers);
        let started = start(&logins, "a.example", Role::Master).await.unwrap();
        let credential = started.0.credential();
        assert!(
            credential.starts_with("the ticket of role-client@LAB.TEST for role-master/fixed.name")
        );
        assert!(started.0.advice().contains("hbase.master.kerberos.principal"));
        complete(started, &masters);
    });
}

#[test]
fn wrong_principals_name_the_setting() {
    run("wrong_principals_name_the_setting", async |realm: Realm| {
        let login = keytab_login(&realm, "names-client");
        let with = |principal: &str| {
            let mut config = KerberosConfig::new(login.clone(), principal);
            config.master_principal = Some("nobody/_HOST".to_owned());
            KerberosLogins::new(config)
        };
        let permanent = TransportErrorKind::Permanent;
        let server =
            "region server A.example:16020: the KDC does not know its principal nobody/a.example";
        let setting = "set hbase.regionserver.kerberos.principal";
        for logins in [with("nobody/_HOST"), with("nobody/_HOST@LAB.TEST")] {
            let result = start(&logins, "A.example", Role::RegionServer).await;
            assert_failure(result, permanent, &[server, setting]);
        }
        let result = start(&with("nobody"), "a.example", Role::Master).await;
        assert_failure(
            result,
            permanent,
            &["master a.example:16020", "set hbase.master.kerberos.principal"],
        );
        let result = start(&with("hbase/_HOST@OTHER.TEST"), "a.example", Role::RegionServer).await;
        assert_failure(
            result,
            permanent,
            &["no KDC gives tickets for the realm", "OTHER.TEST", setting],
        );
    });
}

#[test]
fn faults_of_the_login_name_what_to_do() {
    run("faults_of_the_login_name_what_to_do", async |realm: Realm| {
        let permanent = TransportErrorKind::Permanent;
        let failure = async |login: KerberosLogin, kind, parts: &[&str]| {
            let result = start(&logins(login, "hbase"), "a.example", Role::RegionServer).await;
            assert_failure(result, kind, parts);
        };
        let keytab = |file: &Path, principal: &str| KerberosLogin::Keytab {
            file: file.to_owned(),
            principal: Some(principal.to_owned()),
        };
        let set_keytab = "set hbase.client.keytab.file";
        let missing = realm.file("faults-missing.keytab");
        failure(keytab(&missing, "a"), permanent, &["the file does not exist", set_keytab]).await;
        let file = realm.keytab("faults-client", "faults.keytab").unwrap();
        let parts = ["no key of other@LAB.TEST; it has keys of faults-client@LAB.TEST", set_keytab];
        failure(keytab(&file, "other"), permanent, &parts).await;
        realm.rekey("faults-client", &realm.file("faults-newer.keytab")).unwrap();
        failure(keytab(&file, "faults-client"), permanent, &["export the keytab again"]).await;
        let cache = KerberosLogin::Cache { file: Some(realm.file("faults.cache")) };
        failure(cache, permanent, &["faults.cache", "run kinit"]).await;
        let cache = KerberosLogin::Cache { file: None };
        failure(cache, permanent, &["no-default-cache", "run kinit"]).await;
    });
}

/// Tickets in memory go on; others fail with one question to the KDC in each pause.
#[test]
fn a_missing_kdc_is_asked_with_pauses() {
    run("a_missing_kdc_is_asked_with_pauses", async |realm: Realm| {
        let port = kdc_port(&realm).unwrap();
        let keytab = realm.keytab("down/a.example", "down.keytab").unwrap();
        realm.keytab("down/b.example", "down-b.keytab").unwrap();
        let login = keytab_login(&realm, "down-client");
        let known = logins(login.clone(), "down");
        complete(start(&known, "a.example", Role::RegionServer).await.unwrap(), &keytab);
        realm.move_kdc(closed_port()).unwrap();
        let new = logins(login, "down");
        let transient = TransportErrorKind::Transient;
        let starts = (0..20).map(|_| start(&new, "a.example", Role::RegionServer));
        for result in join_all(starts).await {
            assert_failure(result, transient, &["LAB.TEST", "check the KDC"]);
        }
        let stats = new.stats();
        assert_eq!((stats.logins, stats.login_failures), (0, 1));
        for _ in 0..20 {
            let result = start(&known, "b.example", Role::RegionServer).await;
            assert_failure(result, transient, &["no ticket for down/b.example", "check the KDC"]);
        }
        assert_eq!(known.stats().login_failures, 1);
        complete(start(&known, "a.example", Role::RegionServer).await.unwrap(), &keytab);
        realm.move_kdc(port).unwrap();
        start_later(&known, "b.example").await;
        complete(start_later(&new, "a.example").await, &keytab);
        assert_eq!(new.stats().logins, 1);
    });
}

fn kdc_port(realm: &Realm) -> io::Result<u16> {
    let text = std::fs::read_to_string(realm.file("krb5.conf"))?;
    let port = text.split("127.0.0.1:").nth(1).and_then(|rest| rest.split_whitespace().next());
    port.and_then(|port| port.parse().ok()).ok_or_else(|| io::Error::other("no port"))
}

#[test]
fn a_kdc_that_hangs_does_not_block_the_runtime() {
    run("a_kdc_that_hangs_does_not_block_the_runtime", async |realm: Realm| {
        // Connections are accepted by the system, and never read.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let login = keytab_login(&realm, "hang-client");
        realm.move_kdc(listener.local_addr().unwrap().port()).unwrap();
        let mut config = KerberosConfig::new(login, "hang/_HOST");
        config.login_timeout = Duration::from_millis(200);
        let logins = KerberosLogins::new(config);
        for _ in 0..3 {
            let result = start(&logins, "a.example", Role::RegionServer).await;
            let parts = ["no ticket for hang/a.example within 200 ms", "the KDC does not answer"];
            assert_failure(result, TransportErrorKind::Transient, &parts);
        }
        // All callers wait for the same login.
        assert!(listener.accept().is_ok());
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err());
    });
}

#[test]
fn a_server_with_a_new_key_gets_a_new_ticket() {
    run("a_server_with_a_new_key_gets_a_new_ticket", async |realm: Realm| {
        let old = realm.keytab("key/a.example", "key-old.keytab").unwrap();
        let logins = logins(keytab_login(&realm, "key-client"), "key");
        complete(start(&logins, "a.example", Role::RegionServer).await.unwrap(), &old);
        let new = realm.file("key-new.keytab");
        realm.rekey("key/a.example", &new).unwrap();
        let rejected = join_all((0..5).map(|_| start(&logins, "a.example", Role::RegionServer)));
        for started in rejected.await {
            let (mechanism, token) = started.unwrap();
            assert!(Acceptor::new(&new).unwrap().step(&token).is_err());
            assert!(logins.retry_rejected(&mechanism));
        }
        let (mechanism, token) = start(&logins, "a.example", Role::RegionServer).await.unwrap();
        assert!(Acceptor::new(&old).unwrap().step(&token).is_err());
        assert!(!logins.retry_rejected(&mechanism), "the ticket was new");
        complete((mechanism, token), &new);
        assert_eq!(logins.stats().logins, 2);
    });
}

#[test]
fn short_tickets_are_replaced_under_load() {
    run("short_tickets_are_replaced_under_load", async |realm: Realm| {
        let keytab = realm.keytab("load/a.example", "load.keytab").unwrap();
        let client = short_client(&realm, "load-client");
        let logins = logins(client, "load");
        while logins.stats().logins < 4 {
            let started = start(&logins, "a.example", Role::RegionServer).await;
            complete(started.unwrap(), &keytab);
            sleep(Duration::from_millis(50)).await;
        }
    });
}

/// A client whose tickets are good for two seconds.
fn short_client(realm: &Realm, client: &str) -> KerberosLogin {
    realm.add(client, 2).unwrap();
    let file = realm.file(&format!("{client}.keytab"));
    realm.rekey(client, &file).unwrap();
    KerberosLogin::Keytab { file, principal: None }
}

/// A renewal that waits for the KDC does not delay connections whose tickets are good.
#[test]
fn good_tickets_are_used_while_they_are_renewed() {
    run("good_tickets_are_used_while_they_are_renewed", async |realm: Realm| {
        let keytab = realm.keytab("renew/a.example", "renew.keytab").unwrap();
        realm.add("renew-client", 5).unwrap();
        let file = realm.file("renew-client.keytab");
        realm.rekey("renew-client", &file).unwrap();
        let logins = logins(KerberosLogin::Keytab { file, principal: None }, "renew");
        complete(start(&logins, "a.example", Role::RegionServer).await.unwrap(), &keytab);
        let port = kdc_port(&realm).unwrap();
        realm.move_kdc(closed_port()).unwrap();
        while logins.stats().login_failures == 0 {
            let started = start(&logins, "a.example", Role::RegionServer).await;
            complete(started.unwrap(), &keytab);
            sleep(Duration::from_millis(50)).await;
        }
        let stats = logins.stats();
        assert!(stats.logins == 1 && stats.ticket_seconds_left.is_some(), "{stats:?}");
        while logins.stats().ticket_seconds_left > Some(0) {
            sleep(Duration::from_millis(50)).await;
        }
        sleep(Duration::from_secs(1)).await;
        let failed = async || start(&logins, "a.example", Role::RegionServer).await;
        while failed().await.is_ok() {
            sleep(Duration::from_millis(50)).await;
        }
        assert_failure(failed().await, TransportErrorKind::Transient, &["LAB.TEST"]);
        realm.move_kdc(port).unwrap();
        complete(start_later(&logins, "a.example").await, &keytab);
    });
}

#[test]
fn caches_are_read_for_each_connection() {
    run("caches_are_read_for_each_connection", async |realm: Realm| {
        let keytab = realm.keytab("cache/a.example", "cache-rs.keytab").unwrap();
        let cache = realm.file("cache-rs.cache");
        let clients = ["cache-one", "cache-two"]
            .map(|client| (client, realm.keytab(client, &format!("{client}.keytab")).unwrap()));
        let logins = logins(KerberosLogin::Cache { file: Some(cache.clone()) }, "cache");
        for (client, file) in &clients {
            realm.kinit(client, file, &cache).unwrap();
            let started = start(&logins, "a.example", Role::RegionServer).await.unwrap();
            assert_eq!(started.0.principal(), format!("{client}@LAB.TEST"));
            complete(started, &keytab);
        }
        let KerberosLogin::Keytab { file, .. } = short_client(&realm, "cache-short") else {
            panic!("a keytab")
        };
        realm.kinit("cache-short", &file, &cache).unwrap();
        complete(start(&logins, "a.example", Role::RegionServer).await.unwrap(), &keytab);
        let result = loop {
            let result = start(&logins, "a.example", Role::RegionServer).await;
            if result.is_err() {
                break result;
            }
            sleep(Duration::from_millis(100)).await;
        };
        assert_failure(result, TransportErrorKind::Expired, &["expired", "run kinit"]);
        // A cache that another process writes again is missing for a moment.
        std::fs::remove_file(&cache).unwrap();
        sleep(Duration::from_millis(1300)).await;
        let result = start(&logins, "a.example", Role::RegionServer).await;
        assert_failure(result, TransportErrorKind::Expired, &["cache-rs.cache", "run kinit"]);
        let (client, file) = &clients[0];
        realm.kinit(client, file, &cache).unwrap();
        complete(start_later(&logins, "a.example").await, &keytab);
    });
}
