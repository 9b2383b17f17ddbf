//! The files of a store at one moment, for a snapshot, and their check where they were restored.
//!
//! Parts are immutable and pinned by their reference: a part that is replaced removes its file when the
//! last of them is gone. The manifest is rendered. Files in quarantine are left out, while their records
//! stay: reads of the spans that lost rows fail in the snapshot as they do here.
//!
//! The series index is left out, and built from the parts by the first start of the restored store. Its
//! file is appended to, so it cannot be linked, and it may have series whose names and rows are in the
//! memtables only: the restored store may give their UIDs to other names.

use std::sync::Arc;

use tsd_storage::{FileChecksum, PinnedFile, PinnedFiles, PinnedSource, StoreDir};

use super::{PartStore, lock::lock, recovery::open_listed};
use crate::{
    error::PartError,
    file_names::{loss_name, part_name},
    manifest::{COPY_NAME, NAME, encode, stored_state},
    resources::PartResources,
};

/// Number of the first record of a manifest.
const FIRST_RECORD: u64 = 1;

impl PartStore {
    /// The live files with a manifest that lists them.
    pub(crate) fn pin_files(&self) -> PinnedFiles {
        // The files of the manifest are in `parts` while it is locked.
        let manifest = lock(&self.manifest);
        let mut state = manifest.state().clone();
        let parts = lock(&self.state).parts.clone();
        drop(manifest);
        state.log_mark = None;
        let mut pinned = PinnedFiles::default();
        for record in state.quarantined.values_mut() {
            pinned.damaged.push(loss_name(&self.table, record.file));
            if !state.files.contains_key(&record.file) {
                record.bytes = 0;
            }
        }
        for file in state.files.values() {
            let name = part_name(file.number);
            pinned.files.push(PinnedFile {
                source: PinnedSource::Path(self.dir.path().join(&name)),
                path: name,
                bytes: file.bytes,
                checksum: FileChecksum::Footer(file.footer_crc),
            });
        }
        let contents = encode(FIRST_RECORD, self.layout, &state);
        for name in [NAME, COPY_NAME] {
            pinned.files.push(PinnedFile::rendered(name, contents.clone()));
        }
        pinned.pin(parts);
        pinned
    }
}

/// Reads and decodes every live section of the parts in a directory. `checkpoint` gets the bytes that
/// were read since the last call; its error ends the check.
///
/// # Errors
///
/// Names the first file that is missing, damaged or of another version.
pub(crate) fn verify_directory(
    dir: &Arc<dyn StoreDir>,
    resources: &Arc<PartResources>,
    checkpoint: &mut dyn FnMut(u64) -> Result<(), PartError>,
) -> Result<(), PartError> {
    let Some((layout, state)) = stored_state(&**dir)? else {
        let file = dir.path().join(NAME).display().to_string().into();
        return Err(PartError::Damaged { file, offset: 0, what: "it is missing" });
    };
    for file in state.files.values() {
        let sections = state.sections_of(file.number);
        let part = open_listed(dir, resources, file, &sections)?;
        if part.layout() != layout {
            return Err(part.differs("layout"));
        }
        for section in &sections {
            part.verify_section(section.index as usize, checkpoint)?;
        }
    }
    Ok(())
}
