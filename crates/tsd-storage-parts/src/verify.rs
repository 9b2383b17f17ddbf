//! Verification of the files of tables: manifests, parts block by block, series indexes.
//!
//! The same checks run on open tables and on a directory that no process has open. They change nothing, do not
//! fill the cache and do not keep replaced parts. They do not report a file that was replaced meanwhile.

mod directory;
mod rebuild;

use std::{io, sync::Arc};

use jiff::Timestamp;
use tsd_files::StoreDir;
use tsd_model::BaseTime;
use tsd_series_index::SeriesIndex;
use tsd_storage::{RepairAction, StorageError, Table, VerifyFinding, VerifyRun};

#[cfg(test)]
pub(crate) use self::rebuild::rebuild_in;
pub use self::{directory::verify_directory, rebuild::rebuild_manifest};
use crate::{
    chunk::ChunkKind,
    cursor::SectionCursor,
    damage::DamageUse,
    error::PartError,
    file_names::{aside_name, loss_name, part_name},
    layout::PartLayout,
    manifest::{
        BlockRecord, FileRecord, ManifestCopies, ManifestState, QuarantineRecord, SectionRecord,
    },
    part::{BlockUse, Part},
    resources::PartResources,
    salvage::SectionLoss,
    section_reader::SectionReader,
    series_selection::SeriesSelection,
    store::{PartStore, RecheckedPart, assess_sections, find_damaged},
};

/// Number of keys that are compared with the series index in one batch.
const BATCH_ROWS: usize = 4_096;
/// Maximum number of spans in the cost of a file. Other spans are counted.
const NAMED_SPANS: usize = 4;

/// A check of the files of one table.
pub(crate) struct TableCheck<'a> {
    pub(crate) table: &'a Table,
    pub(crate) dir: &'a Arc<dyn StoreDir>,
    pub(crate) resources: &'a Arc<PartResources>,
    pub(crate) layout: PartLayout,
    pub(crate) run: &'a VerifyRun,
    /// The complete series index, and the path of its file.
    pub(crate) index: Option<(&'a SeriesIndex, String)>,
    /// The store, if it is open.
    pub(crate) store: Option<&'a PartStore>,
}

/// Approximate number of bytes that the checks of a table read.
pub(crate) fn planned_bytes(state: &ManifestState) -> u64 {
    state.files.values().map(|file| file.bytes).sum()
}

