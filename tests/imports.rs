//! `tsdb import` as a process: on a directory, with a daemon, into a full store, and stopped.

use std::{
    fs,
    io::{Read, Write},
    path::Path,
    process::{Command, Stdio},
};

use tsd_testkit::wait_for;

use crate::{
    TSDB,
    tools::{FIRST_SECOND, directory, path, points_file, query, text, tool},
    tsdb,
};

#[test]
fn an_import_through_a_daemon_names_the_lines_it_refuses() {
    let dir = directory();
    let data = dir.path().join("data");
    let file = dir.path().join("points.txt");
    fs::write(
        &file,
        "m 1600000000 1 host=a\nm 1600000001 2 ho!st=a\nnonsense\nm 1600000002 3 host=a\nm 1600000003 4 host=\u{e4}/b\n",
    )
    .expect("write");
    // Requests of a few points each.
    let daemon = tsdb(&data).env("TSD_HTTP_REQUEST_MAX_CHUNK", "200").start();
    let import = tool(&["import", "--data", path(&data), "--skip-errors", path(&file)]);
    assert!(import.status.success(), "{import:?}");
    assert!(text(&import.stdout).contains("imported 3 data points"), "{import:?}");
    assert!(text(&import.stdout).contains("2 lines skipped"), "{import:?}");
    for line in [2, 3] {
        let named = format!("{} line {line}: ", path(&file));
        assert!(text(&import.stderr).contains(&named), "{import:?}");
    }
    let again = tool(&["import", "--data", path(&data), path(&file)]);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    assert!(text(&again.stderr).contains("line 2: ") || text(&again.stderr).contains("line 3: "));
    assert!(text(&again.stdout).contains("Total: imported 1 data points"), "{again:?}");
    assert!(daemon.terminate().success());
}

#[test]
fn an_import_tells_what_was_stored_before_a_bad_line() {
    let dir = directory();
    let data = dir.path().join("data");
    let file = points_file(dir.path(), 50_000);
    let mut open = fs::File::options().append(true).open(&file).expect("open");
    open.write_all(b"m 1 2\nm 1700000000 1 host=a\n").expect("write");
    let import = tool(&["import", "--create", "--data", path(&data), path(&file)]);
    assert_eq!(import.status.code(), Some(1), "{import:?}");
    assert!(text(&import.stdout).contains("Total: imported 50000 data points"), "{import:?}");
    let expected = format!("{} line 50001: expected", path(&file));
    assert!(text(&import.stderr).contains(&expected), "{import:?}");
    assert_eq!(text(&query(&data, &["m"]).stdout).lines().count(), 50_000);
}

#[test]
fn an_import_into_a_full_store_tells_what_was_stored_and_exits_2() {
    let dir = directory();
    let data = dir.path().join("data");
    let file = points_file(dir.path(), 20_000);
    // No disk has this much free space.
    let import = Command::new(TSDB)
        .args(["import", "--create", "--data", path(&data), path(&file)])
        .env("TSD_STORAGE_RESERVE", (1_u64 << 40).to_string())
        .output()
        .expect("run tsdb");
    if import.status.success() {
        // A disk of terabytes.
        return;
    }
    assert_eq!(import.status.code(), Some(2), "{import:?}");
    let stderr = text(&import.stderr);
    assert!(stderr.lines().last().is_some_and(|line| line.contains("no space left")), "{stderr}");
    let stdout = text(&import.stdout);
    let stored: usize = stdout
        .split_once("Total: imported ")
        .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("{stdout}"));
    assert_eq!(text(&query(&data, &["m"]).stdout).lines().count(), stored);
}

#[test]
fn the_total_of_an_import_is_json_on_demand() {
    let dir = directory();
    let data = dir.path().join("data");
    let file = points_file(dir.path(), 10);
    let import = tool(&["import", "--json", "--create", "--data", path(&data), path(&file)]);
    let total: serde_json::Value = serde_json::from_slice(&import.stdout).expect("JSON");
    assert_eq!((&total["points"], &total["completed"]), (&10.into(), &true.into()), "{import:?}");
    assert!(text(&import.stderr).contains("Processed "), "{import:?}");
}

