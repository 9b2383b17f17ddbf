//! Checks that log and store together contain every record, by comparing the segments with the state of the log
//! and the mark of the store.
//!
//! ```text
//! records:   1 ........ flushed_to ........ next_sequence
//! store:     [contains ]                                      mark of the store
//! segments:        [contain                              ]    headers; last one: state of the log
//! removed:   [     ]                                          state of the log
//! ```
//!
//! The segments may begin before the end of the stored records, as after a kill between a flush and the removal
//! of its segments. They must not begin after it. They must not end before it either: such a log is older than
//! the store.

use std::path::Path;

use tsd_storage::LogMark;

use super::{
    segment::segment_name,
    state_file::{FoundState, LogState, STATE_FILE},
    store_mark::StoreMark,
    verify::VerifiedLog,
};
use crate::report::{Damage, LostRange};

/// How a log and a store continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Continuation {
    /// State of the log from now on.
    pub(crate) state: LogState,
    /// Mark to record in the store; `None` if the store's mark is valid, or if the store keeps no mark.
    pub(crate) new_mark: Option<StoreMark>,
    /// True if the store keeps a mark.
    pub(crate) store_keeps_mark: bool,
    /// First record to replay. Earlier records are in the store.
    pub(crate) replay_from: u64,
    /// True if the log must not be replayed into this store, because it belongs to another store or is older.
    pub(crate) is_unusable: bool,
}

/// Checks that no record of a log is missing.
pub(crate) struct ContinuityCheck<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) log: &'a mut VerifiedLog,
}

/// What is known about missing records.
#[derive(Clone, Copy, Debug, Default)]
struct Missing {
    /// Sequence of the first one.
    first: Option<u64>,
    /// Their number.
    records: Option<u64>,
    /// Time after which they were written, epoch milliseconds.
    since_ms: Option<i64>,
}

