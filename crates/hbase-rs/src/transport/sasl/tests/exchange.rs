//! The messages of an authentication, and everything that a server may send instead of them.

use std::io;

use super::stand_in::{Replay, StandIn, failure, success, tok};
use crate::{
    handshake::AuthMethod,
    recorded,
    security::Protection,
    transport::{
        TransportErrorKind,
        sasl::{Authenticated, Peers, SaslError, SaslExchange, SaslMechanism, exchange::MAX_TOKEN},
    },
};

const ALL: [Protection; 3] =
    [Protection::Privacy, Protection::Integrity, Protection::Authentication];

const PEERS: Peers<'static> =
    Peers { credential: "the ticket of me", advice: "check the keytab", encrypted: false };

async fn run(stream: &mut Replay, protections: &[Protection]) -> Result<Authenticated, SaslError> {
    let exchange =
        SaslExchange { method: AuthMethod::Kerberos, first_token: b"first", protections };
    exchange.run(stream, &mut StandIn::default()).await
}

/// Returns the messages of a server that offers protections.
fn server(layers: u8) -> Vec<u8> {
    let offer = StandIn::default().wrap(&[layers, 1, 0, 0], false).unwrap();
    [success(b"challenge"), success(&offer)].concat()
}

#[track_caller]
fn check_error(error: SaslError, kind: TransportErrorKind, texts: &[&str]) {
    let error = error.explain(&PEERS);
    let mut message = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    assert_eq!(error.kind(), kind, "{message}");
    for text in texts {
        assert!(message.contains(text), "{message:?} lacks {text:?}");
    }
}

#[tokio::test]
async fn messages_are_those_of_gssapi() {
    let input = [success(b"more"), server(7), b"rest".to_vec()].concat();
    let mut stream = Replay::new(&input);
    let authenticated = run(&mut stream, &ALL).await.unwrap();
    assert_eq!(authenticated, Authenticated::Protected(Protection::Privacy));
    let choice = StandIn::default().wrap(&[4, 1, 0, 0], false).unwrap();
    // Preamble and first token are one write.
    let first = [&b"HBas\0\x51"[..], &tok(b"first")].concat();
    assert_eq!(stream.writes, [first, tok(b"reply"), tok(b""), tok(&choice)]);
    assert_eq!(stream.input, b"rest", "bytes after the authentication are not read");
}

#[tokio::test]
async fn the_first_accepted_protection_is_chosen() {
    for (offered, accepted, expected) in [
        (7, &ALL[..], Protection::Privacy),
        (3, &ALL, Protection::Integrity),
        (1, &ALL, Protection::Authentication),
        (7, &[Protection::Authentication, Protection::Privacy], Protection::Authentication),
        (4, &[Protection::Authentication, Protection::Privacy], Protection::Privacy),
    ] {
        let mut stream = Replay::new(&server(offered));
        let authenticated = run(&mut stream, accepted).await.unwrap();
        assert_eq!(authenticated, Authenticated::Protected(expected), "{offered}");
        let max: &[u8] =
            if expected == Protection::Authentication { &[0, 0, 0] } else { &[1, 0, 0] };
        let choice = [&[expected.layer()][..], max].concat();
        let choice = StandIn::default().wrap(&choice, false).unwrap();
        assert_eq!(stream.writes.last(), Some(&tok(&choice)), "{offered}");
    }
    let accepted = [Protection::Authentication, Protection::Integrity];
    let error = run(&mut Replay::new(&server(4)), &accepted).await.unwrap_err();
    let texts =
        ["\"privacy\"", "\"authentication,integrity\"", "set hbase.rpc.protection to privacy"];
    check_error(error, TransportErrorKind::Permanent, &texts);
}

#[tokio::test]
async fn a_close_at_any_byte_means_unreachable() {
    let input = [success(b"more"), server(7)].concat();
    for end in 0..input.len() {
        for kind in [None, Some(io::ErrorKind::ConnectionReset)] {
            let mut stream = Replay { error: kind, ..Replay::new(&input[..end]) };
            let error = run(&mut stream, &ALL).await.unwrap_err();
            let texts: &[&str] = match (end, kind) {
                (0, _) => &["without a byte", "require TLS", "the server behind it is down"],
                (_, None) => &["closed by the server during"],
                (_, Some(_)) => &["connection reset"],
            };
            check_error(error, TransportErrorKind::Unreachable, texts);
        }
    }
}

#[tokio::test]
async fn a_silent_close_inside_tls_names_certificates() {
    let error = run(&mut Replay::default(), &ALL).await.unwrap_err();
    let error = error.explain(&Peers { encrypted: true, ..PEERS }).to_string();
    assert!(error.contains("require a client certificate"), "{error}");
}

