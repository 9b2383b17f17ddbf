//! The files of the trees at one moment, for a snapshot.
//!
//! Data files are immutable and are opened here, so that files that a compaction or repair removes
//! meanwhile stay readable. The lists of the tables and of each tree's files are rendered. So are
//! the records of the quarantine: reads of lost ranges also fail in the snapshot. Damaged files and
//! the mark of the log are left out.

use std::{fs::File, io, path::Path, sync::Arc};

use tsd_storage::{FileChecksum, PinnedFile, PinnedFiles, PinnedSource, StorageError, Table};

use crate::{
    directory::{TABLES_FILE, list_file},
    manifest::{CURRENT, FILES, Manifest, TABLES},
    quarantine::Quarantine,
    table::TableStore,
};

/// Most reads of the list of a tree; a removed file makes it read the list again.
const ATTEMPTS: usize = 8;

/// The list of the tables and the records of the quarantine.
pub(crate) fn pin_lists(dir: &Path, tables: &[Table], quarantine: &Quarantine) -> PinnedFiles {
    let mut pinned = PinnedFiles::default();
    let list = list_file(dir).text(tables);
    pinned.files.push(PinnedFile::rendered(TABLES_FILE, list.into_bytes()));
    for (name, contents) in quarantine.notes() {
        pinned.files.push(PinnedFile::rendered(name, contents.into_bytes()));
    }
    let records = quarantine.records();
    let lost = records.iter().filter(|record| record.is_loss());
    pinned.damaged.extend(lost.map(|record| record.name.clone()));
    pinned
}

/// The files of a tree. Their contents do not change while nothing is flushed.
pub(crate) fn pin_tree(table: &TableStore) -> Result<PinnedFiles, StorageError> {
    let dir = table.dir();
    for _ in 0..ATTEMPTS {
        let manifest = Manifest::of_tree(&table.tree());
        match pin_manifest(dir.dir, &table.name.file_name(), &manifest) {
            // The file was replaced after the list was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(StorageError::io(format!("reading table {}", table.name), error));
            }
            Ok(pinned) => return Ok(pinned),
        }
    }
    let text = format!("a file of table {} is missing; it cannot be in a snapshot", table.name);
    Err(StorageError::Damaged(text.into()))
}

fn pin_manifest(dir: &Path, name: &str, manifest: &Manifest) -> io::Result<PinnedFiles> {
    let mut pinned = PinnedFiles::default();
    if manifest.files().next().is_none() {
        // The next start creates a tree without files.
        return Ok(pinned);
    }
    for file in manifest.files() {
        let path = dir.join(TABLES).join(file.id.to_string());
        let opened = File::open(&path)?;
        pinned.files.push(PinnedFile {
            path: format!("{name}/{TABLES}/{}", file.id),
            bytes: opened.metadata()?.len(),
            checksum: FileChecksum::Xxh3(file.checksum),
            source: PinnedSource::Open { path, file: Arc::new(opened) },
        });
    }
    let (contents, current) = manifest.encode()?;
    for (file, contents) in [
        (format!("v{}", manifest.version), contents),
        (CURRENT.to_owned(), current),
        (FILES.to_owned(), manifest.encode_copy().into_bytes()),
    ] {
        pinned.files.push(PinnedFile::rendered(format!("{name}/{file}"), contents));
    }
    Ok(pinned)
}
