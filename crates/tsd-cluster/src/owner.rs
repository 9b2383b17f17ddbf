//! The owner of a log, with its manifest and the streams that it writes.
//!
//! A stream has one record in flight, which goes to its active segment. Standby segments are open, too. If the
//! active segment does not answer, a standby segment gets the record as well (a hedge). The segment that stores
//! the record first becomes the active one. A segment that has not answered gets no further record. It stays
//! listed until all records that were ever sent to it are below the watermark. So everything that it stores late
//! is a duplicate, or is not needed.
//!
//! The driver makes only one change of the manifest at a time.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;

use crate::{
    keys::{OpenSegment, SegmentId},
    manifest::{Manifest, ManifestPhase, SegmentRef},
    manifest_change::ManifestChange,
    record::LogRecord,
    segment_opening::SegmentOpening,
};

/// Bytes of a segment at which another segment becomes the active one.
pub const SEGMENT_BYTES: u64 = 16 << 20;

/// What a heartbeat shows to other nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// The node's clock, epoch milliseconds.
    pub now_ms: i64,
    /// Nodes that the node does not reach.
    pub unreached: BTreeSet<u64>,
    /// True once the node leaves because others do not reach it.
    pub is_leaving: bool,
    /// Address at which the node answers its peers; empty until it does.
    pub address: String,
}

/// The owner of a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LogOwner {
    incarnation: u64,
    manifest: Manifest,
    streams: Vec<OwnedStream>,
}

