//! Tests that each file of another release is named and left unchanged.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use tsd_model::Family;
use tsd_storage::{FlushTarget, OwnedFlushRow, StorageError};

use super::fixture::{all_cells, data, new_dir, open_data};
use crate::{
    LsmConfig, LsmStorage, checksum,
    manifest::{CURRENT, FILES, Manifest, TABLES, replace_file},
    quarantine::{KeyRange, Quarantine, QuarantineRecord},
    unknown_version,
};

/// Contents of all files by path, without locks.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else if !path.ends_with("LOCK") {
            let bytes = fs::read(&path).unwrap();
            found.insert(path, bytes);
        }
    }
    found
}

/// Replaces the first line of a sealed text.
fn set_line(path: &Path, line: &str) {
    let sealed = fs::read_to_string(path).unwrap();
    let body = checksum::unseal(&sealed).unwrap();
    let mut text = format!("{line}\n{}", body.split_once('\n').unwrap().1);
    checksum::seal(&mut text);
    fs::write(path, text).unwrap();
}

/// Replaces the only byte of a section.
fn set_section(path: &Path, name: &[u8], byte: u8) {
    let at = sfa::Reader::new(path).unwrap().toc().section(name).unwrap().pos() as usize;
    let mut bytes = fs::read(path).unwrap();
    bytes[at] = byte;
    fs::write(path, bytes).unwrap();
}

fn tree(dir: &Path) -> PathBuf {
    dir.join("t.tsdb")
}

fn list(dir: &Path) -> PathBuf {
    let path = dir.join("TABLES");
    set_line(&path, "saltern lsm 3");
    path
}

fn copy(dir: &Path) -> PathBuf {
    let path = tree(dir).join(FILES);
    set_line(&path, "saltern files 2");
    path
}

fn manifest(dir: &Path) -> PathBuf {
    let current = tree(dir).join(CURRENT);
    let mut named = fs::read(&current).unwrap();
    let version = u64::from_le_bytes(*named.first_chunk().unwrap());
    let path = tree(dir).join(format!("v{version}"));
    set_section(&path, b"format_version", 4);
    let sum = checksum::of(&fs::read(&path).unwrap());
    named[8..24].copy_from_slice(&sum.to_le_bytes());
    fs::write(current, named).unwrap();
    path
}

fn file(dir: &Path) -> PathBuf {
    let tree = tree(dir);
    let mut manifest = Manifest::read(&tree).unwrap();
    let listed = manifest.levels.iter_mut().flatten().flatten().next().unwrap();
    let path = tree.join(TABLES).join(listed.id.to_string());
    set_section(&path, b"table_version", 4);
    listed.checksum = checksum::of(&fs::read(&path).unwrap());
    manifest.write(&tree).unwrap();
    manifest.write_copy(&tree).unwrap();
    path
}

fn record(dir: &Path) -> PathBuf {
    let record = QuarantineRecord {
        name: "t.tsdb-99".into(),
        file: "t.tsdb/tables/99".into(),
        what: "data block at offset 40".into(),
        bytes: 0,
        checksum: 9,
        kept: false,
        lost: vec![KeyRange::default()],
    };
    Quarantine::open(dir).unwrap().add(record, None).unwrap();
    let path = dir.join("quarantine/t.tsdb-99.lost");
    set_line(&path, "saltern quarantine 2");
    path
}

/// Changes a file to another version; returns its path.
type Change = fn(&Path) -> PathBuf;

#[tokio::test]
async fn files_of_an_unknown_version_are_named_and_never_changed() {
    let dir = new_dir();
    let config = LsmConfig::new(dir.path(), vec![data()]);
    let store = open_data(&dir);
    let row = |key: u8| OwnedFlushRow {
        key: vec![key; 9],
        cells: vec![(Family::T, vec![0, 0], vec![7; 8], 1)],
        ..OwnedFlushRow::default()
    };
    store.flush_rows(&data(), OwnedFlushRow::flush_rows((0..200).map(row))).await.unwrap();
    let rows = all_cells(&store, &data()).await;
    assert_eq!(rows.len(), 200);
    drop(store);
    let original = contents(dir.path());
    let kinds: [(Change, &str); 5] = [
        (list, "3, this release reads 2"),
        (copy, "2, this release reads 1"),
        (manifest, "4, this release reads 3"),
        (file, "4, this release reads 3"),
        (record, "2, this release reads 1"),
    ];
    for (change, versions) in kinds {
        assert_eq!(unknown_version(dir.path()).unwrap(), None);
        let path = change(dir.path());
        let changed = contents(dir.path());
        let expected = format!(
            "store file {} has version {versions}: start the release that wrote it",
            path.display()
        );
        let error = LsmStorage::open(&config).unwrap_err();
        assert!(matches!(error, StorageError::UnknownVersion(_)), "{error:?}");
        assert_eq!(error.to_string(), expected);
        let found = unknown_version(dir.path()).unwrap().unwrap();
        assert_eq!(found.file(), path.display().to_string());
        assert!(contents(dir.path()) == changed, "{expected}: files were changed");
        // The same bytes with a wrong checksum are damage.
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 2;
        bytes[last] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!(unknown_version(dir.path()).unwrap(), None, "{expected}");
        for path in changed.keys() {
            fs::remove_file(path).unwrap();
        }
        for (path, bytes) in &original {
            replace_file(path, bytes, false).unwrap();
        }
    }
    assert_eq!(all_cells(&open_data(&dir), &data()).await, rows);
}
