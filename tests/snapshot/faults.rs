//! Tests refused snapshots, and snapshots after kills, damage and full disks.

use std::{
    thread,
    time::{Duration, Instant},
};

use tsd_testkit::{Xorshift64, wait_for};

use super::*;
use crate::report;

const BATCHES: u64 = 40;

/// A data directory with some points, and a snapshot of it.
fn snapshot(dir: &Path) -> (PathBuf, PathBuf) {
    let (data, snapshot) = (dir.join("data"), dir.join("snapshot"));
    let running = daemon(&data).start();
    put(running.address(), 0, 0..BATCHES);
    json(&["snapshot", "--copy"], &data, &snapshot);
    assert!(running.terminate().success());
    (data, snapshot)
}

/// Sets the bytes of a file, or removes it.
fn set(path: &Path, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => fs::write(path, bytes).expect("write"),
        None => fs::remove_file(path).expect("remove"),
    }
}

#[test]
fn a_snapshot_with_any_damaged_file_is_refused_by_name_and_leaves_nothing() {
    let dir = directory();
    let (_, snapshot) = snapshot(dir.path());
    let restored = dir.path().join("restored");
    let files = files_below(&snapshot);
    assert!(files.len() > 8, "{files:?}");
    let mut random = Xorshift64::new(7);
    let mut refusals = 0;
    for path in &files {
        let intact = fs::read(path).expect("a file");
        let mut faults = vec![None, Some([&intact[..], b"x"].concat())];
        if !intact.is_empty() {
            faults.push(Some(intact[..intact.len() - 1].to_vec()));
            // A part has copies of its footer and heads, which are a small share of its bytes.
            let flips = if path.extension().is_some_and(|e| e == "part") { 24 } else { 4 };
            for _ in 0..flips {
                let mut flipped = intact.clone();
                flipped[random.below(intact.len() as u64) as usize] ^= 1 << random.below(8);
                faults.push(Some(flipped));
            }
        }
        for fault in faults {
            set(path, fault.as_deref());
            let error = refused(&["restore"], &restored, &snapshot);
            let name = path.strip_prefix(&snapshot).expect("a file of it").to_str();
            let is_list = name == Some("snapshot.json");
            let names = name.is_some_and(|name| error.contains(name)) || is_list;
            assert!(names && (is_list || error.contains("damaged")), "{path:?}: {error}");
            assert!(!restored.exists(), "{path:?}");
            refusals += 1;
        }
        set(path, Some(&intact));
    }
    report(&format!("snapshot: {refusals} damaged snapshots refused"));
    // With links the same files are checked.
    let part = files.iter().find(|path| path.extension().is_some_and(|e| e == "part"));
    let part = part.expect("a part");
    let intact = fs::read(part).expect("a part");
    let mut flipped = intact.clone();
    flipped[intact.len() / 2] ^= 1;
    set(part, Some(&flipped));
    let error = refused(&["restore", "--link"], &restored, &snapshot);
    assert!(error.contains(".part") && !restored.exists(), "{error}");
    set(part, Some(&intact));
    json(&["restore", "--link"], &restored, &snapshot);
}

#[test]
fn what_is_no_snapshot_or_no_place_for_one_is_refused() {
    let dir = directory();
    let (data, snapshot) = snapshot(dir.path());
    let restored = dir.path().join("restored");
    let check = |error: String, text: &str| assert!(error.contains(text), "{text}: {error}");
    check(refused(&["restore"], &restored, &dir.path().join("none")), "is no snapshot");
    check(refused(&["restore"], &restored, &data), "is no snapshot");
    check(refused(&["restore"], &data, &snapshot), "is not empty");
    check(refused(&["snapshot"], &data, &snapshot), "not empty");
    check(refused(&["snapshot"], &data, &data.join("store/snapshot")), "in the data directory");
    check(refused(&["snapshot"], &restored, &dir.path().join("s")), "there is no data here");
    let hbase = &["snapshot", "--zkquorum", "localhost:1"];
    check(refused(hbase, &data, &dir.path().join("s")), "HBase, which has snapshots of its own");
    let hbase = &["restore", "--zkquorum", "localhost:1"];
    check(refused(hbase, &restored, &snapshot), "HBase");
    // A snapshot is not changed by a daemon that is started on it.
    let (status, error) = daemon(&snapshot).run_to_exit();
    assert!(!status.success());
    check(error, "is a snapshot, not a data directory");
    json(&["restore"], &restored, &snapshot);
    // A restored store begins a new log; a store whose log was removed is still refused.
    let running = daemon(&restored).start();
    put(running.address(), 0, BATCHES..BATCHES + 1);
    assert!(running.terminate().success());
    fs::remove_dir_all(restored.join("log")).expect("the log");
    let (status, error) = daemon(&restored).run_to_exit();
    assert!(!status.success());
    check(error, "--accept-damage");
    // So is a store with the log of another store.
    let mixed = dir.path().join("mixed");
    json(&["restore"], &mixed, &snapshot);
    fs::remove_dir_all(mixed.join("log")).expect("the log");
    fs::rename(data.join("log"), mixed.join("log")).expect("the log");
    let (status, error) = daemon(&mixed).run_to_exit();
    assert!(!status.success());
    check(error, "--accept-damage");
}

