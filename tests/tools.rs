//! The commands of `tsdb` as processes, above all `tsdb query`: on a directory, with a daemon, and into a pipe.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;
use tsd_testkit::http;

use crate::{TSDB, graph::picture::Picture, tsdb};

pub(crate) const FIRST_SECOND: u64 = 1_600_000_000;

pub(crate) fn directory() -> TempDir {
    tempfile::tempdir().expect("temporary directory")
}

/// A file of `count` points of one series, a second apart.
pub(crate) fn points_file(directory: &Path, count: u64) -> PathBuf {
    let path = directory.join("points.txt");
    let line = |n| format!("m {} {n} host=a\n", FIRST_SECOND + n);
    fs::write(&path, (0..count).map(line).collect::<Vec<_>>().concat()).expect("write");
    path
}

pub(crate) fn tool(arguments: &[&str]) -> Output {
    Command::new(TSDB).args(arguments).stdin(Stdio::null()).output().expect("run tsdb")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().expect("a path")
}

pub(crate) fn query(data: &Path, words: &[&str]) -> Output {
    let start = (FIRST_SECOND - 1).to_string();
    let end = (FIRST_SECOND + 10_000_000).to_string();
    tool(&[&["query", "--data", path(data), &start, &end, "sum"], words].concat())
}

#[test]
fn tools_use_the_running_daemon_of_their_directory() {
    let dir = directory();
    let data = dir.path().join("data");
    let file = points_file(dir.path(), 12_345);
    let daemon = tsdb(&data).start();
    let url = format!("http://{}/", daemon.address());

    let import = tool(&["import", "--data", path(&data), path(&file)]);
    assert!(import.status.success(), "{import:?}");
    assert!(text(&import.stdout).contains("Total: imported 12345 data points"), "{import:?}");
    // The daemon is named on a terminal only.
    assert!(import.stderr.is_empty(), "{import:?}");
    let through_daemon = query(&data, &["m", "host=a"]);
    assert!(through_daemon.status.success(), "{through_daemon:?}");
    assert!(through_daemon.stderr.is_empty(), "{through_daemon:?}");
    let rated = query(&data, &["rate", "m", "host=a"]);
    // By URL, from anywhere.
    let end = (FIRST_SECOND + 20_000).to_string();
    let by_url = tool(&["query", "--url", &url, &FIRST_SECOND.to_string(), &end, "sum", "m"]);
    assert_eq!(by_url.stdout, through_daemon.stdout);
    let missing = query(&data, &["no.such.metric"]);
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");
    assert!(text(&missing.stderr).contains("no.such.metric"), "{missing:?}");
    assert!(daemon.terminate().success());

    // The same without a daemon.
    let on_directory = query(&data, &["m", "host=a"]);
    assert!(on_directory.stderr.is_empty(), "{on_directory:?}");
    assert_eq!(text(&on_directory.stdout).lines().count(), 12_345);
    assert_eq!(text(&on_directory.stdout), text(&through_daemon.stdout));
    assert_eq!(text(&query(&data, &["rate", "m", "host=a"]).stdout), text(&rated.stdout));
    let unreachable = tool(&["query", "--url", &url, "1h-ago", "sum", "m"]);
    assert_eq!(unreachable.status.code(), Some(1));
    assert!(text(&unreachable.stderr).contains("cannot connect to"), "{unreachable:?}");
}

#[test]
fn a_reader_that_closes_the_pipe_ends_a_query_without_a_word() {
    let dir = directory();
    let data = dir.path().join("data");
    let file = points_file(dir.path(), 20_000);
    assert!(tool(&["import", "--create", "--data", path(&data), path(&file)]).status.success());
    let daemonless = |arguments: &[&str]| {
        let mut child = Command::new(TSDB)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("run tsdb");
        let mut first = String::new();
        let mut out = BufReader::with_capacity(16, child.stdout.take().expect("output"));
        out.read_line(&mut first).expect("a line");
        drop(out);
        let output = child.wait_with_output().expect("wait");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        assert!(output.stderr.is_empty(), "{arguments:?}: {output:?}");
        first
    };
    let end = (FIRST_SECOND + 100_000).to_string();
    let start = FIRST_SECOND.to_string();
    let words = ["query", "--data", path(&data), &start, &end, "sum", "m"];
    assert!(daemonless(&words).starts_with("m 1600000000000 0 {host=a}"));
    daemonless(&["version"]);
    daemonless(&["help"]);
}

