//! Spans that got rows lately.
//!
//! A closed span with a few late rows is not merged at once: if more of them trickle in, each flush would
//! have the whole span written anew.

use std::{
    collections::BTreeMap,
    sync::Mutex,
    time::{Duration, Instant},
};

use super::lock::lock;
use crate::snapshot::SnapshotSection;

/// How long a closed span must be without new rows, if it has got few.
const QUIET: Duration = Duration::from_hours(1);
/// Newer sections are small if they are less than one in so many bytes of the oldest one.
const SMALL_PART: u64 = 8;

/// When each span got rows, for the last hour.
#[derive(Debug, Default)]
pub(super) struct LateSpans(Mutex<BTreeMap<u32, Instant>>);

impl LateSpans {
    /// Notes that spans got rows now.
    pub(super) fn note(&self, spans: impl Iterator<Item = u32>) {
        let now = Instant::now();
        let mut late = lock(&self.0);
        late.retain(|_, at| now.duration_since(*at) < QUIET);
        late.extend(spans.map(|span| (span, now)));
    }

    /// True if a merge of all sections of a span would write much because of few new rows, and more may
    /// follow.
    pub(super) fn postpones(&self, span: u32, sections: &[SnapshotSection]) -> bool {
        let mut bytes = sections.iter().map(|section| section.bytes);
        let oldest = bytes.next().unwrap_or_default();
        let newer: u64 = bytes.sum();
        newer > 0
            && newer.saturating_mul(SMALL_PART) < oldest
            && lock(&self.0).get(&span).is_some_and(|at| at.elapsed() < QUIET)
    }
}
