//! A state of the model, and the steps from it.

mod recoverer;

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{
    reads::{CORRECTED, Correction, Read},
    table::ModelTable,
};
use crate::{
    ChangeOutcome, LogOwner, LogRecord, Manifest, ManifestChange, ManifestPhase, OpenSegment,
    OpeningOutcome, Recovery, SEGMENT_BYTES, SegmentId, SegmentOpening, TableReply, TableRequest,
};

/// The incarnation of the owner.
const OWNER: u64 = 1;

/// Bounds of the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Limits {
    pub(super) appends: u64,
    pub(super) segments: u64,
    pub(super) hedges: u8,
    /// Answers that are lost.
    pub(super) doubts: u8,
    /// Requests that are executed after their answer counted as lost.
    pub(super) lates: u8,
    pub(super) recoverers: u64,
    /// Heartbeats of the owner.
    pub(super) beats: u8,
    /// How often the time of a lease passes.
    pub(super) times: u8,
    /// Reads by other nodes.
    pub(super) reads: u8,
    /// True if the recoverer accepts a correction in its own log.
    pub(super) is_corrected: bool,
    /// True if a segment takes several records; otherwise it takes one.
    pub(super) is_long_segment: bool,
}

/// Planted faults: checks that are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "one for each fault")]
pub(super) struct Faults {
    pub(super) ignores_fence: bool,
    pub(super) skips_fence: bool,
    pub(super) skips_confirmation: bool,
    /// All attempts to open a segment have the same token.
    pub(super) shares_tokens: bool,
    pub(super) ignores_watermark: bool,
    pub(super) trims_early: bool,
    pub(super) keeps_duplicates: bool,
    /// The owner answers for its held rows without a proof.
    pub(super) skips_proof: bool,
    /// The owner proves itself, then takes the view of its held rows.
    pub(super) proves_first: bool,
    /// The owner's appends extend its lease.
    pub(super) extends_by_append: bool,
    /// The recoverer does not wait for the owner's lease.
    pub(super) skips_wait: bool,
    /// A reader asks nobody after a recovery.
    pub(super) believes_stored: bool,
    /// A reader does not wait for the end of a recovery.
    pub(super) settles_early: bool,
    /// The recoverer's commits are not raised above the recovered commit times.
    pub(super) ignores_floor: bool,
}

/// Effect of an append on the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum CellOp {
    Put(u64),
    Delete,
}

/// The cell in the table of points. A delete leaves no marker, as after a major compaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PointTable {
    /// Value and time.
    pub(super) cell: Option<(u64, u64)>,
    pub(super) flushed: BTreeSet<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    pub(super) log: LogOwner,
    pub(super) is_fenced: bool,
    record: Option<LogRecord>,
    attempts: Vec<(OpenSegment, Option<TableReply>)>,
    pub(super) work: Option<OwnerWork>,
    /// Records that are acknowledged and not flushed.
    pub(super) memtable: BTreeSet<u64>,
    /// When the first attempt of the last heartbeat began.
    pub(super) lease: Option<u8>,
    opened: u64,
}

/// Work on the manifest and on old segments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum OwnerWork {
    Open(SegmentOpening),
    Trim(ManifestChange),
    /// A heartbeat, and when its first attempt began.
    Beat(ManifestChange, u8),
    Remove(SegmentId),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Recoverer {
    recovery: Recovery,
    /// Sequence numbers in the order of the replay.
    replayed: Vec<u64>,
    is_prepared: bool,
    /// When it saw the revision that it has replaced.
    seen: Option<u8>,
}

/// The state of all actors and of the tables.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) limits: Limits,
    pub(super) faults: Faults,
    /// Leases of heartbeats that began at an earlier time have ended.
    pub(super) time: u8,
    pub(super) table: ModelTable,
    pub(super) points: PointTable,
    late: Vec<TableRequest>,
    pub(super) owner: Owner,
    recoverer: Option<Recoverer>,
    next_recoverer: u64,
    pub(super) read: Option<Read>,
    pub(super) correction: Option<Correction>,
    pub(super) acknowledged: BTreeSet<u64>,
    /// Records that the first complete recovery found, with the records flushed before.
    pub(super) recovered: Option<BTreeSet<u64>>,
    is_recovered: bool,
    pub(super) problem: Option<String>,
}

pub(super) type Steps = Vec<(String, World)>;

