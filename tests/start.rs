//! Tests start and shutdown of the daemon: configuration, data directory, signals, a damaged log.

use std::{
    fs,
    io::Write,
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
};

use tsd_testkit::{connect, exchange, http, wait_for};

use crate::{TSDB, WRONG_CONFIGURATION, report, tsdb};

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("temporary directory")
}

#[test]
fn a_bad_value_stops_the_start_with_its_key() {
    let dir = directory();
    let file = dir.path().join("opentsdb.conf");
    fs::write(&file, "tsd.network.port = 4242\ntsd.storage.salt.width = many\n").expect("write");
    let file = file.to_str().expect("a path");
    let (status, stderr) = tsdb(dir.path()).args(&["--config", file]).run_to_exit();
    assert_eq!(status.code(), Some(WRONG_CONFIGURATION), "{stderr}");
    assert!(stderr.contains("tsd.storage.salt.width = \"many\""), "{stderr}");
    assert!(stderr.contains("line 2"), "{stderr}");
}

/// Runs a daemon with settings that stop its start; returns its message.
#[track_caller]
fn refused(arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let dir = directory();
    let data = dir.path().join("data");
    let mut daemon = tsdb(&data).args(arguments);
    for (name, value) in environment {
        daemon = daemon.env(name, value);
    }
    let (status, stderr) = daemon.run_to_exit();
    assert_eq!(status.code(), Some(WRONG_CONFIGURATION), "{stderr}");
    assert!(!data.exists(), "the start stops before anything is created");
    stderr
}

