//! Issue 37: files, directories and locks of a store that are removed or replaced under a running daemon.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use tsd_testkit::{Daemon, http, wait_for};

use crate::{
    damage::{daemon, directory, expected, files, metric_value, part_files, populated, put, query},
    hbase_fake::{self, HBase},
    tsdb,
};

fn health(address: SocketAddr) -> String {
    http(address, "GET", "/api/status", None).body
}

/// Waits until puts are refused, and checks that status, metric and log say why.
#[track_caller]
fn check_refused(running: &Daemon, removed: &str) {
    let address = running.address();
    let mut at = 10_000;
    let is_refused = || {
        at += 1;
        (put(address, 0, at, at + 1) == 503).then_some(())
    };
    wait_for(is_refused).unwrap_or_else(|| panic!("{removed}: puts are accepted"));
    let is_shown = || health(address).contains(removed).then_some(());
    wait_for(is_shown).unwrap_or_else(|| panic!("{removed} is not in {}", health(address)));
    let is_counted = || {
        (metric_value(address, "tsd_wal_files_missing") == 1
            && metric_value(address, r#"tsd_health_problem{part="commit"}"#) >= 3)
            .then_some(())
    };
    wait_for(is_counted).unwrap_or_else(|| panic!("{removed} is not in the metrics"));
    let error = running.wait_for_event("commits fail", |_| true).to_string();
    assert!(error.contains(removed), "{removed}: {error}");
    assert_eq!(running.events("commits fail").len(), 1, "{removed}");
}

#[track_caller]
fn check_accepted(address: SocketAddr) {
    wait_for(|| (put(address, 0, 0, 1) == 204).then_some(())).expect("puts are accepted");
    let is_ok = || health(address).contains(r#""status":"ok""#).then_some(());
    wait_for(is_ok).unwrap_or_else(|| panic!("{}", health(address)));
    assert_eq!(metric_value(address, "tsd_wal_files_missing"), 0);
}

/// The daemon notices moved files without a put, and also their return.
#[test]
fn puts_are_refused_while_a_directory_or_the_manifest_is_missing() {
    let dir = directory();
    let (data, elsewhere) = (dir.path().join("data"), dir.path().join("elsewhere"));
    let running = tsdb(&data).start();
    let address = running.address();
    assert_eq!(put(address, 0, 0, 1), 204);
    for (round, path) in [
        "",
        "log",
        "log/log.state",
        "schema.conf",
        "store",
        "store/points",
        "store/points/t.tsdb",
        "store/points/t.tsdb/manifest",
        "store/points/t.tsdb/manifest.copy",
        "store/cells",
        "store/cells/t.tsdb-uid",
    ]
    .into_iter()
    .enumerate()
    {
        let path = data.join(path);
        fs::rename(&path, &elsewhere).expect("moved");
        let is_missing = || (metric_value(address, "tsd_wal_files_missing") == 1).then_some(());
        wait_for(is_missing).unwrap_or_else(|| panic!("{} is not noticed", path.display()));
        assert_eq!(put(address, 0, 5, 6), 503, "{}", path.display());
        assert_eq!(running.events("commits fail").len(), round + 1, "{}", path.display());
        fs::rename(&elsewhere, &path).expect("moved back");
        check_accepted(address);
    }
    assert!(running.terminate().success());
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for path in files(from) {
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("copied");
        }
    }
}

/// Nothing is flushed to a store that is put in the place of the open one.
#[test]
fn another_store_in_the_place_of_the_open_one_is_noticed_and_not_written_to() {
    for place in ["", "store", "log"] {
        let dir = directory();
        let data = dir.path().join("data");
        let (running, _) = populated(&data);
        let path = data.join(place);
        let [before, elsewhere] = ["before", "elsewhere"].map(|name| dir.path().join(name));
        copy(&path, &before);
        fs::rename(&path, &elsewhere).expect("moved");
        fs::rename(&before, &path).expect("moved");
        let contents = crate::verify::contents(&path);
        let shown = path.display().to_string();
        check_refused(&running, shown.trim_end_matches('/'));
        assert!(health(running.address()).contains("another one"));
        if place != "log" {
            assert_eq!(crate::verify::contents(&path), contents, "{place:?}");
        }
        running.kill();
    }
}

#[test]
fn a_removed_directory_refuses_puts_and_its_absence_the_next_start() {
    for removed in ["log", "store"] {
        let dir = directory();
        let data = dir.path().join("data");
        let (running, _) = populated(&data);
        let path = data.join(removed);
        fs::remove_dir_all(&path).expect("removed");
        check_refused(&running, path.to_str().expect("a path"));
        running.kill();
        let (log, started) = daemon(&data).try_start();
        assert!(started.is_err(), "{removed}");
        assert!(log.contains("--accept-damage"), "{log}");
        let accepted = daemon(&data).args(&["--accept-damage"]).start();
        if removed == "log" {
            let points = query(accepted.address(), 0).expect("points");
            assert!(expected(0, 600).iter().all(|(at, value)| points.get(at) == Some(value)));
        }
    }
}

/// `rm -rf DATA/*`, or a disk that is not mounted.
#[test]
fn an_emptied_data_directory_is_not_taken_for_a_new_one() {
    let dir = directory();
    let data = dir.path().join("data");
    let (running, _) = populated(&data);
    for path in files(&data) {
        if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
            fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path)).expect("removed");
        }
    }
    check_refused(&running, data.to_str().expect("a path"));
    running.kill();
    let (log, started) = daemon(&data).try_start();
    assert!(started.is_err() && log.contains("log and schema.conf and store"), "{log}");
    assert!(files(&data).len() == 1, "{:?}", files(&data));
    let accepted = daemon(&data).args(&["--accept-damage"]).start();
    assert_eq!(put(accepted.address(), 0, 0, 1), 204);
}

