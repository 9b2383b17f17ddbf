//! Tests users of a file from outside: the commands that make its lines, a daemon that follows the
//! file, and tools that go through the daemon.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output, Stdio},
};

use tsd_testkit::{Daemon, exchange, http, wait_for};

use crate::{TSDB, WRONG_CONFIGURATION, tsdb};

fn run(words: &[&str], variables: &[(&str, &str)], input: &str) -> Output {
    let mut command = Command::new(TSDB);
    command.args(words).envs(variables.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("run tsdb");
    let mut stdin = child.stdin.take().expect("standard input");
    stdin.write_all(input.as_bytes()).expect("write");
    drop(stdin);
    child.wait_with_output().expect("an end")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A new token, and the line of its user.
fn token(name: &str, roles: &str) -> (String, String) {
    let output = run(&["user", "add", name, roles, "--token", "--file", "-"], &[], "");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let token = text(&output.stderr).lines().last().expect("a token").to_owned();
    let line = text(&output.stdout);
    assert!(line.starts_with(&format!("{name} sha256:")) && !line.contains(&token), "{line}");
    (token, line)
}

fn daemon(directory: &Path, users: &Path) -> Daemon {
    tsdb(&directory.join("data"))
        .env("TSD_CORE_AUTHENTICATION_ENABLE", "true")
        .env("TSD_CORE_AUTHENTICATION_PLUGIN", "file")
        .env("TSD_CORE_AUTHENTICATION_USERS_FILE", users.to_str().expect("a path"))
        .start()
}

fn log_in(daemon: &Daemon, token: &str) -> bool {
    let line = format!("auth bearer {token}\nexit\n");
    match &exchange(daemon.address(), line.as_bytes())[..] {
        b"AUTH_SUCCESS\r\n" => true,
        rest => {
            assert!(rest.starts_with(b"AUTH_FAIL\r\n"), "{}", text(rest));
            false
        }
    }
}

#[test]
fn an_invalid_file_keeps_neither_the_others_nor_the_log_level_from_being_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let (users, rules) = (directory.path().join("users"), directory.path().join("rules"));
    let ((first, line), (second, other)) = (token("a", "WRITER"), token("b", "READER"));
    fs::write(&users, &line).expect("write");
    fs::write(&rules, "").expect("write");
    let daemon = tsdb(&directory.path().join("data"))
        .env("TSD_CORE_AUTHENTICATION_ENABLE", "true")
        .env("TSD_CORE_AUTHENTICATION_PLUGIN", "file")
        .env("TSD_CORE_AUTHENTICATION_USERS_FILE", users.to_str().expect("a path"))
        .env("TSD_STORAGE_RETENTION", "8d")
        .env("TSD_STORAGE_RETENTION_FILE", rules.to_str().expect("a path"))
        .start();
    assert!(log_in(&daemon, &first));
    fs::write(&rules, "m\n").expect("write");
    fs::write(&users, &other).expect("write");
    daemon.signal("HUP");
    wait_for(|| log_in(&daemon, &second).then_some(())).expect("the new user");
    let reloaded = "SIGHUP: reloaded the log level and the followed files";
    let _ = daemon.wait_for_event(reloaded, |_| true);
    let warned = daemon.events_at_level("WARN");
    let is_logged = |start: &str| {
        warned.iter().any(|e| e["message"].as_str().is_some_and(|m| m.starts_with(start)))
    };
    assert!(
        is_logged("SIGHUP: the next start would fail: tsd.storage.retention_file"),
        "{warned:?}"
    );
    assert!(daemon.terminate().success());
}

#[test]
fn a_daemon_follows_its_file_of_users() {
    let directory = tempfile::tempdir().expect("a directory");
    let users = directory.path().join("users");
    let ((first, line), (second, other)) = (token("a", "WRITER"), token("b", "READER"));
    fs::write(&users, &line).expect("write");
    let daemon = daemon(directory.path(), &users);
    assert!(log_in(&daemon, &first) && !log_in(&daemon, &second));
    assert_eq!(http(daemon.address(), "GET", "/api/version", None).status, 401);
    assert_eq!(http(daemon.address(), "GET", "/api/health/ready", None).status, 200);
    assert_eq!(http(daemon.address(), "GET", "/metrics", None).status, 200);
    // A file with an error changes nothing.
    fs::write(&users, "a b\n").expect("write");
    daemon.signal("HUP");
    let _ = daemon.wait_for_event("the file of users is invalid; they are unchanged", |_| true);
    assert!(log_in(&daemon, &first));
    fs::write(&users, &other).expect("write");
    daemon.signal("HUP");
    wait_for(|| log_in(&daemon, &second).then_some(())).expect("the new user");
    assert!(!log_in(&daemon, &first), "the former user is gone");
    let config = run(
        &["query", "--url", &format!("http://{}", daemon.address()), "1h-ago", "sum", "m"],
        &[("TSDB_TOKEN", &second)],
        "",
    );
    assert!(text(&config.stderr).contains("No such name"), "{}", text(&config.stderr));
    for secret in [&first, &second] {
        for level in ["DEBUG", "INFO", "WARN", "ERROR"] {
            let events = daemon.events_at_level(level);
            let shown = events.iter().any(|event| event.to_string().contains(secret.as_str()));
            assert!(!shown, "a token is in the log");
        }
    }
    assert!(daemon.terminate().success());
}

#[test]
fn tools_name_their_user_to_the_daemon() {
    let directory = tempfile::tempdir().expect("a directory");
    let users = directory.path().join("users");
    let hash = run(&["user", "add", "alice", "ADMINISTRATOR", "--file", "-"], &[], "s3cret word\n");
    let line = text(&hash.stdout);
    assert!(line.starts_with("alice $argon2id$v=19$m=19456,t=2,p=1$"), "{line}");
    assert!(line.ends_with(" ADMINISTRATOR\n"), "{line}");
    fs::write(&users, &line).expect("write");
    let daemon = daemon(directory.path(), &users);
    let points = directory.path().join("points");
    fs::write(&points, "m 1600000000 1 host=a\n").expect("write");
    let url = format!("http://{}", daemon.address());
    let import = ["import", "--url", &url, points.to_str().expect("a path")];
    let refused = run(&import, &[], "");
    assert!(text(&refused.stderr).contains("401 Unauthorized for /api/put"), "{refused:?}");
    let wrong = run(&import, &[("TSDB_USER", "alice"), ("TSDB_PASSWORD", "secret")], "");
    assert!(!wrong.status.success());
    let right = [("TSDB_USER", "alice"), ("TSDB_PASSWORD", "s3cret word")];
    let stored = run(&import, &right, "");
    assert!(stored.status.success(), "{}", text(&stored.stderr));
    let query = ["--user", "alice", "query", "--url", &url, "2020/09/13", "2020/09/14", "sum", "m"];
    let found = run(&query, &[right[1]], "");
    assert_eq!(text(&found.stdout), "m 1600000000000 1 {host=a}\n", "{}", text(&found.stderr));
    let unnamed = run(&query, &[], "");
    assert!(text(&unnamed.stderr).contains("TSDB_PASSWORD"), "{}", text(&unnamed.stderr));
    let verify = run(&["verify", "--url", &url], &right, "");
    assert!(verify.status.success(), "{}", text(&verify.stderr));
    assert!(daemon.terminate().success());
}

#[test]
fn users_are_added_listed_checked_and_removed() {
    let directory = tempfile::tempdir().expect("a directory");
    let (users, config) = (directory.path().join("users"), directory.path().join("tsd.conf"));
    fs::write(&users, "# the users\n").expect("write");
    let key = "tsd.core.authentication.users_file";
    fs::write(&config, format!("{key} = {}\n", users.display())).expect("write");
    let config = config.to_str().expect("a path");
    let user = |words: &[&str], input: &str| {
        run(&[&["user"], words, &["--config", config]].concat(), &[], input)
    };
    let added = user(&["add", "alice", "READER", "--metrics", "read:sys.*"], "secret\n");
    assert!(added.status.success(), "{}", text(&added.stderr));
    let refused = user(&["add", "alice", "WRITER"], "other\n");
    assert!(text(&refused.stderr).contains("alice has a password already"), "{refused:?}");
    let limited = ["--expires", "90d", "--points", "50k/s", "--memory", "off"];
    let added = user(&[&["add", "alice", "WRITER", "--token"], &limited[..]].concat(), "");
    let token = text(&added.stdout).trim().to_owned();
    assert_eq!(token.len(), 43, "{added:?}");
    let list = user(&["list", "--json"], "");
    let list: serde_json::Value = serde_json::from_slice(&list.stdout).expect("JSON");
    assert_eq!((&list[0]["kind"], &list[1]["kind"]), (&"password".into(), &"token".into()));
    let limits = serde_json::json!({"points": "50k/s", "memory": "off"});
    assert_eq!((&list[0]["limits"], &list[1]["limits"]), (&serde_json::json!({}), &limits));
    assert_eq!((&list[1]["line"], &list[1]["expired"]), (&3.into(), &false.into()));
    assert!(list[0]["expires"].is_null() && list[1]["expires"].is_string(), "{list}");
    let table = text(&user(&["list"], "").stdout);
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(!table.contains("sha256") && !table.contains("argon2id"), "{table}");
    for (secret, status, expected) in [
        (
            "secret",
            0,
            "alice, password of line 2: HTTP_QUERY; metrics: read:sys.*; limits: the configured ones; does not expire",
        ),
        (
            &token[..],
            0,
            "alice, token of line 3: TELNET_PUT, HTTP_PUT, CREATE_TAGV; metrics: all; limits: points=50k/s memory=off; expires 20",
        ),
        ("guess", 1, "alice has no such password or token"),
    ] {
        let checked = user(&["check", "alice"], &format!("{secret}\n"));
        assert_eq!(checked.status.code(), Some(status), "{checked:?}");
        assert!(text(&checked.stdout).starts_with(expected), "{checked:?}");
    }
    let set = user(
        &["set", "alice", "--id", list[1]["id"].as_str().expect("an id"), "--points", "default"],
        "",
    );
    assert!(set.status.success(), "{set:?}");
    let table = text(&user(&["list"], "").stdout);
    assert!(table.contains("memory=off") && !table.contains("points="), "{table}");
    let wrong = user(&["set", "alice", "--queries", "many"], "");
    assert!(text(&wrong.stderr).contains("--queries: \"many\" is not a limit"), "{wrong:?}");
    let checked = user(&["check"], "");
    assert!(checked.status.success() && text(&checked.stdout).contains("2 credentials, no errors"));
    let id = list[1]["id"].as_str().expect("an id");
    let removed = user(&["remove", "alice", "--id", id], "");
    assert!(removed.status.success(), "{removed:?}");
    assert!(!user(&["remove", "alice", "--tokens"], "").status.success());
    assert!(user(&["remove", "alice"], "").status.success());
    assert_eq!(fs::read_to_string(&users).expect("the file"), "# the users\n");
    fs::write(&users, "a b\n\nc d e\n").expect("write");
    let checked = user(&["check"], "");
    assert_eq!(checked.status.code(), Some(1));
    let errors = text(&checked.stdout);
    assert!(errors.contains("users: line 1: ") && errors.contains("users: line 3: "), "{errors}");
    let refused = user(&["add", "bob", "READER"], "x\n");
    assert!(text(&refused.stderr).contains("correct it first: line 1"), "{refused:?}");
    fs::remove_file(&users).expect("remove");
    assert_eq!(user(&["check"], "").status.code(), Some(2));
}

#[test]
fn an_invalid_file_of_users_stops_the_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let users = directory.path().join("users");
    let start = || {
        let (status, stderr) = tsdb(&directory.path().join("data"))
            .env("TSD_CORE_AUTHENTICATION_ENABLE", "1")
            .env("TSD_CORE_AUTHENTICATION_PLUGIN", "file")
            .env("TSD_CORE_AUTHENTICATION_USERS_FILE", users.to_str().expect("a path"))
            .run_to_exit();
        assert_eq!(status.code(), Some(WRONG_CONFIGURATION), "{stderr}");
        stderr
    };
    assert!(start().contains("the file cannot be read"));
    fs::write(&users, "alice secret READER\n").expect("write");
    let stderr = start();
    assert!(stderr.contains("line 1: the hash is neither"), "{stderr}");
    assert!(!stderr.contains("alice secret"), "{stderr}");
}