#[test]
fn help_and_version_are_commands_and_name_the_program() {
    for arguments in [&["help"][..], &["help", "import"], &["import", "--help"], &["--help"]] {
        let help = tool(arguments);
        assert!(help.status.success(), "{help:?}");
        assert!(text(&help.stdout).contains("Usage: tsdb"), "{arguments:?}: {help:?}");
    }
    let (import, flag) = (tool(&["help", "import"]), tool(&["import", "--help"]));
    assert_eq!(text(&import.stdout), text(&flag.stdout));
    assert_eq!(tool(&["help", "nonsense"]).status.code(), Some(1));
    let version = text(&tool(&["version"]).stdout);
    assert!(version.starts_with(&format!("net.opentsdb.tools {}", env!("CARGO_PKG_VERSION"))));
    let name = format!("Saltern {}, revision ", env!("CARGO_PKG_VERSION"));
    assert!(version.lines().any(|line| line.starts_with(&name)), "{version}");
    assert!(text(&tool(&["--version"]).stdout).contains(&name));
}

#[test]
fn errors_of_queries_are_those_of_the_daemon() {
    let dir = directory();
    let data = dir.path().join("data");
    let file = points_file(dir.path(), 1);
    assert!(tool(&["import", "--create", "--data", path(&data), path(&file)]).status.success());
    let refused = |words: &[&str], expected: &str| {
        let output = tool(&[&[words[0], "--data", path(&data)], &words[1..]].concat());
        assert!(!output.status.success(), "{words:?}");
        let error = text(&output.stderr);
        assert_eq!(error.lines().last(), Some(&*format!("tsdb: {expected}")), "{words:?}");
    };
    let no_name = "No such name for 'metrics': 'absent'";
    refused(&["query", "1h-ago", "sum", "absent"], no_name);
    refused(&["scan", "1h-ago", "sum", "absent"], no_name);
    let unknown = tool(&["query", "--data", path(&data), "1h-ago", "mean", "m"]);
    let nearest = "tsdb: No such aggregation function: mean: Did you mean avg? Valid names: avg, ";
    assert!(text(&unknown.stderr).contains(nearest), "{unknown:?}");
    let time = "Invalid time: yesterday. Invalid character 'y' in yesterday";
    refused(&["query", "yesterday", "sum", "m"], time);
}

#[test]
fn a_query_of_a_daemon_by_the_api_is_that_of_the_tool() {
    let dir = directory();
    let daemon = tsdb(dir.path()).start();
    let put = r#"[{"metric":"m","timestamp":1600000000,"value":0.1,"tags":{"host":"a"}},
        {"metric":"m","timestamp":1600000000,"value":4,"tags":{"host":"b"}}]"#;
    assert_eq!(http(daemon.address(), "POST", "/api/put", Some(put)).status, 204);
    let one = text(&query(dir.path(), &["m", "host=*"]).stdout);
    assert_eq!(one, "m 1600000000000 0.100000 {host=a}\nm 1600000000000 4 {host=b}\n");
    assert!(daemon.terminate().success());
    assert_eq!(text(&query(dir.path(), &["m", "host=*"]).stdout), one);
}