impl World {
    pub(super) fn new(limits: Limits, faults: Faults) -> Self {
        let manifest = Manifest::first(OWNER, "", 1);
        let owner = Owner {
            log: LogOwner::new(OWNER, manifest.clone()),
            is_fenced: false,
            record: None,
            attempts: Vec::new(),
            work: None,
            memtable: BTreeSet::new(),
            lease: None,
            opened: 0,
        };
        Self {
            limits,
            faults,
            time: 0,
            table: ModelTable { manifest: Some(manifest), ..ModelTable::default() },
            points: PointTable::default(),
            late: Vec::new(),
            owner,
            recoverer: None,
            next_recoverer: OWNER + 1,
            read: None,
            correction: None,
            acknowledged: BTreeSet::new(),
            recovered: None,
            is_recovered: false,
            problem: None,
        }
    }

    /// Returns the violation of this state, if any.
    pub(super) fn violation(&self) -> Option<String> {
        self.problem.clone().or_else(|| self.lost()).or_else(|| self.wrong_cell())
    }

    /// Returns all states after one step.
    pub(super) fn steps(&self) -> Steps {
        let mut steps = Vec::new();
        self.append_steps(&mut steps);
        self.work_steps(&mut steps);
        self.recoverer_steps(&mut steps);
        self.read_steps(&mut steps);
        self.correction_steps(&mut steps);
        if self.time < self.limits.times {
            let mut next = self.clone();
            next.time += 1;
            steps.push(("the time of a lease passes".to_owned(), next));
        }
        for (at, request) in self.late.iter().enumerate() {
            let mut next = self.clone();
            next.late.remove(at);
            next.execute(request);
            steps.push((format!("late: {}", name(request)), next));
        }
        if !self.owner.memtable.is_empty() && !self.owner.is_fenced && self.is_open() {
            let mut next = self.clone();
            let memtable = std::mem::take(&mut next.owner.memtable);
            next.flush(&memtable.into_iter().collect::<Vec<_>>());
            steps.push(("owner flushes".to_owned(), next));
        }
        steps
    }

    /// Returns a violation if an acknowledged record is neither flushed nor where a recovery finds
    /// it.
    fn lost(&self) -> Option<String> {
        let lost = self.acknowledged.difference(&self.points.flushed).find(|sequence| {
            let Some(manifest) = &self.table.manifest else { return true };
            let watermark = manifest.streams.first().map_or(0, |stream| stream.watermark);
            let is_listed = manifest.segments(OWNER).any(|segment| {
                let row = self.table.segments.get(&segment);
                row.is_some_and(|row| row.records.contains_key(sequence))
            });
            !is_listed || **sequence < watermark || manifest.phase == ManifestPhase::Retired
        })?;
        Some(format!("record {lost} is acknowledged and in no listed segment"))
    }

    /// Returns a violation unless the cell after a recovery is the result of the acknowledged ops,
    /// and perhaps one more.
    fn wrong_cell(&self) -> Option<String> {
        if !self.is_recovered {
            return None;
        }
        let found = self.points.cell.map(|(value, _)| value);
        if let Some(correction) = &self.correction {
            let is_lost = correction.is_flushed && found != Some(CORRECTED);
            return is_lost.then(|| format!("the cell has {found:?}, not the correction"));
        }
        let last = self.acknowledged.last().copied().unwrap_or_default();
        let issued = self.owner.log.next_sequence(0);
        let expected: Vec<Option<u64>> = (last..=issued).map(value_after).collect();
        (!expected.contains(&found)).then(|| format!("the cell has {found:?}, not {expected:?}"))
    }

    pub(super) fn is_open(&self) -> bool {
        self.table.manifest.as_ref().is_some_and(|manifest| manifest.phase == ManifestPhase::Open)
    }

    /// Executes a request now.
    fn execute(&mut self, request: &TableRequest) -> TableReply {
        if let TableRequest::SwapManifest { new, .. } = request {
            let watermark = new.streams.first().map_or(0, |stream| stream.watermark);
            let early = self.acknowledged.range(..watermark);
            if let Some(early) = early.copied().find(|at| !self.points.flushed.contains(at)) {
                self.problem = Some(format!("record {early} is trimmed before its flush"));
            }
        }
        self.table.execute(request, self.faults)
    }

    /// Returns all outcomes of a request on the network.
    pub(super) fn sent(&self, request: &TableRequest) -> Vec<(&'static str, Self, TableReply)> {
        let mut all = Vec::new();
        let mut next = self.clone();
        let reply = next.execute(request);
        all.push(("", next, reply));
        let is_read = matches!(
            request,
            TableRequest::ReadManifest { .. }
                | TableRequest::ReadToken { .. }
                | TableRequest::ConfirmSegment { .. }
                | TableRequest::ReadSegment { .. }
        );
        if is_read {
            return all;
        }
        if self.limits.doubts > 0 {
            let mut next = self.clone();
            next.limits.doubts -= 1;
            all.push((", lost", next.clone(), TableReply::InDoubt));
            next.execute(request);
            all.push((", answer lost", next, TableReply::InDoubt));
        }
        if self.limits.lates > 0 {
            let mut next = self.clone();
            next.limits.lates -= 1;
            next.add_late(request.clone());
            all.push((", late", next, TableReply::InDoubt));
        }
        all
    }

