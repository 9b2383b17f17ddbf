//! Damaged parts: which sections are lost, and what stays of them when the loss is accepted.
//!
//! A section whose damage was found is no longer live, and reads of its span fail; the other sections of
//! its file stay where they are. When the loss is accepted, what is intact of the section
//! ([`crate::salvage`]) takes its place in the order of flushes, in one edit of the manifest.

use std::{io, sync::Arc};

use tsd_storage::StoreDir;

use super::{PartStore, lock::lock, losses::QuarantinedPart};
use crate::{
    error::PartError,
    file_names::{aside_name, loss_name, part_name, shown_name},
    layout::PartLayout,
    manifest::{FileRecord, ManifestEdit, ManifestState, QuarantineRecord, SectionRecord},
    part::Part,
    resources::PartResources,
    salvage::{SectionLoss, assess_section, copy_section},
    writer::PartWriter,
};

/// Bytes that an output may have beside those of its sections.
const OUTPUT_EXTRA_BYTES: u64 = 64 << 10;

/// A file and what of it is damaged.
#[derive(Clone, Debug)]
pub(crate) struct DamagedFile {
    pub(crate) file: FileRecord,
    pub(crate) what: String,
    /// Index of the damaged section; `None` for all of the file.
    section: Option<u32>,
}

/// The copy of what is intact.
struct SalvagedPart {
    part: Option<Arc<Part>>,
    sections: Vec<SectionRecord>,
    loss: Option<SectionLoss>,
}

impl DamagedFile {
    /// All of a file.
    pub(crate) const fn whole(file: FileRecord, what: String) -> Self {
        Self { file, what, section: None }
    }
}

impl PartStore {
    /// Quarantines the section that an error names, so that it does not stop merges: reads of its span fail
    /// with the name of the file. Damage outside of the sections is that of all. Returns false if the
    /// error is none of a live section.
    ///
    /// # Errors
    ///
    /// An error of the disk: the section stays live.
    pub fn quarantine(&self, error: &PartError) -> Result<bool, PartError> {
        let PartError::Damaged { file, offset, what } = error else { return Ok(false) };
        let part = lock(&self.state).parts.values().find(|part| part.name() == &**file).cloned();
        let Some(part) = part else { return Ok(false) };
        self.quarantine_files(&[DamagedFile {
            file: part.record(),
            what: format!("{what} at byte {offset}"),
            section: part.section_at(*offset).and_then(|index| u32::try_from(index).ok()),
        }])
    }

    /// Quarantines a section of a file, if it is live.
    ///
    /// # Errors
    ///
    /// An error of the disk: the section stays live.
    pub(crate) fn quarantine_section(
        &self,
        number: u64,
        section: u32,
        what: &str,
    ) -> Result<bool, PartError> {
        let Some(part) = self.live_part(number) else { return Ok(false) };
        let (file, what) = (part.record(), what.to_owned());
        self.quarantine_files(&[DamagedFile { file, what, section: Some(section) }])
    }

    /// Quarantines those of the sections that are live; false if none is. Several readers may find the
    /// same damage: the sections of the first record must stay.
    pub(crate) fn quarantine_files(&self, damaged: &[DamagedFile]) -> Result<bool, PartError> {
        let since_ms = (self.clock)();
        let edit = |state: &ManifestState| {
            let quarantined: Vec<_> =
                damaged.iter().filter_map(|damaged| damaged.record(state, since_ms)).collect();
            (!quarantined.is_empty())
                .then(|| ManifestEdit { quarantined, ..ManifestEdit::default() })
        };
        let Some(edit) = self.commit_from(edit, None, |_| {})? else { return Ok(false) };
        for QuarantineRecord { file, what, sections, .. } in &edit.quarantined {
            let name = loss_name(&self.table, *file);
            tracing::error!(
                file = shown_name(&self.table, *file),
                what,
                sections = sections.len(),
                name,
                "a damaged store file is in quarantine; `tsdb quarantine accept` accepts its loss"
            );
        }
        Ok(true)
    }

    fn quarantine_record(&self, name: &str) -> Option<QuarantineRecord> {
        let manifest = lock(&self.manifest);
        let mut records = manifest.state().quarantined.values();
        records.find(|record| loss_name(&self.table, record.file) == name).cloned()
    }

    /// The quarantined files, whose loss was not accepted yet.
    #[must_use]
    pub fn quarantined(&self) -> Vec<QuarantinedPart> {
        let manifest = lock(&self.manifest);
        let part = |record: &QuarantineRecord| QuarantinedPart {
            name: loss_name(&self.table, record.file),
            file: shown_name(&self.table, record.file),
            bytes: record.bytes,
            since_ms: record.since_ms,
            what: record.what.clone(),
            spans: record.sections.iter().map(|section| section.span).collect(),
        };
        manifest.state().quarantined.values().map(part).collect()
    }

