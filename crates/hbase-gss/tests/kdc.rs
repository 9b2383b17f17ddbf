//! Credentials and contexts against MIT's KDC and the library's own acceptor.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests and their helpers fail by panicking"
)]

use std::{
    net::{Ipv4Addr, TcpListener},
    path::Path,
    thread,
    time::Duration,
};

use hbase_gss::{
    Context, Credentials, Error, ErrorKind,
    testing::{Acceptor, Realm, with_realm},
};

/// A client with a keytab, and a service with another one.
struct Pair {
    credentials: Credentials,
    service: String,
    service_keytab: std::path::PathBuf,
}

fn pair(realm: &Realm, test: &str) -> Pair {
    let client = format!("{test}-client");
    let keytab = realm.keytab(&client, &format!("{test}-client.keytab")).expect("a keytab");
    let service = format!("hbase/{test}.example");
    let service_keytab = realm.keytab(&service, &format!("{test}.keytab")).expect("a keytab");
    let credentials = Credentials::keytab(&keytab, Some(&client)).expect("a login");
    Pair { credentials, service, service_keytab }
}

/// Exchanges tokens until both sides are complete.
fn established(pair: &Pair) -> (Context, Acceptor) {
    let mut context = Context::initiate(&pair.credentials, &pair.service).expect("a context");
    let mut acceptor = Acceptor::new(&pair.service_keytab).expect("an acceptor");
    let first = context.step(&[]).expect("a token");
    assert!(!first.complete && first.token.starts_with(&[0x60]) && !context.is_complete());
    let reply = acceptor.step(&first.token).expect("a reply");
    assert!(reply.complete);
    let last = context.step(&reply.token).expect("the end");
    assert!(last.complete && last.token.is_empty() && context.is_complete());
    (context, acceptor)
}

#[track_caller]
fn assert_kind(error: &Error, kind: ErrorKind, text: &str) {
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.text().contains(text), "{error:?}");
}

/// A port that refuses connections.
fn unused_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

fn first_step(credentials: &Credentials, service: &str) -> Result<(), Error> {
    Context::initiate(credentials, service)?.step(&[]).map(|_| ())
}

#[test]
fn both_sides_complete_and_know_each_other() {
    with_realm("both_sides_complete_and_know_each_other", |realm| {
        let pair = pair(realm, "both");
        assert_eq!(pair.credentials.principal(), "both-client@LAB.TEST");
        let hours = pair.credentials.lifetime().as_secs() / 3600;
        assert!((9..=10).contains(&hours), "{hours}");
        let (mut context, acceptor) = established(&pair);
        assert_eq!(acceptor.client(), "both-client@LAB.TEST");
        let error = context.step(&[]).expect_err("a step too many");
        assert_kind(&error, ErrorKind::Other, "after its end");
    });
}

#[test]
fn messages_pass_both_ways() {
    with_realm("messages_pass_both_ways", |realm| {
        let (mut context, mut acceptor) = established(&pair(realm, "messages"));
        for confidential in [false, true] {
            for size in [0, 1, 1000, 300_000] {
                let plain: Vec<u8> = (0..size).map(|i: u32| i as u8).collect();
                let sent = context.wrap(&plain, confidential).expect("wrap");
                let readable = size == 1000 && sent.windows(4).any(|at| at == &plain[500..504]);
                assert_eq!(readable, size == 1000 && !confidential, "size {size}");
                let received = acceptor.unwrap(&sent).expect("unwrap");
                assert_eq!((received.data, received.confidential), (plain.clone(), confidential));
                let sent = acceptor.wrap(&plain, confidential).expect("wrap");
                let received = context.unwrap(&sent).expect("unwrap");
                assert_eq!((received.data, received.confidential), (plain, confidential));
            }
            let limit = context.wrap_size_limit(1000, confidential).expect("a limit");
            let sent = context.wrap(&vec![0; limit as usize], confidential).expect("wrap");
            assert!((900..=1000).contains(&sent.len()), "{}", sent.len());
            acceptor.unwrap(&sent).expect("unwrap");
        }
    });
}

