//! Quarantine of damaged parts, and salvage of their intact data when a loss is accepted.
//!
//! A damaged block is recorded. Reads that need it fail; other reads of its section succeed. A section with a
//! damaged head is no longer live, and reads of its span fail. The other sections of its file stay live.
//!
//! When the loss is accepted, the intact data of the damaged sections ([`crate::salvage`]) replaces them in one
//! edit of the manifest. It keeps their position in the order of flushes. Files that can be read again leave the
//! quarantine (`recheck.rs`).

use std::{collections::BTreeSet, io, sync::Arc};

use tsd_files::StoreDir;
use tsd_storage::{LostRows, UnreadableRows};

use super::{PartStore, losses::QuarantinedPart};
use crate::{
    damaged_rows::{BlockRows, unreadable_rows},
    error::PartError,
    file_names::{aside_name, loss_name, part_name, shown_name},
    layout::PartLayout,
    manifest::{
        BlockRecord, FileRecord, ManifestEdit, ManifestState, QuarantineRecord, SectionRecord,
    },
    part::{BlockUse, Part},
    resources::PartResources,
    salvage::{SectionLoss, assess_section, copy_section},
    writer::PartWriter,
};

/// Approximate limit on the bytes of an output beyond its sections.
const OUTPUT_EXTRA_BYTES: u64 = 64 << 10;

/// A file and its damage.
#[derive(Clone, Debug)]
pub(crate) struct DamagedFile {
    pub(crate) file: FileRecord,
    pub(crate) what: String,
    /// The damaged range of the file.
    place: DamagedRange,
}

/// The damaged range of a file.
#[derive(Clone, Copy, Debug)]
enum DamagedRange {
    /// The whole file.
    File,
    /// A section, by its index.
    Section(u32),
    /// A block of a section.
    Block(BlockRecord),
}

/// A copy of intact sections.
struct SalvagedPart {
    part: Option<Arc<Part>>,
    sections: Vec<SectionRecord>,
    loss: Option<SectionLoss>,
}

impl DamagedFile {
    /// A file that is damaged as a whole.
    pub(crate) const fn whole(file: FileRecord, what: String) -> Self {
        Self { file, what, place: DamagedRange::File }
    }
}

impl PartStore {
    /// Quarantines the damage that an error names, so that reads that need it fail with the name of the file. The
    /// damage is a block, a section if its head is damaged, or the file if the damage is outside its sections.
    /// Returns false if the error is not about a live section.
    ///
    /// # Errors
    ///
    /// An error of the disk. The section stays live then.
    pub fn quarantine(&self, error: &PartError) -> Result<bool, PartError> {
        let PartError::Damaged { file, offset, what } = error else { return Ok(false) };
        let part = self.state.lock().parts.values().find(|part| part.name() == &**file).cloned();
        let Some(part) = part else { return Ok(false) };
        let place = match part.section_at(*offset) {
            None => DamagedRange::File,
            Some(index) => {
                let section = u32::try_from(index).unwrap_or(u32::MAX);
                let head = part.head(index, BlockUse::Cached).ok();
                match head.and_then(|head| head.block_at(*offset)) {
                    Some(_) => DamagedRange::Block(BlockRecord { section, offset: *offset }),
                    None => DamagedRange::Section(section),
                }
            }
        };
        let what = format!("{what} at byte {offset}");
        self.quarantine_files(&[DamagedFile { file: part.record(), what, place }])
    }

    /// Takes unrecorded damage that reads skipped since the last call.
    pub(crate) fn take_found_damage(&self) -> Vec<PartError> {
        self.found.take()
    }

    /// The rows that a read cannot get because of the damaged block in its error; `None` for any other error.
    pub(crate) fn unreadable_rows(&self, error: &PartError) -> Option<UnreadableRows> {
        let (part, offset, what) = match error {
            PartError::QuarantinedBlock { number, offset, what, .. } => {
                (self.live_part(*number)?, *offset, what.to_string())
            }
            PartError::Damaged { file, offset, what } => {
                let parts = &self.state.lock().parts;
                let part = parts.values().find(|part| part.name() == &**file).cloned()?;
                (part, *offset, format!("{what} at byte {offset}"))
            }
            _ => return None,
        };
        unreadable_rows(&self.table, &part, offset, &what)
    }

