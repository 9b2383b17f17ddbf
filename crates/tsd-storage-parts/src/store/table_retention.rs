//! How long the points of a table are kept, and what is known of spans that may have expired series. They are looked
//! for in `expired_series.rs`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
};

use tsd_storage::{Cutoffs, Retention, first_base};

use crate::layout::PartLayout;

/// Memory of the metrics of all spans of a table, bytes. Those of further spans are read again whenever other
/// metrics are expired.
const MAX_METRICS_BYTES: usize = 16 << 20;

/// How long the points of a table are kept.
#[derive(Debug, Default)]
pub(super) struct TableRetention {
    /// With the seconds of a row.
    pub(super) retention: OnceLock<(Arc<Retention>, u32)>,
    pub(super) checked: Mutex<CheckedSpans>,
}

/// What is known of spans.
#[derive(Debug, Default)]
pub(super) struct CheckedSpans {
    pub(super) spans: BTreeMap<u32, CheckedSpan>,
    /// Bytes of the metrics of all of them.
    pub(super) bytes: usize,
}

#[derive(Debug)]
pub(super) struct CheckedSpan {
    /// Hash of the files and sections.
    pub(super) sections: u64,
    /// UIDs, ascending, if there is memory for them.
    pub(super) metrics: Option<Box<[u8]>>,
    /// Hash of the metrics that were looked for and not found.
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

/// Says which series of a span are expired.
#[derive(Clone, Debug)]
pub(crate) struct ExpiredSeries {
    pub(super) retention: Arc<Retention>,
    pub(super) cutoffs: Arc<Cutoffs>,
    pub(super) row_secs: u32,
    /// End of the span.
    pub(super) end: u32,
}

impl ExpiredSeries {
    /// True if all rows of the series in the span are expired.
    pub(crate) fn contains(&self, series: &[u8]) -> bool {
        let cutoff = self.cutoffs.of_metric(self.retention.metric_of(series));
        // What is expired whatever its metric is dropped with its span, after the floor was recorded.
        PartLayout::has_time(series)
            && cutoff > self.cutoffs.oldest()
            && first_base(cutoff, self.row_secs) >= self.end
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
        // Another list in the place of a former one, and none.
        checked.insert(1, 13, 20, vec![0; 9].into());
        checked.remove(3);
        assert_eq!(checked.bytes, 9);
        checked.insert(2, 11, 21, most());
        assert_eq!((has_metrics(&checked, 2), checked.bytes), (false, 9));
    }
}