impl TableCheck<'_> {
    /// Checks both files of the manifest. `next_number` is the number after the last record, if the store is
    /// open.
    pub(crate) fn manifest(&self, read: &ManifestCopies, next_number: Option<u64>) {
        let numbers = read.copies.iter().filter_map(|(_, copy)| copy.as_ref().ok());
        let newest = numbers.max().copied();
        let expected = next_number.or(newest);
        let action = match (self.store.is_some(), newest.is_some()) {
            (true, _) => RepairAction::RewriteManifest { table: self.table.clone() },
            (false, true) => RepairAction::Reopen,
            (false, false) => RepairAction::RebuildManifest { table: self.table.clone() },
        };
        for (file, copy) in &read.copies {
            let what = match copy {
                Ok(number) if Some(*number) == expected => continue,
                Ok(_) => "it ends before the last change: its last record is missing or damaged"
                    .to_owned(),
                Err(PartError::Damaged { offset, what, .. }) => format!("{what} at byte {offset}"),
                Err(error) => error.to_string(),
            };
            let cost = if newest.is_some() {
                "nothing: the other copy has everything"
            } else {
                "which files the table has is not known: the start is refused"
            };
            self.report(file.clone(), what, cost.to_owned(), Some(action.clone()));
        }
    }

    /// Checks the files of a manifest state, including quarantined ones.
    pub(crate) fn files(&self, state: &ManifestState) -> Result<(), StorageError> {
        let mut missing = 0;
        for record in state.quarantined.values() {
            self.quarantined(record, &state.damaged_sections(record))?;
        }
        for file in state.files.values() {
            let known = state.quarantined.get(&file.number).map(|record| record.blocks.as_slice());
            let sections = state.sections_of(file.number);
            missing += self.file(file, &sections, known.unwrap_or_default())?;
        }
        if missing > 0
            && let Some((_, path)) = &self.index
        {
            let what = format!("{missing} rows of the parts are not in the series index");
            self.index_finding(path.clone(), what, "queries that select by tags miss points");
        }
        Ok(())
    }

    /// Reports damage of the series index.
    pub(crate) fn index_finding(&self, path: String, what: String, cost: &str) {
        let action = RepairAction::RebuildIndex { table: self.table.clone() };
        self.report(path, what, cost.to_owned(), Some(action));
    }

    /// Reports the quarantined damage of a file. `damaged` are its live sections with quarantined blocks.
    fn quarantined(
        &self,
        record: &QuarantineRecord,
        damaged: &[SectionRecord],
    ) -> Result<(), StorageError> {
        let live = self.store.and_then(|store| store.live_part(record.file));
        let found = find_damaged(self.dir, self.resources, self.layout, record, live)?;
        let sections = [&*record.sections, damaged].concat();
        if let Some(part) = &found {
            let mut checkpoint = || self.run.read(0).map_err(|_| PartError::Stopped);
            if RecheckedPart::read(part, record, &mut checkpoint)?.is_whole() {
                let what = format!("{}; it is in quarantine, and can be read again", record.what);
                let cost = "nothing: the next start takes it out of the quarantine".to_owned();
                let path = part.path().display().to_string();
                self.report(path, what, cost, Some(RepairAction::Reopen));
                return Ok(());
            }
        }
        let loss = match found {
            Some(part) => Some(assess_sections(&part, &sections)?),
            None => None,
        };
        let is_moved = !self.has_live_sections(record.file);
        let name = if is_moved { aside_name(record.file) } else { part_name(record.file) };
        let name_of_loss = loss_name(self.table, record.file);
        let what = format!("{}; it is in quarantine as {name_of_loss}", record.what);
        let action = RepairAction::AcceptLoss { name: name_of_loss };
        self.report(self.path(&name), what, self.cost(&sections, loss), Some(action));
        Ok(())
    }

    /// Checks a file and its sections, except for quarantined blocks. Returns the number of its rows that the
    /// index lacks.
    fn file(
        &self,
        file: &FileRecord,
        sections: &[SectionRecord],
        known: &[BlockRecord],
    ) -> Result<u64, StorageError> {
        let live = self.store.map(|store| store.live_part(file.number));
        let opened = Part::open(self.dir, self.resources, file.number, Some(file)).map(Arc::new);
        let part = match (opened, live) {
            // The file was replaced meanwhile.
            (_, Some(None)) => return Ok(0),
            (Ok(part), _) => part,
            (Err(error), live) => {
                let Some(what) = damage(&error) else { return Err(error.into()) };
                if !self.is_live(sections) {
                    return Ok(0);
                }
                let path = self.path(&part_name(file.number));
                let Some(part) = live.flatten() else {
                    let cost = self.cost(sections, None);
                    self.report(path, what, cost, Some(RepairAction::Reopen));
                    return Ok(0);
                };
                let (table, file) = (self.table.clone(), file.number);
                let cost =
                    "nothing while the daemon runs: it has the file open; the next start loses it";
                let action = RepairAction::CopyPart { table, file };
                self.report(path, what, cost.to_owned(), Some(action));
                part
            }
        };
        let live_bytes = sections.iter().map(|section| part.section_bytes(section.index as usize));
        // Counts the footer and dead sections, whose blocks are not read.
        self.run.read(file.bytes.saturating_sub(live_bytes.sum()))?;
        match part.verify_copies() {
            Ok(()) => {}
            Err(PartError::Damaged { offset, what, .. }) => {
                let (table, file) = (self.table.clone(), file.number);
                let cost = "nothing: the other copy of it is intact".to_owned();
                let what = format!("{what} at byte {offset}");
                let action = RepairAction::CopyPart { table, file };
                self.report(self.path(&part_name(file)), what, cost, Some(action));
            }
            Err(error) => return Err(error.into()),
        }
        let mut missing = 0;
        for section in sections {
            let known = known.iter().filter(|block| block.section == section.index);
            let known: Vec<u64> = known.map(|block| block.offset).collect();
            match self.section(&part, section, &known) {
                Ok(rows) => missing += rows,
                Err(error) => {
                    let Some(what) = damage(&error) else { return Err(error.into()) };
                    if self.is_live(std::slice::from_ref(section)) {
                        self.damaged_section(&part, section, what)?;
                    }
                }
            }
        }
        Ok(missing)
    }

    fn damaged_section(
        &self,
        part: &Arc<Part>,
        section: &SectionRecord,
        what: String,
    ) -> Result<(), StorageError> {
        let loss = assess_sections(part, std::slice::from_ref(section))?;
        let cost = self.cost(std::slice::from_ref(section), Some(loss));
        let action = RepairAction::SalvageSection {
            table: self.table.clone(),
            file: section.file,
            section: section.index,
            what: what.clone(),
        };
        self.report(self.path(&part_name(section.file)), what, cost, Some(action));
        Ok(())
    }

    /// Reads every block of a section and compares its rows with the index.
    fn section(
        &self,
        part: &Arc<Part>,
        section: &SectionRecord,
        known: &[u64],
    ) -> Result<u64, PartError> {
        let index = section.index as usize;
        let checkpoint = |bytes| self.run.read(bytes).map_err(|_| PartError::Stopped);
        part.verify_section(index, known, &mut |bytes| checkpoint(bytes))?;
        let Some((series, _)) = &self.index else { return Ok(0) };
        let (all, bases) = (Arc::new(SeriesSelection::All), (0, u32::MAX));
        let (how, damage) = (BlockUse::Once, DamageUse::past(known));
        let section = SectionReader::open(Arc::clone(part), index, how, damage)?;
        let mut cursor = SectionCursor::open(section, &all, bases)?;
        let (mut missing, mut keys) = (0, Vec::new());
        while cursor.advance()? {
            for chunk in &cursor.chunks {
                let mut add = |base| keys.push(self.layout.join_key(&cursor.series, base));
                match chunk.kind {
                    // Only the first and the last hour certainly have rows.
                    ChunkKind::Points => {
                        let step = BaseTime::SPAN_SECONDS;
                        add(chunk.first_base);
                        if chunk.last_base >= chunk.first_base + step {
                            add(chunk.last_base);
                        }
                    }
                    ChunkKind::Cells => {
                        let mut last = None;
                        let walked = chunk.cells(cursor.span(), |base, _| {
                            if last.replace(base) != Some(base) {
                                add(base);
                            }
                        });
                        walked.map_err(part.malformed(chunk.block))?;
                    }
                    ChunkKind::Tombstones | ChunkKind::Summaries => {}
                }
            }
            if keys.len() >= BATCH_ROWS {
                missing += series.count_missing(keys.iter().map(Vec::as_slice));
                keys.clear();
                checkpoint(0)?;
            }
        }
        Ok(missing + series.count_missing(keys.iter().map(Vec::as_slice)))
    }

    /// True if one of the sections is still live.
    fn is_live(&self, sections: &[SectionRecord]) -> bool {
        self.store.is_none_or(|store| sections.iter().any(|section| store.is_live(section)))
    }

    fn has_live_sections(&self, file: u64) -> bool {
        self.dir.open_reader(&part_name(file)).is_ok()
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// The cost of damaged sections.
    fn cost(&self, sections: &[SectionRecord], loss: Option<SectionLoss>) -> String {
        let spans: Vec<String> = sections
            .iter()
            .take(NAMED_SPANS)
            .map(|section| span_name(self.layout, section.span))
            .collect();
        let mut spans = spans.join(", ");
        if sections.len() > NAMED_SPANS {
            spans = format!("{spans} and {} more", sections.len() - NAMED_SPANS);
        }
        match loss {
            None => format!("all points that it has of {spans}; reads of these times fail"),
            Some(SectionLoss { points, all_points, blocks, all_blocks }) => format!(
                "{points} of {all_points} points, in {blocks} of {all_blocks} blocks, of {spans}; reads of \
                 the lost points fail until the loss is accepted"
            ),
        }
    }

    fn report(&self, file: String, what: String, cost: String, action: Option<RepairAction>) {
        self.run.report(VerifyFinding { file, what, cost, action });
    }
}

/// Description of the damage; `None` if the error is no damage.
fn damage(error: &PartError) -> Option<String> {
    match error {
        PartError::Damaged { offset, what, .. } => Some(format!("{what} at byte {offset}")),
        PartError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Some("the file is missing".to_owned())
        }
        _ => None,
    }
}

/// A readable name of a span: one date, or two.
fn span_name(layout: PartLayout, span: u32) -> String {
    let date = |secs: u32| {
        let time = Timestamp::from_second(i64::from(secs)).unwrap_or_default();
        time.strftime("%Y-%m-%d").to_string()
    };
    if layout.span_secs() <= PartLayout::DAY_SECS {
        date(span)
    } else {
        let last = span.saturating_add(layout.span_secs() - PartLayout::DAY_SECS);
        format!("{} to {}", date(span), date(last))
    }
}