    /// Quarantines a section of a file, if it is live.
    ///
    /// # Errors
    ///
    /// An error of the disk. The section stays live then.
    pub(crate) fn quarantine_section(
        &self,
        number: u64,
        section: u32,
        what: &str,
    ) -> Result<bool, PartError> {
        let Some(part) = self.live_part(number) else { return Ok(false) };
        let (file, what) = (part.record(), what.to_owned());
        self.quarantine_files(&[DamagedFile { file, what, place: DamagedRange::Section(section) }])
    }

    /// Quarantines the damage that is in live sections; false without any. Several readers may find the same
    /// damage, so the sections of the first record stay.
    pub(crate) fn quarantine_files(&self, damaged: &[DamagedFile]) -> Result<bool, PartError> {
        let since_ms = (self.clock)();
        let edit = |state: &ManifestState| {
            let quarantined: Vec<_> =
                damaged.iter().filter_map(|damaged| damaged.record(state, since_ms)).collect();
            (!quarantined.is_empty())
                .then(|| ManifestEdit { quarantined, ..ManifestEdit::default() })
        };
        let Some(edit) = self.commit_from(edit, None, |_| {})? else { return Ok(false) };
        for QuarantineRecord { file, what, sections, blocks, .. } in &edit.quarantined {
            let name = loss_name(&self.table, *file);
            tracing::error!(
                file = shown_name(&self.table, *file),
                what,
                sections = sections.len(),
                blocks = blocks.len(),
                name,
                "what is damaged of a store file is in quarantine; `tsdb quarantine accept` accepts its loss"
            );
        }
        Ok(true)
    }

    pub(super) fn quarantine_record(&self, name: &str) -> Option<QuarantineRecord> {
        let manifest = self.manifest.lock();
        let mut records = manifest.state().quarantined.values();
        records.find(|record| loss_name(&self.table, record.file) == name).cloned()
    }

    /// The quarantined files whose loss is not accepted yet.
    #[must_use]
    pub fn quarantined(&self) -> Vec<QuarantinedPart> {
        let manifest = self.manifest.lock();
        let state = manifest.state();
        let part = |record: &QuarantineRecord| {
            let sections = record.sections.iter().copied().chain(state.damaged_sections(record));
            let spans: BTreeSet<u32> = sections.map(|section| section.span).collect();
            QuarantinedPart {
                name: loss_name(&self.table, record.file),
                file: shown_name(&self.table, record.file),
                bytes: record.bytes,
                since_ms: record.since_ms,
                what: record.what.clone(),
                spans: spans.into_iter().collect(),
                blocks: record.blocks.len(),
            }
        };
        state.quarantined.values().map(part).collect()
    }

    /// The rows of a quarantined file that reads miss.
    pub(crate) fn lost_rows(&self, name: &str) -> Vec<LostRows> {
        let Some(record) = self.quarantine_record(name) else { return Vec::new() };
        let spans: Vec<u32> = record.sections.iter().map(|section| section.span).collect();
        let mut lost = lost_spans(&spans, self.layout.span_secs());
        let Some(part) = self.live_part(record.file) else { return lost };
        for block in &record.blocks {
            let part = Arc::clone(&part);
            let found = BlockRows::find(part, block.section as usize, block.offset);
            let Some(rows) = found else { continue };
            lost.extend(rows.lost(self.layout));
        }
        lost
    }

    /// The loss of a quarantined file; `None` if it cannot be determined, as without a footer. The first call for
    /// a file reads the damaged sections.
    pub fn loss_of(&self, name: &str) -> Option<SectionLoss> {
        let record = self.quarantine_record(name)?;
        let known = self.losses.lock().get(&record.file).cloned();
        if let Some((_, loss)) = known.filter(|(looked_at, _)| *looked_at == record) {
            return loss;
        }
        // A failure may be temporary, so the next call tries again.
        let loss = self.assess(&record).ok()?;
        self.losses.lock().insert(record.file, (record, loss));
        loss
    }

    fn assess(&self, record: &QuarantineRecord) -> Result<Option<SectionLoss>, PartError> {
        let Some(part) = self.damaged_part(record)? else { return Ok(None) };
        let sections = self.all_sections(record);
        assess_sections(&part, &sections).map(Some)
    }

    /// All sections of a record, live or not.
    fn all_sections(&self, record: &QuarantineRecord) -> Vec<SectionRecord> {
        let mut sections = record.sections.clone();
        sections.extend(self.manifest.lock().state().damaged_sections(record));
        sections.sort_unstable_by_key(|section| section.index);
        sections
    }

    /// The file of a record, live or in quarantine; `None` if it is missing or has no intact footer.
    pub(super) fn damaged_part(
        &self,
        record: &QuarantineRecord,
    ) -> Result<Option<Arc<Part>>, PartError> {
        let live = self.state.lock().parts.get(&record.file).cloned();
        find_damaged(&self.dir, &self.resources, self.layout, record, live)
    }