/// A stream and its segments, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OwnedStream {
    next_sequence: u64,
    next_number: u64,
    segments: VecDeque<OwnedSegment>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OwnedSegment {
    id: SegmentId,
    /// The attempt that opened the segment.
    attempt: u32,
    bytes: u64,
    /// The last record that was sent to the segment; 0 before the first.
    last_sent: u64,
    phase: SegmentPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SegmentPhase {
    Active,
    Standby,
    /// The segment takes no more records.
    Closed,
    /// The row is deleted; the manifest still lists the segment.
    Removed,
}

impl LogOwner {
    /// Returns the owner of a log whose first manifest is stored.
    #[must_use]
    pub fn new(incarnation: u64, manifest: Manifest) -> Self {
        let stream = OwnedStream { next_sequence: 1, next_number: 1, segments: VecDeque::new() };
        let streams = vec![stream; manifest.streams.len()];
        Self { incarnation, manifest, streams }
    }

    /// The incarnation of the owner.
    #[must_use]
    pub const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The manifest as it is stored.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Records the manifest that a change of this owner has stored.
    pub fn changed(&mut self, manifest: Manifest) {
        self.manifest = manifest;
    }

    /// Returns a change that only proves that nobody has fenced this owner.
    #[must_use]
    pub fn confirmation(&self) -> ManifestChange {
        self.change(self.manifest.next(self.incarnation))
    }

    /// As [`Self::confirmation`]; also shows others that this owner is alive.
    #[must_use]
    pub fn heartbeat(&self, beat: Heartbeat) -> ManifestChange {
        let mut new = self.manifest.next(self.incarnation);
        new.log_bytes = self.kept().1;
        (new.heartbeat_ms, new.unreached) = (beat.now_ms, beat.unreached);
        new = new.at_address(&beat.address);
        if beat.is_leaving && new.phase == ManifestPhase::Open {
            new.phase = ManifestPhase::Leaving;
        }
        self.change(new)
    }

    /// Returns the change that ends the start of this owner: it appends from then on.
    #[must_use]
    pub fn joining(&self, now_ms: i64) -> ManifestChange {
        let mut new = self.manifest.next(self.incarnation);
        (new.phase, new.heartbeat_ms) = (ManifestPhase::Open, now_ms);
        self.change(new)
    }

    /// True once [`Self::joining`] is made.
    #[must_use]
    pub fn has_joined(&self) -> bool {
        matches!(self.manifest.phase, ManifestPhase::Open | ManifestPhase::Leaving)
    }

    /// Opens another segment of a stream.
    #[must_use]
    pub fn open_segment(&mut self, stream: u8, stripe: u8) -> Option<SegmentOpening> {
        let of = self.streams.get_mut(usize::from(stream))?;
        let number = of.next_number;
        // Each number is used once, even if the opening fails.
        of.next_number += 1;
        let mut new = self.manifest.next(self.incarnation);
        let listed = new.streams.get_mut(usize::from(stream))?;
        let is_removed = |number: u64| {
            let found = of.segments.iter().find(|segment| segment.id.number == number);
            found.is_none_or(|segment| segment.phase == SegmentPhase::Removed)
        };
        listed.segments.retain(|segment| !is_removed(segment.number));
        listed.segments.push(SegmentRef { number, stripe });
        let id = SegmentId { incarnation: self.incarnation, stream, number, stripe };
        Some(SegmentOpening::new(id, self.change(new)))
    }

    /// Records an opened segment, and the manifest that lists it.
    pub fn opened(&mut self, segment: OpenSegment, manifest: Manifest) {
        self.add(segment, manifest, SegmentPhase::Standby);
    }

    /// Records a segment whose opening was abandoned after it was listed.
    pub fn given_up(&mut self, id: SegmentId, manifest: Manifest) {
        self.add(OpenSegment { id, attempt: 0 }, manifest, SegmentPhase::Closed);
    }

    fn add(&mut self, segment: OpenSegment, manifest: Manifest, phase: SegmentPhase) {
        let OpenSegment { id, attempt } = segment;
        self.changed(manifest);
        let Some(stream) = self.streams.get_mut(usize::from(id.stream)) else { return };
        stream.segments.retain(|segment| segment.phase != SegmentPhase::Removed);
        stream.segments.push_back(OwnedSegment { id, attempt, bytes: 0, last_sent: 0, phase });
    }

    /// The segments of a stream that may take records.
    #[must_use]
    pub fn open_segments(&self, stream: u8) -> Vec<SegmentId> {
        let is_open = |segment: &&OwnedSegment| {
            matches!(segment.phase, SegmentPhase::Active | SegmentPhase::Standby)
        };
        let stream = self.streams.get(usize::from(stream));
        let segments = stream.into_iter().flat_map(|stream| &stream.segments);
        segments.filter(is_open).map(|segment| segment.id).collect()
    }

    /// The segments of a stream that may take records, with their tokens, the active one first.
    #[must_use]
    pub fn open_tokens(&self, stream: u8) -> Vec<OpenSegment> {
        let segments = self.streams.get(usize::from(stream)).into_iter();
        let segments = segments.flat_map(|stream| &stream.segments);
        let of_phase = |phase| segments.clone().filter(move |segment| segment.phase == phase);
        let open = of_phase(SegmentPhase::Active).chain(of_phase(SegmentPhase::Standby));
        open.map(OwnedSegment::open).collect()
    }

    /// Number of standby segments of a stream to which the next record was not sent yet.
    #[must_use]
    pub fn standby_count(&self, stream: u8) -> usize {
        self.streams.get(usize::from(stream)).map_or(0, |stream| {
            stream.segments.iter().filter(|segment| stream.is_fresh(segment)).count()
        })
    }

    /// The standby segments that got the record in flight and have not answered. Each attempt to store the record
    /// sends it to them again, since they may answer now.
    #[must_use]
    pub fn hedged_segments(&self, stream: u8) -> Vec<OpenSegment> {
        let Some(stream) = self.streams.get(usize::from(stream)) else { return Vec::new() };
        let is_hedged = |segment: &&OwnedSegment| {
            segment.phase == SegmentPhase::Standby && !stream.is_fresh(segment)
        };
        stream.segments.iter().filter(is_hedged).map(OwnedSegment::open).collect()
    }

    /// Returns the next record of a stream. The driver sends it until a segment has stored it ([`Self::stored`]).
    #[must_use]
    pub fn next_record(
        &self,
        stream: u8,
        payload: Bytes,
        begins_group: bool,
        ends_group: bool,
    ) -> Option<LogRecord> {
        let sequence = self.streams.get(usize::from(stream))?.next_sequence;
        let acknowledged_through = sequence - 1;
        Some(LogRecord { sequence, acknowledged_through, begins_group, ends_group, payload })
    }

    /// Returns the segment for the next record of a stream, or `None` if no open segment has room for `bytes`.
    pub fn segment_for(&mut self, stream: u8, bytes: u64) -> Option<OpenSegment> {
        let stream = self.streams.get_mut(usize::from(stream))?;
        let sequence = stream.next_sequence;
        if let Some(active) = stream.active() {
            if active.bytes == 0 || active.bytes + bytes <= SEGMENT_BYTES {
                active.last_sent = sequence;
                return Some(active.open());
            }
            active.phase = SegmentPhase::Closed;
        }
        let standby = stream.standby()?;
        standby.phase = SegmentPhase::Active;
        standby.last_sent = sequence;
        Some(standby.open())
    }

    /// Returns a standby segment for a hedge of the record in flight, or `None` if no unused standby segment is
    /// left.
    pub fn hedge_segment(&mut self, stream: u8) -> Option<OpenSegment> {
        let stream = self.streams.get_mut(usize::from(stream))?;
        let at = stream.segments.iter().position(|segment| stream.is_fresh(segment))?;
        let sequence = stream.next_sequence;
        let standby = stream.segments.get_mut(at)?;
        standby.last_sent = sequence;
        Some(standby.open())
    }

    /// Records that a segment has stored the record in flight.
    pub fn stored(&mut self, id: SegmentId, bytes: u64) {
        let Some(stream) = self.streams.get_mut(usize::from(id.stream)) else { return };
        let sequence = stream.next_sequence;
        stream.next_sequence += 1;
        for segment in &mut stream.segments {
            if segment.id == id {
                segment.bytes += bytes;
                segment.phase = SegmentPhase::Active;
            } else if segment.last_sent == sequence {
                // This segment has not answered.
                segment.phase = SegmentPhase::Closed;
            }
        }
    }

    /// Sequence number of the next record of a stream.
    #[must_use]
    pub fn next_sequence(&self, stream: u8) -> u64 {
        self.streams.get(usize::from(stream)).map_or(1, |stream| stream.next_sequence)
    }

    /// Returns the change that raises the watermark of a stream: records below it are stored elsewhere.
    /// `last_commit_ms` is the highest commit time among them.
    #[must_use]
    pub fn trim(&self, stream: u8, watermark: u64, last_commit_ms: i64) -> ManifestChange {
        let mut new = self.manifest.next(self.incarnation);
        new.last_commit_ms = new.last_commit_ms.max(last_commit_ms);
        if let Some(listed) = new.streams.get_mut(usize::from(stream)) {
            listed.watermark = listed.watermark.max(watermark);
        }
        self.change(new)
    }

    /// Returns the change that keeps `last_commit_ms`, the last commit time of another log whose rows are stored.
    /// That time must outlast that log.
    #[must_use]
    pub fn outlast(&self, last_commit_ms: i64) -> ManifestChange {
        let mut new = self.manifest.next(self.incarnation);
        new.last_commit_ms = new.last_commit_ms.max(last_commit_ms);
        self.change(new)
    }

    /// Returns the change that ends the log when all its records are stored elsewhere. Any node may remove its
    /// segments then.
    #[must_use]
    pub fn retirement(&self) -> ManifestChange {
        let mut new = self.manifest.next(self.incarnation);
        new.phase = ManifestPhase::Retired;
        self.change(new)
    }

    /// Segments that can be removed, because all their records are below the watermark.
    #[must_use]
    pub fn removable(&self) -> Vec<SegmentId> {
        let of_stream = |(stream, listed): (&OwnedStream, u64)| {
            let is_removable = move |segment: &&OwnedSegment| {
                segment.phase == SegmentPhase::Closed && segment.last_sent < listed
            };
            stream
                .segments
                .iter()
                .filter(is_removable)
                .map(|segment| segment.id)
                .collect::<Vec<_>>()
        };
        let watermarks = self.manifest.streams.iter().map(|stream| stream.watermark);
        self.streams.iter().zip(watermarks).flat_map(of_stream).collect()
    }

    /// Records that the row of a segment was deleted.
    pub fn removed(&mut self, id: SegmentId) {
        let stream = self.streams.get_mut(usize::from(id.stream));
        let segments = stream.into_iter().flat_map(|stream| &mut stream.segments);
        for segment in segments.filter(|segment| segment.id == id) {
            segment.phase = SegmentPhase::Removed;
        }
    }

    /// Number and bytes of the kept segments.
    #[must_use]
    pub fn kept(&self) -> (u64, u64) {
        let segments = self.streams.iter().flat_map(|stream| &stream.segments);
        let kept = segments.filter(|segment| segment.phase != SegmentPhase::Removed);
        kept.fold((0, 0), |(count, bytes), segment| (count + 1, bytes + segment.bytes))
    }

    fn change(&self, new: Manifest) -> ManifestChange {
        ManifestChange::new(self.incarnation, Some(self.manifest.revision), new)
    }
}

impl OwnedSegment {
    const fn open(&self) -> OpenSegment {
        OpenSegment { id: self.id, attempt: self.attempt }
    }
}

impl OwnedStream {
    fn active(&mut self) -> Option<&mut OwnedSegment> {
        self.segments.iter_mut().find(|segment| segment.phase == SegmentPhase::Active)
    }

    fn standby(&mut self) -> Option<&mut OwnedSegment> {
        self.segments.iter_mut().find(|segment| segment.phase == SegmentPhase::Standby)
    }

    /// True if a standby segment has not got the next record yet.
    fn is_fresh(&self, segment: &OwnedSegment) -> bool {
        segment.phase == SegmentPhase::Standby && segment.last_sent < self.next_sequence
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn open(owner: &mut LogOwner) -> OpenSegment {
        let opening = owner.open_segment(0, 1).unwrap();
        let crate::TableRequest::SwapManifest { new, .. } = opening.request() else {
            panic!("it is listed first")
        };
        let segment = OpenSegment { id: opening.id(), attempt: 1 };
        owner.opened(segment, new);
        segment
    }

    fn owner() -> LogOwner {
        LogOwner::new(3, Manifest::first(3, "node", 1))
    }

    fn numbers(owner: &LogOwner) -> Vec<u64> {
        owner.manifest().segments(3).map(|segment| segment.number).collect()
    }

    #[test]
    fn a_full_segment_gives_way_to_a_standby() {
        let mut owner = owner();
        assert_eq!(owner.segment_for(0, 10), None);
        let (first, second) = (open(&mut owner), open(&mut owner));
        assert_eq!(owner.segment_for(0, 10), Some(first));
        owner.stored(first.id, SEGMENT_BYTES - 10);
        assert_eq!(owner.segment_for(0, 10), Some(first));
        owner.stored(first.id, 10);
        assert_eq!(owner.segment_for(0, 1), Some(second));
        assert_eq!((owner.next_sequence(0), owner.standby_count(0)), (3, 0));
    }

    #[test]
    fn a_segment_that_has_not_answered_takes_nothing_more() {
        let mut owner = owner();
        let (first, second) = (open(&mut owner), open(&mut owner));
        assert_eq!(owner.segment_for(0, 10), Some(first));
        assert_eq!(owner.hedge_segment(0), Some(second));
        assert_eq!(owner.hedge_segment(0), None);
        owner.stored(second.id, 10);
        assert_eq!(owner.segment_for(0, 10), Some(second));
        owner.changed(owner.trim(0, 1, 5).manifest().clone());
        assert_eq!(owner.removable(), [], "its record may be stored late");
        owner.changed(owner.trim(0, 2, 5).manifest().clone());
        assert_eq!(owner.removable(), [first.id]);
        owner.removed(first.id);
        assert_eq!(owner.removable(), []);
        assert_eq!(numbers(&owner), [1, 2]);
        open(&mut owner);
        assert_eq!(numbers(&owner), [2, 3]);
        assert_eq!(owner.manifest().last_commit_ms, 5);
    }

    #[test]
    fn a_record_that_no_segment_answers_is_sent_to_all_that_stand_by() {
        let mut owner = owner();
        let (first, second, third) = (open(&mut owner), open(&mut owner), open(&mut owner));
        assert_eq!((owner.segment_for(0, 10), owner.standby_count(0)), (Some(first), 2));
        assert_eq!(owner.hedge_segment(0), Some(second));
        assert_eq!((owner.hedged_segments(0), owner.standby_count(0)), (vec![second], 1));
        // The next attempt.
        assert_eq!(owner.segment_for(0, 10), Some(first));
        assert_eq!(owner.hedge_segment(0), Some(third));
        assert_eq!((owner.hedge_segment(0), owner.standby_count(0)), (None, 0));
        let fourth = open(&mut owner);
        assert_eq!(owner.hedged_segments(0), [second, third]);
        assert_eq!(owner.hedge_segment(0), Some(fourth));
        owner.stored(fourth.id, 10);
        assert_eq!(owner.open_segments(0), [fourth.id]);
        assert_eq!(owner.hedged_segments(0), []);
        owner.changed(owner.trim(0, 2, 5).manifest().clone());
        assert_eq!(owner.removable(), [first.id, second.id, third.id]);
    }

    #[test]
    fn a_slow_segment_that_stores_first_stays_the_active_one() {
        let mut owner = owner();
        let (first, second) = (open(&mut owner), open(&mut owner));
        assert_eq!(owner.segment_for(0, 10), Some(first));
        assert_eq!(owner.hedge_segment(0), Some(second));
        owner.stored(first.id, 10);
        assert_eq!(owner.segment_for(0, 10), Some(first));
        assert_eq!(owner.hedge_segment(0), None, "the standby has not answered");
    }
}
