#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;

use tempfile::TempDir;

use super::*;

fn sleeper(directory: &Path, watchdog: &Watchdog) -> Process {
    let log = directory.join("log");
    let program = Program {
        command: Path::new("sleep"),
        arguments: vec!["1000".into()],
        environment: Vec::new(),
        directory,
        log: &log,
        output: None,
    };
    Process::start(&program, watchdog).unwrap()
}

/// Waits until the condition is true.
fn wait_for(condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < end);
        thread::sleep(POLL_INTERVAL);
    }
}

#[test]
fn a_process_is_identified_by_its_start_time() {
    let directory = TempDir::new().unwrap();
    let watchdog = Watchdog::start(None).unwrap();
    let mut process = sleeper(directory.path(), &watchdog);
    let identity = process.identity();
    let other = ProcessIdentity { start: identity.start + 1, ..identity };
    assert!(identity.is_alive() && !other.is_alive());
    other.signal(Signal::KILL).unwrap_err();
    assert!(process.is_alive());
    process.kill().unwrap();
    assert!(!process.is_alive());
    identity.signal(Signal::KILL).unwrap_err();
}

#[test]
fn a_paused_process_can_be_killed() {
    let directory = TempDir::new().unwrap();
    let watchdog = Watchdog::start(None).unwrap();
    let mut process = sleeper(directory.path(), &watchdog);
    process.identity().signal(Signal::STOP).unwrap();
    assert!(process.is_alive());
    process.kill().unwrap();
    assert!(!process.is_alive());
}

#[test]
fn a_dropped_process_is_killed() {
    let directory = TempDir::new().unwrap();
    let watchdog = Watchdog::start(None).unwrap();
    let identity = sleeper(directory.path(), &watchdog).identity();
    assert!(!identity.is_alive());
}

#[test]
fn the_watchdog_kills_its_processes_when_its_pipe_closes() {
    let directory = TempDir::new().unwrap();
    let temporary = directory.path().join("temporary");
    fs::create_dir(&temporary).unwrap();
    let watchdog = Watchdog::start(Some(&temporary)).unwrap();
    let known = sleeper(directory.path(), &watchdog);
    let paused = sleeper(directory.path(), &watchdog);
    paused.identity().signal(Signal::STOP).unwrap();
    let forgotten = sleeper(directory.path(), &watchdog);
    watchdog.remove(forgotten.identity()).unwrap();
    // A pid that now belongs to a process with another start time.
    let other = sleeper(directory.path(), &watchdog);
    let started = ProcessIdentity { start: 1, ..other.identity() };
    watchdog.remove(other.identity()).unwrap();
    watchdog.add(started).unwrap();
    drop(watchdog);
    wait_for(|| !known.is_alive() && !paused.is_alive());
    assert!(forgotten.is_alive() && other.is_alive());
    assert!(!temporary.exists());
}

#[test]
fn a_detached_watchdog_kills_nothing() {
    let directory = TempDir::new().unwrap();
    let mut watchdog = Watchdog::start(Some(directory.path())).unwrap();
    let process = sleeper(directory.path(), &watchdog);
    watchdog.detach().unwrap();
    assert!(process.is_alive() && directory.path().exists());
}

#[test]
fn output_and_errors_are_redirected() {
    let directory = TempDir::new().unwrap();
    let watchdog = Watchdog::start(None).unwrap();
    let (log, output) = (directory.path().join("log"), directory.path().join("output"));
    let program = Program {
        command: Path::new("sh"),
        arguments: vec!["-c".into(), "echo out $NAME; echo err >&2".into()],
        environment: vec![("NAME", "x".into())],
        directory: directory.path(),
        log: &log,
        output: Some(&output),
    };
    let mut process = Process::start(&program, &watchdog).unwrap();
    assert!(process.wait(Duration::from_secs(20)));
    assert_eq!(fs::read_to_string(output).unwrap(), "out x\n");
    assert_eq!(tail(&log), "err");
}

#[test]
fn the_tail_of_a_log_is_its_last_lines() {
    let directory = TempDir::new().unwrap();
    let log = directory.path().join("log");
    assert_eq!(tail(&log), "");
    fs::write(&log, (0..100).map(|line| line.to_string()).collect::<Vec<_>>().join("\n")).unwrap();
    assert!(tail(&log).starts_with("70\n") && tail(&log).ends_with("\n99"));
}