#[test]
fn a_stopped_import_stores_what_it_read_and_says_how_much() {
    for (signal, status) in [("INT", 130), ("TERM", 143)] {
        let dir = directory();
        let data = dir.path().join("data");
        let mut import = Command::new(TSDB)
            .args(["import", "--create", "--data", path(&data), "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("run tsdb");
        // The pipe stays open: the import waits for more lines when the signal comes.
        let mut stdin = import.stdin.take().expect("standard input");
        for n in 0..3_000 {
            writeln!(stdin, "m {} {n} host=a", FIRST_SECOND + n).expect("send");
        }
        stdin.flush().expect("send");
        let log = data.join("log");
        let written = || {
            let files = fs::read_dir(&log).ok()?.filter_map(Result::ok);
            files.into_iter().any(|file| holds_records(&file.path())).then_some(())
        };
        wait_for(written).expect("the log has records");
        let sent = Command::new("kill")
            .args([&format!("-{signal}"), &import.id().to_string()])
            .status()
            .expect("kill");
        assert!(sent.success());
        let exit = import.wait().expect("wait");
        let mut output = (String::new(), String::new());
        import.stdout.take().expect("output").read_to_string(&mut output.0).expect("output");
        import.stderr.take().expect("errors").read_to_string(&mut output.1).expect("errors");
        drop(stdin);
        assert_eq!(exit.code(), Some(status), "{output:?}");
        assert!(output.1.contains("stopping; a second signal exits at once"), "{output:?}");
        assert!(output.1.contains(&format!("stopped by SIG{signal} after - line ")), "{output:?}");
        let stored = text(&query(&data, &["m"]).stdout).lines().count();
        assert!(
            output.0.contains(&format!("Total: imported {stored} data points")),
            "{stored} {output:?}"
        );
        assert!(stored > 0);
    }
}

/// True if a segment of the log has more than its header.
fn holds_records(segment: &Path) -> bool {
    fs::read(segment).is_ok_and(|bytes| bytes.iter().filter(|byte| **byte != 0).count() > 4_096)
}

#[test]
fn an_import_ends_with_its_result_and_with_statistics_on_demand() {
    let dir = directory();
    let data = dir.path().join("data");
    let file = points_file(dir.path(), 10);
    let import = |flags: &[&str]| {
        let words = ["import", "--create", "--data", path(&data), path(&file)];
        let import = tool(&[&words, flags].concat());
        assert!(import.status.success(), "{import:?}");
        let stdout = text(&import.stdout);
        let total = stdout.lines().next_back().expect("a total");
        assert!(total.starts_with("Total: imported 10 data points in "), "{stdout}");
        text(&import.stderr)
    };
    let stderr = import(&[]);
    assert!(!stderr.lines().any(|line| line.starts_with("tsd.")), "{stderr}");
    let stderr = import(&["--stats"]);
    let added = stderr.lines().find(|line| line.starts_with("tsd.uid.cache-size "));
    assert!(added.is_some_and(|line| line.ends_with(" kind=metrics")), "{stderr}");
    assert!(stderr.lines().any(|line| line.starts_with("tsd.compaction.count ")), "{stderr}");
}

/// Issue 37, C01: a directory got 32-bit floats of the same file.
#[test]
fn a_file_has_one_result_by_directory_and_by_daemon() {
    let dir = directory();
    let file = dir.path().join("points");
    let values = ["50.15", "0.1", "1.5", "-3", "16777217.5", "1e10", "9007199254740993"];
    let line = |(value, n)| format!("m {} {value} host=a\n", FIRST_SECOND + n);
    fs::write(&file, values.iter().zip(0..).map(line).collect::<Vec<_>>().concat()).expect("write");
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let data = |data: &Path| {
        let scan =
            ["scan", "--data", path(data), "--import", "2020/01/01", "2021/01/01", "sum", "m"];
        let scan = tool(&scan);
        assert!(scan.status.success(), "{scan:?}");
        text(&scan.stdout)
    };
    let import = tool(&["import", "--create", "--data", path(&first), path(&file)]);
    assert!(import.status.success(), "{import:?}");
    let exported = data(&first);
    assert!(exported.contains(" 50.15 host=a\n"), "{exported}");
    // An import restores exported points exactly.
    let copy = dir.path().join("exported");
    fs::write(&copy, &exported).expect("write");
    let third = dir.path().join("third");
    let import = tool(&["import", "--create", "--data", path(&third), path(&copy)]);
    assert!(import.status.success(), "{import:?}");
    assert_eq!(data(&third), exported);

    let daemon = tsdb(&second).start();
    let import = tool(&["import", "--data", path(&second), path(&file)]);
    assert!(import.status.success(), "{import:?}");
    for flag in ["--as-opentsdb", "--stats"] {
        let refused = tool(&["import", flag, "--data", path(&second), path(&file)]);
        assert!(!refused.status.success(), "{flag}");
        assert!(text(&refused.stderr).contains(flag), "{refused:?}");
    }
    assert!(daemon.terminate().success());
    assert_eq!(data(&second), exported);

    let rounded = dir.path().join("rounded");
    let words = ["import", "--as-opentsdb", "--create", "--data", path(&rounded), path(&file)];
    assert!(tool(&words).status.success());
    assert!(data(&rounded).contains(" 50.150001525878906 host=a\n"));
}
