//! The manifest of a store of parts: live sections, quarantined files, position of the log.
//!
//! The manifest is one file of records with checksums: the whole state, then the edits since. A flush appends
//! about fifty bytes, while the state of a store of years has a hundred KiB. When the edits outgrow the state,
//! the file is rewritten.
//!
//! ```text
//! manifest = magic 8 | record *
//! record   = payload length u32 | CRC u32 of the payload | payload
//! payload  = kind u8 (1 state, 2 edit) | number | [offset of the base time in keys u8 | seconds of a span]
//!            | edit
//! edit     = next sequence | files | (number | bytes | CRC u32 of the footer) * | sections | section *
//!            | removed | (file | index) * | quarantined | quarantined file *
//!            | accepted | (file) * | has log mark u8 | [bytes of the mark]
//! section  = span | file | index | first sequence | last sequence | compacted before + 1, or 0
//! quarantined file = number | bytes | epoch milliseconds | length | reason | sections | section *
//!            | damaged blocks | (index of the section | offset) *
//! ```
//!
//! Quarantined sections are not live. Damaged blocks are blocks of live sections; version 1 does not list them.
//! Only a state has the bracketed layout; its edit turns an empty store into this state. Record numbers are
//! consecutive.

mod file;
mod record;

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use crate::error::Malformed;

#[cfg(any(test, feature = "testing"))]
pub(crate) use self::file::decode_manifest;
pub(crate) use self::file::{
    COPY_NAME, ManifestCopies, ManifestFile, NAME, encode, has_table, read_copies, stored_layout,
    stored_state,
};

/// A part file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileRecord {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) footer_crc: u32,
}

/// A live section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SectionRecord {
    pub(crate) span: u32,
    pub(crate) file: u64,
    /// Index of the section in the file.
    pub(crate) index: u32,
    pub(crate) sequences: (u64, u64),
    pub(crate) compacted_before: Option<u32>,
}

/// A damaged block of a live section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockRecord {
    /// Index of the section in the file.
    pub(crate) section: u32,
    /// Offset of the block in the file.
    pub(crate) offset: u64,
}

/// A damaged file, with the sections and blocks that reads miss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuarantineRecord {
    pub(crate) file: u64,
    /// Size in bytes; 0 if the file was missing.
    pub(crate) bytes: u64,
    pub(crate) since_ms: i64,
    pub(crate) what: String,
    /// Sections that are no longer live, because their heads or the footer of the file are damaged.
    pub(crate) sections: Vec<SectionRecord>,
    /// Damaged blocks of live sections, sorted.
    pub(crate) blocks: Vec<BlockRecord>,
}

/// A change of the state, which becomes durable as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ManifestEdit {
    /// Sequence of the next flush. A number below the current one changes nothing.
    pub(crate) next_sequence: u64,
    pub(crate) files: Vec<FileRecord>,
    pub(crate) sections: Vec<SectionRecord>,
    /// File and index of each removed section. A file without sections leaves the store.
    pub(crate) removed: Vec<(u64, u32)>,
    /// Files whose sections stop being live. A record replaces the previous record of its file.
    pub(crate) quarantined: Vec<QuarantineRecord>,
    /// Quarantined files whose loss was accepted.
    pub(crate) accepted: Vec<u64>,
    pub(crate) log_mark: Option<Bytes>,
}

/// The state after all edits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ManifestState {
    pub(crate) next_sequence: u64,
    pub(crate) files: BTreeMap<u64, FileRecord>,
    /// Keyed by file and index.
    pub(crate) sections: BTreeMap<(u64, u32), SectionRecord>,
    pub(crate) quarantined: BTreeMap<u64, QuarantineRecord>,
    pub(crate) log_mark: Option<Bytes>,
}

impl ManifestState {
    /// Applies an edit that was checked, or read from the manifest.
    pub(crate) fn apply(&mut self, edit: &ManifestEdit) -> Result<(), Malformed> {
        self.next_sequence = self.next_sequence.max(edit.next_sequence);
        for file in &edit.files {
            if self.files.insert(file.number, *file).is_some() {
                return Err(Malformed("a file that is added twice"));
            }
        }
        let mut touched = Vec::new();
        for removed in &edit.removed {
            if self.sections.remove(removed).is_none() {
                return Err(Malformed("a removed section that was not there"));
            }
            touched.push(removed.0);
        }
        for section in &edit.sections {
            let is_new = self.sections.insert((section.file, section.index), *section).is_none();
            if !is_new || !self.files.contains_key(&section.file) {
                return Err(Malformed("a section without a file, or twice"));
            }
        }
        for record in &edit.quarantined {
            for section in &record.sections {
                self.sections.remove(&(section.file, section.index));
            }
            touched.push(record.file);
            self.quarantined.insert(record.file, record.clone());
        }
        for &(file, index) in &edit.removed {
            self.forget_blocks(file, index);
        }
        for file in &edit.accepted {
            self.quarantined.remove(file);
        }
        touched.extend(edit.files.iter().map(|file| file.number));
        for file in touched {
            if self.sections.range((file, 0)..=(file, u32::MAX)).next().is_none() {
                self.files.remove(&file);
            }
        }
        if let Some(mark) = &edit.log_mark {
            self.log_mark = Some(mark.clone());
        }
        Ok(())
    }

    /// Removes the damaged blocks of a section that is no longer live. Removes the record of the file, too, if it
    /// has no section or block left.
    fn forget_blocks(&mut self, file: u64, index: u32) {
        let Some(record) = self.quarantined.get_mut(&file) else { return };
        record.blocks.retain(|block| block.section != index);
        if record.sections.is_empty() && record.blocks.is_empty() {
            self.quarantined.remove(&file);
        }
    }

    /// The live sections of a file that have damaged blocks.
    pub(crate) fn damaged_sections(&self, record: &QuarantineRecord) -> Vec<SectionRecord> {
        let mut damaged = self.sections_of(record.file);
        damaged.retain(|section| record.blocks.iter().any(|block| block.section == section.index));
        damaged
    }

    /// The edit that turns an empty state into this one.
    pub(crate) fn as_edit(&self) -> ManifestEdit {
        ManifestEdit {
            next_sequence: self.next_sequence,
            files: self.files.values().copied().collect(),
            sections: self.sections.values().copied().collect(),
            removed: Vec::new(),
            quarantined: self.quarantined.values().cloned().collect(),
            accepted: Vec::new(),
            log_mark: self.log_mark.clone(),
        }
    }

    /// Number of live sections per span.
    pub(crate) fn section_counts(&self) -> HashMap<u32, usize> {
        let mut counts = HashMap::new();
        for section in self.sections.values() {
            *counts.entry(section.span).or_default() += 1;
        }
        counts
    }

    /// Live sections of a file.
    pub(crate) fn sections_of(&self, file: u64) -> Vec<SectionRecord> {
        self.sections.range((file, 0)..=(file, u32::MAX)).map(|(_, section)| *section).collect()
    }
}