impl ContinuityCheck<'_> {
    /// Adds missing records to `log.lost`. The result applies if no record is missing, or if the loss is accepted.
    pub(crate) fn run(
        mut self,
        found: FoundState,
        mark: &LogMark,
        new_id: impl FnOnce() -> u128,
        now_ms: i64,
    ) -> Continuation {
        let state = match found {
            FoundState::Valid(state) => Some(state),
            FoundState::Missing => None,
            FoundState::Damaged => {
                self.lose(STATE_FILE, Damage::LogState, Missing::default());
                None
            }
        };
        if let Some(state) = &state {
            self.segments(state);
        }
        let removed_to = state.map_or(1, |state| state.removed_to.max(1));
        let begin = self.log.first_sequence.unwrap_or(removed_to);
        let end = if self.log.segments.is_empty() { removed_to } else { self.log.next_sequence };
        let store = self.store(state.as_ref(), mark, begin, end);

        let next_sequence = end.max(removed_to).max(store.map_or(1, |mark| mark.flushed_to));
        let is_unusable = self
            .log
            .lost
            .iter()
            .any(|lost| matches!(lost.what, Damage::OtherLog | Damage::LogBehindStore));
        self.log.next_sequence = next_sequence;
        let before = state.unwrap_or_default();
        self.log.next_segment = self.log.next_segment.max(before.last_segment + 1);
        let id =
            store.map(|mark| mark.log_id).or(state.map(|state| state.id)).unwrap_or_else(new_id);
        let mut next = LogState { id, ..before };
        if let Some(last) = self.log.segments.last().filter(|_| !is_unusable) {
            if next.last_segment != last.number {
                next.last_segment = last.number;
                next.last_first_sequence = last.first_sequence.unwrap_or(next_sequence);
                next.last_created_ms = last.created_ms.unwrap_or_default();
            }
            let first = self.log.segments.first().map_or(last.number, |first| first.number);
            next.removed_segment = before.removed_segment.max(first.saturating_sub(1));
            next.removed_to = removed_to.max(begin);
        } else {
            next.last_segment = self.log.next_segment - 1;
            next.removed_segment = next.last_segment;
            next.removed_to = next_sequence;
        }
        let replay_from = store.map_or(0, |mark| mark.flushed_to);
        let store_keeps_mark = !matches!(mark, LogMark::Unsupported);
        let flushed_to = begin.min(next_sequence);
        let new_mark = match store {
            // The gap is accepted.
            Some(mark) if flushed_to > mark.flushed_to && !is_unusable => {
                Some(StoreMark { flushed_to, recorded_ms: now_ms, ..mark })
            }
            Some(_) => None,
            None => store_keeps_mark.then_some(StoreMark {
                log_id: id,
                flushed_to,
                recorded_ms: now_ms,
            }),
        };
        next.is_tied &= new_mark.is_none();
        next.is_tied |= store_keeps_mark && new_mark.is_none();
        Continuation { state: next, new_mark, store_keeps_mark, replay_from, is_unusable }
    }

    /// Finds missing first and last segments, and a last segment that has only its header left.
    fn segments(&mut self, state: &LogState) {
        // The segment was created completely, so it was longer.
        if let Some(last) = self.log.segments.last_mut().filter(|last| last.bare_of.is_some())
            && last.number == state.last_segment
        {
            last.damaged = true;
            let (name, since_ms) = (segment_name(last.number), last.created_ms);
            let first = Some(self.log.next_sequence);
            self.lose(
                &name,
                Damage::ShortSegment,
                Missing { first, since_ms, ..Missing::default() },
            );
        }
        let has_last = self.log.segments.iter().any(|segment| segment.number >= state.last_segment);
        if let Some(first) = self.log.segments.first()
            && let Some(begin) = first.first_sequence
            && begin > state.removed_to
        {
            let missing = first.previous.unwrap_or_default().max(state.removed_segment + 1);
            let records = Some(begin - state.removed_to);
            let name = segment_name(missing);
            let first = Some(state.removed_to);
            self.lose(&name, Damage::MissingSegment, Missing { first, records, since_ms: None });
        }
        if state.last_segment > state.removed_segment && !has_last {
            // If no segment is left, the loss begins after the removed segments.
            let first = match self.log.segments.last() {
                Some(_) => self.log.next_sequence,
                None => state.removed_to,
            };
            let name = segment_name(state.last_segment);
            let since_ms = (first == state.last_first_sequence).then_some(state.last_created_ms);
            let missing = Missing { first: Some(first), records: None, since_ms };
            self.lose(&name, Damage::MissingSegment, missing);
        }
    }

    /// Compares with the mark of the store. Returns the mark if it is valid.
    fn store(
        &mut self,
        state: Option<&LogState>,
        mark: &LogMark,
        begin: u64,
        end: u64,
    ) -> Option<StoreMark> {
        let bytes = match mark {
            LogMark::Unsupported => return None,
            LogMark::Absent => {
                if state.is_some_and(|state| state.is_tied) {
                    let records = (begin > 1).then(|| begin - 1);
                    let missing = Missing { first: Some(1), records, since_ms: None };
                    self.lose("", Damage::StoreWithoutMark, missing);
                }
                return None;
            }
            LogMark::Recorded(bytes) => bytes,
        };
        let Some(mark) = StoreMark::decode(bytes) else {
            self.lose("", Damage::StoreMark, Missing::default());
            return None;
        };
        let (first, since_ms) = (Some(mark.flushed_to), Some(mark.recorded_ms));
        match state {
            // The state file itself is lost, and perhaps segments at the end with it.
            None if self.log.lost.iter().all(|lost| lost.what != Damage::LogState) => {
                let first = Some(mark.flushed_to.max(end));
                self.lose(STATE_FILE, Damage::LogState, Missing { first, records: None, since_ms });
            }
            Some(state) if state.id != mark.log_id => {
                self.lose("", Damage::OtherLog, Missing { first, records: None, since_ms });
                return Some(mark);
            }
            _ => {}
        }
        let has_segments = !self.log.segments.is_empty();
        if end < mark.flushed_to && (has_segments || state.is_some()) {
            self.lose("", Damage::LogBehindStore, Missing { first, records: None, since_ms });
        } else if begin > mark.flushed_to
            && (has_segments || state.is_some())
            && self.log.lost.iter().all(|lost| lost.first_sequence != first)
        {
            let records = Some(begin - mark.flushed_to);
            self.lose("", Damage::StoreBehindLog, Missing { first, records, since_ms });
        }
        Some(mark)
    }

    /// Adds missing records. `name` is the file that should have them; it is empty if that is unknown.
    fn lose(&mut self, name: &str, what: Damage, missing: Missing) {
        let Self { directory, .. } = self;
        let file = if name.is_empty() { directory.to_path_buf() } else { directory.join(name) };
        self.log.lost.push(LostRange {
            file,
            offset: 0,
            bytes: 0,
            what,
            first_sequence: missing.first,
            records: missing.records,
            since_ms: missing.since_ms,
        });
    }
}
