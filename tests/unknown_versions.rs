//! Tests files of another release in the data directory of a daemon. Every command names them and leaves them
//! unchanged, so that the other release can continue.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tsd_testkit::DaemonBuilder;

use crate::{
    TSDB,
    damage::{
        METRICS, POINTS, copy, daemon, directory, expected, files, part_files, populated, put,
        query, text,
    },
    verify::{contents, file_in, findings, verify},
};

/// Points of a metric that are in the log only.
const IN_LOG: u64 = 20;

/// A kind of file, with the change that makes another version of it with valid checksums.
struct Kind {
    name: &'static str,
    change: fn(&Path) -> PathBuf,
    /// Message about the changed file, after its path.
    message: &'static str,
}

const KINDS: [Kind; 14] = [
    Kind { name: "segment", change: segment, message: "version 9, this release reads 2 and 3" },
    Kind { name: "state of the log", change: state, message: "version 7, this release reads 1" },
    Kind { name: "survivor file", change: survivors, message: "version 2, this release reads 1" },
    Kind { name: "mark of the log", change: mark, message: "version 2, this release reads 1" },
    Kind { name: "part", change: part, message: "version 9, this release reads 1 to 3" },
    Kind { name: "manifest", change: manifest, message: "version 9, this release reads 1 and 2" },
    Kind { name: "series index", change: series, message: "version 2, this release reads 1" },
    Kind { name: "retention", change: retention, message: "version 2, this release reads 1" },
    Kind { name: "points list", change: points, message: "version 2, this release reads 1" },
    Kind { name: "list of trees", change: list, message: "version 3, this release reads 2" },
    Kind { name: "tree manifest", change: tree, message: "version 4, this release reads 3" },
    Kind { name: "its copy", change: tree_copy, message: "version 2, this release reads 1" },
    Kind { name: "tree file", change: tree_file, message: "version 4, this release reads 3" },
    Kind { name: "key layout", change: schema, message: "version 3, this release reads 2" },
];

fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).expect("a file");
    change(&mut bytes);
    fs::write(path, bytes).expect("write");
}

/// Replaces a passage of a text, whose last line is the checksum of the text before it.
fn edit_text(path: &Path, from: &str, to: &str, checksum: fn(&[u8]) -> String) {
    let sealed = fs::read_to_string(path).expect("a text");
    let (body, _) = sealed.rsplit_once("sum ").expect("a checksum");
    assert!(body.contains(from), "{sealed}");
    let body = body.replace(from, to);
    fs::write(path, format!("{body}sum {}\n", checksum(body.as_bytes()))).expect("write");
}

fn crc_digits(bytes: &[u8]) -> String {
    format!("{:08x}", crc32c::crc32c(bytes))
}

/// The checksum of the files of trees.
fn xxh3(bytes: &[u8]) -> u128 {
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), bytes).expect("write");
    tsd_storage_lsm::file_checksum(file.path()).expect("a checksum")
}

fn xxh3_digits(bytes: &[u8]) -> String {
    format!("{:032x}", xxh3(bytes))
}

fn segment(data: &Path) -> PathBuf {
    let path = file_in(&data.join("log"), ".wal");
    edit(&path, |bytes| {
        bytes[11] = 9;
        let crc = crc32c::crc32c(&bytes[..60]).to_be_bytes();
        bytes[60..64].copy_from_slice(&crc);
    });
    path
}

fn state(data: &Path) -> PathBuf {
    let path = data.join("log/log.state");
    edit(&path, |bytes| {
        for slot in bytes.chunks_mut(512).filter(|slot| slot.starts_with(b"SWS")) {
            slot[3] = b'7';
            let crc = crc32c::crc32c(&slot[..72]).to_be_bytes();
            slot[72..76].copy_from_slice(&crc);
        }
    });
    path
}

/// The other release had rows to relocate.
fn survivors(data: &Path) -> PathBuf {
    let path = data.join("log/survivors-0000000000000001");
    let mut header = [&b"SVR2"[..], &1_u64.to_be_bytes()].concat();
    header.extend(crc32c::crc32c(&header).to_be_bytes());
    fs::write(&path, header).expect("write");
    path
}

fn mark(data: &Path) -> PathBuf {
    let path = data.join("store/cells/LOG");
    edit(&path, |bytes| {
        bytes[3] = b'2';
        let crc = crc32c::crc32c(&bytes[..36]).to_be_bytes();
        bytes[36..].copy_from_slice(&crc);
    });
    path
}

