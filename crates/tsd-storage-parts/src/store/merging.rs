//! Merges by size, and of closed spans.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use super::{PartStore, StoreStats, compaction_limit::MergeLimits, lock, part_name};
use crate::{
    error::PartError,
    manifest::{ManifestEdit, ManifestState, SectionRecord},
    merge::{MergeOptions, SpanMerge, merge_sections},
    merger::MergeCheckpoint,
    snapshot::{Snapshot, SnapshotSection},
};

/// Sections of about one size that are merged: a level of size is this much larger than the one below.
const MERGE_SECTIONS: u64 = 6;
/// Sections that are merged at most at once.
const MAX_INPUTS: usize = 32;
/// Sections of a span from which on the newest are merged whatever their sizes, before flushes stall.
const MANY_SECTIONS: usize = 48;
/// Size after which a merge of several spans continues in another part.
const OUTPUT_BYTES: u64 = 256 << 20;

/// Sections of one span that a merge replaces.
#[derive(Debug)]
struct MergeInput {
    span: u32,
    sections: Vec<SnapshotSection>,
    /// They are all that the span has, or had: nothing of it is lost.
    whole: bool,
    /// The oldest of the span is among them.
    oldest: bool,
}

/// The inputs of one output part, and their size.
#[derive(Debug, Default)]
struct MergeRound {
    inputs: Vec<MergeInput>,
    bytes: u64,
}

impl MergeRound {
    /// Bytes that the output has at most, about.
    const fn output_bytes(&self) -> u64 {
        self.bytes + (64 << 10)
    }
}

impl PartStore {
    /// Merges the spans that are due by the size of their sections; returns false if none is.
    ///
    /// # Errors
    ///
    /// An error of the disk. A damaged input is quarantined, which is no error.
    pub fn merge_due(&self, compact_before: u32) -> Result<bool, PartError> {
        self.merge_where(compact_before, due_sections, &mut || Ok(()))
    }

    /// Merges each span that ends before `closed_before` into one section, with its rows as row
    /// compaction leaves them; returns false if all are.
    ///
    /// # Errors
    ///
    /// As [`Self::merge_due`].
    pub fn merge_closed(&self, closed_before: u32) -> Result<bool, PartError> {
        let limits = MergeLimits { compact_before: closed_before, closed_before };
        self.merge_closed_spans(limits, &mut || Ok(()))
    }

    fn merge_closed_spans(
        &self,
        limits: MergeLimits,
        checkpoint: MergeCheckpoint<'_>,
    ) -> Result<bool, PartError> {
        let layout = self.layout;
        // Few rows may have deleted many.
        let is_space_low = self.resources.is_space_low();
        let choose = |span: u32, sections: &[SnapshotSection]| {
            let end = span.saturating_add(layout.span_secs());
            let compacted = end.min(limits.compact_before);
            let is_final = sections.len() == 1 && sections.iter().all(|s| s.is_merged(compacted));
            let is_due = end <= limits.closed_before
                && !is_final
                && (is_space_low || !self.late_spans.postpones(span, sections));
            is_due.then_some(0..sections.len())
        };
        self.merge_where(limits.compact_before, choose, checkpoint)
    }

    /// Runs the merge that is due first; returns false if none is.
    pub(crate) fn merge_step(&self, checkpoint: MergeCheckpoint<'_>) -> Result<bool, PartError> {
        let limits = self.compaction.now();
        Ok(self.merge_where(limits.compact_before, due_sections, checkpoint)?
            || self.merge_closed_spans(limits, checkpoint)?)
    }

    /// Merges each span into one section.
    ///
    /// # Errors
    ///
    /// As [`Self::merge_due`].
    pub fn merge_all(&self, compact_before: u32) -> Result<(), PartError> {
        let choose = |_: u32, sections: &[SnapshotSection]| {
            let is_final =
                sections.len() == 1 && sections.iter().all(|s| s.is_merged(compact_before));
            (!is_final).then_some(0..sections.len())
        };
        while self.merge_where(compact_before, choose, &mut || Ok(()))? {}
        Ok(())
    }

    fn merge_where(
        &self,
        compact_before: u32,
        choose: impl Fn(u32, &[SnapshotSection]) -> Option<Range<usize>>,
        checkpoint: MergeCheckpoint<'_>,
    ) -> Result<bool, PartError> {
        let _merging = lock(&self.merging);
        let snapshot = self.snapshot();
        let mut round = choose_round(&snapshot, &choose, OUTPUT_BYTES);
        if round.inputs.is_empty() {
            return Ok(false);
        }
        // Held until the output is written. On a full disk one span at a time: its inputs are removed, and
        // with them what was deleted.
        let _permit = match self.resources.promise(round.output_bytes(), false) {
            Err(PartError::DiskFull) => {
                round = choose_round(&snapshot, &choose, 0);
                self.resources.promise(round.output_bytes(), true)?
            }
            permit => permit?,
        };
        drop(snapshot);
        match self.merge_round(&round, compact_before, checkpoint) {
            Err(error) if error.is_damage() && self.quarantine(&error)? => Ok(true),
            result => result.map(|()| true),
        }
    }

