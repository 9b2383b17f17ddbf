//! Recorded exchanges of HBase 2.6.4 are computed again, byte by byte.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::recorded;

fn exchange(protection: Protection) -> Value {
    let name = format!("token, {}", protection.name());
    let exchanges = recorded::file("exchanges.json");
    let exchange = exchanges.as_array().unwrap().iter().find(|one| one["name"] == name[..]);
    exchange.unwrap_or_else(|| panic!("no exchange {name}")).clone()
}

fn bytes(value: &Value) -> Vec<u8> {
    recorded::unhex(value.as_str().unwrap()).to_vec()
}

fn step(exchange: &Value, at: usize) -> Vec<u8> {
    bytes(&exchange["steps"][at]["hex"])
}

fn token(exchange: &Value) -> DelegationToken {
    DelegationToken {
        identifier: bytes(&exchange["token_identifier"]),
        password: bytes(&exchange["token_password"]),
        kind: String::new(),
        service: String::new(),
    }
}

/// Runs the recorded authentication up to the layers.
fn authenticated(exchange: &Value, protections: &[Protection]) -> DigestMechanism {
    let nonce = "cHJvYmUtY25vbmNlLTEyMzQ1".to_owned();
    let mut mechanism = DigestMechanism::with_client_nonce(&token(exchange), protections, nonce);
    let SaslStep::Continue(response) = mechanism.step(&step(exchange, 1)[8..]).unwrap() else {
        panic!("the mechanism does not continue");
    };
    assert_eq!(
        String::from_utf8_lossy(&response),
        String::from_utf8_lossy(&step(exchange, 2)[4..])
    );
    let expected = SaslStep::Complete(protections[0]);
    assert_eq!(mechanism.step(&step(exchange, 3)[8..]).unwrap(), expected);
    mechanism
}

/// The same keys, from the server's point of view.
fn server_layer(exchange: &Value, confidential: bool) -> MessageLayer {
    let session_key = bytes(&exchange["a1_hash"]).try_into().unwrap();
    let keys = Keys::of_client(&session_key);
    let keys = Keys {
        send_integrity: keys.receive_integrity,
        receive_integrity: keys.send_integrity,
        send_privacy: keys.receive_privacy,
        receive_privacy: keys.send_privacy,
    };
    MessageLayer::new(&keys, confidential).unwrap()
}

#[test]
fn recorded_authentications_are_computed_again() {
    for protection in [Protection::Authentication, Protection::Integrity, Protection::Privacy] {
        authenticated(&exchange(protection), &[protection]);
    }
}

#[test]
fn recorded_messages_are_computed_again() {
    for protection in [Protection::Integrity, Protection::Privacy] {
        let exchange = exchange(protection);
        let confidential = protection == Protection::Privacy;
        let mut mechanism = authenticated(&exchange, &[protection]);
        let plain = bytes(&exchange["plain"]["client"]);
        let wrapped = step(&exchange, 4);
        // The client sent header and request as two messages.
        let mut sent = Vec::new();
        let mut taken = 0;
        let mut rest = &wrapped[..];
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            let content = length - 16;
            let message = mechanism.wrap(&plain[taken..taken + content], confidential).unwrap();
            sent.extend_from_slice(&(message.len() as u32).to_be_bytes());
            sent.extend_from_slice(&message);
            taken += content;
            rest = &after[length..];
        }
        assert_eq!((sent, taken), (wrapped, plain.len()), "{protection:?}");
        let received = mechanism.unwrap(&step(&exchange, 5)[4..], confidential).unwrap();
        assert_eq!(received, bytes(&exchange["plain"]["server"]), "{protection:?}");
    }
}

#[test]
fn a_wrong_proof_of_the_server_is_rejected() {
    let exchange = exchange(Protection::Integrity);
    let nonce = "cHJvYmUtY25vbmNlLTEyMzQ1".to_owned();
    let accepted = [Protection::Integrity];
    let mut mechanism = DigestMechanism::with_client_nonce(&token(&exchange), &accepted, nonce);
    mechanism.step(&step(&exchange, 1)[8..]).unwrap();
    let mut proof = step(&exchange, 3)[8..].to_vec();
    *proof.last_mut().unwrap() ^= 1;
    let error = mechanism.step(&proof).unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Permanent);
    // Nothing more is accepted.
    assert!(mechanism.step(&step(&exchange, 3)[8..]).is_err());
}

