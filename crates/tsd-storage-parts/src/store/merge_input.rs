//! The sections that a merge replaces. `merging.rs` chooses them.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    merge::{MergeOptions, SpanMerge},
    snapshot::SnapshotSection,
};

/// Approximate limit on the bytes of a part beyond its sections, including the edit of the manifest.
pub(super) const PART_OVERHEAD_BYTES: u64 = 64 << 10;

/// Sections of one span that a merge replaces.
#[derive(Debug)]
pub(super) struct MergeInput {
    pub(super) span: u32,
    pub(super) sections: Vec<SnapshotSection>,
    /// True if these are all sections of the span and none is lost.
    pub(super) whole: bool,
    /// True if the oldest section of the span is included.
    pub(super) oldest: bool,
}

impl MergeInput {
    pub(super) fn bytes(&self) -> u64 {
        self.sections.iter().map(|section| section.bytes).sum()
    }

    pub(super) const fn before(&self, compact_before: u32) -> u32 {
        if self.whole { compact_before } else { 0 }
    }

    pub(super) fn merge(&self, compact_before: u32) -> SpanMerge {
        SpanMerge {
            span: self.span,
            sections: self.sections.iter().map(|s| (Arc::clone(&s.part), s.section)).collect(),
            options: MergeOptions {
                drop_tombstones: self.oldest,
                compact_before: self.before(compact_before),
            },
            expired: None,
        }
    }
}

/// The inputs of one output part.
#[derive(Debug, Default)]
pub(super) struct MergeRound {
    pub(super) inputs: Vec<MergeInput>,
}

impl MergeRound {
    /// Size of the inputs, bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.inputs.iter().map(MergeInput::bytes).sum()
    }

    /// Approximate maximum size of the output, which may have new summaries.
    pub(super) fn output_bytes(&self) -> u64 {
        self.bytes() + self.bytes() / 8 + PART_OVERHEAD_BYTES
    }

    /// First and last flush of the inputs.
    pub(super) fn sequences(&self) -> (u64, u64) {
        let mut sequences = (u64::MAX, 0);
        for section in self.inputs.iter().flat_map(|input| &input.sections) {
            sequences.0 = sequences.0.min(section.sequences.0);
            sequences.1 = sequences.1.max(section.sequences.1);
        }
        sequences
    }
}

/// Sizes of outputs that did not fit on a full disk, by span. An output is not measured again until the sections
/// of its span change.
#[derive(Debug, Default)]
pub(super) struct MeasuredMerges(BTreeMap<u32, MeasuredMerge>);

#[derive(Debug)]
struct MeasuredMerge {
    /// File number and index of each section.
    sections: Vec<(u64, usize)>,
    bytes: u64,
}

impl MeasuredMerges {
    pub(super) fn get(&self, input: &MergeInput) -> Option<u64> {
        let measured = self.0.get(&input.span)?;
        (measured.sections == section_names(input)).then_some(measured.bytes)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn insert(&mut self, input: &MergeInput, bytes: u64) {
        self.0.insert(input.span, MeasuredMerge { sections: section_names(input), bytes });
    }
}

fn section_names(input: &MergeInput) -> Vec<(u64, usize)> {
    input.sections.iter().map(|s| (s.part.number(), s.section)).collect()
}
