//! Tests signed tokens of an identity provider from outside: the file of keys, its changes, and the audit log.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use serde_json::Value;
use tsd_testkit::{Daemon, http, http_binary, wait_for};

use crate::{WRONG_CONFIGURATION, tsdb};

/// Public keys (Ed25519) with the ids `a` and `b`, and a token of each: until the year 2255, issuer `https://id.test`,
/// audience `tsdb`, user `ann`, groups `["writers"]`.
const KEYS: [(&str, &str); 2] = [
    (
        "GRWcsNbGQ_aZs2W7dfnVERbjbhwfTPw-Gg1AB2K_3Hs",
        "eyJhbGciOiJFZERTQSIsImtpZCI6ImEifQ.eyJpc3MiOiJodHRwczovL2lkLnRlc3QiLCJhdWQiOiJ0c2RiIiwiZXhwIjo5MDAwMDAwMDAwLCJzdWIiOiJhbm4iLCJncm91cHMiOlsid3JpdGVycyJdfQ.2nKya8c1ghhwMMZdc05lxDdMydIQlW1rMC0E2BOC608q58yypMT6vcxKP0bAwPyrD-IVaJ8rJFu0WJ-EcrNNBQ",
    ),
    (
        "zSDC0-DyuAMCQpV0HjojpIJrCjLTiAL1oyCPO9H2VXc",
        "eyJhbGciOiJFZERTQSIsImtpZCI6ImIifQ.eyJpc3MiOiJodHRwczovL2lkLnRlc3QiLCJhdWQiOiJ0c2RiIiwiZXhwIjo5MDAwMDAwMDAwLCJzdWIiOiJhbm4iLCJncm91cHMiOlsid3JpdGVycyJdfQ.FQdm34FT-K9hyqfID501i7Ztd-hzbsUV-nd-pMfAg3XiD1-yKhNXu4ayLe_PRAMbr7jOPYQUGKjno9Y96fmyAw",
    ),
];

/// A key set.
fn key_set(keys: &[(&str, &str)]) -> String {
    let key = |(kid, x): &(&str, &str)| {
        format!(r#"{{"kty":"OKP","crv":"Ed25519","use":"sig","kid":"{kid}","x":"{x}"}}"#)
    };
    format!(r#"{{"keys":[{}]}}"#, keys.iter().map(key).collect::<Vec<_>>().join(","))
}

/// Environment of a daemon with its files in a directory.
fn environment(directory: &Path) -> Vec<(&'static str, String)> {
    let path = |name: &str| directory.join(name).to_str().expect("a path").to_owned();
    vec![
        ("TSD_CORE_AUTHENTICATION_ENABLE", "true".to_owned()),
        ("TSD_CORE_AUTHENTICATION_PLUGIN", "file".to_owned()),
        ("TSD_CORE_AUTHENTICATION_USERS_FILE", path("users")),
        ("TSD_CORE_AUTHENTICATION_JWT_KEYS_FILE", path("keys.json")),
        ("TSD_CORE_AUTHENTICATION_JWT_ISSUER", "https://id.test".to_owned()),
        ("TSD_CORE_AUTHENTICATION_JWT_AUDIENCE", "tsdb".to_owned()),
        ("TSD_CORE_AUTHENTICATION_JWT_ROLES_CLAIM", "groups".to_owned()),
        ("TSD_AUDIT_FILE", path("audit.json")),
    ]
}

/// Status and challenge of a request with a token.
fn ask(daemon: &Daemon, token: &str) -> (u16, String) {
    let headers = format!("Authorization: Bearer {token}\r\n");
    let answer = http_binary(daemon.address(), "GET", "/api/version", &headers);
    let challenge = answer
        .head
        .lines()
        .find(|line| line.to_lowercase().starts_with("www-authenticate: bearer"));
    (answer.status, challenge.unwrap_or_default().to_owned())
}

/// Waits until the file of keys is invalid, for a reason, or valid.
fn await_keys(daemon: &Daemon, reason: Option<&str>) {
    daemon.signal("HUP");
    let sample =
        format!("tsd_file_invalid{{file=\"keys of tokens\"}} {}\n", u8::from(reason.is_some()));
    let is_reached = || {
        let health = http(daemon.address(), "GET", "/api/health/ready", None).body;
        let has_metric = http(daemon.address(), "GET", "/metrics", None).body.contains(&sample);
        (has_metric && reason.is_none_or(|reason| health.contains(reason))).then_some(())
    };
    wait_for(is_reached).unwrap_or_else(|| panic!("{reason:?}"));
}

#[test]
fn a_daemon_follows_its_file_of_keys() {
    let directory = tempfile::tempdir().expect("a directory");
    let (users, keys) = (directory.path().join("users"), directory.path().join("keys.json"));
    let [(first, first_token), (second, second_token)] = KEYS;
    fs::write(&users, "writers claim WRITER\n").expect("write");
    fs::write(&keys, key_set(&[("a", first)])).expect("write");
    let environment = environment(directory.path());
    let start = |data: &str| {
        let builder = tsdb(&directory.path().join(data));
        environment.iter().fold(builder, |builder, (name, value)| builder.env(name, value))
    };
    let daemon = start("data").start();
    await_keys(&daemon, None);
    assert_eq!(ask(&daemon, first_token).0, 200);
    let (status, challenge) = ask(&daemon, second_token);
    assert!(status == 401 && challenge.contains("the key set has no key"), "{status} {challenge}");
    fs::write(&keys, key_set(&[("a", first), ("b", second)])).expect("write");
    daemon.signal("HUP");
    wait_for(|| (ask(&daemon, second_token).0 == 200).then_some(())).expect("the second key");
    assert_eq!(ask(&daemon, first_token).0, 200);
    // A file with an error changes nothing.
    fs::write(&keys, key_set(&[("b", second), ("a", "AAAA")])).expect("write");
    await_keys(&daemon, Some("keys[1].x has the wrong length"));
    assert_eq!(ask(&daemon, first_token).0, 200);
    fs::remove_file(&keys).expect("remove");
    await_keys(&daemon, Some("the file cannot be read"));
    fs::write(&keys, key_set(&[("b", second)])).expect("write");
    await_keys(&daemon, None);
    wait_for(|| (ask(&daemon, first_token).0 == 401).then_some(()))
        .expect("the former key is gone");
    assert_eq!(ask(&daemon, second_token).0, 200);
    let audit = fs::read_to_string(directory.path().join("audit.json")).expect("the audit log");
    let lines: Vec<Value> =
        audit.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let has = |act: &str, field: &str, text: &str| {
        lines.iter().any(|line| line["act"] == act && line[field].to_string().contains(text))
    };
    assert!(has("sign-in", "reason", "the key set has no key with the id"), "{audit}");
    assert!(has("token keys replaced", "details", r#"{"keys":2}"#), "{audit}");
    assert!(!audit.contains(first_token) && !audit.contains(second_token), "{audit}");
    assert!(daemon.terminate().success());

    fs::set_permissions(&keys, fs::Permissions::from_mode(0o666)).expect("a mode");
    let stops = |expected: &str| {
        let (status, stderr) = start("other").run_to_exit();
        assert_eq!(status.code(), Some(WRONG_CONFIGURATION), "{stderr}");
        assert!(stderr.contains("jwt.keys_file") && stderr.contains(expected), "{stderr}");
    };
    stops("chmod o-w");
    fs::remove_file(&keys).expect("remove");
    stops("the file cannot be read");
    fs::write(&keys, r#"{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}"#).expect("write");
    stops("none of the 1 keys verifies tokens");
}