/// Problems of followed files in `/api/status`.
fn file_problems(daemon: &Daemon) -> Vec<String> {
    let status = http(daemon.address(), "GET", "/api/health/ready", None).body;
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let problems = status["problems"].as_array().expect("a list");
    let of_files = problems.iter().filter(|problem| problem["part"] == "files");
    of_files.map(|problem| problem["reason"].as_str().expect("a reason").to_owned()).collect()
}

/// Waits until the file of `what` is invalid, for a reason, or valid.
fn await_file(daemon: &Daemon, what: &str, reason: Option<&str>) {
    daemon.signal("HUP");
    let is_reached = || {
        let problems = file_problems(daemon);
        let is_invalid = reason.map(|reason| {
            problems.iter().any(|found| found.contains(what) && found.contains(reason))
        });
        let value = u8::from(reason.is_some());
        let sample = format!("tsd_file_invalid{{file=\"{what}\"}} {value}\n");
        let has_metric = http(daemon.address(), "GET", "/metrics", None).body.contains(&sample);
        (is_invalid.unwrap_or(problems.is_empty()) && has_metric).then_some(())
    };
    wait_for(is_reached)
        .unwrap_or_else(|| panic!("{what}: {reason:?}, {:?}", file_problems(daemon)));
}

/// Issue 37, open doors.
#[test]
fn a_broken_removed_or_world_writable_file_of_users_or_rules_is_a_health_problem() {
    let directory = tempfile::tempdir().expect("a directory");
    let (users, rules) = (directory.path().join("users"), directory.path().join("rules"));
    let (first, line) = token("a", "WRITER");
    fs::write(&users, &line).expect("write");
    fs::write(&rules, "deny tmp.*\n").expect("write");
    let daemon = tsdb(&directory.path().join("data"))
        .env("TSD_CORE_AUTHENTICATION_ENABLE", "true")
        .env("TSD_CORE_AUTHENTICATION_PLUGIN", "file")
        .env("TSD_CORE_AUTHENTICATION_USERS_FILE", users.to_str().expect("a path"))
        .env("TSD_TIMESERIESFILTER_ENABLE", "true")
        .env("TSD_TIMESERIESFILTER_PLUGIN", "rules")
        .env("TSD_TIMESERIESFILTER_RULES_FILE", rules.to_str().expect("a path"))
        .start();
    await_file(&daemon, "users", None);
    for (path, what, broken) in
        [(&users, "users", "a b\n"), (&rules, "rules of the filter", "# x\npermit *\n")]
    {
        let valid = fs::read_to_string(path).expect("the file");
        fs::write(path, broken).expect("write");
        await_file(&daemon, what, Some("line "));
        let problem = file_problems(&daemon).concat();
        assert!(problem.contains(path.to_str().expect("a path")), "{problem}");
        assert!(problem.contains("unchanged since 20"), "{problem}");
        fs::remove_file(path).expect("remove");
        await_file(&daemon, what, Some("the file cannot be read: No such file"));
        fs::write(path, &valid).expect("write");
        await_file(&daemon, what, None);
        fs::set_permissions(path, fs::Permissions::from_mode(0o646)).expect("a mode");
        await_file(
            &daemon,
            what,
            Some("every user of this machine can write the file (mode 0646)"),
        );
        assert!(log_in(&daemon, &first), "what was read last stays in force");
        fs::set_permissions(path, fs::Permissions::from_mode(0o640)).expect("a mode");
        await_file(&daemon, what, None);
    }
    assert!(daemon.terminate().success());
    fs::set_permissions(&users, fs::Permissions::from_mode(0o666)).expect("a mode");
    let (status, stderr) = tsdb(&directory.path().join("data"))
        .env("TSD_CORE_AUTHENTICATION_ENABLE", "true")
        .env("TSD_CORE_AUTHENTICATION_PLUGIN", "file")
        .env("TSD_CORE_AUTHENTICATION_USERS_FILE", users.to_str().expect("a path"))
        .run_to_exit();
    assert_eq!(status.code(), Some(WRONG_CONFIGURATION), "{stderr}");
    assert!(stderr.contains("chmod o-w"), "{stderr}");
}

