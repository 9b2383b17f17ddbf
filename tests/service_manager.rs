//! Tests what the daemon reports to a service manager: a socket takes the place of systemd.

use std::{os::unix::net::UnixDatagram, path::Path, process::Command, time::Duration};

use tsd_testkit::DaemonBuilder;

use crate::{TSDB, WRONG_CONFIGURATION, tsdb};

/// Socket of the service manager.
struct Manager {
    socket: UnixDatagram,
    directory: tempfile::TempDir,
}

impl Manager {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = UnixDatagram::bind(directory.path().join("notify")).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_mins(1))).expect("a timeout");
        Self { socket, directory }
    }

    fn data(&self) -> std::path::PathBuf {
        self.directory.path().join("data")
    }

    /// A daemon under this manager, with a limit of its watchdog in microseconds.
    fn daemon(&self, data: &Path, watchdog: Option<&str>) -> DaemonBuilder {
        let socket = self.directory.path().join("notify");
        let daemon = tsdb(data).env("NOTIFY_SOCKET", socket.to_str().expect("a path"));
        match watchdog {
            Some(limit) => daemon.env("WATCHDOG_USEC", limit),
            None => daemon,
        }
    }

    /// The lines of the next report.
    fn next(&self) -> Vec<String> {
        let mut buffer = [0; 4_096];
        let length = self.socket.recv(&mut buffer).expect("a report within a minute");
        String::from_utf8_lossy(&buffer[..length]).lines().map(str::to_owned).collect()
    }

    /// The next report that is not one of the watchdog.
    fn next_state(&self) -> Vec<String> {
        std::iter::repeat_with(|| self.next())
            .find(|lines| lines != &["WATCHDOG=1"])
            .expect("an endless iterator")
    }
}

#[test]
fn start_reload_and_stop_are_reported() {
    let manager = Manager::new();
    let daemon = manager.daemon(&manager.data(), None).start();
    assert_eq!(manager.next(), ["STATUS=opening the store"]);
    let serving = format!("STATUS=serving http://{}/", daemon.address());
    assert_eq!(manager.next(), ["READY=1", &serving]);
    daemon.signal("HUP");
    let reloading = manager.next();
    assert_eq!(reloading[0], "RELOADING=1");
    assert!(reloading[1].starts_with("MONOTONIC_USEC="), "{reloading:?}");
    assert_eq!(manager.next(), ["READY=1", &serving]);
    assert!(daemon.terminate().success());
    assert_eq!(manager.next(), ["STATUS=stopping"]);
    // tsd.shutdown.timeout and time for the exit.
    assert_eq!(manager.next(), ["STOPPING=1", "EXTEND_TIMEOUT_USEC=30000000", "STATUS=stopping"]);
}

#[test]
fn a_daemon_whose_threads_run_reports_its_life_until_it_has_stopped() {
    let manager = Manager::new();
    let daemon = manager.daemon(&manager.data(), Some("4000000")).start();
    let alive = std::iter::repeat_with(|| manager.next()).filter(|lines| lines == &["WATCHDOG=1"]);
    // One at the start, and later ones with the threads of the engine.
    assert_eq!(alive.take(3).count(), 3);
    assert!(daemon.terminate().success());
    while manager.next_state() != ["STATUS=stopping"] {}
}

#[test]
fn a_wrong_configuration_is_never_ready() {
    let manager = Manager::new();
    let daemon = manager.daemon(&manager.data(), None).env("TSD_MODE", "x");
    let (status, stderr) = daemon.run_to_exit();
    assert_eq!(status.code(), Some(WRONG_CONFIGURATION), "{stderr}");
    manager.socket.set_nonblocking(true).expect("a socket");
    let mut buffer = [0; 64];
    assert!(manager.socket.recv(&mut buffer).is_err(), "{buffer:?}");
}

#[test]
fn a_health_check_needs_no_program_but_this_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let daemon = tsdb(directory.path()).start();
    let check = |words: &[&str]| {
        let url = format!("http://{}", daemon.address());
        let output = Command::new(TSDB).args(["health", "--url", &url]).args(words).output();
        let output = output.expect("run tsdb");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (status, ready) = check(&[]);
    assert_eq!(status, Some(0));
    assert!(ready.contains(r#""ready":true"#), "{ready}");
    assert_eq!(check(&["--live"]), (Some(0), "{\"live\":true}\n".to_owned()));
    let unused = Command::new(TSDB).args(["health", "--url", "127.0.0.1:1"]).output();
    assert_eq!(unused.expect("run tsdb").status.code(), Some(1));
    assert!(daemon.terminate().success());
}