    /// Accepts the loss of a file. From then on, reads return the intact rows. The intact data of its damaged
    /// sections is copied and keeps its position in the order of flushes. Returns false if no such file is in
    /// quarantine.
    ///
    /// # Errors
    ///
    /// An error of the disk, or [`PartError::DiskFull`] if there is no space for the copy. The loss may be
    /// accepted or not then.
    pub fn accept_loss(&self, name: &str) -> Result<bool, PartError> {
        let _accepting = self.accepting.lock();
        loop {
            let Some(record) = self.quarantine_record(name) else { return Ok(false) };
            let copied = self.all_sections(&record);
            let SalvagedPart { part, sections, loss } = self.salvage(&record, &copied)?;
            let is_live = |section: &&SectionRecord| !record.sections.contains(section);
            let removed: Vec<(u64, u32)> = copied
                .iter()
                .filter(is_live)
                .map(|section| (section.file, section.index))
                .collect();
            let has_live = self.state.lock().parts.contains_key(&record.file);
            let edit = ManifestEdit {
                files: part.iter().map(|part| part.record()).collect(),
                sections,
                removed,
                accepted: vec![record.file],
                ..ManifestEdit::default()
            };
            // Meanwhile, more of the file may have been quarantined, or its sections replaced.
            let is_expected = |state: &ManifestState| {
                state.quarantined.get(&record.file) == Some(&record)
                    && edit.removed.iter().all(|section| state.sections.contains_key(section))
            };
            if !self.commit_if(is_expected, &edit, part.clone(), |_| {})? {
                if let Some(part) = part {
                    part.retire();
                }
                continue;
            }
            let bytes = part.map_or(0, |part| part.file_bytes());
            let lost_points = loss.map(|loss| loss.points);
            tracing::warn!(table = %self.table, name, salvaged_bytes = bytes, lost_points, "the loss was accepted");
            self.losses.lock().remove(&record.file);
            self.close_quarantined_file(record.file);
            // The last reader removes the file of an open part.
            if !has_live {
                self.remove_accepted(record.file);
            }
            self.request_merges();
            return Ok(true);
        }
    }

    /// Removes the file of an accepted loss. If it has live sections, it is removed with the last of them.
    pub(super) fn remove_accepted(&self, number: u64) {
        if !self.manifest.lock().state().files.contains_key(&number) {
            // The next start removes a file that remains.
            let _ = self.dir.remove(&aside_name(number));
            let _ = self.dir.remove(&part_name(number));
        }
    }

    /// Copies the intact data of the damaged sections of a file to a new part.
    fn salvage(
        &self,
        record: &QuarantineRecord,
        sections: &[SectionRecord],
    ) -> Result<SalvagedPart, PartError> {
        match self.damaged_part(record)? {
            Some(source) => self.copy_sections(&source, sections),
            None => Ok(SalvagedPart { part: None, sections: Vec::new(), loss: None }),
        }
    }

    /// Copies the intact data of sections of a part to a new part.
    fn copy_sections(
        &self,
        source: &Part,
        copied: &[SectionRecord],
    ) -> Result<SalvagedPart, PartError> {
        let sources = || copied.iter().map(|section| section.index as usize);
        let bytes: u64 = sources().map(|index| source.section_bytes(index)).sum();
        // Held until the copy is written. The copy may use the reserve, since it replaces the damaged file.
        let _permit = self.resources.promise(bytes + OUTPUT_EXTRA_BYTES, true)?;
        let first = copied.iter().map(|section| section.sequences.0).min();
        let last = copied.iter().map(|section| section.sequences.1).max();
        let sequences = (first.unwrap_or_default(), last.unwrap_or_default());
        let mut loss = SectionLoss::default();
        let part = self.write_part(|number| {
            let name = part_name(number);
            let mut writer = PartWriter::create(&*self.dir, &name, self.layout, sequences)?;
            for index in sources() {
                loss.add(copy_section(source, index, &mut writer)?);
            }
            writer.finish()
        })?;
        let infos = part.sections();
        let sections: Vec<SectionRecord> = (0..)
            .zip(&infos)
            .filter_map(|(index, info)| {
                let damaged = copied.iter().find(|section| section.span == info.span)?;
                Some(SectionRecord { file: part.number(), index, ..*damaged })
            })
            .collect();
        let is_empty = sections.is_empty();
        if is_empty {
            part.retire();
        }
        Ok(SalvagedPart { part: (!is_empty).then_some(part), sections, loss: Some(loss) })
    }