/// Issue 37, open doors.
#[test]
fn no_credentials_of_the_configuration_are_shown() {
    const URL: &str = "http://me:s3cret@127.0.0.1:9/in?token=s3cret";
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = tsdb(&directory.path().join("data")).env("TSD_RTPUBLISHER_URL", URL).start();
    let config = http(daemon.address(), "GET", "/api/config", None).body;
    assert!(config.contains("http://***@127.0.0.1:9/in?token=***"), "{config}");
    let mut shown = vec![config, http(daemon.address(), "GET", "/api/config/sources", None).body];
    shown.push(http(daemon.address(), "GET", "/logs", None).body);
    let file = directory.path().join("opentsdb.conf");
    fs::write(&file, format!("tsd.rtpublisher.url = {URL}\ntsd.network.port = {URL}\n"))
        .expect("write");
    let file = file.to_str().expect("a path");
    for words in [&["config", "check", file][..], &["config", "check", "--json", file]] {
        shown.push(text(&run(words, &[], "").stdout));
    }
    let start = run(&["tsd", "--config", file], &[], "");
    assert!(text(&start.stderr).contains("tsd.network.port"), "{start:?}");
    shown.push(text(&start.stderr));
    let query = ["query", "--url", "http://me:s3cret@127.0.0.1:9", "1h-ago", "sum", "m"];
    shown.push(text(&run(&query, &[], "").stderr));
    for text in shown {
        assert!(!text.contains("s3cret"), "{text}");
    }
    for level in ["DEBUG", "INFO", "WARN", "ERROR"] {
        for event in daemon.events_at_level(level) {
            assert!(!event.to_string().contains("s3cret"), "{event}");
        }
    }
    assert!(daemon.terminate().success());
}