#[test]
fn protections_and_ciphers_of_both_sides_must_meet() {
    let token = token(&exchange(Protection::Privacy));
    let challenge = |accepted: &[Protection], challenge: &str| {
        let mut mechanism = DigestMechanism::new(&token, accepted).unwrap();
        mechanism.step(format!("nonce=n,algorithm=md5-sess,{challenge}").as_bytes())
    };
    let both = [Protection::Privacy, Protection::Integrity];
    let SaslStep::Continue(response) = challenge(&both, "qop=\"auth,auth-int\"").unwrap() else {
        panic!("the mechanism does not continue");
    };
    assert!(response.ends_with(b"qop=auth-int"));
    let error = challenge(&both, "qop=auth").unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Permanent);
    let expected = "the server offers the protection \"authentication\", this client accepts \
                    \"privacy,integrity\"; set hbase.rpc.protection to authentication";
    assert_eq!(error.to_string(), expected);
    let error = challenge(&both, "qop=auth-conf,cipher=\"3des,rc4-40\"").unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Permanent);
    assert!(challenge(&both, "qop=auth-conf,cipher=\"3des,rc4\"").is_ok());
}

#[test]
fn client_nonces_differ() {
    let token = token(&exchange(Protection::Privacy));
    let nonce = || DigestMechanism::new(&token, &[Protection::Privacy]).unwrap().client_nonce;
    assert_ne!(nonce(), nonce());
}

#[test]
fn messages_need_the_negotiated_protection() {
    let exchange = exchange(Protection::Integrity);
    let mut mechanism = authenticated(&exchange, &[Protection::Integrity]);
    assert!(mechanism.wrap(b"x", true).is_err());
    assert!(mechanism.unwrap(&step(&exchange, 5)[4..], true).is_err());
    assert!(mechanism.unwrap(&step(&exchange, 5)[4..], false).is_ok());
}

#[test]
fn damaged_and_repeated_messages_are_rejected() {
    let exchange = exchange(Protection::Privacy);
    for confidential in [false, true] {
        let wrapped = server_layer(&exchange, confidential).wrap(b"some content");
        let unwrap = |message: &[u8]| {
            let session_key = bytes(&exchange["a1_hash"]).try_into().unwrap();
            let mut layer =
                MessageLayer::new(&Keys::of_client(&session_key), confidential).unwrap();
            let first = layer.unwrap(message);
            (first, layer.unwrap(message))
        };
        let (first, repeated) = unwrap(&wrapped);
        assert_eq!(first.unwrap(), b"some content");
        assert!(repeated.is_err());
        for at in 0..wrapped.len() {
            let mut damaged = wrapped.clone();
            damaged[at] ^= 0x10;
            assert!(unwrap(&damaged).0.is_err(), "byte {at}");
            assert!(unwrap(&wrapped[..at]).0.is_err(), "cut at {at}");
        }
    }
}

proptest! {
    #[test]
    fn what_one_side_wraps_the_other_unwraps(contents: Vec<Vec<u8>>, confidential: bool) {
        let exchange = exchange(Protection::Privacy);
        let session_key = bytes(&exchange["a1_hash"]).try_into().unwrap();
        let mut client = MessageLayer::new(&Keys::of_client(&session_key), confidential).unwrap();
        let mut server = server_layer(&exchange, confidential);
        for content in contents {
            let wrapped = client.wrap(&content);
            prop_assert_eq!(&server.unwrap(&wrapped).unwrap(), &content);
            let wrapped = server.wrap(&content);
            prop_assert_eq!(client.unwrap(&wrapped).unwrap(), content);
        }
    }

    #[test]
    fn any_message_is_unwrapped_without_a_panic(message: Vec<u8>, confidential: bool) {
        let exchange = exchange(Protection::Privacy);
        prop_assert!(server_layer(&exchange, confidential).unwrap(&message).is_err());
    }
}
