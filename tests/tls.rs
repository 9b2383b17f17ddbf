//! TLS on the port of a daemon, as curl and `openssl s_client` see it: each setting, errors of the start, a certificate
//! that is replaced under load, and tools that use it.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use tempfile::TempDir;
use tsd_testkit::{Daemon, DaemonBuilder, exchange, http, metric, wait_for};

use crate::{TSDB, tsdb};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tls");

fn data(file: &str) -> String {
    format!("{DATA}/{file}")
}

/// The files of a port, which can be replaced.
struct Files {
    directory: TempDir,
}

impl Files {
    fn of(certificate: &str) -> Self {
        let files = Self { directory: tempfile::tempdir().expect("a directory") };
        files.replace(certificate);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn copy(&self, from: &str, name: &str) {
        // Renamed, so that no file is ever incomplete.
        let new = self.path("new");
        fs::copy(data(from), &new).expect("copy");
        fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).expect("a mode");
        fs::rename(&new, self.path(name)).expect("rename");
    }

    fn replace(&self, certificate: &str) {
        self.copy(&format!("{certificate}.pem"), "tsd.pem");
        self.copy(&format!("{certificate}.key"), "tsd.key");
    }

    fn daemon(&self) -> DaemonBuilder {
        let path = |name| self.path(name).to_str().expect("a path").to_owned();
        tsdb(&self.path("data"))
            .env("TSD_TLS_CERTIFICATE", &path("tsd.pem"))
            .env("TSD_TLS_KEY", &path("tsd.key"))
    }
}

