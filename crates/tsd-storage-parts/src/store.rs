//! Parts of one table: flushes, snapshots, merges by size. The manifest is in memory for now.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tsd_storage::FlushRows;

use crate::{
    batch::FlushBatch,
    error::PartError,
    layout::PartLayout,
    merge::{MergeOptions, SpanMerge, merge_sections},
    part::Part,
};

/// Sections of about one size that are merged: a level of size is this much larger than the one below.
const MERGE_SECTIONS: u64 = 6;
/// Sections that are merged at most at once.
const MAX_INPUTS: usize = 32;
/// Size after which a merge of several spans continues in another part.
const OUTPUT_BYTES: u64 = 256 << 20;

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
    fn is_merged(&self, compact_before: u32) -> bool {
        self.compacted_before.is_some_and(|before| before >= compact_before)
    }
}

/// The sections of a table at one time. Readers keep the parts open.
#[derive(Clone, Debug)]
pub struct Snapshot {
    layout: PartLayout,
    /// Oldest first.
    spans: BTreeMap<u32, Vec<SnapshotSection>>,
}

impl Snapshot {
    /// Layout of the table.
    #[must_use]
    pub const fn layout(&self) -> PartLayout {
        self.layout
    }

    /// Sections by the start of their span, oldest first.
    #[must_use]
    pub const fn spans(&self) -> &BTreeMap<u32, Vec<SnapshotSection>> {
        &self.spans
    }

    /// Number of sections.
    #[must_use]
    pub fn section_count(&self) -> usize {
        self.spans.values().map(Vec::len).sum()
    }

    fn live_sections(&self) -> HashMap<PathBuf, usize> {
        let mut live = HashMap::new();
        for section in self.spans.values().flatten() {
            *live.entry(section.part.path().to_owned()).or_insert(0) += 1;
        }
        live
    }
}

/// Work done since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Parts written by flushes, and their bytes.
    pub flushes: u64,
    /// Bytes of the flushed parts.
    pub flushed_bytes: u64,
    /// Merges.
    pub merges: u64,
    /// Bytes of the merged sections, and of the parts that replaced them.
    pub merge_input_bytes: u64,
    /// Bytes written by merges.
    pub merged_bytes: u64,
    /// Points written by merges.
    pub merged_points: u64,
}

/// The parts of one table.
#[derive(Debug)]
pub struct PartStore {
    dir: PathBuf,
    layout: PartLayout,
    state: Mutex<StoreState>,
    /// Owned while a merge runs.
    merging: Mutex<()>,
}

#[derive(Debug)]
struct StoreState {
    snapshot: Arc<Snapshot>,
    next_file: u64,
    next_sequence: u64,
    stats: StoreStats,
}

impl PartStore {
    /// A store without parts in an empty directory, which must exist.
    #[must_use]
    pub fn create(dir: &Path, layout: PartLayout) -> Self {
        let snapshot = Arc::new(Snapshot { layout, spans: BTreeMap::new() });
        let stats = StoreStats::default();
        let state = StoreState { snapshot, next_file: 1, next_sequence: 1, stats };
        Self { dir: dir.to_owned(), layout, state: Mutex::new(state), merging: Mutex::new(()) }
    }

    // No code panics while it owns the lock.
    fn state(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_path(&self) -> PathBuf {
        let mut state = self.state();
        let number = state.next_file;
        state.next_file += 1;
        self.dir.join(format!("{number:010}.part"))
    }

    /// What reads use.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.state().snapshot)
    }