    fn add_late(&mut self, request: TableRequest) {
        self.late.push(request);
        self.late.sort();
    }

    fn record_bytes(&self) -> u64 {
        if self.limits.is_long_segment { 1 } else { SEGMENT_BYTES }
    }

    fn append_steps(&self, steps: &mut Steps) {
        let owner = &self.owner;
        if owner.is_fenced {
            return;
        }
        let Some(record) = &owner.record else { return self.begin_append(steps) };
        for (at, (segment, reply)) in owner.attempts.iter().enumerate() {
            let append = || TableRequest::Append { segment: *segment, record: record.clone() };
            match reply {
                None => {
                    for (how, mut next, reply) in self.sent(&append()) {
                        if let Some(attempt) = next.owner.attempts.get_mut(at) {
                            attempt.1 = Some(reply);
                        }
                        steps.push((format!("owner: {}{how}", name(&append())), next));
                    }
                }
                Some(reply) => {
                    let mut next = self.clone();
                    next.take_append_reply(at, *segment, record, reply);
                    steps.push((format!("owner takes {reply:?} of {}", name(&append())), next));
                }
            }
        }
        if owner.attempts.len() == 1 && self.limits.hedges > 0 {
            let mut next = self.clone();
            next.limits.hedges -= 1;
            if let Some(segment) = next.owner.log.hedge_segment(0) {
                next.owner.attempts.push((segment, None));
                steps.push((format!("owner hedges to segment {}", segment.id.number), next));
            }
        }
    }

    fn begin_append(&self, steps: &mut Steps) {
        if self.owner.log.next_sequence(0) > self.limits.appends {
            return;
        }
        let mut next = self.clone();
        let bytes = self.record_bytes();
        let record = next.owner.log.next_record(0, Bytes::new(), true, true);
        if let Some(segment) = next.owner.log.segment_for(0, bytes) {
            next.owner.record = record;
            next.owner.attempts = vec![(segment, None)];
            steps.push((format!("owner begins an append to segment {}", segment.id.number), next));
        }
    }

    fn take_append_reply(
        &mut self,
        at: usize,
        segment: OpenSegment,
        record: &LogRecord,
        reply: &TableReply,
    ) {
        match reply {
            TableReply::Applied(true) => {
                if let Some(recovered) = &self.recovered
                    && !recovered.contains(&record.sequence)
                {
                    let sequence = record.sequence;
                    self.problem =
                        Some(format!("record {sequence} is acknowledged after its fence"));
                }
                self.acknowledged.insert(record.sequence);
                self.owner.memtable.insert(record.sequence);
                self.owner.log.stored(segment.id, self.record_bytes());
                self.owner.record = None;
                if self.faults.extends_by_append {
                    self.owner.lease = Some(self.time);
                }
                for (other, reply) in std::mem::take(&mut self.owner.attempts) {
                    // A request that was not executed yet may be executed later.
                    if other != segment && reply.is_none() {
                        let record = record.clone();
                        self.add_late(TableRequest::Append { segment: other, record });
                    }
                }
            }
            TableReply::Applied(false) => self.owner.is_fenced = true,
            _ => {
                if let Some(attempt) = self.owner.attempts.get_mut(at) {
                    attempt.1 = None;
                }
            }
        }
    }

    fn work_steps(&self, steps: &mut Steps) {
        let owner = &self.owner;
        if owner.is_fenced {
            return;
        }
        // One change of the manifest at a time.
        let Some(work) = &owner.work else { return self.begin_work(steps) };
        if let OwnerWork::Open(opening) = work
            && let Some(manifest) = opening.listed()
        {
            let mut next = self.clone();
            next.owner.work = None;
            next.owner.log.given_up(opening.id(), manifest.clone());
            steps.push((format!("owner gives up segment {}", opening.id().number), next));
        }
        let request = match work {
            OwnerWork::Open(opening) => opening.request(),
            OwnerWork::Trim(change) | OwnerWork::Beat(change, _) => change.request(),
            OwnerWork::Remove(segment) => TableRequest::RemoveSegment { segment: *segment },
        };
        for (how, mut next, reply) in self.sent(&request) {
            // It makes no difference when the reply is taken.
            next.take_work_reply(&reply);
            steps.push((format!("owner: {}{how}", name(&request)), next));
        }
    }