    /// What is lost of a quarantined file; `None` if it does not tell, as without a footer. The first call
    /// for a file reads the damaged sections.
    pub fn loss_of(&self, name: &str) -> Option<SectionLoss> {
        let record = self.quarantine_record(name)?;
        let known = lock(&self.losses).get(&record.file).cloned();
        if let Some((_, loss)) = known.filter(|(sections, _)| *sections == record.sections) {
            return loss;
        }
        // A failure of now is tried again by the next call.
        let loss = self.assess(&record).ok()?;
        lock(&self.losses).insert(record.file, (record.sections, loss));
        loss
    }

    fn assess(&self, record: &QuarantineRecord) -> Result<Option<SectionLoss>, PartError> {
        let Some(part) = self.damaged_part(record)? else { return Ok(None) };
        assess_sections(&part, &record.sections).map(Some)
    }

    /// The file of a record, live or in quarantine; `None` if it is missing or has no intact footer.
    fn damaged_part(&self, record: &QuarantineRecord) -> Result<Option<Arc<Part>>, PartError> {
        let live = lock(&self.state).parts.get(&record.file).cloned();
        find_damaged(&self.dir, &self.resources, self.layout, record, live)
    }

    /// Accepts the loss of what is damaged of a file: from then on reads return what is left. What is
    /// intact of its damaged sections is copied and keeps its place in the order of flushes. Returns
    /// false if no such file is in quarantine.
    ///
    /// # Errors
    ///
    /// An error of the disk, also [`PartError::DiskFull`] if there is no space for the copy; the loss
    /// may or may not be accepted then.
    pub fn accept_loss(&self, name: &str) -> Result<bool, PartError> {
        let _accepting = lock(&self.accepting);
        loop {
            let Some(record) = self.quarantine_record(name) else { return Ok(false) };
            let SalvagedPart { part, sections, loss } = self.salvage(&record)?;
            let edit = ManifestEdit {
                files: part.iter().map(|part| part.record()).collect(),
                sections,
                accepted: vec![record.file],
                ..ManifestEdit::default()
            };
            // Another section of the file may have been quarantined meanwhile.
            let is_expected =
                |state: &ManifestState| state.quarantined.get(&record.file) == Some(&record);
            if !self.commit_if(is_expected, &edit, part.clone(), |_| {})? {
                if let Some(part) = part {
                    part.retire();
                }
                continue;
            }
            let bytes = part.map_or(0, |part| part.file_bytes());
            let lost_points = loss.map(|loss| loss.points);
            tracing::warn!(table = %self.table, name, salvaged_bytes = bytes, lost_points, "the loss was accepted");
            lock(&self.losses).remove(&record.file);
            self.remove_accepted(record.file);
            self.request_merges();
            return Ok(true);
        }
    }

    /// Removes the file of an accepted loss, unless it has live sections: then it goes with the last of them.
    pub(super) fn remove_accepted(&self, number: u64) {
        if !lock(&self.manifest).state().files.contains_key(&number) {
            // What remains is removed at the next start.
            let _ = self.dir.remove(&aside_name(number));
            let _ = self.dir.remove(&part_name(number));
        }
    }

    /// Copies what is intact of the damaged sections of a file to a new part.
    fn salvage(&self, record: &QuarantineRecord) -> Result<SalvagedPart, PartError> {
        match self.damaged_part(record)? {
            Some(source) => self.copy_sections(&source, &record.sections),
            None => Ok(SalvagedPart { part: None, sections: Vec::new(), loss: None }),
        }
    }

    /// Copies what is intact of sections of a part to a new one.
    fn copy_sections(
        &self,
        source: &Part,
        copied: &[SectionRecord],
    ) -> Result<SalvagedPart, PartError> {
        let sources = || copied.iter().map(|section| section.index as usize);
        let bytes: u64 = sources().map(|index| source.section_bytes(index)).sum();
        // Held until the copy is written. It takes the place of the damaged file.
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

    /// Copies the live sections of a part to a new one, which takes its place: the part is open, but its
    /// file could not be opened again. Returns false if it is not live, or not intact otherwise.
    ///
    /// # Errors
    ///
    /// An error of the disk.
    pub(crate) fn copy_part(&self, number: u64) -> Result<bool, PartError> {
        let live = lock(&self.state).parts.get(&number).cloned();
        let Some(source) = live else { return Ok(false) };
        let copied = lock(&self.manifest).state().sections_of(number);
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

/// What is lost of sections of a part.
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

/// The file of a record, if it is open `live`, or else by its names; `None` if it is missing or has no
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
    // It is moved when its last reader is done.
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
    /// The record of a file with what is damaged of it now; `None` if nothing of that is live.
    fn record(&self, state: &ManifestState, since_ms: i64) -> Option<QuarantineRecord> {
        let file = state.files.get(&self.file.number)?;
        let mut damaged = state.sections_of(file.number);
        damaged.retain(|section| self.section.is_none_or(|index| index == section.index));
        if damaged.is_empty() {
            return None;
        }
        let mut record = state.quarantined.get(&file.number).cloned().unwrap_or_else(|| {
            let (what, sections) = (self.what.clone(), Vec::new());
            QuarantineRecord { file: file.number, bytes: self.file.bytes, since_ms, what, sections }
        });
        record.sections.extend(damaged);
        record.sections.sort_unstable_by_key(|section| section.index);
        Some(record)
    }
}
