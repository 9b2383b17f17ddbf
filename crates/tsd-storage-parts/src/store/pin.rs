//! Pins the files of a store at one moment for a snapshot, and verifies restored files.
//!
//! Parts are immutable, and a reference pins them: the file of a replaced part is removed with its last
//! reference. The manifest is rendered. Quarantined files are left out, but their records stay, so reads of spans
//! with lost rows fail in the snapshot, too.
//!
//! The series index is left out, and the first start of the restored store builds it from the parts. Its file is
//! appended to, so it cannot be linked. It may also have series whose names and rows are in the memtables only.
//! The restored store may give their UIDs to other names.

use std::sync::Arc;

use tsd_files::StoreDir;
use tsd_storage::{FileChecksum, PinnedFile, PinnedFiles, PinnedSource};

use super::{PartStore, recovery::open_listed};
use crate::{
    error::PartError,
    file_names::{loss_name, part_name},
    manifest::{COPY_NAME, NAME, encode, stored_state},
    resources::PartResources,
};

/// Number of the first record of a manifest.
const FIRST_RECORD: u64 = 1;

impl PartStore {
    /// The live files and a manifest that lists them.
    pub(crate) fn pin_files(&self) -> PinnedFiles {
        // While the manifest is locked, `parts` has all of its files.
        let manifest = self.manifest.lock();
        let mut state = manifest.state().clone();
        let parts = self.state.lock().parts.clone();
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

/// Reads and decodes every live section of the parts in a directory, and checks the copies of their footers and
/// heads. `checkpoint` gets the number of bytes read since its last call; its error stops the check.
///
/// # Errors
///
/// The error names the first file that is missing, damaged or of another version.
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
        part.verify_copies()?;
        for section in &sections {
            let damaged = state.quarantined.get(&file.number).into_iter();
            let known: Vec<u64> = damaged
                .flat_map(|record| &record.blocks)
                .filter(|block| block.section == section.index)
                .map(|block| block.offset)
                .collect();
            part.verify_section(section.index as usize, &known, checkpoint)?;
        }
    }
    Ok(())
}
