//! Releases quarantined data that can be read again: the disk failed for a while, or a file was put back.

use std::sync::Arc;

use super::PartStore;
use crate::{
    error::PartError,
    file_names::{aside_name, loss_name, part_name},
    manifest::{BlockRecord, ManifestEdit, ManifestState, QuarantineRecord, SectionRecord},
    merge_signal::MergeCheckpoint,
    part::{BlockUse, Part},
};

impl PartStore {
    /// Reads quarantined data again. Intact sections leave the quarantine; in a section with a readable head,
    /// only the damaged blocks stay. Returns true if data left it. Calls `checkpoint` before each block; its
    /// error stops the check.
    ///
    /// # Errors
    ///
    /// An error of the disk, or the error of `checkpoint`.
    pub(crate) fn recheck_quarantine(
        &self,
        checkpoint: MergeCheckpoint<'_>,
    ) -> Result<bool, PartError> {
        let records: Vec<QuarantineRecord> =
            self.manifest.lock().state().quarantined.values().cloned().collect();
        let mut has_changed = false;
        for record in records {
            has_changed |= self.recheck(&record, checkpoint)?;
        }
        Ok(has_changed)
    }

    fn recheck(
        &self,
        record: &QuarantineRecord,
        checkpoint: MergeCheckpoint<'_>,
    ) -> Result<bool, PartError> {
        // Accepting a loss copies from the same file.
        let _accepting = self.accepting.lock();
        let Some(part) = self.damaged_part(record)? else { return Ok(false) };
        let (first, last) = part.sequences();
        let is_of =
            |section: &SectionRecord| first <= section.sequences.0 && section.sequences.1 <= last;
        let is_other_size = record.bytes > 0 && record.bytes != part.file_bytes();
        if is_other_size || !record.sections.iter().all(is_of) {
            // Another file has this name.
            return Ok(false);
        }
        let rechecked = RecheckedPart::read(&part, record, checkpoint)?;
        let is_gone = rechecked.is_whole();
        let RecheckedPart { whole, left } = rechecked;
        if left == *record {
            return Ok(false);
        }
        let live = self.live_part(record.file);
        let output =
            if live.is_some() || whole.is_empty() { None } else { Some(self.reopen(record.file)?) };
        let edit = ManifestEdit {
            files: output.iter().map(|part| part.record()).collect(),
            sections: whole,
            accepted: if is_gone { vec![record.file] } else { Vec::new() },
            quarantined: if is_gone { Vec::new() } else { vec![left.clone()] },
            ..ManifestEdit::default()
        };
        // Meanwhile, more of the file may have been quarantined, or its loss accepted, or its span dropped.
        let is_expected = |state: &ManifestState| {
            state.quarantined.get(&record.file) == Some(record)
                && state.files.contains_key(&record.file) == live.is_some()
        };
        let is_done = self.commit_if(is_expected, &edit, output, |_| {})?;
        if is_done {
            self.close_quarantined_file(record.file);
            let name = loss_name(&self.table, record.file);
            let (sections, blocks) = (left.sections.len(), left.blocks.len());
            tracing::warn!(
                name,
                sections_left = sections,
                blocks_left = blocks,
                "what was in quarantine can be read again, and is no longer in it"
            );
            self.request_merges();
        }
        Ok(is_done)
    }

    /// Renames a quarantined file to its live name and opens it.
    fn reopen(&self, number: u64) -> Result<Arc<Part>, PartError> {
        let name = part_name(number);
        // A quarantined file keeps its live name until the next start.
        let is_aside = self.dir.open_reader(&name).is_err();
        if is_aside {
            let path = self.dir.path().join(&name);
            self.dir.rename(&aside_name(number), &name).map_err(PartError::io("rename", &path))?;
            self.dir.sync().map_err(PartError::io("sync", self.dir.path()))?;
        }
        Part::open(&self.dir, &self.resources, number, None).map(Arc::new)
    }
}

/// The present state of a quarantined part.
pub(crate) struct RecheckedPart {
    /// Sections that are live again.
    pub(crate) whole: Vec<SectionRecord>,
    /// The damage that stays in quarantine.
    pub(crate) left: QuarantineRecord,
}

impl RecheckedPart {
    /// True if the whole part is intact.
    pub(crate) const fn is_whole(&self) -> bool {
        self.left.sections.is_empty() && self.left.blocks.is_empty()
    }

    /// Reads the quarantined sections and blocks of a part.
    pub(crate) fn read(
        part: &Part,
        record: &QuarantineRecord,
        checkpoint: MergeCheckpoint<'_>,
    ) -> Result<Self, PartError> {
        let mut left =
            QuarantineRecord { sections: Vec::new(), blocks: Vec::new(), ..record.clone() };
        let mut whole = Vec::new();
        for section in &record.sections {
            let index = section.index as usize;
            match part.head(index, BlockUse::Once) {
                Ok(_) => {
                    let damaged = part.damaged_blocks(index, checkpoint)?;
                    let block = |offset| BlockRecord { section: section.index, offset };
                    left.blocks.extend(damaged.into_iter().map(block));
                    whole.push(*section);
                }
                Err(error) if error.is_damage() => left.sections.push(*section),
                Err(error) => return Err(error),
            }
        }
        for block in &record.blocks {
            checkpoint()?;
            match part.verify_block(block.section as usize, block.offset) {
                Ok(()) => {}
                Err(error) if error.is_damage() => left.blocks.push(*block),
                Err(error) => return Err(error),
            }
        }
        left.blocks.sort_unstable();
        Ok(Self { whole, left })
    }
}
