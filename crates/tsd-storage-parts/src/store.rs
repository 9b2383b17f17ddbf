//! Parts of one table: flushes and snapshots. Merges are in `merging`, the start in `recovery`.
//!
//! A change is durable in this order: the part and its name, the edit of the manifest, and only then
//! inputs are removed. What is not in the manifest was never there.

mod compaction_limit;
mod dropped;
mod expired_series;
mod flush_output;
mod late_spans;
mod lock;
mod losses;
mod merge_input;
mod merging;
mod pin;
mod quarantine;
mod recovery;
mod retention;
mod table_retention;
mod verified;

use std::{
    borrow::Borrow,
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
    time::Instant,
};

use bytes::Bytes;
use tsd_storage::{
    ClockMs, FlushRows, HealthImpact, HealthProblem, HeldRows, StoreDir, StorePart, Table,
};

pub(crate) use self::pin::verify_directory;
#[cfg(test)]
pub(crate) use self::quarantine::DamagedFile;
pub(crate) use self::quarantine::{assess_sections, find_damaged};
pub(crate) use self::table_retention::ExpiredSeries;
use self::{
    compaction_limit::CompactionLimit, dropped::DroppedTotals, flush_output::PartOutput,
    late_spans::LateSpans, lock::lock, losses::KnownLosses, merge_input::MeasuredMerges,
    table_retention::TableRetention,
};
pub use self::{dropped::DroppedSpans, losses::QuarantinedPart};
use crate::{
    error::PartError,
    file_names::part_name,
    flush_writer::write_rows,
    layout::PartLayout,
    manifest::{ManifestEdit, ManifestFile, ManifestState, SectionRecord},
    merge_signal::MergeSignal,
    metrics::PartMetrics,
    part::Part,
    resources::PartResources,
    snapshot::Snapshot,
};

/// Work done since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Parts written by flushes.
    pub flushes: u64,
    /// Bytes of the flushed parts.
    pub flushed_bytes: u64,
    /// Merges.
    pub merges: u64,
    /// Bytes of the merged sections.
    pub merge_input_bytes: u64,
    /// Bytes written by merges.
    pub merged_bytes: u64,
    /// Points written by merges.
    pub merged_points: u64,
}

/// Configuration of the store of one table.
#[derive(Clone, Debug)]
pub struct PartConfig {
    /// Name of the table.
    pub table: Table,
    /// Layout of its keys and spans. Fixed at the creation of the store.
    pub layout: PartLayout,
    /// Shared with other stores.
    pub resources: Arc<PartResources>,
    /// Dates quarantined files, and says which rows are old.
    pub clock: ClockMs,
    /// True if merges compact rows that are old enough and that no log in front holds.
    pub compacts_rows: bool,
}

/// The parts of one table.
#[derive(Debug)]
pub struct PartStore {
    dir: Arc<dyn StoreDir>,
    table: Table,
    layout: PartLayout,
    resources: Arc<PartResources>,
    clock: ClockMs,
    metrics: PartMetrics,
    /// Of the thread that merges, if there is one.
    signal: OnceLock<Arc<MergeSignal>>,
    compaction: CompactionLimit,
    /// Spans that got rows lately.
    late_spans: LateSpans,
    dropped: DroppedTotals,
    retention: TableRetention,
    /// Owned while a flush runs.
    flushing: Mutex<()>,
    /// Owned while a merge runs.
    merging: Mutex<MeasuredMerges>,
    /// Owned while a loss is accepted.
    accepting: Mutex<()>,
    /// What was found out of quarantined files.
    losses: Mutex<KnownLosses>,
    /// Acquired before `state`.
    manifest: Mutex<ManifestFile>,
    state: Mutex<StoreState>,
}

#[derive(Debug)]
struct StoreState {
    snapshot: Arc<Snapshot>,
    /// The files of the manifest by number.
    parts: BTreeMap<u64, Arc<Part>>,
    next_file: u64,
    /// Files of failed edits, which the manifest may list until its next edit.
    in_doubt: Vec<u64>,
    stats: StoreStats,
}

impl PartStore {
    /// Layout of the table.
    #[must_use]
    pub const fn layout(&self) -> PartLayout {
        self.layout
    }