fn part(data: &Path) -> PathBuf {
    let path = part_files(data).swap_remove(0);
    edit(&path, |bytes| {
        let tail = bytes.len() - 16;
        let len = u32::from_le_bytes(*bytes[tail..].first_chunk().expect("a length"));
        let footer = tail - len as usize;
        bytes[footer] = 9;
        let crc = crc32c::crc32c(&bytes[footer..tail]).to_le_bytes();
        bytes[tail + 4..tail + 8].copy_from_slice(&crc);
    });
    path
}

fn manifest(data: &Path) -> PathBuf {
    // A change in only one manifest counts as a flipped byte, since it has no checksum.
    for name in ["manifest.copy", "manifest"] {
        edit(&data.join("store/points/t.tsdb").join(name), |bytes| bytes[7] = 9);
    }
    data.join("store/points/t.tsdb/manifest")
}

fn series(data: &Path) -> PathBuf {
    let path = data.join("store/points/series/t.tsdb");
    edit_text(&path, "saltern series 1\n", "saltern series 2\n", crc_digits);
    path
}

fn retention(data: &Path) -> PathBuf {
    let path = data.join("store/points/retention");
    edit_text(&path, "saltern retention 1\n", "saltern retention 2\n", crc_digits);
    path
}

fn list(data: &Path) -> PathBuf {
    let path = data.join("store/cells/TABLES");
    edit_text(&path, "saltern lsm 2\n", "saltern lsm 3\n", xxh3_digits);
    path
}

fn points(data: &Path) -> PathBuf {
    let path = data.join("store/POINTS");
    edit_text(&path, "saltern points 1\n", "saltern points 2\n", xxh3_digits);
    path
}

fn uid_tree(data: &Path) -> PathBuf {
    data.join("store/cells/t.tsdb-uid")
}

/// Changes the current manifest of the tree of UIDs; returns its path.
fn edit_tree(data: &Path, change: impl FnOnce(&mut Vec<u8>)) -> PathBuf {
    let current = uid_tree(data).join("current");
    let mut named = fs::read(&current).expect("a file");
    let version = u64::from_le_bytes(*named.first_chunk().expect("a number"));
    let path = uid_tree(data).join(format!("v{version}"));
    edit(&path, change);
    named[8..24].copy_from_slice(&xxh3(&fs::read(&path).expect("a file")).to_le_bytes());
    fs::write(current, named).expect("write");
    path
}

/// Sets the only byte of a section. The table of contents is at the end: position, length, length of the
/// name and the name.
fn set_section(bytes: &mut [u8], name: &[u8], byte: u8) {
    let at = bytes.windows(name.len()).rposition(|part| part == name).expect("a section");
    let position = u64::from_le_bytes(*bytes[at - 18..].first_chunk().expect("a position"));
    bytes[position as usize] = byte;
}

fn tree(data: &Path) -> PathBuf {
    edit_tree(data, |bytes| set_section(bytes, b"format_version", 4))
}

fn tree_copy(data: &Path) -> PathBuf {
    let path = uid_tree(data).join("FILES");
    edit_text(&path, "saltern files 1\n", "saltern files 2\n", xxh3_digits);
    path
}

fn tree_file(data: &Path) -> PathBuf {
    let path = file_in(&uid_tree(data).join("tables"), "");
    let before = xxh3(&fs::read(&path).expect("a file"));
    edit(&path, |bytes| set_section(bytes, b"table_version", 4));
    let after = xxh3(&fs::read(&path).expect("a file"));
    edit_tree(data, |bytes| {
        let (before, after) = (before.to_le_bytes(), after.to_le_bytes());
        let at = bytes.windows(16).position(|part| part == before).expect("the checksum");
        bytes[at..at + 16].copy_from_slice(&after);
    });
    let (before, after) = (format!(" {before:x} "), format!(" {after:x} "));
    edit_text(&uid_tree(data).join("FILES"), &before, &after, xxh3_digits);
    path
}

fn schema(data: &Path) -> PathBuf {
    let path = data.join("schema.conf");
    let text = fs::read_to_string(&path).expect("a text");
    assert!(text.contains("format.version = 2"), "{text}");
    fs::write(&path, text.replace("format.version = 2", "format.version = 3")).expect("write");
    path
}

/// A daemon with a retention, which has a record.
fn retained(data: &Path) -> DaemonBuilder {
    daemon(data).env("TSD_STORAGE_RETENTION", "100y")
}