#[tokio::test]
async fn failures_are_read_at_each_step() {
    let failed = failure("javax.security.sasl.SaslException", "GSS initiate failed");
    let offer_at = success(b"challenge").len();
    for before in [&[][..], &success(b"more"), &server(7)[..offer_at]] {
        let input = [before, &failed].concat();
        let error = run(&mut Replay::new(&input), &ALL).await.unwrap_err();
        assert!(matches!(error, SaslError::Rejected(_)), "{error:?}");
        let texts = ["the ticket of me", "check the keytab", "SaslException: GSS initiate failed"];
        check_error(error, TransportErrorKind::Permanent, &texts);
        for end in before.len() + 1..input.len() {
            let error = run(&mut Replay::new(&input[..end]), &ALL).await.unwrap_err();
            assert!(matches!(error, SaslError::Closed), "{end}: {error:?}");
        }
    }
}

#[tokio::test]
async fn an_expired_token_may_be_replaced() {
    let class = "org.apache.hadoop.security.token.SecretManager$InvalidToken";
    for (text, kind) in [
        ("Token has expired", TransportErrorKind::Expired),
        ("Unknown master key for token", TransportErrorKind::Permanent),
    ] {
        let error = run(&mut Replay::new(&failure(class, text)), &ALL).await.unwrap_err();
        check_error(error, kind, &[text]);
    }
}

#[tokio::test]
async fn a_failure_without_a_text_is_read() {
    let input = [&[0, 0, 0, 1][..], &tok(b"a.B"), &[0xff; 4]].concat();
    let error = run(&mut Replay::new(&input), &ALL).await.unwrap_err();
    check_error(error, TransportErrorKind::Permanent, &["the server rejected the ticket", "B"]);
}

#[tokio::test]
async fn a_server_without_security_is_recognized_at_the_start_only() {
    let fallback = [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xa8];
    let mut stream = Replay::new(&[&fallback[..], b"rest"].concat());
    assert_eq!(run(&mut stream, &ALL).await.unwrap(), Authenticated::WithoutSecurity);
    assert_eq!((stream.writes.len(), &stream.input[..]), (1, &b"rest"[..]));
    let late = [&success(b"more")[..], &fallback].concat();
    let error = run(&mut Replay::new(&late), &ALL).await.unwrap_err();
    check_error(error, TransportErrorKind::Permanent, &["drops the authentication"]);
}

#[tokio::test]
async fn an_exception_for_the_connection_is_read() {
    let exchanges = recorded::file("exchanges.json");
    let all = exchanges.as_array().unwrap();
    let simple = all.iter().find(|one| one["name"] == "simple client at a Kerberos server");
    let frame = recorded::unhex(simple.unwrap()["steps"][1]["hex"].as_str().unwrap());
    let error = run(&mut Replay::new(&frame), &ALL).await.unwrap_err();
    assert!(matches!(error, SaslError::Refused(_)), "{error:?}");
    let text = "AccessDeniedException: Authentication is required";
    check_error(error, TransportErrorKind::Permanent, &["does not authenticate", text]);
}

#[tokio::test]
async fn other_bytes_are_named() {
    let long = [&[0; 4][..], &(MAX_TOKEN as u32 + 1).to_be_bytes()].concat();
    let limit = MAX_TOKEN.to_string();
    let long_text = [&[0, 0, 0, 1][..], &[0x7f; 4]].concat();
    let short_offer = StandIn::default().wrap(&[7], false).unwrap();
    let short_offer = [success(b"challenge"), success(&short_offer)].concat();
    for (input, text) in [
        (&b"HTTP/1.1 400 Bad Request"[..], "status 1213486160"),
        (&[0, 0, 0, 2, 0xff, 0xff], "status 2"),
        (&long, &limit),
        (&long_text, "the limit is 65536"),
        (&short_offer, "the offer of protections is 1 bytes"),
    ] {
        let error = run(&mut Replay::new(input), &ALL).await.unwrap_err();
        check_error(error, TransportErrorKind::Permanent, &["does not speak", text]);
    }
}

#[tokio::test]
async fn tokens_up_to_the_limit_are_read() {
    let input = success(&vec![1; MAX_TOKEN]);
    let error = run(&mut Replay::new(&input), &ALL).await.unwrap_err();
    check_error(error, TransportErrorKind::Unreachable, &["unknown token"]);
}

#[tokio::test]
async fn a_damaged_offer_is_an_error_of_the_mechanism() {
    let mut input = server(7);
    *input.last_mut().unwrap() ^= 1;
    let error = run(&mut Replay::new(&input), &ALL).await.unwrap_err();
    assert!(matches!(error, SaslError::Transport(_)), "{error:?}");
}