    /// What reads use.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&lock(&self.state).snapshot)
    }

    /// Work done so far.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        lock(&self.state).stats
    }

    /// Size of all part files, bytes.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        lock(&self.state).parts.values().map(|part| part.file_bytes()).sum()
    }

    /// Number of the next record of the manifest: all records before it are durable.
    pub(crate) fn manifest_number(&self) -> u64 {
        lock(&self.manifest).next_number()
    }

    /// Bytes of the manifest that were written since the store was opened.
    #[must_use]
    pub fn manifest_bytes(&self) -> u64 {
        lock(&self.manifest).written_bytes()
    }

    /// Name of the table.
    #[must_use]
    pub const fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn resources(&self) -> &PartResources {
        &self.resources
    }

    pub(crate) const fn metrics(&self) -> &PartMetrics {
        &self.metrics
    }

    /// Flushes request merges and wait for them from now on.
    pub(crate) fn attach(&self, signal: &Arc<MergeSignal>) {
        // A store that is attached twice stays with the first thread.
        let _ = self.signal.set(Arc::clone(signal));
    }

    /// Lets the thread compact rows with a base time before this one, epoch seconds. For a store without
    /// a log in front.
    pub fn allow_compaction(&self, before_secs: u32) {
        self.compaction.allow(before_secs);
        self.request_merges();
    }

    /// Has the thread look for merges.
    pub(crate) fn request_merges(&self) {
        if let Some(signal) = self.signal.get() {
            signal.request();
        }
    }

    /// Names the rows that the log in front holds: from now on no row is compacted that it has.
    pub(crate) fn set_held_rows(&self, held: Arc<dyn HeldRows>) {
        self.compaction.set_held_rows(held);
        self.request_merges();
    }

    /// True if merges compact rows.
    pub(crate) const fn compacts_rows(&self) -> bool {
        self.compaction.compacts_rows()
    }

    /// Sections of the span that has most.
    pub(crate) fn max_sections(&self) -> usize {
        self.snapshot().spans().values().map(Vec::len).max().unwrap_or_default()
    }

    /// Metrics without labels, as (name, value). Those of several stores are to be added up.
    #[must_use]
    pub fn gauges(&self) -> Vec<(&'static str, f64)> {
        let quarantined = self.quarantined();
        let quarantined_bytes: u64 = quarantined.iter().map(|part| part.bytes).sum();
        let (files, sections) = {
            let state = lock(&self.state);
            (state.parts.len(), state.snapshot.section_count())
        };
        let mut gauges = vec![
            ("tsd_parts_disk_bytes", self.disk_bytes() as f64),
            ("tsd_parts_files", files as f64),
            ("tsd_parts_manifest_bytes_total", self.manifest_bytes() as f64),
            ("tsd_parts_quarantined_bytes", quarantined_bytes as f64),
            ("tsd_parts_quarantined_files", quarantined.len() as f64),
            ("tsd_parts_sections", sections as f64),
            ("tsd_parts_span_sections", self.max_sections() as f64),
        ];
        gauges.extend(self.retention_gauges());
        gauges
    }

    /// The files whose loss makes reads fail.
    #[must_use]
    pub fn health(&self) -> Vec<HealthProblem> {
        let problem = |part: QuarantinedPart| {
            let QuarantinedPart { name, file, what, spans, .. } = part;
            let reason = format!(
                "store file {file} is damaged ({what}); reads of {} spans fail; it is in quarantine, \
                 `tsdb quarantine accept {name}` accepts this",
                spans.len()
            );
            HealthProblem::new(StorePart::Data, HealthImpact::SomeReadsFail, reason)
        };
        self.quarantined().into_iter().map(problem).collect()
    }

    /// What the log in front has recorded; `None` if nothing yet.
    #[must_use]
    pub fn log_mark(&self) -> Option<Bytes> {
        lock(&self.manifest).state().log_mark.clone()
    }

    /// Records durably how much of the log the parts contain.
    ///
    /// # Errors
    ///
    /// An error of the disk; the old or the new mark is recorded then.
    pub fn set_log_mark(&self, mark: Bytes) -> Result<(), PartError> {
        self.commit(&ManifestEdit { log_mark: Some(mark), ..ManifestEdit::default() }, None, |_| {})
    }

    /// Writes the rows as one part, newer than all others, and returns when it is durable. Stalls while a
    /// span has too many sections, if a thread merges them.
    ///
    /// # Errors
    ///
    /// An error of the disk; [`PartError::DiskFull`] if the part would use the reserve, of which rows
    /// that free space may use three quarters; [`PartError::Behind`] after a long stall. Rows of a failed
    /// flush may be there after the store was opened again.
    pub fn flush(&self, rows: &mut dyn FlushRows) -> Result<(), PartError> {
        self.flush_after(rows, || Ok(()))
    }

    /// As [`Self::flush`]; before the part is written, but after the last row was taken, calls `prepare`,
    /// whose error ends the flush.
    pub(crate) fn flush_after<E: From<PartError>>(
        &self,
        rows: &mut dyn FlushRows,
        prepare: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let started = Instant::now();
        self.flush_rows(rows, prepare).inspect_err(|_| self.metrics.flush_errors.increment(1))?;
        self.metrics.flush_seconds.record(started.elapsed());
        self.request_merges();
        Ok(())
    }

    fn flush_rows<E: From<PartError>>(
        &self,
        rows: &mut dyn FlushRows,
        prepare: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        if let Some(signal) = self.signal.get() {
            signal.stall(&self.table, &self.metrics, || self.max_sections())?;
        }
        let _flushing = lock(&self.flushing);
        let sequence = lock(&self.manifest).state().next_sequence;
        let number = self.take_number();
        let mut output = PartOutput {
            dir: &*self.dir,
            layout: self.layout,
            resources: &self.resources,
            number,
            sequence,
            frees_space: rows.frees_space(),
            covered: 0,
            permit: None,
        };
        let written = write_rows(self.layout, rows, &mut output).inspect_err(|error| {
            // The thread may find something to free that it did not look for before.
            if matches!(error, PartError::DiskFull) {
                self.request_merges();
            }
        });
        let Some(written) = written.transpose() else { return Ok(()) };
        let part = self.open_part(number, written)?;
        // The part has no effect before its record in the manifest.
        prepare().inspect_err(|_| part.retire())?;
        let sections = part.sections();
        let section = |(index, span)| SectionRecord {
            span,
            file: part.number(),
            index,
            sequences: (sequence, sequence),
            compacted_before: None,
        };
        let edit = ManifestEdit {
            next_sequence: sequence + 1,
            files: vec![part.record()],
            sections: (0..).zip(sections.iter().map(|info| info.span)).map(section).collect(),
            ..ManifestEdit::default()
        };
        self.late_spans.note(sections.iter().map(|info| info.span));
        let bytes = part.file_bytes();
        self.metrics.flushed_bytes.increment(bytes);
        self.commit(&edit, Some(part), |stats| {
            stats.flushes += 1;
            stats.flushed_bytes += bytes;
        })?;
        Ok(())
    }

    /// Writes a part and its name durably, and opens it. After an error its file is removed.
    fn write_part(
        &self,
        write: impl FnOnce(u64) -> Result<u64, PartError>,
    ) -> Result<Arc<Part>, PartError> {
        let number = self.take_number();
        self.open_part(number, write(number))
    }

    fn take_number(&self) -> u64 {
        let mut state = lock(&self.state);
        let number = state.next_file;
        state.next_file += 1;
        number
    }

    /// Makes the name of a part durable, and opens it. After an error its file is removed.
    fn open_part(
        &self,
        number: u64,
        written: Result<u64, PartError>,
    ) -> Result<Arc<Part>, PartError> {
        let opened = written
            .and_then(|_| self.dir.sync().map_err(PartError::io("sync", self.dir.path())))
            .and_then(|()| Part::open(&self.dir, &self.resources, number, None));
        opened.map(Arc::new).inspect_err(|_| {
            // What remains of it is removed at the next start.
            let _ = self.dir.remove(&part_name(number));
        })
    }

    /// Makes an edit durable, with the part that it adds, and then visible.
    fn commit(
        &self,
        edit: &ManifestEdit,
        output: Option<Arc<Part>>,
        count: impl FnOnce(&mut StoreStats),
    ) -> Result<(), PartError> {
        self.commit_if(|_| true, edit, output, count).map(|_| ())
    }

    /// As [`Self::commit`], if the state of the manifest is as expected; else returns false.
    fn commit_if(
        &self,
        is_expected: impl FnOnce(&ManifestState) -> bool,
        edit: &ManifestEdit,
        output: Option<Arc<Part>>,
        count: impl FnOnce(&mut StoreStats),
    ) -> Result<bool, PartError> {
        let edit = |state: &ManifestState| is_expected(state).then_some(edit);
        Ok(self.commit_from(edit, output, count)?.is_some())
    }

    /// As [`Self::commit`], with an edit that follows from the state of the manifest. Returns the edit;
    /// nothing changes if there is none.
    fn commit_from<E: Borrow<ManifestEdit>>(
        &self,
        edit: impl FnOnce(&ManifestState) -> Option<E>,
        output: Option<Arc<Part>>,
        count: impl FnOnce(&mut StoreStats),
    ) -> Result<Option<E>, PartError> {
        let mut manifest = lock(&self.manifest);
        let Some(edit) = edit(manifest.state()) else { return Ok(None) };
        if let Err(error) = manifest.commit(edit.borrow()) {
            let files = edit.borrow().files.iter().map(|file| file.number);
            lock(&self.state).in_doubt.extend(files);
            return Err(error);
        }
        let mut state = lock(&self.state);
        let abandoned = std::mem::take(&mut state.in_doubt);
        if let Some(part) = output {
            state.parts.insert(part.number(), part);
        }
        let listed = manifest.state();
        let gone = |number: &u64| !listed.files.contains_key(number);
        let obsolete: Vec<u64> = state.parts.keys().copied().filter(gone).collect();
        // Their files are removed without the locks, when the last reader is done.
        let mut retired = Vec::new();
        for number in obsolete {
            if let Some(part) = state.parts.remove(&number) {
                if listed.quarantined.contains_key(&number) {
                    part.quarantine_file();
                } else {
                    part.retire();
                }
                retired.push(part);
            }
        }
        let snapshot =
            Snapshot::new(&self.table, self.layout, &self.resources, listed, &state.parts);
        let former = std::mem::replace(&mut state.snapshot, Arc::new(snapshot));
        count(&mut state.stats);
        drop(state);
        drop(manifest);
        drop((former, retired));
        for number in abandoned {
            let _ = self.dir.remove(&part_name(number));
        }
        Ok(Some(edit))
    }
}
