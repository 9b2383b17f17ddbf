//! Finds files of a store that another release has written.
//!
//! The check runs before anything is opened: a tree takes such files for damaged, and the store
//! would replace them.
//!
//! Two cases have no version of their own. `current` has the number of a manifest and its checksum;
//! any other length is damage. A data file or manifest in a container (`sfa`) of another format is
//! unreadable, so it looks damaged.

use std::{fs, io, path::Path};

use tsd_storage::{StorageError, UnknownVersion};

use crate::{
    directory::list_file,
    manifest::{Manifest, ManifestError, TABLES, TreeFile, file_checksum, unknown_copy},
    quarantine::unknown_record,
};

/// Version of the format of data files.
const FILE_VERSION: u8 = 3;
/// The section of a data file with the version, one byte.
const VERSION_SECTION: &[u8] = b"table_version";

/// Finds the first file of another release in the directory of a store. Read-only.
///
/// # Errors
///
/// An error of the disk.
pub fn unknown_version(path: &Path) -> Result<Option<UnknownVersion>, StorageError> {
    find(path).map_err(|source| StorageError::io(format!("reading {}", path.display()), source))
}

fn find(path: &Path) -> io::Result<Option<UnknownVersion>> {
    let mut found = list_file(path).unknown_version()?;
    if found.is_none() {
        found = unknown_record(path)?;
    }
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    let mut trees = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("t.") && entry.path().is_dir() {
            trees.push(entry.path());
        }
    }
    trees.sort();
    for tree in trees {
        if found.is_none() {
            found = in_tree(&tree)?;
        }
    }
    Ok(found)
}

fn in_tree(dir: &Path) -> io::Result<Option<UnknownVersion>> {
    if let Some(unknown) = unknown_copy(dir)? {
        return Ok(Some(unknown));
    }
    let manifest = match Manifest::read(dir) {
        Ok(manifest) => manifest,
        Err(ManifestError::UnknownVersion(unknown)) => return Ok(Some(unknown)),
        Err(ManifestError::Io(error)) => return Err(error),
        Err(ManifestError::Missing | ManifestError::Damaged { .. }) => {
            Manifest::read_copy(dir).unwrap_or_default()
        }
    };
    for file in manifest.files() {
        if let Some(unknown) = unknown_file(&dir.join(TABLES).join(file.id.to_string()), file)? {
            return Ok(Some(unknown));
        }
    }
    Ok(None)
}

/// The error of a data file of another version whose checksum matches the manifest.
fn unknown_file(path: &Path, listed: &TreeFile) -> io::Result<Option<UnknownVersion>> {
    let Some(version) = file_version(path).filter(|version| *version != FILE_VERSION) else {
        return Ok(None);
    };
    let is_intact = file_checksum(path)? == listed.checksum;
    Ok(is_intact.then(|| UnknownVersion::new("store file", path.display(), version, FILE_VERSION)))
}

/// Version of a data file; `None` if it cannot be read, which opening the file reports.
fn file_version(path: &Path) -> Option<u8> {
    let archive = sfa::Reader::new(path).ok()?;
    let mut version = [0];
    let mut section = archive.toc().section(VERSION_SECTION)?.reader(path).ok()?;
    io::Read::read_exact(&mut section, &mut version).ok()?;
    let [version] = version;
    Some(version)
}