fn run(command: &mut Command, input: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program is installed");
    let mut stdin = child.stdin.take().expect("standard input");
    // The program may have ended.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("an end")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The body that curl received, or its exit status and error.
fn curl(url: &str, options: &[&str]) -> Result<String, String> {
    let output =
        run(Command::new("curl").args(["-sS", "--max-time", "60"]).args(options).arg(url), "");
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(format!("{:?}: {}", output.status.code(), text(&output.stderr)))
}

/// The replies to telnet lines over TLS; the last line is `exit`.
fn lines(daemon: &Daemon, options: &[&str], lines: &str) -> String {
    let address = daemon.address().to_string();
    let mut command = Command::new("openssl");
    command.args(["s_client", "-quiet", "-verify_return_error", "-connect", &address]);
    let output = run(command.args(options), lines);
    text(&output.stdout)
}

fn https(daemon: &Daemon, path: &str) -> String {
    format!("https://{}{path}", daemon.address())
}

/// The counter of failed handshakes.
fn failures(daemon: &Daemon, reason: &str) -> u64 {
    let page = http(daemon.address(), "GET", "/metrics", None).body;
    let name = format!("tsd_server_tls_failures_total{{reason=\"{reason}\"}} ");
    let value = page.lines().find_map(|line| line.strip_prefix(&name));
    value.map_or(0, |value| value.parse().expect("a number"))
}

#[test]
fn one_port_serves_telnet_and_http_plain_and_encrypted() {
    let files = Files::of("one/node");
    let daemon = files.daemon().start();
    let (ca, url) = (data("one/ca.pem"), https(&daemon, "/api/version"));
    for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"], &["--http1.1"]] {
        let answer = curl(&url, &[&["--cacert", &ca], version].concat()).expect("an answer");
        assert!(answer.contains("short_revision"), "{answer}");
    }
    assert!(curl(&url.replace("https", "http"), &[]).expect("plain").contains("short_revision"));
    let put = "put m 1356998400 1 host=a\nput m x 1 host=a\nstatus\nexit\n";
    let replies = lines(&daemon, &["-CAfile", &ca], put);
    assert!(replies.starts_with("put: ") && replies.ends_with("\nok\n"), "{replies}");
    assert_eq!(text(&exchange(daemon.address(), b"status\nexit\n")), "ok\n");
    let query = https(&daemon, "/api/query?start=1356998300&end=1356998500&m=sum:m");
    let answer = curl(&query, &["--cacert", &ca]).expect("an answer");
    assert!(answer.contains(r#""1356998400":1"#), "{answer}");
    assert!(metric(daemon.address(), "tsd_server_tls_handshakes_total") >= Some(5.0));

    // A client that does not trust the daemon, one that is too old, and one that does not speak TLS.
    let refused = curl(&url, &["--cacert", &data("two/ca.pem")]).expect_err("not trusted");
    assert!(refused.starts_with("Some(60)"), "{refused}");
    let old = ["-CAfile", &ca, "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"];
    assert_eq!(lines(&daemon, &old, "status\nexit\n"), "");
    let _ = exchange(daemon.address(), b"\x16\x03\x01\x00\x05\x01\x00\x00\x01x");
    for reason in ["server_certificate", "version", "malformed"] {
        wait_for(|| (failures(&daemon, reason) == 1).then_some(()))
            .unwrap_or_else(|| panic!("{reason}"));
    }
    let not_after = metric(daemon.address(), "tsd_server_tls_certificate_not_after_seconds");
    assert_eq!(not_after, Some(4_102_444_800.0), "2100-01-01");
}

#[test]
fn a_daemon_without_tls_says_so() {
    let files = Files::of("one/node");
    let daemon = tsdb(&files.path("data")).start();
    let refused = curl(&https(&daemon, "/"), &["-k"]).expect_err("no TLS");
    assert!(refused.starts_with("Some(35)") && refused.contains("handshake failure"), "{refused}");
    let event = daemon.wait_for_event("a TLS handshake failed", |_| true);
    assert!(event["reason"].as_str().expect("a reason").contains("set tsd.tls.certificate"));
    assert_eq!(failures(&daemon, "off"), 1);
}

#[test]
fn tls_may_be_required_and_its_version_raised() {
    let files = Files::of("one/node");
    let daemon =
        files.daemon().env("TSD_TLS_REQUIRED", "true").env("TSD_TLS_MIN_VERSION", "1.3").start();
    let ca = data("one/ca.pem");
    let url = https(&daemon, "/api/version");
    curl(&url, &["--cacert", &ca]).expect("an answer");
    let refused = curl(&url, &["--cacert", &ca, "--tls-max", "1.2"]).expect_err("TLS 1.2");
    assert!(refused.starts_with("Some(35)"), "{refused}");
    // Plain clients of this host stay allowed.
    assert_eq!(text(&exchange(daemon.address(), b"status\nexit\n")), "ok\n");
}

#[test]
fn client_certificates_are_users() {
    let files = Files::of("one/node");
    let users = files.path("users");
    fs::write(&users, "localhost certificate WRITER,CREATOR\nnameless certificate READER\n")
        .expect("write");
    let ca = data("one/ca.pem");
    let daemon = files
        .daemon()
        .env("TSD_TLS_CLIENT_AUTH", "required")
        .env("TSD_TLS_CLIENT_CA", &ca)
        .env("TSD_CORE_AUTHENTICATION_ENABLE", "true")
        .env("TSD_CORE_AUTHENTICATION_PLUGIN", "file")
        .env("TSD_CORE_AUTHENTICATION_USERS_FILE", users.to_str().expect("a path"))
        .start();
    let of = |name: &str| (data(&format!("one/{name}.pem")), data(&format!("one/{name}.key")));
    let ((writer, writer_key), (reader, reader_key)) = (of("node"), of("nameless"));
    let put = "put m 1356998400 1 host=a\nversion\nexit\n";
    let replies = lines(&daemon, &["-CAfile", &ca, "-cert", &writer, "-key", &writer_key], put);
    assert!(replies.contains("Built") && !replies.contains("AUTH"), "{replies}");
    let query = https(&daemon, "/api/query?start=1356998300&end=1356998500&m=sum:m");
    let with = |certificate, key| {
        curl(&query, &["--cacert", &ca, "--cert", certificate, "--key", key]).expect("an answer")
    };
    let answer = with(&reader, &reader_key);
    assert!(answer.contains(r#""1356998400":1"#), "{answer}");
    assert!(with(&writer, &writer_key).contains("HTTP_QUERY"));
    curl(&query, &["--cacert", &ca]).expect_err("no certificate");
    wait_for(|| (failures(&daemon, "client_certificate") == 1).then_some(()))
        .expect("the refused client is counted");

    // A tool, with the same files.
    let url = https(&daemon, "");
    let tool = |options: &[&str]| {
        let words = ["query", "--url", &url, "1356998300", "1356998500", "sum", "m"];
        run(Command::new(TSDB).args(words).args(options), "")
    };
    let output = tool(&["--ca", &ca, "--cert", &reader, "--key", &reader_key]);
    assert!(text(&output.stdout).contains("m 1356998400"), "{output:?}");
    let output = tool(&["--cert", &reader, "--key", &reader_key, "--ca", &data("two/ca.pem")]);
    let stderr = text(&output.stderr);
    assert!(stderr.contains("UnknownIssuer") && stderr.contains("TSDB_CA"), "{stderr}");
}

#[test]
fn a_tool_that_asks_a_daemon_without_tls_by_https_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = tsdb(directory.path()).start();
    let (url, ca) = (https(&daemon, ""), data("one/ca.pem"));
    let words = ["query", "--url", &url, "--ca", &ca, "1356998300", "sum", "m"];
    let stderr = text(&run(Command::new(TSDB).args(words), "").stderr);
    assert!(stderr.contains("the daemon has no TLS (tsd.tls.certificate)"), "{stderr}");
}

#[test]
fn files_that_cannot_be_used_stop_the_start_and_are_named() {
    let check = |prepare: &dyn Fn(&Files), setting: &str, expected: &str| {
        let files = Files::of("one/node");
        prepare(&files);
        let (status, stderr) = files.daemon().run_to_exit();
        assert_eq!(status.code(), Some(78), "{stderr}");
        assert!(stderr.contains(setting) && stderr.contains(expected), "{stderr}");
    };
    check(
        &|files| fs::remove_file(files.path("tsd.key")).expect("remove"),
        "tsd.tls.key",
        "No such file",
    );
    check(&|files| files.copy("two/node.key", "tsd.key"), "tsd.tls.key", "does not belong");
    check(&|files| files.replace("one/expired"), "tsd.tls.certificate", "expired at 2001-01-01");
    let open = |files: &Files| {
        let mode = fs::Permissions::from_mode(0o644);
        fs::set_permissions(files.path("tsd.key"), mode).expect("a mode");
    };
    check(&open, "tsd.tls.key", "chmod o-r");
    check(
        &|files| fs::write(files.path("tsd.pem"), "x").expect("write"),
        "tsd.tls.certificate",
        "PEM",
    );
}

/// Waits until the files are invalid for a reason, or valid.
fn await_files(daemon: &Daemon, reason: Option<&str>) {
    daemon.signal("HUP");
    let is_reached = || {
        let status = http(daemon.address(), "GET", "/api/status", None).body;
        let found = reason.map_or(!status.contains("certificates of the port"), |reason| {
            status.contains("certificates of the port") && status.contains(reason)
        });
        let value = f64::from(u8::from(reason.is_some()));
        (found && metric(daemon.address(), "tsd_file_invalid") == Some(value)).then_some(())
    };
    wait_for(is_reached).unwrap_or_else(|| panic!("{reason:?}"));
}

#[test]
fn a_broken_or_expired_certificate_keeps_the_last_good_one() {
    let files = Files::of("one/node");
    let daemon = files.daemon().start();
    let is_served = |authority: &str| {
        let ca = data(&format!("{authority}/ca.pem"));
        curl(&https(&daemon, "/api/version"), &["--cacert", &ca]).is_ok()
    };
    await_files(&daemon, None);
    files.copy("two/node.pem", "tsd.pem");
    await_files(&daemon, Some("does not belong to the certificate"));
    assert!(is_served("one") && !is_served("two"));
    files.replace("one/expired");
    await_files(&daemon, Some("the certificate expired at 2001-01-01"));
    assert!(is_served("one"));
    fs::remove_file(files.path("tsd.key")).expect("remove");
    await_files(&daemon, Some("tsd.key: the file cannot be read"));
    assert!(is_served("one"));
    files.replace("two/node");
    await_files(&daemon, None);
    assert!(is_served("two") && !is_served("one"));
}

/// Sets its flag when it is dropped, also by a failed assertion, so that the load ends.
struct EndsLoad<'f>(&'f AtomicBool);

impl Drop for EndsLoad<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_certificate_is_replaced_under_load_without_an_error() {
    let files = Files::of("one/node");
    let daemon = files.daemon().start();
    let both = files.path("both.pem");
    let authorities = ["one", "two"].map(|name| fs::read(data(&format!("{name}/ca.pem"))));
    fs::write(&both, authorities.map(|ca| ca.expect("a file")).concat()).expect("write");
    let both = both.to_str().expect("a path");
    let (url, ended, requests) =
        (https(&daemon, "/api/version"), AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let ends_load = EndsLoad(&ended);
        // New connections.
        let loads: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut errors = Vec::new();
                    while !ended.load(Ordering::Relaxed) {
                        errors.extend(curl(&url, &["--cacert", both]).err());
                        requests.fetch_add(1, Ordering::Relaxed);
                    }
                    errors
                })
            })
            .collect();
        // A connection that stays open.
        let mut kept = Command::new("openssl")
            .args(["s_client", "-quiet", "-verify_return_error", "-CAfile", both])
            .args(["-connect", &daemon.address().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl is installed");
        let mut sent = 0;
        let mut stdin = kept.stdin.take().expect("standard input");
        for authority in ["two", "one"].repeat(3) {
            files.replace(&format!("{authority}/node"));
            daemon.signal("HUP");
            let ca = data(&format!("{authority}/ca.pem"));
            let at_start = requests.load(Ordering::Relaxed);
            wait_for(|| {
                let line = format!("put kept {} 1 host=a\n", 1_356_998_400 + sent);
                stdin.write_all(line.as_bytes()).expect("an open connection");
                sent += 1;
                let is_new = curl(&url, &["--cacert", &ca]).is_ok();
                (is_new && requests.load(Ordering::Relaxed) > at_start + 2).then_some(())
            })
            .unwrap_or_else(|| panic!("the certificate of {authority} is not served"));
        }
        drop(ends_load);
        for load in loads {
            assert_eq!(load.join().expect("a load"), Vec::<String>::new());
        }
        stdin.write_all(b"status\nexit\n").expect("an open connection");
        drop(stdin);
        let output = kept.wait_with_output().expect("an end");
        assert_eq!(text(&output.stdout), "ok\n");
        let query =
            format!("/api/query?start=1356998400&end={}&m=count:kept", 1_356_998_400 + sent);
        let answer = http(daemon.address(), "GET", &query, None).body;
        assert_eq!(answer.matches(":1").count(), sent, "{answer}");
    });
    assert!(requests.load(Ordering::Relaxed) >= 12);
}
