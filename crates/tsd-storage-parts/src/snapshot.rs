//! What reads and merges see of a table: its live sections at one time.

use std::{collections::BTreeMap, sync::Arc};

use tsd_storage::Table;

use crate::{
    error::PartError,
    file_names::{loss_name, shown_name},
    layout::PartLayout,
    manifest::ManifestState,
    part::Part,
    resources::PartResources,
};

/// A section of a part in a snapshot.
#[derive(Clone, Debug)]
pub struct SnapshotSection {
    /// The part.
    pub part: Arc<Part>,
    /// Index of the section.
    pub section: usize,
    /// Its size, bytes.
    pub bytes: u64,
    /// First and last flush whose rows it has.
    pub sequences: (u64, u64),
    /// Rows with earlier base times (epoch seconds) are as row compaction leaves them; `None` if the
    /// section is not the result of a merge.
    pub compacted_before: Option<u32>,
}

impl SnapshotSection {
    /// True if a merge of the section alone would change nothing.
    pub(crate) fn is_merged(&self, compact_before: u32) -> bool {
        self.compacted_before.is_some_and(|before| before >= compact_before)
    }
}

/// A section of a quarantined part: reads of its span fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostSection {
    /// Name by which the loss is accepted.
    pub name: Arc<str>,
    /// Path of the file, below the store's directory.
    pub file: Arc<str>,
    /// What is damaged.
    pub what: Arc<str>,
    /// First and last flush whose rows it had.
    pub sequences: (u64, u64),
}

/// The sections of a table at one time. Readers keep the parts open.
#[derive(Clone, Debug)]
pub struct Snapshot {
    layout: PartLayout,
    resources: Arc<PartResources>,
    /// Oldest first.
    spans: BTreeMap<u32, Vec<SnapshotSection>>,
    lost: BTreeMap<u32, Vec<LostSection>>,
}

impl Snapshot {
    /// The sections that the manifest lists. `parts` has the files by number.
    pub(crate) fn new(
        table: &Table,
        layout: PartLayout,
        resources: &Arc<PartResources>,
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
        Self { layout, resources: Arc::clone(resources), spans, lost }
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

    /// The same sections for reads that return what is left of lost spans.
    pub(crate) fn past_losses(self: Arc<Self>) -> Arc<Self> {
        if self.lost.is_empty() {
            return self;
        }
        Arc::new(Self { lost: BTreeMap::new(), ..(*self).clone() })
    }

    /// Fails if a section of these spans was lost.
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