    /// Replaces an open part whose file can no longer be opened by a copy of its live sections. Returns false if
    /// the part is not live or has other damage.
    ///
    /// # Errors
    ///
    /// An error of the disk.
    pub(crate) fn copy_part(&self, number: u64) -> Result<bool, PartError> {
        let live = self.state.lock().parts.get(&number).cloned();
        let Some(source) = live else { return Ok(false) };
        let copied = self.manifest.lock().state().sections_of(number);
        let SalvagedPart { part, sections, loss } = self.copy_sections(&source, &copied)?;
        let edit = ManifestEdit {
            files: part.iter().map(|part| part.record()).collect(),
            removed: copied.iter().map(|section| (section.file, section.index)).collect(),
            sections,
            ..ManifestEdit::default()
        };
        let is_whole = loss.is_some_and(|loss| loss.blocks == 0);
        let is_expected = |state: &ManifestState| is_whole && state.sections_of(number) == copied;
        let is_done = self.commit_if(is_expected, &edit, part.clone(), |_| {})?;
        if let Some(part) = part.filter(|_| !is_done) {
            part.retire();
        }
        Ok(is_done)
    }
}

/// The rows of spans as time ranges, because the rows of a span are not adjacent in the order of keys. Adjacent
/// spans become one range.
fn lost_spans(spans: &[u32], span_secs: u32) -> Vec<LostRows> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for &span in spans {
        let (start, end) = (u64::from(span), u64::from(span) + u64::from(span_secs));
        match ranges.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => ranges.push((start, end)),
        }
    }
    let rows = |range| LostRows { time_secs: Some(range), ..LostRows::default() };
    ranges.into_iter().map(rows).collect()
}

/// The total loss of sections of a part.
pub(crate) fn assess_sections(
    part: &Part,
    sections: &[SectionRecord],
) -> Result<SectionLoss, PartError> {
    let mut loss = SectionLoss::default();
    for section in sections {
        loss.add(assess_section(part, section.index as usize, &mut || Ok(()))?);
    }
    Ok(loss)
}

/// The file of a record: the open part `live`, or a file with one of its names; `None` if it is missing or has no
/// intact footer.
pub(crate) fn find_damaged(
    dir: &Arc<dyn StoreDir>,
    resources: &Arc<PartResources>,
    layout: PartLayout,
    record: &QuarantineRecord,
    live: Option<Arc<Part>>,
) -> Result<Option<Arc<Part>>, PartError> {
    let number = record.file;
    let mut found = live;
    // Tries the first name again, because the file may be renamed meanwhile.
    for name in [aside_name(number), part_name(number), aside_name(number)] {
        if found.is_some() {
            break;
        }
        match Part::open_named(dir, resources, (number, name), None) {
            Ok(part) => found = Some(Arc::new(part)),
            Err(PartError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.is_damage() => {}
            Err(error) => return Err(error),
        }
    }
    let is_of = |part: &Arc<Part>| {
        let infos = part.sections();
        record.sections.iter().all(|section| {
            infos.get(section.index as usize).is_some_and(|info| info.span == section.span)
        })
    };
    Ok(found.filter(|part| part.layout() == layout && is_of(part)))
}

impl DamagedFile {
    /// The record of a file with its damage now; `None` if the damage is in no live section.
    fn record(&self, state: &ManifestState, since_ms: i64) -> Option<QuarantineRecord> {
        let file = state.files.get(&self.file.number)?;
        let damaged = |index| match self.place {
            DamagedRange::File => true,
            DamagedRange::Section(section) => section == index,
            DamagedRange::Block(block) => block.section == index,
        };
        let mut sections = state.sections_of(file.number);
        sections.retain(|section| damaged(section.index));
        if sections.is_empty() {
            return None;
        }
        let mut record =
            state.quarantined.get(&file.number).cloned().unwrap_or_else(|| QuarantineRecord {
                file: file.number,
                bytes: self.file.bytes,
                since_ms,
                what: self.what.clone(),
                sections: Vec::new(),
                blocks: Vec::new(),
            });
        if let DamagedRange::Block(block) = self.place {
            let at = record.blocks.binary_search(&block).err()?;
            record.blocks.insert(at, block);
            return Some(record);
        }
        record.blocks.retain(|block| !damaged(block.section));
        record.sections.extend(sections);
        record.sections.sort_unstable_by_key(|section| section.index);
        Some(record)
    }
}
