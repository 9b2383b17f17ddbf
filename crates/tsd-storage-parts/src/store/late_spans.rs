//! Tracks spans that received rows recently.
//!
//! A closed span with a few late rows is not merged at once. If late rows trickle in, each flush would otherwise
//! cause a rewrite of the whole span.

use crate::snapshot::SnapshotSection;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// How long a closed span with few new rows must be quiet before it is merged.
const QUIET: Duration = Duration::from_hours(1);
/// New sections count as small if the oldest section is more than this many times as large.
const SMALL_PART: u64 = 8;

/// Time at which each span last received rows, for the last hour.
#[derive(Debug, Default)]
pub(super) struct LateSpans(Mutex<BTreeMap<u32, Instant>>);

impl LateSpans {
    /// Notes that these spans received rows now.
    pub(super) fn note(&self, spans: impl Iterator<Item = u32>) {
        let now = Instant::now();
        let mut late = self.0.lock();
        late.retain(|_, at| now.duration_since(*at) < QUIET);
        late.extend(spans.map(|span| (span, now)));
    }

    /// True if a merge of all sections of a span would rewrite much for few new rows, and more rows may follow.
    pub(super) fn postpones(&self, span: u32, sections: &[SnapshotSection]) -> bool {
        let mut bytes = sections.iter().map(|section| section.bytes);
        let oldest = bytes.next().unwrap_or_default();
        let newer: u64 = bytes.sum();
        newer > 0
            && newer.saturating_mul(SMALL_PART) < oldest
            && self.0.lock().get(&span).is_some_and(|at| at.elapsed() < QUIET)
    }
}
