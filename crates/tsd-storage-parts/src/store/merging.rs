//! Merges of sections by size, and of closed spans.

use std::{collections::HashMap, ops::Range, sync::Arc};

use super::{
    PartStore, StoreStats,
    compaction_limit::MergeLimits,
    merge_input::{MeasuredMerges, MergeInput, MergeRound, PART_OVERHEAD_BYTES},
};
use crate::{
    error::PartError,
    file_names::part_name,
    manifest::{ManifestEdit, ManifestState, SectionRecord},
    merge::{SpanMerge, merge_sections},
    merge_signal::MergeCheckpoint,
    snapshot::{Snapshot, SnapshotSection},
    writer::PartWriter,
};

/// Minimum number of similar-sized sections that are merged. So each size level is this many times larger than
/// the previous one.
const MERGE_SECTIONS: u64 = 6;
/// Maximum number of sections in one merge.
const MAX_INPUTS: usize = 32;
/// Number of sections in a span from which the newest are merged whatever their sizes, before flushes stall.
const MANY_SECTIONS: usize = 48;
/// Size after which a merge of several spans continues in another part.
const OUTPUT_BYTES: u64 = 256 << 20;

impl PartStore {
    /// Merges the spans that are due by the size of their sections; returns false if no span is due.
    ///
    /// # Errors
    ///
    /// An error of the disk. A damaged input is quarantined without an error.
    pub fn merge_due(&self, compact_before: u32) -> Result<bool, PartError> {
        self.merge_where(compact_before, due_sections, &mut || Ok(()))
    }

    /// Merges each span that ends before `closed_before` into one section, with its rows as row compaction leaves
    /// them. Returns false if all such spans are merged.
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
        // When space is low, few new rows suffice for a merge, since they may have deleted many.
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

