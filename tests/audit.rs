//! Tests the audit log of a daemon from outside: its start, a new version of the file of users, and wrong settings.

use std::{fs, path::Path};

use serde_json::Value;
use tsd_testkit::{http, wait_for};

use crate::{TSDB, tsdb};

/// A token and the hash that the file of users has.
const TOKEN: (&str, &str) =
    ("t", "sha256:e3b98a4da31a127d4bde6e43033f66ba274cab0eb7eb1c70ec41402bf6273dd8");

fn lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).expect("the audit log");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn the_audit_log_has_settings_new_users_and_acts() {
    let directory = tempfile::tempdir().expect("a directory");
    let (users, file) = (directory.path().join("users"), directory.path().join("audit.json"));
    fs::write(&users, format!("a {} GUEST\n", TOKEN.1)).expect("write");
    let daemon = tsdb(&directory.path().join("data"))
        .env("TSD_CORE_AUTHENTICATION_ENABLE", "true")
        .env("TSD_CORE_AUTHENTICATION_PLUGIN", "file")
        .env("TSD_CORE_AUTHENTICATION_USERS_FILE", users.to_str().expect("a path"))
        .env("TSD_AUDIT_FILE", file.to_str().expect("a path"))
        .start();
    let start = lines(&file);
    let settings = &start[0]["details"]["settings"];
    assert_eq!(start[0]["act"], "start");
    assert_eq!(settings["tsd.audit.file"], file.to_str().expect("a path"));
    for key in ["tsd.audit.keep", "tsd.storage.memtable.size"] {
        assert!(settings[key].is_null(), "the default of {key} is shown: {settings}");
    }
    fs::write(&users, "a certificate GUEST\nb certificate READER\n").expect("write");
    daemon.signal("HUP");
    let replaced = wait_for(|| lines(&file).into_iter().nth(1)).expect("a second line");
    assert_eq!(replaced["act"], "users replaced");
    let expected = serde_json::json!({"users": 2, "added": ["b"], "removed": [], "changed": ["a"]});
    assert_eq!(replaced["details"], expected);
    assert_eq!(http(daemon.address(), "GET", "/api/dropcaches", None).status, 401);
    assert_eq!(lines(&file).len(), 2, "no credentials are no attempt");
    assert!(daemon.terminate().success());
}

#[test]
fn a_daemon_without_its_audit_log_does_not_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let missing = directory.path().join("missing").join("audit.json");
    for (setting, expected) in [
        (format!("tsd.audit.file = {}\n", missing.display()), "the audit log cannot be opened"),
        ("tsd.audit.required = true\n".to_owned(), "a required audit log needs tsd.audit.file"),
    ] {
        let config = directory.path().join("opentsdb.conf");
        fs::write(&config, format!("tsd.network.port = 0\n{setting}")).expect("write");
        let output = std::process::Command::new(TSDB)
            .args(["tsd", "--config"])
            .arg(&config)
            .arg("--data")
            .arg(&data)
            .output()
            .expect("run tsdb");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(crate::WRONG_CONFIGURATION), "{errors}");
        assert!(errors.contains(expected), "{errors}");
    }
}
