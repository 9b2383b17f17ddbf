//! The view of a table for reads and merges: its live sections at one time.

use std::{collections::BTreeMap, sync::Arc};

use tsd_storage::Table;

use crate::{
    damage::{DamageUse, FoundDamage, SectionDamage},
    error::PartError,
    file_names::{loss_name, shown_name},
    layout::PartLayout,
    manifest::{ManifestState, QuarantineRecord},
    part::Part,
    resources::PartResources,
};

/// A section of a part in a snapshot.
#[derive(Clone, Debug)]
pub struct SnapshotSection {
    /// The part.
    pub part: Arc<Part>,
    /// Index of the section in the part.
    pub section: usize,
    /// Size of the section, bytes.
    pub bytes: u64,
    /// First and last flush whose rows the section has.
    pub sequences: (u64, u64),
    /// Rows with earlier base times (epoch seconds) are as row compaction leaves them; `None` if the section is
    /// not the result of a merge.
    pub compacted_before: Option<u32>,
    /// Damaged blocks of the section. Reads that need them fail.
    pub damage: Option<Arc<SectionDamage>>,
}

impl SnapshotSection {
    /// True if merging the section alone would change nothing.
    pub(crate) fn is_merged(&self, compact_before: u32) -> bool {
        self.compacted_before.is_some_and(|before| before >= compact_before)
    }
}

/// A section of a quarantined part. Reads of its span fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostSection {
    /// Name with which an operator accepts the loss.
    pub name: Arc<str>,
    /// Path of the file, below the store's directory.
    pub file: Arc<str>,
    /// Description of the damage.
    pub what: Arc<str>,
    /// First and last flush whose rows the section had.
    pub sequences: (u64, u64),
}

/// The sections of a table at one time. A snapshot keeps their parts open.
#[derive(Clone, Debug)]
pub struct Snapshot {
    layout: PartLayout,
    resources: Arc<PartResources>,
    /// Sections by span, oldest first.
    spans: BTreeMap<u32, Vec<SnapshotSection>>,
    lost: BTreeMap<u32, Vec<LostSection>>,
    /// Collects damage that readers skip.
    found: Arc<FoundDamage>,
    /// Readers return the intact rows of damaged sections.
    skips: bool,
}

impl Snapshot {
    /// A snapshot without sections.
    pub(crate) const fn empty(
        layout: PartLayout,
        resources: Arc<PartResources>,
        found: Arc<FoundDamage>,
    ) -> Self {
        Self {
            layout,
            resources,
            spans: BTreeMap::new(),
            lost: BTreeMap::new(),
            found,
            skips: false,
        }
    }

    /// A snapshot of the sections in the manifest. `parts` has the files by number.
    pub(crate) fn renewed(
        &self,
        table: &Table,
        state: &ManifestState,
        parts: &BTreeMap<u64, Arc<Part>>,
    ) -> Self {
        let mut spans: BTreeMap<u32, Vec<SnapshotSection>> = BTreeMap::new();
        for record in state.sections.values() {
            let Some(part) = parts.get(&record.file) else { continue };
            let section = record.index as usize;
            spans.entry(record.span).or_default().push(SnapshotSection {
                part: Arc::clone(part),
                section,
                bytes: part.section_bytes(section),
                sequences: record.sequences,
                compacted_before: record.compacted_before,
                damage: state
                    .quarantined
                    .get(&record.file)
                    .and_then(|damaged| section_damage(table, damaged, record.index)),
            });
        }
        for sections in spans.values_mut() {
            sections.sort_by_key(|section| section.sequences);
        }
        let mut lost: BTreeMap<u32, Vec<LostSection>> = BTreeMap::new();
        for record in state.quarantined.values() {
            let name: Arc<str> = loss_name(table, record.file).into();
            let file: Arc<str> = shown_name(table, record.file).into();
            let what: Arc<str> = record.what.as_str().into();
            for section in &record.sections {
                lost.entry(section.span).or_default().push(LostSection {
                    name: Arc::clone(&name),
                    file: Arc::clone(&file),
                    what: Arc::clone(&what),
                    sequences: section.sequences,
                });
            }
        }
        let (resources, found) = (Arc::clone(&self.resources), Arc::clone(&self.found));
        Self { layout: self.layout, resources, spans, lost, found, skips: self.skips }
    }

    /// Layout of the table.
    #[must_use]
    pub const fn layout(&self) -> PartLayout {
        self.layout
    }

    pub(crate) fn resources(&self) -> &PartResources {
        &self.resources
    }

    /// Sections by the start of their span, oldest first.
    #[must_use]
    pub const fn spans(&self) -> &BTreeMap<u32, Vec<SnapshotSection>> {
        &self.spans
    }

    /// Sections of quarantined parts by the start of their span, until their loss is accepted.
    #[must_use]
    pub const fn lost(&self) -> &BTreeMap<u32, Vec<LostSection>> {
        &self.lost
    }

    /// Number of sections.
    #[must_use]
    pub fn section_count(&self) -> usize {
        self.spans.values().map(Vec::len).sum()
    }

    /// The same sections, for reads that return the intact rows of lost spans. `quarantined` has readable sections
    /// of quarantined parts, each with its span.
    pub(crate) fn past_losses(&self, quarantined: Vec<(u32, SnapshotSection)>) -> Arc<Self> {
        let mut past = Self { lost: BTreeMap::new(), skips: true, ..self.clone() };
        for (span, section) in quarantined {
            let sections = past.spans.entry(span).or_default();
            let at = sections.partition_point(|other| other.sequences <= section.sequences);
            sections.insert(at, section);
        }
        Arc::new(past)
    }

    /// How a reader treats the damage of a section.
    pub(crate) fn damage_use(&self, section: &SnapshotSection) -> DamageUse {
        let known = section.damage.clone();
        DamageUse { known, found: Some(Arc::clone(&self.found)), skips: self.skips }
    }

    /// True if a section of the span is lost or damaged.
    pub(crate) fn has_damage(&self, span: u32) -> bool {
        let is_damaged = |section: &SnapshotSection| section.damage.is_some();
        self.lost.contains_key(&span)
            || self.spans.get(&span).is_some_and(|sections| sections.iter().any(is_damaged))
    }

    /// Fails if a section of these spans is lost.
    pub(crate) fn check_losses(&self, first_span: u32, last_span: u32) -> Result<(), PartError> {
        let mut lost = self.lost.range(first_span..=last_span.max(first_span));
        match lost.next().and_then(|(_, sections)| sections.first()) {
            Some(lost) => Err(PartError::Quarantined {
                name: Arc::clone(&lost.name),
                file: Arc::clone(&lost.file),
                what: Arc::clone(&lost.what),
            }),
            None => Ok(()),
        }
    }
}

/// The damaged blocks of a live section; `None` for an intact one.
fn section_damage(
    table: &Table,
    record: &QuarantineRecord,
    index: u32,
) -> Option<Arc<SectionDamage>> {
    let blocks = record.blocks.iter().filter(|block| block.section == index);
    let mut offsets: Vec<u64> = blocks.map(|block| block.offset).collect();
    offsets.sort_unstable();
    (!offsets.is_empty()).then(|| {
        Arc::new(SectionDamage {
            offsets,
            name: loss_name(table, record.file).into(),
            file: shown_name(table, record.file).into(),
            what: record.what.as_str().into(),
        })
    })
}
