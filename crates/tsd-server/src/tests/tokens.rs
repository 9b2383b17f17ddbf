//! Signed tokens of an identity provider, by HTTP and telnet.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use hyper::Method;
use tsd_engine::{Clock, ProcessMemory};
use tsd_protocol::parse_authorization;

use super::{
    authentication::{Guarded, POINT, users},
    harness::TestResponse,
};
use crate::{
    AuthError, Authenticator as _, Identity, Permission, TokenError, TokenRules,
    UserFileAuthenticator, Users,
    auth::jwt_tests::{TestKey, claims_until, key_set, token_rules},
    hash_token,
};

const ROLES: [&str; 3] =
    ["WRITER WRITER,CREATE_METRIC,CREATE_TAGK", "READER READER", "ops ADMINISTRATOR"];

/// A clock that the test sets.
#[derive(Debug)]
struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

async fn with_token(server: &Guarded, token: &str, uri: &str) -> TestResponse {
    let header = format!("Bearer {token}");
    server.tsd.send(Method::GET, uri, &[("authorization", &header)], "").await
}

fn challenge(answer: &TestResponse) -> String {
    let last = answer.headers.get_all("www-authenticate").iter().next_back();
    last.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_signed_token_has_the_permissions_of_its_role() {
    let server = Guarded::start(&ROLES).await;
    assert_eq!(server.status("jwt:WRITER", Method::POST, "/api/put", POINT).await, 204);
    assert_eq!(server.status("jwt:READER", Method::POST, "/api/put", POINT).await, 403);
    assert_eq!(
        server.status("jwt:READER", Method::GET, "/api/suggest?type=metrics", "").await,
        200
    );
    let refused = server.send("jwt:WRITER", Method::GET, "/api/suggest?type=metrics", "").await;
    assert!(
        refused.text().contains(r#"user \"jwt:WRITER\" does not have the permission HTTP_QUERY"#),
        "{}",
        refused.text()
    );
    let telnet = format!("auth bearer {}\nversion\n", server.token("alice", "READER"));
    let reply = server.tsd.exchange(telnet.as_bytes()).await;
    assert!(reply.starts_with("AUTH_SUCCESS\r\nnet.opentsdb"), "{reply}");
    let telnet = format!("auth bearer {}x\n", server.token("alice", "READER"));
    assert_eq!(server.tsd.exchange(telnet.as_bytes()).await, "AUTH_FAIL\r\n");
}

#[tokio::test]
async fn a_refused_token_says_why() {
    let server = Guarded::start(&ROLES).await;
    let sign = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut claims = claims_until(server.expires, "alice", &["READER"]);
        change(&mut claims);
        server.key.sign(&claims)
    };
    let stranger = TestKey::ed25519("a");
    let unknown = TestKey::ed25519("b");
    let claims = claims_until(server.expires, "alice", &["READER"]);
    let big = sign(&|claims| claims["big"] = "x".repeat(5_300).into());
    for (token, reason) in [
        (sign(&|claims| claims["exp"] = 1.into()), "the token has expired"),
        (
            sign(&|claims| claims["iss"] = "x".into()),
            "the token has another issuer than the configured one",
        ),
        (
            sign(&|claims| claims["aud"] = "x".into()),
            "the token is for another audience than the configured one",
        ),
        (
            unknown.sign(&claims),
            "the key set has no key with the id and the algorithm of the token",
        ),
        (stranger.sign(&claims), "the signature of the token is wrong"),
        ("a.b.c".to_owned(), "the token is malformed"),
        ("nobody".to_owned(), "unknown user or wrong credentials"),
        (big.clone(), "the credentials are malformed"),
    ] {
        let answer = with_token(&server, &token, "/api/version").await;
        assert_eq!(answer.status, 401, "{reason}: {}", answer.text());
        let expected =
            format!(r#"Bearer realm="tsdb", error="invalid_token", error_description="{reason}""#);
        if token == big {
            assert_eq!(challenge(&answer), r#"Bearer realm="tsdb""#);
        } else {
            assert_eq!(challenge(&answer), expected);
        }
        assert!(answer.text().contains(reason), "{}", answer.text());
    }
    assert!(big.len() > 7_168, "{}", big.len());
}

#[tokio::test]
async fn a_token_without_a_role_is_403_and_names_the_claim() {
    let server = Guarded::start(&ROLES).await;
    let token = server.token("alice", "nothing");
    let answer = with_token(&server, &token, "/api/version").await;
    assert_eq!(answer.status, 403);
    let reason = r#"user \"jwt:alice\" has no role: the file of users has no line for a value of the claim realm_access.roles of the token"#;
    assert!(answer.text().contains(reason), "{}", answer.text());
    server.file.replace(Users::parse("* claim GUEST").unwrap());
    assert_eq!(with_token(&server, &token, "/api/version").await.status, 200, "the default role");
}

/// A user of the file and the user of a token are two users, whatever their names are.
#[tokio::test]
async fn a_token_is_no_user_of_the_file() {
    let server = Guarded::start(&ROLES).await;
    let token = server.token("ops", "READER");
    let answer = with_token(&server, &token, "/logs").await;
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert_ne!(server.status("ops", Method::GET, "/logs", "").await, 403);
    for line in ["jwt:a certificate READER", "jwt:a certificate ADMINISTRATOR"] {
        let error = Users::parse(line).unwrap_err().to_string();
        assert!(
            error.contains("names that begin with jwt: belong to users with signed tokens"),
            "{error}"
        );
    }
}

/// An authenticator with a clock of its own.
struct Verifier {
    file: UserFileAuthenticator,
    clock: Arc<TestClock>,
}

impl Verifier {
    fn new(users: Users, rules: TokenRules, keys: &[&TestKey]) -> Self {
        let clock = Arc::new(TestClock(AtomicI64::new(1_800_000_000_000)));
        let memory = ProcessMemory::unlimited();
        let file = UserFileAuthenticator::new(users, memory, Arc::clone(&clock) as _).unwrap();
        Self { file: file.with_tokens(rules, key_set(keys)), clock }
    }

    async fn verify(&self, token: &str) -> Result<Identity, AuthError> {
        let credentials = parse_authorization(format!("Bearer {token}").as_bytes()).unwrap();
        self.file.authenticate("10.0.0.1".parse().unwrap(), Some(credentials)).await
    }
}

#[tokio::test]
async fn keys_roll_over_without_a_restart() {
    let (old, new) = (TestKey::ed25519("a"), TestKey::ed25519("b"));
    let verifier = Verifier::new(users(&ROLES), token_rules(), &[&old]);
    let claims = claims_until(1_800_000_300, "alice", &["READER"]);
    let (by_old, by_new) = (old.sign(&claims), new.sign(&claims));
    let identity = verifier.verify(&by_old).await.unwrap();
    assert_eq!(verifier.verify(&by_new).await, Err(TokenError::UnknownKey.into()));
    let epoch = verifier.file.epoch();
    verifier.file.replace_keys(key_set(&[&new, &old]));
    assert!(verifier.verify(&by_old).await.is_ok() && verifier.verify(&by_new).await.is_ok());
    assert_ne!(verifier.file.epoch(), epoch, "open connections look again");
    assert_eq!(verifier.file.renew(&identity), Some(identity.clone()));
    verifier.file.replace_keys(key_set(&[&new]));
    assert_eq!(verifier.file.renew(&identity), None);
    assert_eq!(
        verifier.verify(&by_old).await,
        Err(TokenError::UnknownKey.into()),
        "no cached token"
    );
    assert!(verifier.verify(&by_new).await.is_ok());
    verifier.file.replace_keys(key_set(&[&TestKey::ed25519("b")]));
    assert_eq!(verifier.verify(&by_new).await, Err(TokenError::Signature.into()));
}

#[tokio::test]
async fn a_verified_token_ends_when_it_expires_and_follows_the_users() {
    let key = TestKey::ed25519("a");
    let verifier = Verifier::new(users(&ROLES), token_rules(), &[&key]);
    let token = key.sign(&claims_until(1_800_000_300, "alice", &["READER", "WRITER"]));
    let identity = verifier.verify(&token).await.unwrap();
    assert_eq!(identity.name(), "jwt:alice");
    assert!(identity.may(Permission::HttpPut), "the first line of the file counts");
    verifier.file.replace(Users::parse("READER claim READER metrics=read:a queries=2").unwrap());
    let identity = verifier.file.renew(&identity).unwrap();
    let again = verifier.verify(&token).await.unwrap();
    assert_eq!((again.limits(), again.rights()), (identity.limits(), identity.rights()));
    assert!(identity.may(Permission::HttpQuery) && !identity.may(Permission::HttpPut));
    assert!(!identity.rights().are_all() && identity.limits().concurrent_queries == Some(2));
    verifier
        .file
        .replace(Users::parse("READER claim READER expires=2027-01-15T08:01:40Z").unwrap());
    let short = verifier.verify(&token).await.unwrap();
    assert_eq!(short.expires().map(jiff::Timestamp::as_second), Some(1_800_000_100), "of the line");
    verifier.clock.0.store(1_800_000_100_000, Ordering::Relaxed);
    assert!(verifier.file.renew(&short).is_none());
    let over = verifier.verify(&token).await;
    assert!(matches!(over, Err(AuthError::NoRole { .. })), "the line is over: {over:?}");
    verifier.file.replace(users(&ROLES));
    verifier.clock.0.store(1_800_000_359_999, Ordering::Relaxed);
    assert!(verifier.verify(&token).await.is_ok());
    verifier.clock.0.store(1_800_000_360_000, Ordering::Relaxed);
    assert_eq!(verifier.verify(&token).await, Err(TokenError::Expired.into()), "cached");
    verifier.file.replace(users(&ROLES));
    assert_eq!(verifier.verify(&token).await, Err(TokenError::Expired.into()), "verified");
}

#[tokio::test]
async fn guesses_are_limited_and_verified_tokens_go_on() {
    let (key, stranger) = (TestKey::ed25519("a"), TestKey::ed25519("a"));
    let text = format!("READER claim READER\nagent {} GUEST\n", hash_token("t0k3n"));
    let verifier = Verifier::new(Users::parse(&text).unwrap(), token_rules(), &[&key]);
    let claims = |user: &str| claims_until(1_800_000_300, user, &["READER"]);
    let first = key.sign(&claims("first"));
    assert!(verifier.verify(&first).await.is_ok());
    let expired = key.sign(&claims_until(1_700_000_000, "a", &[]));
    for _ in 0..20 {
        assert_eq!(verifier.verify(&expired).await, Err(TokenError::Expired.into()), "no guess");
    }
    let mut wrong = 0;
    while verifier.verify(&stranger.sign(&claims("a"))).await == Err(TokenError::Signature.into()) {
        wrong += 1;
        assert!(wrong < 100);
    }
    let limited = verifier.verify(&key.sign(&claims("second"))).await;
    assert!(matches!(limited, Err(AuthError::TooManyFailures { .. })), "{limited:?}");
    assert!(verifier.verify(&first).await.is_ok() && verifier.verify("t0k3n").await.is_ok());
    assert_eq!(verifier.verify(&expired).await, Err(TokenError::Expired.into()), "remembered");
}

#[tokio::test]
async fn a_token_that_is_refused_too_early_is_accepted_in_time() {
    let key = TestKey::ed25519("a");
    let verifier = Verifier::new(users(&ROLES), token_rules(), &[&key]);
    let mut claims = claims_until(1_800_000_300, "alice", &["READER"]);
    claims["nbf"] = 1_800_000_090.into();
    let token = key.sign(&claims);
    assert_eq!(verifier.verify(&token).await, Err(TokenError::NotYetValid.into()));
    verifier.clock.0.store(1_800_000_030_000, Ordering::Relaxed);
    assert!(verifier.verify(&token).await.is_ok());
    let nobody = key.sign(&claims_until(1_800_000_300, "alice", &["nothing"]));
    let refused = verifier.verify(&nobody).await;
    assert!(matches!(refused, Err(AuthError::NoRole { .. })), "{refused:?}");
    verifier.file.replace(Users::parse("nothing claim READER").unwrap());
    assert!(verifier.verify(&nobody).await.is_ok(), "with a new line");
}