/// The rows of a removed segment are still in memory: they are flushed, and writes go on.
#[test]
fn a_removed_segment_of_the_log_is_flushed_from_memory() {
    check_flushed_from_memory(|segment| fs::remove_file(segment).expect("removed"));
}

/// Issue 37.
#[test]
fn a_shortened_segment_of_the_log_is_flushed_from_memory() {
    for len in [0, 200] {
        check_flushed_from_memory(|segment| {
            let file = fs::OpenOptions::new().write(true).open(segment).expect("opened");
            file.set_len(len).expect("shortened");
        });
    }
}

#[track_caller]
fn check_flushed_from_memory(lose: impl Fn(&Path)) {
    let dir = directory();
    let data = dir.path().join("data");
    let running = tsdb(&data).start();
    let address = running.address();
    assert_eq!(put(address, 0, 0, 600), 204);
    let mut segments = files(&data.join("log"));
    segments.retain(|path| path.extension().is_some_and(|extension| extension == "wal"));
    assert!(!segments.is_empty());
    for segment in &segments {
        lose(segment);
    }
    let failed = running.wait_for_event("commits fail", |_| true).to_string();
    let name = segments[0].file_name().expect("a name").to_string_lossy().into_owned();
    assert!(failed.contains(&name), "{failed}");
    check_accepted(address);
    running.kill();
    let running = tsdb(&data).start();
    assert_eq!(query(running.address(), 0), Ok(expected(0, 600)));
}

/// Issue 37: the store also has the mark of the log in memory.
#[test]
fn the_removed_record_of_the_log_is_written_again() {
    let dir = directory();
    let data = dir.path().join("data");
    let running = tsdb(&data).start();
    assert_eq!(put(running.address(), 0, 0, 600), 204);
    let record = data.join("store/cells/LOG");
    let before = fs::read(&record).expect("a record of the log");
    fs::remove_file(&record).expect("removed");
    let message = "a file of the open store was removed; it is written again";
    let event = running.wait_for_event(message, |_| true).to_string();
    assert!(event.contains("LOG"), "{event}");
    wait_for(|| record.exists().then_some(())).expect("the record is there");
    assert_eq!(fs::read(&record).expect("a record of the log"), before);
    running.kill();
    let running = tsdb(&data).start();
    assert_eq!(query(running.address(), 0), Ok(expected(0, 600)));
}

/// Issue 37.
#[test]
fn a_verification_misses_a_removed_log() {
    let dir = directory();
    let data = dir.path().join("data");
    let (running, _) = populated(&data);
    running.kill();
    for removed in ["log/log.state", "log"] {
        let path = data.join(removed);
        fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path)).expect("removed");
        let verified = crate::verify::verify(&data, &[]);
        let text = String::from_utf8_lossy(&verified.stdout);
        assert!(!verified.status.success() && text.contains("log.state"), "{removed}: {text}");
    }
}

#[test]
fn a_removed_part_is_a_health_problem_before_it_is_read() {
    let dir = directory();
    let data = dir.path().join("data");
    let (running, _) = populated(&data);
    let parts: Vec<PathBuf> = part_files(&data);
    for part in &parts {
        fs::remove_file(part).expect("removed");
    }
    let address = running.address();
    let name = parts[0].file_name().expect("a name").to_string_lossy().into_owned();
    let is_shown = || health(address).contains(&name).then_some(());
    wait_for(is_shown).unwrap_or_else(|| panic!("{}", health(address)));
    assert!(metric_value(address, r#"tsd_health_problem{part="data"}"#) >= 2);
}

#[test]
fn a_daemon_keeps_its_directory_without_its_lock_files() {
    let dir = directory();
    let data = dir.path().join("data");
    let running = daemon(&data).start();
    for lock in ["lock", "log/lock", "store/points/lock", "store/cells/LOCK"] {
        fs::remove_file(data.join(lock)).expect("removed");
    }
    let (log, started) = daemon(&data).try_start();
    assert!(started.is_err() && log.contains("in use"), "{log}");
    let verified = crate::verify::verify(&data.join("log"), &[]);
    assert!(!verified.status.success());
    assert_eq!(put(running.address(), 0, 0, 10), 204);
    running.kill();
    let running = daemon(&data).start();
    assert_eq!(query(running.address(), 0), Ok(expected(0, 10)));
}

#[test]
fn a_removed_log_in_front_of_hbase_refuses_puts() {
    let dir = directory();
    let data = dir.path().join("data");
    let hbase = HBase::with_tables();
    let running = hbase.daemon_with_log(&data).start();
    hbase_fake::put(running.address(), "m", 0, 10);
    let log = data.join("hbase-log");
    fs::remove_dir_all(&log).expect("removed");
    check_refused(&running, log.to_str().expect("a path"));
    running.kill();
    let (text, started) = hbase.daemon_with_log(&data).try_start();
    assert!(started.is_err() && text.contains("is missing"), "{text}");
}
