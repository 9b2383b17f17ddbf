//! Reads that return the intact rows of damaged data (`allow_damaged`).
//!
//! They also read quarantined sections whose file can be opened. So they return every row that accepting the loss
//! would keep.

use std::sync::Arc;

use super::PartStore;
use crate::{
    error::PartError,
    manifest::QuarantineRecord,
    part::Part,
    snapshot::{Snapshot, SnapshotSection},
};

impl PartStore {
    /// The sections for reads that return the intact rows of damaged data.
    ///
    /// # Errors
    ///
    /// An error of the disk.
    pub(crate) fn snapshot_past_losses(&self) -> Result<Arc<Snapshot>, PartError> {
        let snapshot = self.snapshot();
        if snapshot.lost().is_empty() {
            return Ok(snapshot.past_losses(Vec::new()));
        }
        let (snapshot, records) = {
            let manifest = self.manifest.lock();
            let records = manifest.state().quarantined.values();
            let records: Vec<_> =
                records.filter(|record| !record.sections.is_empty()).cloned().collect();
            (self.snapshot(), records)
        };
        let mut sections = Vec::new();
        for record in &records {
            let Some(part) = self.quarantined_file(record)? else { continue };
            sections.extend(record.sections.iter().map(|section| {
                let index = section.index as usize;
                let read = SnapshotSection {
                    part: Arc::clone(&part),
                    section: index,
                    bytes: part.section_bytes(index),
                    sequences: section.sequences,
                    compacted_before: section.compacted_before,
                    damage: None,
                };
                (section.span, read)
            }));
        }
        Ok(snapshot.past_losses(sections))
    }

    fn quarantined_file(&self, record: &QuarantineRecord) -> Result<Option<Arc<Part>>, PartError> {
        let known = self.quarantined_files.lock().get(&record.file).cloned();
        if let Some((_, part)) = known.filter(|(opened_for, _)| opened_for == record) {
            return Ok(part);
        }
        let part = self.damaged_part(record)?;
        self.quarantined_files.lock().insert(record.file, (record.clone(), part.clone()));
        Ok(part)
    }

    /// Closes a file that is no longer in quarantine.
    pub(super) fn close_quarantined_file(&self, number: u64) {
        // Dropped after the lock is released.
        let _closed = self.quarantined_files.lock().remove(&number);
    }
}