#[test]
fn damaged_and_repeated_messages_are_rejected() {
    with_realm("damaged_and_repeated_messages_are_rejected", |realm| {
        let (mut context, mut acceptor) = established(&pair(realm, "damaged"));
        for confidential in [false, true] {
            let sent = acceptor.wrap(b"plain text", confidential).expect("wrap");
            for at in [0, 20, sent.len() - 1] {
                let mut damaged = sent.clone();
                damaged[at] ^= 1;
                let error = context.unwrap(&damaged).expect_err("a damaged message");
                assert_eq!(error.kind(), ErrorKind::InvalidToken, "{error:?}");
            }
            let error = context.unwrap(&sent[..10]).expect_err("a cut message");
            assert_eq!(error.kind(), ErrorKind::InvalidToken, "{error:?}");
            context.unwrap(&sent).expect("the intact message");
            let error = context.unwrap(&sent).expect_err("a repeated message");
            assert_kind(&error, ErrorKind::InvalidToken, "");
            acceptor.wrap(b"lost", confidential).expect("wrap");
            let sent = acceptor.wrap(b"next", confidential).expect("wrap");
            let error = context.unwrap(&sent).expect_err("a gap");
            assert_kind(&error, ErrorKind::InvalidToken, "out of order");
        }
    });
}

#[test]
fn a_context_goes_on_in_another_thread() {
    with_realm("a_context_goes_on_in_another_thread", |realm| {
        let pair = pair(realm, "thread");
        let mut context = Context::initiate(&pair.credentials, &pair.service).expect("a context");
        let mut acceptor = Acceptor::new(&pair.service_keytab).expect("an acceptor");
        let (mut context, token) = thread::spawn(move || {
            let token = context.step(&[]).expect("a token").token;
            (context, token)
        })
        .join()
        .expect("no panic");
        let reply = acceptor.step(&token).expect("a reply").token;
        drop(pair);
        assert!(context.step(&reply).expect("the end").complete);
    });
}

#[test]
fn a_damaged_reply_is_the_peers_fault() {
    with_realm("a_damaged_reply_is_the_peers_fault", |realm| {
        let pair = pair(realm, "reply");
        for damage in [0, 30, usize::MAX] {
            let mut context =
                Context::initiate(&pair.credentials, &pair.service).expect("a context");
            let mut acceptor = Acceptor::new(&pair.service_keytab).expect("an acceptor");
            let token = context.step(&[]).expect("a token").token;
            let mut reply = acceptor.step(&token).expect("a reply").token;
            match reply.get_mut(damage) {
                Some(byte) => *byte ^= 1,
                None => reply.clear(),
            }
            let error = context.step(&reply).expect_err("a damaged reply");
            assert_eq!(error.kind(), ErrorKind::InvalidToken, "{error:?}");
            assert!(context.wrap(b"", false).is_err() && context.step(&reply).is_err());
        }
    });
}

#[test]
fn unknown_services_and_realms_differ() {
    with_realm("unknown_services_and_realms_differ", |realm| {
        let pair = pair(realm, "unknown");
        let error = first_step(&pair.credentials, "hbase/nowhere.example").expect_err("unknown");
        assert_kind(&error, ErrorKind::UnknownServer, "hbase/nowhere.example@LAB.TEST");
        let error = first_step(&pair.credentials, "hbase/a@OTHER.TEST").expect_err("unknown");
        assert_kind(&error, ErrorKind::WrongRealm, "OTHER.TEST");
        first_step(&pair.credentials, &format!("{}@LAB.TEST", pair.service)).expect("a token");
    });
}

#[test]
fn the_first_principal_of_a_keytab_is_the_default() {
    with_realm("the_first_principal_of_a_keytab_is_the_default", |realm| {
        let keytab = realm.keytab("first", "first.keytab").expect("a keytab");
        realm.add("second", 3600).expect("a principal");
        realm.rekey("second", &keytab).expect("a key");
        let login = |principal| Credentials::keytab(&keytab, principal).expect("a login");
        assert_eq!(login(None).principal(), "first@LAB.TEST");
        assert_eq!(login(Some("second")).principal(), "second@LAB.TEST");
        assert_eq!(login(Some("second@LAB.TEST")).principal(), "second@LAB.TEST");
        for (principal, full) in
            [("third", "third@LAB.TEST"), ("first@OTHER.TEST", "first@OTHER.TEST")]
        {
            let error = Credentials::keytab(&keytab, Some(principal)).expect_err("no key");
            let text = format!("no key of {full}; it has keys of first@LAB.TEST, second@LAB.TEST");
            assert_kind(&error, ErrorKind::NoCredentials, &text);
        }
        let error = Credentials::keytab(Path::new("/missing.keytab"), None).expect_err("no file");
        assert_kind(&error, ErrorKind::NoCredentials, "the file does not exist");
    });
}

