//! The retention of a table, and remembered metrics of spans that may have expired series. `expired_series.rs`
//! searches them.

use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use tsd_storage::Retention;

/// Memory limit for the metrics of all spans of a table, bytes. Metrics of further spans are read again whenever
/// other metrics expire.
const MAX_METRICS_BYTES: usize = 16 << 20;

/// The retention of a table.
#[derive(Debug, Default)]
pub(super) struct TableRetention {
    /// The retention, and the length of a row in seconds.
    pub(super) retention: OnceLock<(Arc<Retention>, u32)>,
    pub(super) checked: Mutex<CheckedSpans>,
}

/// Results of earlier searches for expired series.
#[derive(Debug, Default)]
pub(super) struct CheckedSpans {
    pub(super) spans: BTreeMap<u32, CheckedSpan>,
    /// Total bytes of the metrics of all spans.
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) struct CheckedSpan {
    /// Hash of the files and sections of the span.
    pub(super) sections: u64,
    /// UIDs of the metrics, ascending, if there is memory for them.
    pub(super) metrics: Option<Box<[u8]>>,
    /// Hash of the metrics of the last search, which found none of them.
    pub(super) looked_for: u64,
}

impl CheckedSpans {
    pub(super) fn remove(&mut self, span: u32) {
        let metrics = self.spans.remove(&span).and_then(|checked| checked.metrics);
        self.bytes -= metrics.map_or(0, |metrics| metrics.len());
    }

    pub(super) fn insert(&mut self, span: u32, sections: u64, looked_for: u64, metrics: Box<[u8]>) {
        self.remove(span);
        let metrics = Some(metrics).filter(|uids| self.bytes + uids.len() <= MAX_METRICS_BYTES);
        self.bytes += metrics.as_ref().map_or(0, |uids| uids.len());
        self.spans.insert(span, CheckedSpan { sections, metrics, looked_for });
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn metrics_beyond_the_bound_are_not_remembered() {
        let mut checked = CheckedSpans::default();
        let most = || vec![0; MAX_METRICS_BYTES - 3].into_boxed_slice();
        checked.insert(1, 10, 20, most());
        checked.insert(2, 11, 21, vec![0; 6].into());
        checked.insert(3, 12, 22, vec![0; 3].into());
        let has_metrics =
            |checked: &CheckedSpans, span| checked.spans.get(&span).unwrap().metrics.is_some();
        assert_eq!([1, 2, 3].map(|span| has_metrics(&checked, span)), [true, false, true]);
        assert_eq!(checked.spans.get(&2).unwrap().looked_for, 21);
        // Replaces a list, and removes one.
        checked.insert(1, 13, 20, vec![0; 9].into());
        checked.remove(3);
        assert_eq!(checked.bytes, 9);
        checked.insert(2, 11, 21, most());
        assert_eq!((has_metrics(&checked, 2), checked.bytes), (false, 9));
    }
}