#[test]
fn a_query_as_json_is_the_same_on_a_directory_and_through_a_daemon() {
    let dir = directory();
    let daemon = tsdb(dir.path()).start();
    let put = r#"[{"metric":"m","timestamp":1600000000,"value":0.5,"tags":{"host":"a"}},
        {"metric":"m","timestamp":1600000001500,"value":4,"tags":{"host":"a"}},
        {"metric":"n","timestamp":1600000000,"value":1,"tags":{"host":"a"}},
        {"metric":"n","timestamp":1600000000,"value":2,"tags":{"host":"b"}}]"#;
    assert_eq!(http(daemon.address(), "POST", "/api/put", Some(put)).status, 204);
    let through_daemon = text(&query(dir.path(), &["m", "sum", "n", "--json"]).stdout);
    assert_eq!(
        through_daemon,
        "[{\"metric\":\"m\",\"tags\":{\"host\":\"a\"},\"aggregateTags\":[],\
         \"dps\":{\"1600000000000\":0.5,\"1600000001500\":4}},\n \
         {\"metric\":\"n\",\"tags\":{},\"aggregateTags\":[\"host\"],\
         \"dps\":{\"1600000000000\":3}}]\n"
    );
    assert!(daemon.terminate().success());
    assert_eq!(text(&query(dir.path(), &["--json", "m", "sum", "n"]).stdout), through_daemon);
    let both = query(dir.path(), &["--json", "--graph", "g", "m"]);
    assert_eq!(both.status.code(), Some(2), "{both:?}");
}