#[test]
fn an_outdated_key_is_a_refused_client() {
    with_realm("an_outdated_key_is_a_refused_client", |realm| {
        let keytab = realm.keytab("refused", "refused.keytab").expect("a keytab");
        let newer = realm.file("refused-newer.keytab");
        realm.rekey("refused", &newer).expect("a key");
        let error = Credentials::keytab(&keytab, None).expect_err("an outdated key");
        assert_kind(&error, ErrorKind::ClientRefused, "");
        Credentials::keytab(&newer, None).expect("a login");
    });
}

#[test]
fn expired_tickets_of_a_keytab_are_replaced() {
    with_realm("expired_tickets_of_a_keytab_are_replaced", |realm| {
        let pair = pair(realm, "short");
        realm.add("short-lived", 2).expect("a principal");
        let keytab = realm.file("short-lived.keytab");
        realm.rekey("short-lived", &keytab).expect("a key");
        let credentials = Credentials::keytab(&keytab, None).expect("a login");
        assert!(credentials.lifetime() <= Duration::from_secs(2));
        while !credentials.lifetime().is_zero() {
            thread::sleep(Duration::from_millis(100));
        }
        thread::sleep(Duration::from_secs(1));
        let error = first_step(&credentials, &pair.service).expect_err("an expired ticket");
        assert_kind(&error, ErrorKind::Expired, "");
        let renewed = credentials.renewed().expect("a login");
        assert!(!renewed.lifetime().is_zero());
        first_step(&renewed, &pair.service).expect("a token");
    });
}

#[test]
fn caches_are_read_again() {
    with_realm("caches_are_read_again", |realm| {
        let pair = pair(realm, "cache");
        realm.add("cached", 2).expect("a principal");
        let keytab = realm.file("cached.keytab");
        realm.rekey("cached", &keytab).expect("a key");
        let cache = realm.file("cached.cache");
        let error = Credentials::cache(Some(&cache)).expect_err("no cache");
        assert_kind(&error, ErrorKind::NoCredentials, "cached.cache");
        realm.kinit("cached", &keytab, &cache).expect("tickets");
        let credentials = Credentials::cache(Some(&cache)).expect("tickets");
        assert_eq!(credentials.principal(), "cached@LAB.TEST");
        first_step(&credentials, &pair.service).expect("a token");
        while !credentials.lifetime().is_zero() {
            thread::sleep(Duration::from_millis(100));
        }
        thread::sleep(Duration::from_secs(1));
        let error = credentials.renewed().expect_err("an expired cache");
        assert_kind(&error, ErrorKind::Expired, "expired");
        realm.kinit("cached", &keytab, &cache).expect("tickets");
        let renewed = credentials.renewed().expect("tickets");
        first_step(&renewed, &pair.service).expect("a token");
    });
}

#[test]
fn a_missing_default_cache_is_named() {
    with_realm("a_missing_default_cache_is_named", |_realm| {
        let error = Credentials::cache(None).expect_err("no cache");
        assert_kind(&error, ErrorKind::NoCredentials, "no-default-cache");
    });
}

/// Tickets that are good need no KDC; without one, the cause is its absence and not the expired ticket.
#[test]
fn an_unreachable_kdc_is_named() {
    with_realm("an_unreachable_kdc_is_named", |realm| {
        let pair = pair(realm, "down");
        first_step(&pair.credentials, &pair.service).expect("a token");
        realm.add("down-short", 2).expect("a principal");
        let keytab = realm.file("down-short.keytab");
        realm.rekey("down-short", &keytab).expect("a key");
        let short = Credentials::keytab(&keytab, None).expect("a login");
        realm.move_kdc(unused_port()).expect("a configuration");
        while !short.lifetime().is_zero() {
            thread::sleep(Duration::from_millis(100));
        }
        thread::sleep(Duration::from_secs(1));
        let error = short.renewed().expect_err("no KDC");
        assert_kind(&error, ErrorKind::KdcUnreachable, "LAB.TEST");
        let error = first_step(&pair.credentials, "hbase/other.example").expect_err("no KDC");
        assert_kind(&error, ErrorKind::KdcUnreachable, "LAB.TEST");
        let renewed = pair.credentials.renewed().expect("tickets in memory");
        first_step(&renewed, &pair.service).expect("a ticket in memory");
    });
}
