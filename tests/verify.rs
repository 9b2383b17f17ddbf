//! `tsdb verify` finds and repairs every kind of damage, on the directory and through a daemon, and
//! finds nothing in a store under load.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicBool, Ordering},
};

use serde_json::Value;
use tsd_testkit::{http, wait_for};

use crate::{
    TSDB,
    damage::{
        METRICS, POINTS, all_files, copy, daemon, directory, expected, files, metric_value,
        part_files, populated, put, query, text,
    },
};

pub(crate) fn verify(data: &Path, arguments: &[&str]) -> Output {
    let data = data.to_str().expect("a path");
    Command::new(TSDB)
        .args(["verify", "--data", data])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("run tsdb")
}

/// The findings of a verification with this exit status.
#[track_caller]
pub(crate) fn findings(data: &Path, arguments: &[&str], status: i32) -> Vec<Value> {
    let output = verify(data, &[arguments, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["state"], "done", "{json}");
    json["findings"].as_array().expect("findings").clone()
}

/// Names and contents of all files.
pub(crate) fn contents(data: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut names = Vec::new();
    all_files(data, "", &mut names);
    names
        .into_iter()
        .map(|name| (name.clone(), fs::read(data.join(name)).expect("a file")))
        .collect()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("a file");
    bytes[at] ^= 0x20;
    fs::write(path, bytes).expect("write");
}

fn flip_middle(path: &Path) {
    let len = fs::metadata(path).expect("a file").len() as usize;
    flip(path, len / 3);
}

/// The only or the first file in a directory whose name contains a text.
pub(crate) fn file_in(directory: &Path, name: &str) -> PathBuf {
    let of_name = |path: &PathBuf| path.to_string_lossy().contains(name);
    files(directory)
        .into_iter()
        .find(of_name)
        .unwrap_or_else(|| panic!("{name} in {}", directory.display()))
}

/// Number of points of all metrics that queries return, all of which must be correct.
fn count_points(data: &Path, context: &str) -> usize {
    let running = daemon(data).start();
    let mut count = 0;
    for metric in 0..METRICS {
        let points = query(running.address(), metric).unwrap_or_else(|e| panic!("{context}: {e}"));
        let expected = expected(metric, POINTS);
        assert!(points.iter().all(|(at, value)| expected.get(at) == Some(value)), "{context}");
        count += points.len();
    }
    let status = http(running.address(), "GET", "/api/status", None).body;
    assert!(status.contains(r#""status":"ok""#), "{context}: {status}");
    assert!(running.terminate().success(), "{context}");
    count
}

/// Damages something in a data directory.
type Plant = fn(&Path);

#[test]
fn every_kind_of_damage_is_found_and_repaired_on_the_directory() {
    let dir = directory();
    let original = dir.path().join("original");
    let (running, _) = populated(&original);
    assert!(running.terminate().success());
    assert!(findings(&original, &[], 0).is_empty());
    let all = (METRICS * POINTS) as usize;
    assert_eq!(count_points(&original, "clean"), all);

    let part: Plant = |data| flip_middle(&part_files(data)[0]);
    let missing: Plant = |data| fs::remove_file(&part_files(data)[0]).expect("remove");
    let manifest: Plant = |data| flip_middle(&data.join("store/points/t.tsdb/manifest"));
    let manifests: Plant = |data| {
        for name in ["manifest", "manifest.copy"] {
            flip(&data.join("store/points/t.tsdb").join(name), 12);
        }
    };
    let index: Plant = |data| flip_middle(&file_in(&data.join("store/points/series"), "t.tsdb."));
    let uids: Plant = |data| {
        let file = file_in(&data.join("store/cells/t.tsdb-uid/tables"), "");
        // In the index of the file, after its data.
        let len = fs::metadata(&file).expect("a file").len() as usize;
        flip(&file, len - 200);
    };
    let tree: Plant = |data| flip_middle(&file_in(&data.join("store/cells/t.tsdb-uid"), "/v"));
    let tree_copy: Plant = |data| flip_middle(&data.join("store/cells/t.tsdb-uid/FILES"));
    let tables: Plant = |data| flip_middle(&data.join("store/cells/TABLES"));
    let points_list: Plant = |data| flip_middle(&data.join("store/POINTS"));
    let table: Plant = |data| {
        fs::remove_dir_all(data.join("store/points/t.tsdb")).expect("remove");
    };
    let points: Plant = |data| fs::remove_dir_all(data.join("store/points")).expect("remove");
    // The damage, the end of the name of the file, and whether points are lost.
    let kinds = [
        ("part", part, ".part", true),
        ("missing part", missing, ".part", true),
        ("manifest", manifest, "manifest", false),
        ("both manifests", manifests, "manifest", false),
        ("series index", index, "series/t.tsdb.", false),
        ("file of UIDs", uids, "t.tsdb-uid/tables/", false),
        ("manifest of UIDs", tree, "t.tsdb-uid/v", false),
        ("copy of the manifest of UIDs", tree_copy, "t.tsdb-uid/FILES", false),
        ("list of tables", tables, "cells/TABLES", false),
        ("list of tables of points", points_list, "store/POINTS", false),
        ("missing table", table, "points/t.tsdb", true),
        ("all tables of points", points, "points/t.tsdb", true),
    ];
    for (kind, plant, name, is_loss) in kinds {
        let data = dir.path().join("copy");
        let _ = fs::remove_dir_all(&data);
        copy(&original, &data);
        plant(&data);
        let damaged = contents(&data);
        let found = findings(&data, &[], 1);
        assert!(!found.is_empty(), "{kind}");
        for finding in &found {
            let text = |field: &str| finding[field].as_str().unwrap_or_default().to_owned();
            assert!(text("file").contains(name), "{kind}: {finding}");
            assert!(!text("damage").is_empty() && !text("cost").is_empty(), "{kind}: {finding}");
        }
        // Without --yes nothing is changed.
        let listed = verify(&data, &["--repair"]);
        assert_eq!(listed.status.code(), Some(1), "{kind}: {listed:?}");
        let listed = text(&listed.stdout);
        assert!(
            listed.contains(name) && listed.contains("Nothing was changed"),
            "{kind}: {listed}"
        );
        assert!(contents(&data) == damaged, "{kind}: files were changed");
        let repaired = findings(&data, &["--repair", "--yes"], 0);
        assert!(repaired.iter().all(|finding| finding["repaired"] == true), "{kind}: {repaired:?}");
        assert!(findings(&data, &[], 0).is_empty(), "{kind}");
        let count = count_points(&data, kind);
        assert_eq!(count < all, is_loss, "{kind}: {count} of {all}");
        if kind == "part" {
            // Some of its blocks are intact.
            assert!(count > 0, "{count}");
            let cost = found[0]["cost"].as_str().expect("a cost");
            assert!(cost.starts_with(&format!("{} of ", all - count)), "{cost}: {count} of {all}");
        }
    }
}

#[test]
fn a_damaged_log_is_named_and_left_as_it_is() {
    let dir = directory();
    let data = dir.path().join("data");
    let running = crate::tsdb(&data).start();
    for metric in 0..METRICS {
        assert_eq!(put(running.address(), metric, 0, POINTS), 204);
    }
    running.kill();
    assert!(findings(&data, &[], 0).is_empty());
    let segment = file_in(&data.join("log"), ".wal");
    flip(&segment, 300);
    let damaged = contents(&data);
    for arguments in [&[][..], &["--repair"], &["--repair", "--yes"]] {
        let found = findings(&data, arguments, 1);
        assert!(
            found[0]["cost"].as_str().expect("a cost").contains("--accept-damage"),
            "{found:?}"
        );
        assert_eq!(found[0]["action"], Value::Null);
        assert!(contents(&data) == damaged);
    }
}

#[test]
fn a_daemon_verifies_and_repairs_its_own_store() {
    let dir = directory();
    let data = dir.path().join("data");
    let (running, file) = populated(&data);
    let address = running.address();
    let text_of = verify(&data, &[]);
    assert_eq!(text_of.status.code(), Some(0), "{text_of:?}");
    assert!(text(&text_of.stdout).contains("No damage found"), "{text_of:?}");
    assert!(text_of.stderr.is_empty(), "{text_of:?}");
    flip_middle(&file);
    let manifest = data.join("store/points/t.tsdb/manifest.copy");
    flip_middle(&manifest);
    let found = findings(&data, &[], 1);
    let names = |path: &Path| found.iter().any(|finding| finding["file"].as_str() == path.to_str());
    assert!(found.len() == 2 && names(&file) && names(&manifest), "{found:?}");
    // The verification changed nothing.
    assert_eq!(metric_value(address, "tsd_parts_quarantined_files"), 0);
    let repaired = findings(&data, &["--repair", "--yes"], 0);
    assert!(repaired.iter().all(|finding| finding["repaired"] == true), "{repaired:?}");
    assert!(findings(&data, &[], 0).is_empty());
    let status = http(address, "GET", "/api/status", None).body;
    assert!(status.contains(r#""status":"ok""#), "{status}");
    let mut count = 0;
    for metric in 0..METRICS {
        let points = query(address, metric).expect("points");
        let expected = expected(metric, POINTS);
        assert!(points.iter().all(|(at, value)| expected.get(at) == Some(value)));
        count += points.len();
    }
    assert!(count > 0 && count < (METRICS * POINTS) as usize, "{count}");
    assert!(running.terminate().success());
    assert!(findings(&data, &[], 0).is_empty());
}

#[test]
fn a_store_under_load_has_no_damage() {
    let dir = directory();
    let data = dir.path().join("data");
    let (running, _) = populated(&data);
    let address = running.address();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut count = POINTS;
            while !ends.load(Ordering::Acquire) {
                for metric in 0..METRICS {
                    assert_eq!(put(address, metric, count, count + 60), 204);
                }
                count += 60;
            }
            count
        });
        let reader = scope.spawn(|| {
            while !ends.load(Ordering::Acquire) {
                for metric in 0..METRICS {
                    query(address, metric).expect("points");
                }
            }
        });
        for _ in 0..6 {
            let output = verify(&data, &["--json"]);
            assert_eq!(output.status.code(), Some(0), "{output:?}");
        }
        ends.store(true, Ordering::Release);
        reader.join().expect("the reader");
        let count = writer.join().expect("the writer");
        assert_eq!(query(address, 1).expect("points"), expected(1, count));
    });
    assert!(running.terminate().success());
    assert!(findings(&data, &[], 0).is_empty());
}

#[test]
fn what_cannot_be_verified_is_refused_with_2() {
    let dir = directory();
    let missing = verify(&dir.path().join("no-such-directory"), &[]);
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
    assert!(text(&missing.stderr).contains("tsd.storage.data_directory"), "{missing:?}");
    let memory = Command::new(TSDB)
        .args(["verify"])
        .env("TSD_STORAGE_ENGINE", "memory")
        .stdin(Stdio::null())
        .output()
        .expect("run tsdb");
    assert_eq!(memory.status.code(), Some(2), "{memory:?}");
    let unasked = verify(dir.path(), &["--yes"]);
    assert_eq!(unasked.status.code(), Some(2), "{unasked:?}");
    let unreachable = verify(dir.path(), &["--url", "http://127.0.0.1:1"]);
    assert_eq!(unreachable.status.code(), Some(2), "{unreachable:?}");
}

#[test]
fn one_verification_runs_at_a_time_and_can_be_stopped() {
    let dir = directory();
    let data = dir.path().join("data");
    let (running, _) = populated(&data);
    let address = running.address();
    let start = || http(address, "POST", "/api/verify", Some(r#"{"repair":false}"#));
    assert_eq!(http(address, "GET", "/api/verify", None).body, "null");
    assert_eq!(start().status, 200);
    let second = start();
    assert!(matches!(second.status, 200 | 409), "{second:?}");
    assert_eq!(http(address, "POST", "/api/verify", Some("{}")).status, 400);
    assert_eq!(http(address, "POST", "/api/verify/stop", Some("")).status, 200);
    let ended = || {
        let body = http(address, "GET", "/api/verify", None).body;
        let json: Value = serde_json::from_str(&body).expect("JSON");
        matches!(json["state"].as_str(), Some("done" | "failed")).then_some(json)
    };
    let ended = wait_for(ended).expect("an end");
    assert_eq!(ended["findings"].as_array().map(Vec::len), Some(0), "{ended}");
    assert!(running.terminate().success());
}