    fn begin_work(&self, steps: &mut Steps) {
        let owner = &self.owner;
        if self.limits.beats > 0 {
            let mut next = self.clone();
            next.limits.beats -= 1;
            next.owner.work = Some(OwnerWork::Beat(owner.log.confirmation(), self.time));
            steps.push(("owner begins a heartbeat".to_owned(), next));
        }
        let standby = u64::from(owner.opened > 0 && owner.log.next_sequence(0) > 1);
        if owner.opened < self.limits.segments && owner.log.standby_count(0) as u64 <= standby {
            let mut next = self.clone();
            next.owner.opened += 1;
            if let Some(opening) = next.owner.log.open_segment(0, 0) {
                next.owner.work = Some(OwnerWork::Open(opening));
                steps.push(("owner opens a segment".to_owned(), next));
            }
        }
        let flushed = self.points.flushed.last().copied().unwrap_or_default();
        let flushed = if self.faults.trims_early {
            self.acknowledged.last().copied().unwrap_or_default()
        } else {
            flushed
        };
        let trimmed = owner.log.manifest().streams.first().map_or(0, |stream| stream.watermark);
        if flushed + 1 > trimmed {
            let mut next = self.clone();
            next.owner.work = Some(OwnerWork::Trim(owner.log.trim(0, flushed + 1, 0)));
            steps.push((format!("owner trims below {}", flushed + 1), next));
        }
        if let Some(segment) = owner.log.removable().first() {
            let mut next = self.clone();
            next.owner.work = Some(OwnerWork::Remove(*segment));
            steps.push((format!("owner removes segment {}", segment.number), next));
        }
    }

    fn take_work_reply(&mut self, reply: &TableReply) {
        let Some(mut work) = self.owner.work.take() else { return };
        let is_done = match &mut work {
            OwnerWork::Open(opening) => {
                let mut outcome = opening.reply(reply);
                if self.faults.skips_confirmation {
                    outcome = outcome.or_else(|| opening.skip_confirmation());
                }
                match outcome {
                    None => false,
                    Some(OpeningOutcome::Open(segment, manifest)) => {
                        self.owner.log.opened(segment, manifest);
                        true
                    }
                    Some(OpeningOutcome::Fenced) => {
                        self.owner.is_fenced = true;
                        true
                    }
                }
            }
            OwnerWork::Beat(change, begun) => match change.reply(reply) {
                None => false,
                Some(ChangeOutcome::Made) => {
                    self.owner.lease = Some(*begun);
                    self.owner.log.changed(change.manifest().clone());
                    true
                }
                Some(ChangeOutcome::Refused) => {
                    self.owner.is_fenced = true;
                    true
                }
            },
            OwnerWork::Trim(change) => match change.reply(reply) {
                None => false,
                Some(ChangeOutcome::Made) => {
                    self.owner.log.changed(change.manifest().clone());
                    true
                }
                Some(ChangeOutcome::Refused) => {
                    self.owner.is_fenced = true;
                    true
                }
            },
            OwnerWork::Remove(segment) => {
                let is_done = *reply == TableReply::Applied(true);
                if is_done {
                    self.owner.log.removed(*segment);
                }
                is_done
            }
        };
        if !is_done {
            self.owner.work = Some(work);
        }
    }

    /// Applies records in this order, then writes the cell once.
    fn flush(&mut self, records: &[u64]) {
        let Some(last) = records.last() else { return };
        self.points.flushed.extend(records);
        let time_of_cell = self.points.cell.map_or(0, |(_, time)| time);
        match op(*last) {
            CellOp::Put(value) if *last >= time_of_cell => {
                self.points.cell = Some((value, *last));
            }
            CellOp::Delete if *last >= time_of_cell => self.points.cell = None,
            _ => {}
        }
    }
}

/// The op of a record.
const fn op(sequence: u64) -> CellOp {
    if sequence == 2 { CellOp::Delete } else { CellOp::Put(sequence) }
}

/// The value of the cell after the ops up to a record.
fn value_after(sequence: u64) -> Option<u64> {
    match op(sequence) {
        CellOp::Put(value) => Some(value).filter(|value| *value > 0),
        CellOp::Delete => None,
    }
}

pub(super) fn name(request: &TableRequest) -> String {
    match request {
        TableRequest::SwapManifest { new, .. } => format!("swap to {:?}", new.revision),
        TableRequest::Append { segment, record } => {
            format!("append {} to segment {}", record.sequence, segment.id.number)
        }
        TableRequest::OpenSegment { segment } => {
            format!("open segment {}, attempt {}", segment.id.number, segment.attempt)
        }
        TableRequest::FenceSegment { segment, .. } => format!("fence segment {}", segment.number),
        TableRequest::RemoveSegment { segment } => format!("remove segment {}", segment.number),
        other => format!("{other:?}"),
    }
}