    fn merge_round(
        &self,
        round: &MergeRound,
        compact_before: u32,
        checkpoint: MergeCheckpoint<'_>,
    ) -> Result<(), PartError> {
        let mut sequences = (u64::MAX, 0);
        for section in round.inputs.iter().flat_map(|input| &input.sections) {
            sequences.0 = sequences.0.min(section.sequences.0);
            sequences.1 = sequences.1.max(section.sequences.1);
        }
        let before_of = |input: &MergeInput| if input.whole { compact_before } else { 0 };
        let spans: Vec<SpanMerge> = round
            .inputs
            .iter()
            .map(|input| SpanMerge {
                span: input.span,
                sections: input.sections.iter().map(|s| (Arc::clone(&s.part), s.section)).collect(),
                options: MergeOptions {
                    drop_tombstones: input.oldest,
                    compact_before: before_of(input),
                },
            })
            .collect();
        let part = self.write_part(|number| {
            let name = part_name(number);
            merge_sections(&*self.dir, &name, self.layout, sequences, &spans, checkpoint)
        })?;
        let infos = part.sections();
        let mut edit = ManifestEdit::default();
        for input in &round.inputs {
            let removed = input.sections.iter().map(|s| (s.part.number(), s.section as u32));
            edit.removed.extend(removed);
            let index = infos.iter().position(|info| info.span == input.span);
            let first = input.sections.first().map_or(0, |s| s.sequences.0);
            let last = input.sections.last().map_or(0, |s| s.sequences.1);
            edit.sections.extend(index.map(|index| SectionRecord {
                span: input.span,
                file: part.number(),
                index: index as u32,
                sequences: (first, last),
                compacted_before: Some(before_of(input)),
            }));
        }
        let output = (!edit.sections.is_empty()).then(|| Arc::clone(&part));
        edit.files.extend(output.as_ref().map(|part| part.record()));
        let (read, written) = (round.bytes, part.file_bytes());
        self.metrics.merge_read_bytes.increment(read);
        self.metrics.merged_bytes.increment(written);
        let points = infos.iter().map(|info| info.points).sum::<u64>();
        let count = |stats: &mut StoreStats| {
            stats.merges += 1;
            stats.merge_input_bytes += read;
            stats.merged_bytes += written;
            stats.merged_points += points;
        };
        let compacted = round.inputs.iter().map(before_of).max().unwrap_or_default();
        let mut committed = Ok(false);
        self.compaction.commit(compacted, &mut || {
            // An input may have been quarantined meanwhile. A row that was compacted may be in a newer
            // section now.
            let is_expected = |state: &ManifestState| {
                let is_live = |section| state.sections.contains_key(section);
                edit.removed.iter().all(is_live)
                    && round.inputs.iter().all(|input| {
                        before_of(input) == 0
                            || state.span_sections(input.span) == input.sections.len()
                    })
            };
            committed = self.commit_if(is_expected, &edit, output.clone(), count);
        });
        let committed = committed?;
        if !committed || output.is_none() {
            part.retire();
        }
        Ok(())
    }
}

/// The spans of which sections are to be merged, until they have this size.
fn choose_round(
    snapshot: &Snapshot,
    choose: impl Fn(u32, &[SnapshotSection]) -> Option<Range<usize>>,
    bytes: u64,
) -> MergeRound {
    let mut round = MergeRound::default();
    for (span, all) in snapshot.spans() {
        let lost = snapshot.lost().get(span).map(Vec::as_slice).unwrap_or_default();
        // Only sections that are adjacent in sequence merge, and a lost one hides older ones.
        let lost_until = lost.iter().map(|section| section.sequences.1).max();
        let newer = all.partition_point(|s| lost_until.is_some_and(|last| s.sequences.0 <= last));
        let candidates = all.get(newer..).unwrap_or_default();
        let Some(range) = choose(*span, candidates) else { continue };
        // A span with a loss is not final, however often it is merged.
        if !lost.is_empty() && range.len() < 2 {
            continue;
        }
        let sections = candidates.get(range.clone()).unwrap_or_default().to_vec();
        round.bytes += sections.iter().map(|s| s.bytes).sum::<u64>();
        // A part of a row must not become a column of its own: its points would no longer replace
        // those of older sections, nor be replaced by newer ones.
        let whole = lost.is_empty() && sections.len() == all.len();
        let oldest = lost.is_empty() && range.start == 0;
        round.inputs.push(MergeInput { span: *span, sections, whole, oldest });
        if round.bytes >= bytes {
            break;
        }
    }
    let spans: BTreeSet<u32> = round.inputs.iter().map(|input| input.span).collect();
    debug_assert_eq!(spans.len(), round.inputs.len(), "each span once");
    round
}

/// The newest sections of about one size: none much larger than the newer ones on average. If there are many
/// and a small one is the newest, no size would ever be due: a flush that stalls adds no section.
fn due_sections(_: u32, sections: &[SnapshotSection]) -> Option<Range<usize>> {
    let (mut count, mut newer) = (0_u64, 0_u64);
    for section in sections.iter().rev().take(MAX_INPUTS) {
        if count > 0 && section.bytes * count > newer * 2 {
            break;
        }
        newer += section.bytes;
        count += 1;
    }
    if count < MERGE_SECTIONS && sections.len() >= MANY_SECTIONS {
        count = MAX_INPUTS as u64;
    }
    (count >= MERGE_SECTIONS).then(|| sections.len() - count as usize..sections.len())
}
