//! The parts of one table: flushes and snapshots. Merges are in `merging`, the start in `recovery`.
//!
//! A change becomes durable in this order: the part and its name, then the edit of the manifest. Inputs are
//! removed only after that. A file that the manifest does not list has no effect.

mod compaction_limit;
mod dropped;
mod expired_series;
mod flush_output;
mod late_spans;
mod losses;
mod merge_input;
mod merging;
mod missing;
mod missing_parts;
mod past_losses;
mod pin;
mod quarantine;
mod recheck;
mod recovery;
mod retention;
mod table_retention;
mod verified;

use parking_lot::Mutex;
use std::{
    borrow::Borrow,
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Instant,
};

use bytes::Bytes;
use tsd_files::StoreDir;
use tsd_storage::{
    ClockMs, FlushRows, HealthImpact, HealthProblem, HeldRows, StoreComponent, Table,
};

pub(crate) use self::pin::verify_directory;
pub(crate) use self::quarantine::{assess_sections, find_damaged};
pub(crate) use self::recheck::RecheckedPart;
use self::{
    compaction_limit::CompactionLimit,
    dropped::DroppedTotals,
    flush_output::PartOutput,
    late_spans::LateSpans,
    losses::{KnownLosses, QuarantinedFiles},
    merge_input::MeasuredMerges,
    missing_parts::MissingParts,
    table_retention::TableRetention,
};
pub use self::{dropped::DroppedSpans, losses::QuarantinedPart};
use crate::{
    damage::FoundDamage,
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

/// Counters of work since the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Parts written by flushes.
    pub flushes: u64,
    /// Bytes of the flushed parts.
    pub flushed_bytes: u64,
    /// Number of merges.
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
    /// Layout of the keys and spans, fixed when the store is created.
    pub layout: PartLayout,
    /// Resources that are shared with other stores.
    pub resources: Arc<PartResources>,
    /// Clock that dates quarantined files and determines which rows are old.
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
    /// Signal of the merge thread, if there is one.
    signal: OnceLock<Arc<MergeSignal>>,
    compaction: CompactionLimit,
    /// Spans that received rows recently.
    late_spans: LateSpans,
    dropped: DroppedTotals,
    retention: TableRetention,
    /// Locked while a flush runs.
    flushing: Mutex<()>,
    /// Locked while a merge runs.
    merging: Mutex<MeasuredMerges>,
    /// Locked while a loss is accepted.
    accepting: Mutex<()>,
    /// Losses of quarantined files that are assessed already.
    losses: Mutex<KnownLosses>,
    /// Open files of quarantined sections.
    quarantined_files: Mutex<QuarantinedFiles>,
    missing: Mutex<MissingParts>,
    /// Damage that reads skipped, until it is recorded.
    found: Arc<FoundDamage>,
    /// Locked before `state`.
    manifest: Mutex<ManifestFile>,
    state: Mutex<StoreState>,
}

#[derive(Debug)]
struct StoreState {
    snapshot: Arc<Snapshot>,
    /// The files of the manifest, by number.
    parts: BTreeMap<u64, Arc<Part>>,
    next_file: u64,
    /// Files of failed edits. The manifest may list them until its next edit.
    in_doubt: Vec<u64>,
    stats: StoreStats,
}

impl PartStore {
    /// Layout of the table.
    #[must_use]
    pub const fn layout(&self) -> PartLayout {
        self.layout
    }