    /// Work done so far.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        self.state().stats
    }

    /// Size of all files of the snapshot, bytes.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        let snapshot = self.snapshot();
        let mut files = HashMap::new();
        for section in snapshot.spans.values().flatten() {
            files.insert(section.part.path().to_owned(), section.part.file_bytes());
        }
        files.values().sum()
    }

    /// Memory of the heads of sections that were read, bytes.
    #[must_use]
    pub fn head_bytes(&self) -> usize {
        let snapshot = self.snapshot();
        let mut parts: HashMap<PathBuf, usize> = HashMap::new();
        for section in snapshot.spans.values().flatten() {
            parts.insert(section.part.path().to_owned(), section.part.head_bytes());
        }
        parts.values().sum()
    }

    /// Writes the rows as one part, newer than all others. Concurrent flushes are not supported.
    pub fn flush(&self, rows: &mut dyn FlushRows) -> Result<(), PartError> {
        let batch = FlushBatch::of_rows(self.layout, rows)?;
        if batch.is_empty() {
            return Ok(());
        }
        let path = self.next_path();
        let sequence = self.state().next_sequence;
        let (path, bytes) = batch.write(&path, (sequence, sequence))?;
        let part = Arc::new(Part::open(&path)?);
        let mut state = self.state();
        let mut snapshot = Snapshot::clone(&state.snapshot);
        for (section, info) in part.sections().into_iter().enumerate() {
            snapshot.spans.entry(info.span).or_default().push(SnapshotSection {
                part: Arc::clone(&part),
                section,
                bytes: info.bytes,
                sequences: part.sequences(),
                compacted_before: None,
            });
        }
        state.snapshot = Arc::new(snapshot);
        state.next_sequence += 1;
        state.stats.flushes += 1;
        state.stats.flushed_bytes += bytes;
        Ok(())
    }

    /// Merges the spans that are due by the size of their sections; returns false if none is.
    pub fn merge_due(&self, compact_before: u32) -> Result<bool, PartError> {
        self.merge_where(compact_before, due_sections)
    }

    /// Merges each span that ends before `closed_before` into one section, with its rows as row
    /// compaction leaves them; returns false if all are.
    pub fn merge_closed(&self, closed_before: u32) -> Result<bool, PartError> {
        let layout = self.layout;
        self.merge_where(closed_before, |span, sections| {
            let is_closed = span.saturating_add(layout.span_secs()) <= closed_before;
            let end = span.saturating_add(layout.span_secs());
            let is_final = sections.len() == 1 && sections.iter().all(|s| s.is_merged(end));
            (is_closed && !is_final).then_some(0..sections.len())
        })
    }

    /// Merges each span into one section.
    pub fn merge_all(&self, compact_before: u32) -> Result<(), PartError> {
        while self.merge_where(compact_before, |_, sections| {
            let is_final =
                sections.len() == 1 && sections.iter().all(|s| s.is_merged(compact_before));
            (!is_final).then_some(0..sections.len())
        })? {}
        Ok(())
    }

    fn merge_where(
        &self,
        compact_before: u32,
        choose: impl Fn(u32, &[SnapshotSection]) -> Option<std::ops::Range<usize>>,
    ) -> Result<bool, PartError> {
        let _merging = self.merging.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = self.snapshot();
        let mut round: Vec<(u32, std::ops::Range<usize>)> = Vec::new();
        let mut bytes = 0;
        for (span, sections) in &snapshot.spans {
            let Some(range) = choose(*span, sections) else { continue };
            bytes += sections
                .get(range.clone())
                .unwrap_or_default()
                .iter()
                .map(|s| s.bytes)
                .sum::<u64>();
            round.push((*span, range));
            if bytes >= OUTPUT_BYTES {
                break;
            }
        }
        if round.is_empty() {
            return Ok(false);
        }
        let mut inputs = Vec::new();
        let mut whole_spans = BTreeSet::new();
        let mut sequences = (u64::MAX, 0);
        for (span, range) in &round {
            let all = snapshot.spans.get(span).map(Vec::as_slice).unwrap_or_default();
            let chosen = all.get(range.clone()).unwrap_or_default();
            for section in chosen {
                sequences.0 = sequences.0.min(section.sequences.0);
                sequences.1 = sequences.1.max(section.sequences.1);
            }
            // A part of a row must not become a column of its own: its points would no longer replace
            // those of older sections, nor be replaced by newer ones.
            let whole = chosen.len() == all.len();
            if whole {
                whole_spans.insert(*span);
            }
            let compact_before = if whole { compact_before } else { 0 };
            let options = MergeOptions { drop_tombstones: range.start == 0, compact_before };
            let sections = chosen.iter().map(|s| (Arc::clone(&s.part), s.section)).collect();
            inputs.push(SpanMerge { span: *span, sections, options });
        }
        let path = self.next_path();
        let written = merge_sections(&path, self.layout, sequences, &inputs)?;
        let part = Arc::new(Part::open(&path)?);
        let compacted = (compact_before, &whole_spans);
        self.replace(&round, &part, compacted, (bytes, written));
        Ok(true)
    }

    /// Replaces the merged sections by those of `part`. Flushes have only added sections meanwhile.
    fn replace(
        &self,
        round: &[(u32, std::ops::Range<usize>)],
        part: &Arc<Part>,
        (compact_before, whole_spans): (u32, &BTreeSet<u32>),
        (read, written): (u64, u64),
    ) {
        let infos = part.sections();
        let mut state = self.state();
        let before = state.snapshot.live_sections();
        let mut snapshot = Snapshot::clone(&state.snapshot);
        let mut inputs = Vec::new();
        for (span, range) in round {
            let Some(sections) = snapshot.spans.get_mut(span) else { continue };
            let whole = whole_spans.contains(span);
            let chosen = sections.get(range.clone()).unwrap_or_default();
            let first = chosen.first().map_or(0, |s| s.sequences.0);
            let last = chosen.last().map_or(0, |s| s.sequences.1);
            let index = infos.iter().position(|info| info.span == *span);
            let merged = index.map(|section| SnapshotSection {
                part: Arc::clone(part),
                section,
                bytes: infos.get(section).map_or(0, |info| info.bytes),
                sequences: (first, last),
                compacted_before: Some(if whole { compact_before } else { 0 }),
            });
            inputs.extend(sections.splice(range.clone(), merged).map(|s| s.part));
            if sections.is_empty() {
                snapshot.spans.remove(span);
            }
        }
        let live = snapshot.live_sections();
        for part in inputs {
            if before.contains_key(part.path()) && !live.contains_key(part.path()) {
                part.retire();
            }
        }
        if !live.contains_key(part.path()) {
            part.retire();
        }
        state.snapshot = Arc::new(snapshot);
        state.stats.merges += 1;
        state.stats.merge_input_bytes += read;
        state.stats.merged_bytes += written;
        state.stats.merged_points += infos.iter().map(|info| info.points).sum::<u64>();
    }
}

/// The newest sections of about one size: none much larger than the newer ones on average.
fn due_sections(_: u32, sections: &[SnapshotSection]) -> Option<std::ops::Range<usize>> {
    let (mut count, mut newer) = (0_u64, 0_u64);
    for section in sections.iter().rev().take(MAX_INPUTS) {
        if count > 0 && section.bytes * count > newer * 2 {
            break;
        }
        newer += section.bytes;
        count += 1;
    }
    (count >= MERGE_SECTIONS).then(|| sections.len() - count as usize..sections.len())
}
