//! Checks the control sequences that commands send to a terminal, which `script` (util-linux)
//! provides.

use std::process::{Command, Stdio};

use tsd_testkit::http;

use crate::{TSDB, in_process::directory, report, tsdb};

/// Runs a command line of a shell on a terminal; returns the terminal's input.
fn on_terminal(command: &str, variables: &[(&str, &str)]) -> Option<String> {
    let mut script = Command::new("script");
    script.args(["-qec", command, "/dev/null"]).stdin(Stdio::null());
    // With CI set, clap colors a dumb terminal by itself.
    script
        .env("TERM", "xterm")
        .env("CI", "true")
        .env_remove("NO_COLOR")
        .envs(variables.iter().copied());
    let done = script.output().ok()?;
    Some(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Issue 37.
#[test]
fn no_color_and_a_dumb_terminal_get_text_alone() {
    let data = directory();
    let daemon = tsdb(data.path()).start();
    let now = std::time::UNIX_EPOCH.elapsed().expect("a clock").as_secs();
    let point = format!(r#"{{"metric":"m","timestamp":{now},"value":1,"tags":{{"host":"a"}}}}"#);
    assert_eq!(http(daemon.address(), "POST", "/api/put", Some(&point)).status, 204);
    let url = format!("http://{}", daemon.address());
    for (what, command) in [
        // It cannot start, since a file is not a directory.
        ("log", format!("{TSDB} tsd --port 0 --data {}/schema.conf", data.path().display())),
        ("help", format!("{TSDB} cluster --help")),
        ("error of the parser", format!("{TSDB} verify --no-such-option")),
        ("graph", format!("{TSDB} query --graph - --url {url} 1h-ago sum m")),
    ] {
        let Some(shown) = on_terminal(&command, &[]) else {
            report("terminal: skipped, there is no script(1)");
            return;
        };
        assert!(shown.contains("\x1b["), "{what} has no colors at all: {shown:?}");
        for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            let shown = on_terminal(&command, &[variable]).expect("script");
            assert!(!shown.trim().is_empty(), "{what}");
            assert!(!shown.contains('\x1b'), "{what} with {variable:?}: {shown:?}");
        }
    }
    // A progress bar overwrites its line.
    let snapshot = format!("{TSDB} snapshot --data {0} {0}-copy", data.path().display());
    let shown = on_terminal(&snapshot, &[("TERM", "dumb")]).expect("script");
    assert!(shown.contains("Snapshot ") && !shown.contains('\x1b'), "{shown:?}");
    std::fs::remove_dir_all(format!("{}-copy", data.path().display())).expect("the snapshot");
}