#[test]
fn a_killed_snapshot_leaves_no_directory_of_its_name_and_a_killed_restore_no_store() {
    let dir = directory();
    let (data, snapshot) = snapshot(dir.path());
    let (target, restored) = (dir.path().join("target"), dir.path().join("restored"));
    let mut random = Xorshift64::new(11);
    let mut kills = [0; 3];
    // At moments between the start of a command and its usual end.
    let usual = |arguments: &[&str], data: &Path, path: &Path| {
        let started = Instant::now();
        json(arguments, data, path);
        started.elapsed().as_micros() as u64
    };
    let usual_snapshot = usual(&["snapshot", "--copy"], &data, &target);
    let usual_restore = usual(&["restore"], &restored, &target);
    fs::remove_dir_all(&target).expect("remove");
    fs::remove_dir_all(&restored).expect("remove");
    let mut killed = |arguments: &[&str], data: &Path, path: &Path, within: u64| {
        let mut command = command(arguments, data, path);
        let mut process =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("run tsdb");
        thread::sleep(Duration::from_micros(random.below(within.max(1))));
        let _ = process.kill();
        process.wait().expect("wait").success()
    };
    for _ in 0..25 {
        if killed(&["snapshot", "--copy"], &data, &target, usual_snapshot) {
            kills[0] += 1;
        }
        if target.exists() {
            json(&["restore"], &restored, &target);
            fs::remove_dir_all(&restored).expect("remove");
            fs::remove_dir_all(&target).expect("remove");
        }
    }
    // Leftovers are named and removed.
    fs::create_dir_all(dir.path().join("target.incomplete/store")).expect("create");
    let output = run(&["snapshot"], &data, &target);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    assert!(error.contains("target.incomplete of an interrupted snapshot"), "{error}");
    assert!(!dir.path().join("target.incomplete").exists());
    for round in 0..25 {
        if round == 0 {
            // The state after a kill between the renames.
            fs::create_dir_all(restored.join("restoring/store")).expect("create");
            fs::write(restored.join("schema.conf"), "half").expect("write");
        } else if killed(&["restore"], &restored, &snapshot, usual_restore) {
            kills[1] += 1;
        }
        if restored.join("restoring").exists() {
            kills[2] += 1;
            let (status, error) = daemon(&restored).run_to_exit();
            assert!(!status.success());
            assert!(error.contains("repeat `tsdb restore`"), "{error}");
            let output = run(&["restore"], &restored, &snapshot);
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{error}");
            assert!(error.contains("removing the files of an interrupted restore"), "{error}");
        }
        if restored.join("store").exists() {
            let running = daemon(&restored).start();
            assert_eq!(check_prefix(running.address(), 0, BATCHES), BATCHES);
            running.kill();
        }
        let _ = fs::remove_dir_all(&restored);
    }
    report(&format!("snapshot: completed before the kill, restores interrupted: {kills:?}"));
}

#[test]
fn a_snapshot_of_a_store_with_damage_needs_consent_and_says_so() {
    let dir = directory();
    let (data, _) = snapshot(dir.path());
    let parts = files_below(&data.join("store/points/t.tsdb"));
    let part = parts.iter().find(|path| path.extension().is_some_and(|e| e == "part"));
    fs::remove_file(part.expect("a part")).expect("remove");
    let running = daemon(&data).start();
    let (target, restored) = (dir.path().join("target"), dir.path().join("restored"));
    let error = refused(&["snapshot"], &data, &target);
    assert!(error.contains("t.tsdb-") && error.contains("--allow-damage"), "{error}");
    assert!(!target.exists() && !dir.path().join("target.incomplete").exists());
    let output = run(&["snapshot", "--allow-damage"], &data, &target);
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .contains("lacks the lost contents of damaged files")
    );
    assert!(running.terminate().success());
    let report = json(&["restore"], &restored, &target);
    assert_eq!(report["damaged"].as_array().map(Vec::len), Some(1), "{report}");
    // Reads fail with its name, as in the original, until the loss is accepted.
    let running = daemon(&restored).start();
    let error = query(running.address(), 0).expect_err("damage");
    assert!(error.contains("tsdb quarantine accept"), "{error}");
    let mut accept = Command::new(TSDB);
    accept.args(["quarantine", "accept", "--all", "--yes", "--data"]).arg(&restored);
    assert!(accept.output().expect("run tsdb").status.success());
    query(running.address(), 0).expect("what is left");
    assert!(running.terminate().success());
}

/// A small file system, unmounted on drop; `None` without the right to mount.
struct SmallMount(tempfile::TempDir);

impl SmallMount {
    fn mount(bytes: u64) -> Option<Self> {
        let directory = tempfile::tempdir().expect("temporary directory");
        let size = format!("size={bytes}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(directory.path())
            .output();
        mounted.is_ok_and(|mounted| mounted.status.success()).then_some(Self(directory))
    }
}

impl Drop for SmallMount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_ends_a_snapshot_and_a_restore_without_a_rest() {
    let Some(disk) = SmallMount::mount(64 << 10) else {
        report("snapshot: no right to mount, the full disk was not tested");
        return;
    };
    let dir = directory();
    let (data, snapshot) = (dir.path().join("data"), dir.path().join("snapshot"));
    let running = daemon(&data).start();
    put(running.address(), 0, 0..600);
    let report = json(&["snapshot"], &data, &snapshot);
    assert!(report["bytes"].as_u64() > Some(100 << 10), "{report}");
    let target = disk.0.path().join("target");
    let error = refused(&["snapshot"], &data, &target);
    assert!(error.contains("free some space on its disk"), "{error}");
    assert_eq!(fs::read_dir(disk.0.path()).expect("a directory").count(), 0);
    // The daemon continues.
    put(running.address(), 0, 600..601);
    let events = wait_for(|| Some(running.events_at_level("ERROR")).filter(Vec::is_empty));
    assert_eq!(events, Some(Vec::new()));
    assert!(running.terminate().success());
    let error = refused(&["restore"], &target, &snapshot);
    assert!(error.contains("free some space on its disk"), "{error}");
    assert!(!target.exists());
}
