//! Tests commands whose output cannot be written, as on a full disk: their effects and their exit
//! status.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Output, Stdio},
};

use crate::{TSDB, in_process};

/// A device that takes no byte.
fn full() -> File {
    File::options().write(true).open("/dev/full").expect("/dev/full")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(TSDB);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Imports the lines, without a standard error that takes anything.
fn import(data: &str, directory: &Path, lines: &str) -> Output {
    let file = directory.join("points.txt");
    fs::write(&file, lines).expect("write");
    let file = file.to_str().expect("a path");
    let arguments = ["import", "--data", data, "--create", "--auto-metric", "--skip-errors", file];
    command(&arguments).stderr(full()).output().expect("run tsdb")
}

#[test]
fn good_points_are_imported_although_bad_lines_cannot_be_reported() {
    let directory = in_process::directory();
    let data = directory.path().join("data");
    let data = data.to_str().expect("a path");
    let lines = "m 1600000000 1 host=a\nnonsense\nm 1600000001 2 host=a\n";
    let imported = import(data, directory.path(), lines);
    assert!(imported.status.success(), "{imported:?}");
    let stdout = text(&imported.stdout);
    assert!(stdout.contains("imported 2 data points"), "{stdout}");
    assert!(stdout.contains("1 lines skipped"), "{stdout}");
}

#[test]
fn exit_statuses_do_not_depend_on_standard_error() {
    let directory = in_process::directory();
    let data = directory.path().join("data");
    let data = data.to_str().expect("a path");
    assert!(import(data, directory.path(), "m 1600000000 1 host=a\n").status.success());
    for (status, arguments) in [
        (1, &["nonsense"][..]),
        (2, &["query", "--nonsense"]),
        (2, &["query", "--data", data, "1h-ago"]),
        (2, &["search", "--data", data, "find"]),
        (3, &["uid", "--data", data, "treepurge", "x"]),
        (1, &["uid", "--data", data, "metrics", "absent"]),
        (2, &["fsck", "--data", data, "--full-scan", "--compact"]),
        (2, &["config", "check", "/nonexistent"]),
    ] {
        let output = command(arguments).stderr(full()).output().expect("run tsdb");
        assert_eq!(output.status.code(), Some(status), "{arguments:?} {output:?}");
    }
}

#[test]
fn output_that_was_not_written_is_an_error() {
    let directory = in_process::directory();
    let data = directory.path().join("data");
    let data = data.to_str().expect("a path");
    assert!(import(data, directory.path(), "m 1600000000 1 host=a\n").status.success());
    let file = directory.path().join("points.txt");
    let file = file.to_str().expect("a path");
    for (status, arguments) in [
        (1, &["version"][..]),
        (1, &["config", "list"]),
        (1, &["search", "--data", data, "lookup", "m"]),
        (1, &["query", "--data", data, "1600000000", "1600000001", "sum", "m"]),
        (1, &["scan", "--data", data, "1600000000", "sum", "m"]),
        (1, &["import", "--data", data, file]),
        (2, &["fsck", "--data", data, "--full-scan"]),
        (2, &["verify", "--data", data]),
        (3, &["uid", "--data", data, "grep", "metrics", "m"]),
        (3, &["uid", "--data", data, "--json", "metrics", "m"]),
    ] {
        let output = command(arguments).stdout(full()).output().expect("run tsdb");
        assert_eq!(output.status.code(), Some(status), "{arguments:?} {output:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains("No space left on device"), "{arguments:?} {stderr}");
    }
    // A reader that closes early, like `head`.
    for arguments in [&["config", "list"][..], &["uid", "--data", data, "grep", "metrics", "m"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = command(arguments).stdout(writer).output().expect("run tsdb");
        assert!(output.status.success(), "{arguments:?} {output:?}");
    }
}