#[test]
fn limits_of_a_user_are_followed_and_known_series_are_not_new_after_a_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let users = directory.path().join("users");
    let (token, line) = token("agent", "WRITER,CREATOR");
    let write = |limits: &str| fs::write(&users, format!("{} {limits}\n", line.trim_end()));
    write("series=2/h").expect("write");
    let put = |daemon: &Daemon, hosts: std::ops::Range<u32>| {
        let lines: Vec<String> =
            hosts.map(|host| format!("put m 1356998400 1 host=h{host}\n")).collect();
        let sent = format!("auth bearer {token}\n{}", lines.concat());
        text(&exchange(daemon.address(), sent.as_bytes()))
    };
    let refusal = "AUTH_SUCCESS\r\nput: Too many new series: user \"agent\" has added 2 series";
    let running = daemon(directory.path(), &users);
    let reply = put(&running, 0..3);
    assert!(reply.starts_with(refusal) && reply.lines().count() == 2, "{reply}");
    assert!(running.terminate().success(), "a clean shutdown");

    let running = daemon(directory.path(), &users);
    // The series index knows the first two.
    assert_eq!(put(&running, 0..4), "AUTH_SUCCESS\r\n");
    let reply = put(&running, 0..5);
    assert!(reply.starts_with(refusal) && reply.lines().count() == 2, "{reply}");
    write("series=off").expect("write");
    running.signal("HUP");
    let accepted = || (put(&running, 0..9) == "AUTH_SUCCESS\r\n").then_some(());
    wait_for(accepted).expect("no limit");
}