#[test]
fn authentication_plugins_and_empty_uid_filters_stop_the_start() {
    for (variable, value, expected) in [
        ("TSD_CORE_AUTHENTICATION_ENABLE", "true", "plug-ins are file, allow_all"),
        ("TSD_CORE_AUTHENTICATION_PLUGIN", "a.B", "plug-ins are file, allow_all"),
        ("TSD_RTPUBLISHER_ENABLE", "1", "publisher plug-ins are file, tcp, http"),
        ("TSD_CORE_META_CACHE_ENABLE", "1", "tsd.core.meta.enable_tsuid_tracking"),
        ("TSD_SEARCH_PLUGIN", "a.B", "search plug-in is scan, or set tsd.search.enable = false"),
        ("TSD_HTTP_RPC_PLUGINS", "a.B,c.D", "no HTTP RPC plug-in is built in"),
        ("TSD_UIDFILTER_PLUGIN", "a.B", "net.opentsdb.uid.UniqueIdWhitelistFilter"),
        ("TSD_UIDFILTER_ENABLE", "true", "tsd.uidfilter.whitelist.metric_patterns"),
    ] {
        let stderr = refused(&[], &[(variable, value)]);
        let key = variable.to_ascii_lowercase().replace('_', ".");
        assert!(stderr.contains(&format!("{key} = {value:?}")), "{stderr}");
        assert!(stderr.contains(variable) && stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn misspelt_levels_and_booleans_stop_the_start() {
    let stderr = refused(&["--log-level", "inof"], &[]);
    assert!(stderr.contains("tsd.log.level = \"inof\" (--log-level): expected trace"), "{stderr}");
    let stderr = refused(&[], &[("TSD_STORAGE_FIX_DUPLICATES", "ture")]);
    assert!(stderr.contains("tsd.storage.fix_duplicates = \"ture\""), "{stderr}");
    assert!(stderr.contains("expected true"), "{stderr}");
}

#[test]
fn a_mistyped_data_directory_is_not_created_by_tools() {
    let dir = directory();
    let (data, points) = (dir.path().join("tsdb-dta"), dir.path().join("points"));
    fs::write(&points, "m 1600000000 1 host=a\n").expect("write");
    let run = |words: &[&str]| {
        let output = std::process::Command::new(TSDB).args(words).output().expect("run tsdb");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (path, points) = (data.to_str().expect("a path"), points.to_str().expect("a path"));
    for words in
        [&["query", "--data", path, "1h-ago", "sum", "m"][..], &["import", "--data", path, points]]
    {
        let (status, stderr) = run(words);
        assert_eq!(status, Some(1), "{stderr}");
        let expected = format!("tsd.storage.data_directory = {path:?} (--data): there is no data");
        assert!(stderr.contains(&expected), "{stderr}");
        assert!(!data.exists());
    }
    let (status, stderr) = run(&["import", "--create", "--data", path, points]);
    assert_eq!(status, Some(0), "{stderr}");
    let (status, stderr) = run(&["query", "--data", path, "1h-ago", "sum", "m"]);
    assert_eq!(status, Some(0), "{stderr}");
}

#[test]
fn a_missing_configuration_file_stops_the_start() {
    let dir = directory();
    let (status, stderr) = tsdb(dir.path()).args(&["--config", "/nowhere/tsd.conf"]).run_to_exit();
    assert_eq!(status.code(), Some(WRONG_CONFIGURATION), "{stderr}");
    assert!(stderr.contains("/nowhere/tsd.conf"), "{stderr}");
}

#[test]
fn unknown_keys_warn_once_each() {
    let dir = directory();
    let file = dir.path().join("opentsdb.conf");
    fs::write(&file, "tsd.storage.salt.bucket = 20\ntsd.http.cachedir = /tmp/tsd\n")
        .expect("write");
    let daemon = tsdb(&dir.path().join("data")).args(&["--config", file.to_str().expect("a path")]);
    let daemon = daemon.start();
    let warnings: Vec<_> =
        daemon.events_at_level("WARN").iter().map(|e| e["message"].to_string()).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings.iter().any(|w| w.contains("unknown key tsd.storage.salt.bucket")));
    let infos = daemon.events_at_level("INFO");
    let infos = infos.iter().map(|event| event["message"].to_string());
    let of_cachedir = infos.filter(|info| info.contains("tsd.http.cachedir")).collect::<Vec<_>>();
    assert!(of_cachedir.len() == 1 && of_cachedir[0].contains("no effect"), "{of_cachedir:?}");
    assert!(daemon.terminate().success());
}

#[test]
fn the_environment_sets_keys_and_api_config_shows_them() {
    let dir = directory();
    let daemon = tsdb(dir.path()).env("TSD_STORAGE_MAX_TAGS", "11").start();
    let shown = http(daemon.address(), "GET", "/api/config", None);
    assert!(shown.body.contains(r#""tsd.storage.max_tags":"11""#), "{}", shown.body);
    assert!(daemon.terminate().success());
}

#[test]
fn a_data_directory_is_opened_by_one_process() {
    let dir = directory();
    let daemon = tsdb(dir.path()).start();
    let (status, stderr) = tsdb(dir.path()).run_to_exit();
    assert_eq!(status.code(), Some(1), "{stderr}");
    let last = stderr.lines().last().expect("a line");
    let expected = format!("in use by process {}, which serves http://", daemon.pid());
    assert!(last.contains(&expected) && last.contains("--data"), "{stderr}");
    assert!(daemon.terminate().success());
}

#[test]
fn a_data_directory_rejects_another_key_schema() {
    let dir = directory();
    assert!(tsdb(dir.path()).start().terminate().success());
    let (status, stderr) = tsdb(dir.path()).env("TSD_STORAGE_SALT_BUCKETS", "7").run_to_exit();
    assert_eq!(status.code(), Some(WRONG_CONFIGURATION), "{stderr}");
    assert!(stderr.contains("tsd.storage.salt.buckets = 7 contradicts"), "{stderr}");
}

#[test]
fn ready_event_has_directory_and_replayed_cells() {
    let dir = directory();
    let daemon = tsdb(dir.path()).start();
    let put = r#"{"metric":"m","timestamp":1600000000,"value":1,"tags":{"host":"a"}}"#;
    assert_eq!(http(daemon.address(), "POST", "/api/put", Some(put)).status, 204);
    daemon.kill();
    let daemon = tsdb(dir.path()).start();
    let ready = daemon.events("ready to serve").pop().expect("a line");
    assert_eq!(ready["data"].as_str(), dir.path().to_str());
    assert!(ready["replayed_cells"].as_u64().expect("a number") >= 1, "{ready}");
    assert!(daemon.terminate().success());
}

#[test]
fn sigterm_stores_received_points_and_exits_0() {
    let dir = directory();
    let daemon = tsdb(dir.path()).start();
    let address = daemon.address();
    // A telnet point is not acknowledged; it must still be stored by a clean shutdown.
    let mut telnet = connect(address);
    telnet.write_all(b"put m 1600000000 1 host=a\nversion\n").expect("send");
    let mut first = [0];
    std::io::Read::read_exact(&mut telnet, &mut first).expect("the response to `version`");
    assert!(daemon.terminate().success());
    assert!(TcpStream::connect(address).is_err(), "the listener is closed");
    let daemon = tsdb(dir.path()).start();
    let response = http(
        daemon.address(),
        "GET",
        "/api/query?start=1599999999&end=1600000001&m=sum:m%7Bhost=a%7D",
        None,
    );
    assert!(response.body.contains(r#""1600000000":1"#), "{}", response.body);
    assert!(daemon.terminate().success());
}

#[test]
fn idle_connections_do_not_delay_shutdown() {
    let dir = directory();
    let daemon = tsdb(dir.path()).env("TSD_SHUTDOWN_TIMEOUT", "2").start();
    let _telnet = connect(daemon.address());
    let mut half = connect(daemon.address());
    half.write_all(b"POST /api/put HTTP/1.1\r\nHost: tsd\r\nContent-Length: 100\r\n\r\n[")
        .expect("send");
    daemon.signal("INT");
    assert!(daemon.wait().success());
}

#[test]
fn memory_engine_writes_no_files() {
    let dir = directory();
    let data = dir.path().join("never");
    let daemon = tsdb(&data).env("TSD_STORAGE_ENGINE", "memory").start();
    assert!(exchange(daemon.address(), b"put m 1600000000 1 host=a\n").is_empty());
    assert!(daemon.terminate().success());
    assert!(!data.exists());
}

#[test]
fn a_damaged_log_is_opened_only_with_accept_damage() {
    let dir = directory();
    let daemon = tsdb(dir.path()).start();
    for second in 0..20 {
        let point = format!(
            r#"{{"metric":"m","timestamp":{},"value":1,"tags":{{"host":"a"}}}}"#,
            1_600_000_000 + second
        );
        assert_eq!(http(daemon.address(), "POST", "/api/put", Some(&point)).status, 204);
    }
    daemon.kill();
    let segment = fs::read_dir(dir.path().join("log"))
        .expect("the log")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name != "lock"))
        .max_by_key(|path| fs::metadata(path).map_or(0, |m| m.len()))
        .expect("a segment");
    let mut bytes = fs::read(&segment).expect("read");
    let written = bytes.iter().rposition(|b| *b != 0).expect("records");
    bytes[written / 2] ^= 0x10;
    fs::write(&segment, bytes).expect("write");

    let (status, stderr) = tsdb(dir.path()).run_to_exit();
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("--accept-damage"), "{stderr}");
    let name = segment.file_name().and_then(|name| name.to_str()).expect("a name");
    assert!(stderr.contains(name), "{stderr}");

    let daemon = tsdb(dir.path()).args(&["--accept-damage"]).start();
    assert!(!daemon.events_at_level("ERROR").is_empty(), "lost records are logged");
    assert!(daemon.terminate().success());
}

/// Returns false on a host without IPv6, and reports that.
fn has_ipv6() -> bool {
    let has = TcpListener::bind("[::1]:0").is_ok();
    if !has {
        report("start: this host has no IPv6; its addresses are not tested");
    }
    has
}

#[test]
fn every_address_of_bind_is_served() {
    if !has_ipv6() {
        return;
    }
    let dir = directory();
    for (bind, v4, v6) in [
        ("127.0.0.1", true, false),
        ("[::1]", false, true),
        ("::1, 127.0.0.1", true, true),
        ("::", true, true),
        ("[::],0.0.0.0", true, true),
        ("0.0.0.0", true, false),
    ] {
        let daemon = tsdb(dir.path()).env("TSD_NETWORK_BIND", bind).without_bind().start();
        let port = daemon.address().port();
        let serves = |host: &str| TcpStream::connect((host, port)).is_ok();
        assert_eq!((serves("127.0.0.1"), serves("::1")), (v4, v6), "{bind}");
        let ready = daemon.events("ready to serve").pop().expect("a line");
        let urls = ready["urls"].as_str().expect("URLs").to_owned();
        for url in urls.split(' ') {
            let address = url.strip_prefix("http://").and_then(|url| url.strip_suffix('/'));
            assert!(TcpStream::connect(address.expect("a URL")).is_ok(), "{bind}: {url}");
        }
        assert!(daemon.terminate().success());
    }
}

#[test]
fn the_default_is_every_address_of_both_families() {
    let dir = directory();
    let daemon = tsdb(dir.path()).without_bind().start();
    for host in ["127.0.0.1", "::1"] {
        if host == "::1" && !has_ipv6() {
            continue;
        }
        assert!(TcpStream::connect((host, daemon.address().port())).is_ok(), "{host}");
    }
    assert!(daemon.terminate().success());
}

#[test]
fn the_first_line_says_what_starts_and_a_later_one_where_to_look() {
    let dir = directory();
    let daemon = tsdb(dir.path()).start();
    let start = daemon.events("starting").pop().expect("a line");
    assert_eq!(start["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(start["store"], "embedded");
    assert_eq!(start["directory"].as_str(), dir.path().to_str());
    assert_eq!(start["pid"], daemon.pid());
    assert!(!start["revision"].as_str().expect("a revision").is_empty());
    let address = daemon.address();
    let open = format!("Ready to serve on {address}: open http://{address}/ in a browser");
    let shown = || {
        daemon.events_at_level("INFO").into_iter().find(|event| {
            event["message"].as_str().is_some_and(|message| message.starts_with(&open))
        })
    };
    assert!(wait_for(shown).is_some(), "{open}");
    assert!(daemon.terminate().success());
}

#[test]
fn errors_at_start_are_one_line_with_a_way_out() {
    let dir = directory();
    let last_line = |stderr: &str| stderr.lines().last().expect("a line").to_owned();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = taken.local_addr().expect("an address").port().to_string();
    let (status, stderr) = tsdb(&dir.path().join("a"))
        .env("TSD_NETWORK_REUSE_ADDRESS", "false")
        .port(&port)
        .run_to_exit();
    let line = last_line(&stderr);
    assert_eq!(status.code(), Some(1), "{stderr}");
    let expected = format!("tsdb: cannot listen on 127.0.0.1:{port}: Address already in use");
    assert!(line.starts_with(&expected) && line.contains("--port"), "{line}");

    let file = dir.path().join("file");
    fs::write(&file, "").expect("write");
    let (status, stderr) = tsdb(&file).run_to_exit();
    let line = last_line(&stderr);
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(line.contains(file.to_str().expect("a path")) && line.contains("--data"), "{line}");

    let closed = dir.path().join("closed");
    fs::create_dir(&closed).expect("a directory");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).expect("permissions");
    // The superuser may write everywhere.
    if fs::write(closed.join("probe"), "").is_err() {
        let (status, stderr) = tsdb(&closed.join("data")).run_to_exit();
        let line = last_line(&stderr);
        assert_eq!(status.code(), Some(1), "{stderr}");
        assert!(line.contains("Permission denied") && line.contains("--data"), "{line}");
    }
    let (status, stderr) =
        tsdb(dir.path()).env("TSD_NETWORK_BIND", "nowhere.invalid").without_bind().run_to_exit();
    assert_eq!(status.code(), Some(WRONG_CONFIGURATION), "{stderr}");
    assert!(last_line(&stderr).contains("tsd.network.bind"), "{stderr}");
}

#[test]
fn sighup_reloads_the_log_level_and_never_ends_the_daemon() {
    let dir = directory();
    let file = dir.path().join("opentsdb.conf");
    let data = dir.path().join("data");
    fs::write(&file, "tsd.log.level = warn,tsd_cli=info\n").expect("write");
    let daemon = tsdb(&data).args(&["--config", file.to_str().expect("a path")]).start();
    let reloads = |level: &str, start: &str| {
        let count = || {
            let events = daemon.events_at_level(level);
            let message = |event: &serde_json::Value| {
                event["message"].as_str().is_some_and(|message| message.starts_with(start))
            };
            events.into_iter().filter(message).collect::<Vec<_>>()
        };
        let before = count().len();
        daemon.signal("HUP");
        wait_for(|| count().get(before).cloned()).expect("a log line")
    };
    fs::write(&file, "tsd.log.level = debug\ntsd.mode = ro\n").expect("write");
    let line = reloads("WARN", "SIGHUP: reloaded");
    assert_eq!(
        (line["log_level"].as_str(), line["restart_for"].as_str()),
        (Some("debug"), Some("tsd.mode"))
    );
    // The mode is unchanged: the put is stored.
    let put = r#"{"metric":"m","timestamp":1600000000,"value":1,"tags":{"host":"a"}}"#;
    assert_eq!(http(daemon.address(), "POST", "/api/put", Some(put)).status, 204);

    // A setting that a start would refuse does not prevent the new log level.
    fs::write(&file, "tsd.log.level = info\ntsd.storage.salt.width = many\n").expect("write");
    let line = reloads("WARN", "SIGHUP: the next start would fail");
    assert!(line["message"].as_str().expect("a text").contains("tsd.storage.salt.width"), "{line}");
    let line = reloads("WARN", "SIGHUP: reloaded");
    assert_eq!(line["log_level"], "info", "{line}");

    fs::write(&file, "tsd.log.level = loud\n").expect("write");
    let line = reloads("WARN", "SIGHUP: tsd.log.level is unchanged");
    assert!(line["message"].as_str().expect("a text").contains("loud"), "{line}");

    fs::write(&file, "tsd.log.level = warn,tsd_cli=info\n").expect("write");
    daemon.signal("HUP");
    // The reload before it has a line of its own, which may come late.
    let message = "SIGHUP: reloaded the log level and the followed files";
    let _ = daemon.wait_for_event(message, |event| event["log_level"] == "warn,tsd_cli=info");
    assert_eq!(http(daemon.address(), "GET", "/api/version", None).status, 200);
    assert!(daemon.terminate().success());
}