fn tool(data: &Path, arguments: &[&str]) -> Output {
    Command::new(TSDB)
        .args(arguments)
        .arg("--data")
        .arg(data)
        .stdin(Stdio::null())
        .output()
        .expect("run tsdb")
}

/// Checks that every command that reads the directory names the file, both versions and the remedy, and
/// changes nothing.
fn check_named(data: &Path, kind: &Kind) {
    let path = (kind.change)(data);
    let changed = contents(data);
    let file = path.to_str().expect("a path");
    let message = format!("{file} has {}", kind.message);
    let is_right = |text: &str| {
        text.contains(&message)
            && text.contains("start the release that wrote it")
            && !text.contains("damaged data")
            && !text.contains("accept-damage")
    };
    let (name, is_layout) = (kind.name, file.ends_with("schema.conf"));
    for arguments in [&[][..], &["--accept-damage"]] {
        let (log, started) = retained(data).args(arguments).try_start();
        let Err(status) = started else { panic!("{name}: it starts with {arguments:?}") };
        assert_eq!(status.code(), Some(1), "{name}: {log}");
        assert!(is_right(log.lines().last().unwrap_or_default()), "{name}: {log}");
        assert!(contents(data) == changed, "{name}, {arguments:?}: files were changed");
    }
    let start = "2020/09/01-00:00:00";
    for words in [
        &["query", start, "sum", "m1"][..],
        &["quarantine", "list"],
        &["quarantine", "accept", "--all", "--yes"],
        &["import", "/dev/null"],
    ] {
        let output = tool(data, words);
        assert_eq!(output.status.code(), Some(1), "{name}: {output:?}");
        assert!(is_right(&text(&output.stderr)), "{name}: {output:?}");
        assert!(contents(data) == changed, "{name}, {words:?}: files were changed");
    }
    for arguments in [&[][..], &["--repair"], &["--repair", "--yes"]] {
        if is_layout {
            // The directory cannot be looked at without its layout.
            let output = verify(data, arguments);
            assert_eq!(output.status.code(), Some(2), "{name}: {output:?}");
            assert!(is_right(&text(&output.stderr)), "{name}: {output:?}");
        } else {
            let found = findings(data, arguments, 1);
            assert_eq!(found.len(), 1, "{name}: {found:?}");
            assert_eq!(found[0]["file"], file, "{name}: {found:?}");
            assert!(is_right(found[0]["damage"].as_str().unwrap_or_default()), "{name}: {found:?}");
            assert!(found[0]["action"].is_null(), "{name}: {found:?}");
        }
        assert!(contents(data) == changed, "{name}, {arguments:?}: files were changed");
    }
}

#[test]
fn files_of_an_unknown_version_are_named_by_every_command_and_never_changed() {
    let dir = directory();
    let original = dir.path().join("original");
    let (running, _) = populated(&original);
    assert!(running.terminate().success());
    let running = retained(&original).env("TSD_STORAGE_MEMTABLE_MAX_AGE", "3600").start();
    for metric in 0..METRICS {
        assert_eq!(put(running.address(), metric, POINTS, POINTS + IN_LOG), 204);
    }
    running.kill();
    // A start removes a part that no manifest lists.
    let unlisted = original.join("store/points/t.tsdb/9999999999.part");
    fs::copy(&part_files(&original)[0], &unlisted).expect("copy");
    let unchanged = contents(&original);
    for kind in &KINDS {
        let data = dir.path().join("copy");
        let _ = fs::remove_dir_all(&data);
        copy(&original, &data);
        check_named(&data, kind);
        // The original files are back.
        for name in contents(&data).keys().filter(|name| !unchanged.contains_key(*name)) {
            fs::remove_file(data.join(name)).expect("remove");
        }
        for (name, bytes) in &unchanged {
            fs::write(data.join(name), bytes).expect("write");
        }
        let running = retained(&data).start();
        for metric in 0..METRICS {
            let points = query(running.address(), metric);
            assert_eq!(points, Ok(expected(metric, POINTS + IN_LOG)), "{}: m{metric}", kind.name);
        }
        assert!(running.events_at_level("ERROR").is_empty(), "{}", kind.name);
        assert!(running.terminate().success(), "{}", kind.name);
        assert!(files(&data.join("store/cells/quarantine")).is_empty(), "{}", kind.name);
    }
}