    /// Runs the most urgent merge; returns false if no merge is due.
    pub(crate) fn merge_step(&self, checkpoint: MergeCheckpoint<'_>) -> Result<bool, PartError> {
        let limits = self.compaction.now();
        match self.merge_where(limits.compact_before, due_sections, checkpoint) {
            Ok(false) => Ok(self.merge_closed_spans(limits, checkpoint)?
                || self.merge_expired(limits, checkpoint)?),
            // A merge of a closed span may free the space of deleted or expired rows.
            Err(PartError::DiskFull) => match self.merge_closed_spans(limits, checkpoint) {
                Ok(false) if self.merge_expired(limits, checkpoint)? => Ok(true),
                Ok(false) => Err(PartError::DiskFull),
                result => result,
            },
            result => result,
        }
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

    pub(super) fn merge_where(
        &self,
        compact_before: u32,
        choose: impl Fn(u32, &[SnapshotSection]) -> Option<Range<usize>>,
        checkpoint: MergeCheckpoint<'_>,
    ) -> Result<bool, PartError> {
        let mut measured = self.merging.lock();
        let snapshot = self.snapshot();
        let mut candidates = merge_candidates(&snapshot, &choose);
        drop(snapshot);
        let count = first_round(&candidates);
        let round = MergeRound { inputs: candidates.drain(..count).collect() };
        if round.inputs.is_empty() {
            measured.clear();
            return Ok(false);
        }
        let merged = match self.resources.promise(round.output_bytes(), false) {
            // Held until the output is written.
            Ok(_permit) => self.merge_round(&round, compact_before, checkpoint),
            Err(PartError::DiskFull) => {
                candidates.splice(..0, round.inputs);
                self.merge_on_full_disk(candidates, compact_before, &mut measured, checkpoint)
            }
            Err(error) => Err(error),
        };
        match merged {
            Err(error) if error.is_damage() && self.quarantine(&error)? => Ok(true),
            result => result.map(|()| true),
        }
    }

    /// Merges one span with the reserve, which frees the space of deleted rows when its inputs are removed. Takes
    /// the smallest span whose output fits. How much was deleted is unknown, so outputs that may not fit are
    /// measured first.
    fn merge_on_full_disk(
        &self,
        mut candidates: Vec<MergeInput>,
        compact_before: u32,
        measured: &mut MeasuredMerges,
        checkpoint: MergeCheckpoint<'_>,
    ) -> Result<(), PartError> {
        candidates.sort_by_key(MergeInput::bytes);
        let mut rounds = candidates.into_iter().map(|input| MergeRound { inputs: vec![input] });
        // All spans smaller than the first that does not fit are merged already.
        let Some(first) = rounds.next() else { return Err(PartError::DiskFull) };
        if let Ok(_permit) = self.resources.promise(first.output_bytes(), true) {
            return self.merge_round(&first, compact_before, checkpoint);
        }
        for round in std::iter::once(first).chain(rounds) {
            let Some(input) = round.inputs.first() else { continue };
            let bytes = if let Some(bytes) = measured.get(input) {
                bytes
            } else {
                let merge = [self.span_merge(input, compact_before)];
                let writer = PartWriter::measure(self.layout, round.sequences())?;
                let bytes = merge_sections(writer, &merge, checkpoint)?;
                measured.insert(input, bytes);
                bytes
            };
            match self.resources.promise(bytes + PART_OVERHEAD_BYTES, true) {
                Ok(_permit) => return self.merge_round(&round, compact_before, checkpoint),
                Err(PartError::DiskFull) => {}
                Err(error) => return Err(error),
            }
        }
        Err(PartError::DiskFull)
    }

    fn span_merge(&self, input: &MergeInput, compact_before: u32) -> SpanMerge {
        let expired = if input.whole { self.expired_series(input.span) } else { None };
        SpanMerge { expired, ..input.merge(compact_before) }
    }

    fn merge_round(
        &self,
        round: &MergeRound,
        compact_before: u32,
        checkpoint: MergeCheckpoint<'_>,
    ) -> Result<(), PartError> {
        let sequences = round.sequences();
        let spans: Vec<SpanMerge> =
            round.inputs.iter().map(|input| self.span_merge(input, compact_before)).collect();
        let part = self.write_part(|number| {
            let name = part_name(number);
            let writer = PartWriter::create(&*self.dir, &name, self.layout, sequences)?;
            merge_sections(writer, &spans, checkpoint)
        })?;
        let infos = part.sections();
        // A map, because a round may have tens of thousands of spans.
        let indexes: HashMap<u32, usize> =
            infos.iter().enumerate().map(|(index, info)| (info.span, index)).collect();
        let mut edit = ManifestEdit::default();
        for input in &round.inputs {
            let removed = input.sections.iter().map(|s| (s.part.number(), s.section as u32));
            edit.removed.extend(removed);
            let index = indexes.get(&input.span).copied();
            let first = input.sections.first().map_or(0, |s| s.sequences.0);
            let last = input.sections.last().map_or(0, |s| s.sequences.1);
            edit.sections.extend(index.map(|index| SectionRecord {
                span: input.span,
                file: part.number(),
                index: index as u32,
                sequences: (first, last),
                compacted_before: Some(input.before(compact_before)),
            }));
        }
        let output = (!edit.sections.is_empty()).then(|| Arc::clone(&part));
        edit.files.extend(output.as_ref().map(|part| part.record()));
        let (read, written) = (round.bytes(), part.file_bytes());
        self.metrics.merge_read_bytes.increment(read);
        self.metrics.merged_bytes.increment(written);
        let points = infos.iter().map(|info| info.points).sum::<u64>();
        let count = |stats: &mut StoreStats| {
            stats.merges += 1;
            stats.merge_input_bytes += read;
            stats.merged_bytes += written;
            stats.merged_points += points;
        };
        let compacted = round.inputs.iter().map(|input| input.before(compact_before)).max();
        let compacted = compacted.unwrap_or_default();
        let mut committed = Ok(false);
        self.compaction.commit(compacted, &mut || {
            // Meanwhile, an input may have been quarantined, or a newer section may have a row that was
            // compacted.
            let is_expected = |state: &ManifestState| {
                let is_live = |section| state.sections.contains_key(section);
                let compacts = |input: &&MergeInput| input.before(compact_before) > 0;
                let mut compacted = round.inputs.iter().filter(compacts).peekable();
                let counts = compacted.peek().map(|_| state.section_counts()).unwrap_or_default();
                edit.removed.iter().all(is_live)
                    && compacted.all(|input| {
                        counts.get(&input.span).copied().unwrap_or_default() == input.sections.len()
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

/// The sections to merge, by ascending span.
fn merge_candidates(
    snapshot: &Snapshot,
    choose: impl Fn(u32, &[SnapshotSection]) -> Option<Range<usize>>,
) -> Vec<MergeInput> {
    let mut candidates = Vec::new();
    for (span, all) in snapshot.spans() {
        let lost = snapshot.lost().get(span).map(Vec::as_slice).unwrap_or_default();
        // Only sections that are adjacent in sequence can be merged, and a lost section hides older ones. A
        // section with damaged blocks stays unchanged, too, because its intact blocks must keep their offsets
        // until its loss is accepted.
        let damaged = all.iter().filter(|section| section.damage.is_some());
        let lost = lost.iter().map(|section| section.sequences);
        let lost_until = lost.chain(damaged.map(|s| s.sequences)).map(|(_, last)| last).max();
        let is_whole = lost_until.is_none();
        let newer = all.partition_point(|s| lost_until.is_some_and(|last| s.sequences.0 <= last));
        let live = all.get(newer..).unwrap_or_default();
        let Some(range) = choose(*span, live) else { continue };
        // A span with a loss never becomes final, so a single section is not merged again.
        if !is_whole && range.len() < 2 {
            continue;
        }
        let sections = live.get(range.clone()).unwrap_or_default().to_vec();
        // A fragment of a row must not become a compacted column: its points would neither replace points of
        // older sections nor be replaced by newer ones.
        let whole = is_whole && sections.len() == all.len();
        let oldest = is_whole && range.start == 0;
        candidates.push(MergeInput { span: *span, sections, whole, oldest });
    }
    candidates
}

/// Number of candidates that fit into one output part.
fn first_round(candidates: &[MergeInput]) -> usize {
    let mut bytes = 0;
    let is_full = |input: &MergeInput| {
        bytes += input.bytes();
        bytes >= OUTPUT_BYTES
    };
    candidates.iter().position(is_full).map_or(candidates.len(), |last| last + 1)
}

/// The newest sections of similar size: none is much larger than the average of the newer ones. With very many
/// sections, the newest are due whatever their sizes. Otherwise, a small newest section could block merges for
/// ever, because a stalled flush adds no section.
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