    /// The snapshot for reads.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.state.lock().snapshot)
    }

    /// Counters of work so far.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        self.state.lock().stats
    }

    /// Size of all part files, bytes.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.state.lock().parts.values().map(|part| part.file_bytes()).sum()
    }

    /// Number of the next record of the manifest. All records before it are durable.
    pub(crate) fn manifest_number(&self) -> u64 {
        self.manifest.lock().next_number()
    }

    /// Bytes that were written to the manifest since the store was opened.
    #[must_use]
    pub fn manifest_bytes(&self) -> u64 {
        self.manifest.lock().written_bytes()
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

    /// Makes flushes request merges and stall for them.
    pub(crate) fn attach(&self, signal: &Arc<MergeSignal>) {
        // A second call has no effect: the store keeps its first thread.
        let _ = self.signal.set(Arc::clone(signal));
    }

    /// Allows the merge thread to compact rows with base times before this one, epoch seconds. For a store
    /// without a log in front.
    pub fn allow_compaction(&self, before_secs: u32) {
        self.compaction.allow(before_secs);
        self.request_merges();
    }

    /// Asks the merge thread to look for merges.
    pub(crate) fn request_merges(&self) {
        if let Some(signal) = self.signal.get() {
            signal.request();
        }
    }

    /// Registers the rows that the log in front holds. From now on, merges do not compact these rows.
    pub(crate) fn set_held_rows(&self, held: Arc<dyn HeldRows>) {
        self.compaction.set_held_rows(held);
        self.request_merges();
    }

    /// True if merges compact rows.
    pub(crate) const fn compacts_rows(&self) -> bool {
        self.compaction.compacts_rows()
    }

    /// Number of sections in the span with the most sections.
    pub(crate) fn max_sections(&self) -> usize {
        self.snapshot().spans().values().map(Vec::len).max().unwrap_or_default()
    }

    /// Metrics without labels, as (name, value). Add up the values of several stores.
    #[must_use]
    pub fn gauges(&self) -> Vec<(&'static str, f64)> {
        let quarantined = self.quarantined();
        let quarantined_bytes: u64 = quarantined.iter().map(|part| part.bytes).sum();
        let (files, sections) = {
            let state = self.state.lock();
            (state.parts.len(), state.snapshot.section_count())
        };
        let mut gauges = vec![
            ("tsd_parts_disk_bytes", self.disk_bytes() as f64),
            ("tsd_parts_files", files as f64),
            ("tsd_parts_quarantined_bytes", quarantined_bytes as f64),
            ("tsd_parts_quarantined_files", quarantined.len() as f64),
            ("tsd_parts_sections", sections as f64),
            ("tsd_parts_span_sections", self.max_sections() as f64),
        ];
        gauges.extend(self.retention_gauges());
        gauges
    }

    /// Problems of quarantined files that make reads fail.
    #[must_use]
    pub fn health(&self) -> Vec<HealthProblem> {
        let problem = |part: QuarantinedPart| {
            let QuarantinedPart { name, file, what, spans, blocks, .. } = part;
            let failing = match (spans.len(), blocks) {
                (spans, 0) => format!("reads of {spans} spans fail"),
                (0, blocks) => format!("reads that need its {blocks} damaged blocks fail"),
                (spans, blocks) => {
                    format!("reads of {spans} spans, and those that need {blocks} blocks, fail")
                }
            };
            let reason = format!(
                "store file {file} is damaged ({what}); {failing}; it is in quarantine, \
                 `tsdb quarantine accept {name}` accepts this"
            );
            HealthProblem::new(StoreComponent::Data, HealthImpact::SomeReadsFail, reason)
        };
        let quarantined = self.quarantined().into_iter().map(problem);
        quarantined.chain(self.missing_parts()).collect()
    }

    /// The mark that the log in front has recorded; `None` before the first.
    #[must_use]
    pub fn log_mark(&self) -> Option<Bytes> {
        self.manifest.lock().state().log_mark.clone()
    }

    /// Records durably how much of the log the parts contain.
    ///
    /// # Errors
    ///
    /// An error of the disk; the old or the new mark is recorded then.
    pub fn set_log_mark(&self, mark: Bytes) -> Result<(), PartError> {
        self.commit(&ManifestEdit { log_mark: Some(mark), ..ManifestEdit::default() }, None, |_| {})
    }

    /// Writes the rows as one durable part, newer than all others. Stalls while a span has too many sections, if
    /// a thread merges them.
    ///
    /// # Errors
    ///
    /// An error of the disk. [`PartError::DiskFull`] if the part would use the reserve; rows that free space may
    /// use three quarters of it. [`PartError::Behind`] after a long stall. After the next open, rows of a failed
    /// flush may be present.
    pub fn flush(&self, rows: &mut dyn FlushRows) -> Result<(), PartError> {
        self.flush_after(rows, || Ok(()))
    }

    /// As [`Self::flush`]. Calls `prepare` after the last row was read and before the part is written; its error
    /// fails the flush.
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
        let _flushing = self.flushing.lock();
        let sequence = self.manifest.lock().state().next_sequence;
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
            // The merge thread may find rows to free that it did not look for before.
            if matches!(error, PartError::DiskFull) {
                self.request_merges();
            }
        });
        let Some(written) = written.transpose() else { return Ok(()) };
        let part = self.open_part(number, written)?;
        // The part has no effect before the manifest lists it.
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

    /// Writes a part and its name durably, and opens it. Removes its file after an error.
    fn write_part(
        &self,
        write: impl FnOnce(u64) -> Result<u64, PartError>,
    ) -> Result<Arc<Part>, PartError> {
        let number = self.take_number();
        self.open_part(number, write(number))
    }

    fn take_number(&self) -> u64 {
        let mut state = self.state.lock();
        let number = state.next_file;
        state.next_file += 1;
        number
    }

    /// Makes the name of a part durable and opens it. Removes its file after an error.
    fn open_part(
        &self,
        number: u64,
        written: Result<u64, PartError>,
    ) -> Result<Arc<Part>, PartError> {
        let opened = written
            .and_then(|_| self.dir.sync().map_err(PartError::io("sync", self.dir.path())))
            .and_then(|()| Part::open(&self.dir, &self.resources, number, None));
        opened.map(Arc::new).inspect_err(|_| {
            // The next start removes a file that remains.
            let _ = self.dir.remove(&part_name(number));
        })
    }

    /// Makes an edit durable together with the part that it adds, and then visible.
    fn commit(
        &self,
        edit: &ManifestEdit,
        output: Option<Arc<Part>>,
        count: impl FnOnce(&mut StoreStats),
    ) -> Result<(), PartError> {
        self.commit_if(|_| true, edit, output, count).map(|_| ())
    }

    /// As [`Self::commit`], if the manifest is in the expected state; otherwise returns false.
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

    /// As [`Self::commit`], with an edit that is computed from the state of the manifest. Returns the edit.
    /// Without an edit, the manifest stays unchanged.
    fn commit_from<E: Borrow<ManifestEdit>>(
        &self,
        edit: impl FnOnce(&ManifestState) -> Option<E>,
        output: Option<Arc<Part>>,
        count: impl FnOnce(&mut StoreStats),
    ) -> Result<Option<E>, PartError> {
        let mut manifest = self.manifest.lock();
        let Some(edit) = edit(manifest.state()) else { return Ok(None) };
        if let Err(error) = manifest.commit(edit.borrow()) {
            let files = edit.borrow().files.iter().map(|file| file.number);
            self.state.lock().in_doubt.extend(files);
            return Err(error);
        }
        let mut state = self.state.lock();
        let abandoned = std::mem::take(&mut state.in_doubt);
        if let Some(part) = output {
            state.parts.insert(part.number(), part);
        }
        let listed = manifest.state();
        let gone = |number: &u64| !listed.files.contains_key(number);
        let obsolete: Vec<u64> = state.parts.keys().copied().filter(gone).collect();
        // The last reader removes the files, without the locks.
        let mut retired = Vec::new();
        for number in obsolete {
            if let Some(part) = state.parts.remove(&number) {
                // A quarantined file stays. The next start renames it.
                if !listed.quarantined.contains_key(&number) {
                    part.retire();
                }
                retired.push(part);
            }
        }
        let snapshot = state.snapshot.renewed(&self.table, listed, &state.parts);
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