#[test]
fn the_other_queries_of_the_api_are_the_same_on_a_directory_and_through_a_daemon() {
    let dir = directory();
    let daemon = tsdb(dir.path()).start();
    let put = r#"[{"metric":"m","timestamp":1600000000,"value":1.5,"tags":{"host":"a"}},
        {"metric":"m","timestamp":1600000010,"value":4,"tags":{"host":"a"}},
        {"metric":"m","timestamp":1600000000,"value":2,"tags":{"host":"b"}}]"#;
    assert_eq!(http(daemon.address(), "POST", "/api/put", Some(put)).status, 204);
    let body = dir.path().join("exp.json");
    let exp = r#"{"time": {"start": "1600000000", "end": "1600000100", "aggregator": "sum"},
        "metrics": [{"id": "a", "metric": "m"}], "expressions": [{"id": "e", "expr": "a * 10"}]}"#;
    fs::write(&body, exp).expect("write");
    let data = path(dir.path()).to_owned();
    let results = || {
        let of = |words: &[&str]| {
            let output = tool(&[&["query", "--data", &data], words].concat());
            assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
            text(&output.stdout)
        };
        let scaled = "scale(sum:m{host=*},10)";
        [
            of(&["gexp", "1600000000", "1600000100", scaled]),
            of(&["gexp", "1600000000", "1600000100", scaled, "--csv"]),
            of(&["last", "m{host=a}", "m{host=b}"]),
            of(&["exp", path(&body)]),
        ]
    };
    let through_daemon = results();
    let [gexp, csv, last, exp] = &through_daemon;
    let scaled = "m 1600000000000 15.000000 {host=a}\nm 1600000010000 40 {host=a}\n\
                  m 1600000000000 20 {host=b}\n";
    assert_eq!(gexp, scaled);
    assert_eq!(csv.lines().count(), 4, "{csv}");
    assert_eq!(last, "m 1600000010000 4 {host=a}\nm 1600000000000 2 {host=b}\n");
    assert!(exp.contains(r#""dps":[[1600000000000,35.0]"#), "{exp}");
    assert!(daemon.terminate().success());
    assert_eq!(results(), through_daemon);
    let refused = tool(&["query", "--data", &data, "exp", path(&body), "--csv"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

/// Output of `tsdb query --graph` for the points of [`points_file`]; `words` follow the time range.
fn graph(store: [&str; 2], base: &str, options: &[&str], words: &[&str]) -> Output {
    let (start, end) = (FIRST_SECOND.to_string(), (FIRST_SECOND + 600).to_string());
    let flags = ["query", store[0], store[1], "--graph", base];
    let rest = [&[start.as_str(), end.as_str()][..], words].concat();
    Command::new(TSDB)
        .args(flags)
        .args(options)
        .args(rest)
        .env("COLUMNS", "60")
        .env("LINES", "15")
        .stdin(Stdio::null())
        .output()
        .expect("run tsdb")
}

#[test]
fn a_graph_is_a_file_or_text_of_the_terminal() {
    let dir = directory();
    let data = dir.path().join("data");
    let file = points_file(dir.path(), 600);
    assert!(tool(&["import", "--create", "--data", path(&data), path(&file)]).status.success());
    let on_directory = ["--data", path(&data)];
    let (png, base) = (dir.path().join("g.png"), dir.path().join("g"));

    let words = ["+wxh=320x200", "+nokey", "+style=lines", "sum", "m", "host=a"];
    let output = graph(on_directory, path(&png), &[], &words);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let drawn = fs::read(&png).expect("a file");
    let picture = Picture::decode(&drawn);
    let line = picture.find([0x1f, 0x77, 0xb4]);
    let (first, last) = (line.first().expect("a line"), line.last().expect("a line"));
    assert_eq!((picture.width, picture.height), (320, 200));
    assert!(first.1 > 150 && last.1 < 40, "it rises: {first:?} {last:?}");

    let characters = graph(on_directory, "-", &[], &["sum", "m"]);
    assert!(characters.status.success(), "{characters:?}");
    let characters = text(&characters.stdout);
    assert_eq!(characters.lines().count(), 14, "{characters}");
    assert!(characters.lines().all(|line| line.chars().count() <= 60), "{characters}");
    assert!(characters.contains("600┤") && characters.ends_with("── m{host=a}\n"), "{characters}");
    let dots = characters.chars().filter(|c| ('\u{2801}'..='\u{28ff}').contains(c)).count();
    assert!(dots > 40 && !characters.contains('\u{1b}'), "{characters}");

    let files = graph(on_directory, path(&base), &[], &["+ylabel=a", "sum", "m"]);
    assert!(files.status.success(), "{files:?}");
    let script = fs::read_to_string(base.with_extension("gnuplot")).expect("a script");
    let points = fs::read_to_string(dir.path().join("g_0.dat")).expect("points");
    assert!(script.contains("g_0.dat"), "{script}");
    assert_eq!(points.lines().count(), 600);

    for (base, options, words, part) in [
        (path(&png), &[][..], &["+yrange=[0:`id`]", "sum", "m"][..], "yrange"),
        ("-", &["--sixel"], &["sum", "m"], "--sixel"),
        ("/nowhere/g.png", &[], &["sum", "m"], "/nowhere/g.png"),
        ("-", &[], &["sum", "no.such"], "no.such"),
    ] {
        let output = graph(on_directory, base, options, words);
        assert!(!output.status.success() && text(&output.stderr).contains(part), "{output:?}");
    }

    // Through the daemon it is the same.
    let daemon = tsdb(&data).start();
    let url = format!("http://{}/", daemon.address());
    let through_daemon = ["--url", url.as_str()];
    assert!(graph(through_daemon, path(&png), &[], &words).status.success());
    assert!(fs::read(&png).expect("a file") == drawn, "another picture");
    let again = graph(through_daemon, "-", &[], &["sum", "m"]);
    assert_eq!(text(&again.stdout), characters);
    assert!(daemon.terminate().success());
}

#[test]
fn series_are_listed_by_metric_and_tags() {
    let dir = directory();
    let daemon = tsdb(dir.path()).start();
    let put = r#"[{"metric":"m","timestamp":1600000000,"value":1,"tags":{"host":"a","dc":"x"}},
        {"metric":"m","timestamp":1600003600,"value":1,"tags":{"host":"a","dc":"x"}},
        {"metric":"m","timestamp":1600000000,"value":1,"tags":{"host":"b"}},
        {"metric":"n","timestamp":1600000000,"value":1,"tags":{"host":"a"}}]"#;
    assert_eq!(http(daemon.address(), "POST", "/api/put", Some(put)).status, 204);
    let search = |words: &[&str]| {
        let output = tool(&[&["search", "--data", path(dir.path()), "lookup"], words].concat());
        assert!(output.status.success(), "{output:?}");
        let mut lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
        lines.sort_unstable();
        // UIDs are assigned in any order.
        lines.into_iter().map(|line| line.split_once(' ').expect("a TSUID").1.to_owned()).collect()
    };
    let check_all = || {
        for (words, expected) in [
            (&["m"][..], &["m host=a dc=x ", "m host=b "][..]),
            (&["m", "host=a"], &["m host=a dc=x "]),
            (&["host=a"], &["m host=a dc=x ", "n host=a "]),
            (&["dc="], &["m host=a dc=x "]),
            (&["=b"], &["m host=b "]),
            (&["--use-data-table", "n"], &["n host=a "]),
        ] {
            let mut found: Vec<String> = search(words);
            found.sort_unstable();
            assert_eq!(found, expected, "{words:?}");
        }
    };
    check_all();
    assert!(daemon.terminate().success());
    check_all();
    assert_eq!(search(&["--limit", "1", "m"]).len(), 1);
    let json = tool(&["search", "--json", "--data", path(dir.path()), "lookup", "n"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json[0]["tags"]["host"], "a");
    for (words, status) in [(&["lookup"][..], 2), (&["find", "m"], 2), (&["lookup", "nothing"], 1)]
    {
        let output = tool(&[&["search", "--data", path(dir.path())], words].concat());
        assert_eq!(output.status.code(), Some(status), "{words:?}: {output:?}");
    }
}

#[test]
fn an_unknown_command_has_opentsdbs_texts() {
    for (arguments, name) in [(&["qurey", "m"][..], "qurey"), (&["--nonsense"], "--nonsense")] {
        let output = tool(arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(
            stderr.starts_with(&format!("tsdb: error: unknown command '{name}'\n")),
            "{stderr}"
        );
        assert!(stderr.ends_with("usage: tsdb <command> [args]\n"), "{stderr}");
        let valid =
            "Valid commands: fsck, import, mkmetric, query, tsd, scan, search, uid, version\n";
        assert!(stdout.starts_with(valid), "{stdout}");
    }
    let alone = tool(&[]);
    assert_eq!(alone.status.code(), Some(1), "{alone:?}");
    assert!(text(&alone.stdout).contains("\nUsage: tsdb <COMMAND>\n"), "{alone:?}");
    assert!(alone.stderr.is_empty(), "{alone:?}");
    for (arguments, expected) in [
        (&["uid", "--nonsense"][..], "Invalid usage.  Unrecognized option --nonsense\n"),
        (&["uid", "--idwidth"], "Invalid usage.  Missing argument for --idwidth\n"),
    ] {
        let output = tool(arguments);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).starts_with(expected), "{output:?}");
    }
}

#[test]
fn a_configuration_is_checked_without_a_store() {
    let dir = directory();
    let file = dir.path().join("opentsdb.conf");
    fs::write(&file, "tsd.network.port = 4243\ntsd.network.prot = 1\n").expect("write");
    let check = |arguments: &[&str]| tool(&[&["config", "check", path(&file)], arguments].concat());
    let unknown = check(&[]);
    assert_eq!(unknown.status.code(), Some(0), "{unknown:?}");
    assert!(text(&unknown.stdout).contains("the nearest key is tsd.network.port\n"), "{unknown:?}");
    assert_eq!(check(&["--strict"]).status.code(), Some(1));
    fs::write(&file, "tsd.mode = x\n").expect("write");
    let wrong = check(&["--json"]);
    assert_eq!(wrong.status.code(), Some(1), "{wrong:?}");
    let json: serde_json::Value = serde_json::from_slice(&wrong.stdout).expect("JSON");
    assert_eq!((&json["errors"], &json["keys"][0]["verdict"]), (&1.into(), &"wrong".into()));
    assert_eq!(tool(&["config", "check", "/nowhere"]).status.code(), Some(2));
    let list = text(&tool(&["config", "list"]).stdout);
    assert!(list.contains("tsd.network.port = 4242\n    Port to listen on"), "{list}");
}

#[test]
fn start_flags_of_opentsdb_are_taken() {
    let dir = directory();
    let flags =
        ["--read-only", "true", "--disable-ui", "false", "--statswport", "--flush-interval", "10"];
    let daemon = tsdb(dir.path()).args(&flags).start();
    let put = r#"{"metric":"m","timestamp":1600000000,"value":1,"tags":{"host":"a"}}"#;
    assert_eq!(http(daemon.address(), "POST", "/api/put", Some(put)).status, 404);
    let stats = http(daemon.address(), "GET", "/api/stats", None);
    assert!(stats.body.contains(&format!("\"port\":\"{}\"", daemon.address().port())));
    let config = http(daemon.address(), "GET", "/api/config", None);
    assert!(config.body.contains("\"tsd.core.enable_ui\":\"false\""), "{}", config.body);
    assert!(daemon.terminate().success());
}
