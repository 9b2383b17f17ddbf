//! The finished series of a read.

use bytes::Bytes;
use hashbrown::HashMap;
use tsd_model::Annotation;
use tsd_query::{HistogramSeries, OrderedSpans, SpanList};

/// All finished series of a read.
#[derive(Default)]
pub(crate) struct MergedSeries {
    /// Series with points, from several tasks.
    pub(crate) lists: Vec<SpanList>,
    /// All of them, once they were put in order.
    pub(crate) spans: OrderedSpans,
    /// Series of histograms.
    pub(crate) histograms: Vec<HistogramSeries>,
    /// Annotations by TSUID, of series that are in `spans`.
    pub(crate) annotations: HashMap<Bytes, Vec<Annotation>, foldhash::fast::RandomState>,
    /// Series that have annotations and no points.
    pub(crate) annotation_only: Vec<(Bytes, Vec<Annotation>)>,
    /// Points of the rows of the series that take part in the result, before downsampling.
    pub(crate) read_points: u64,
    /// Keys of the rows, if requested.
    pub(crate) keys: Vec<Bytes>,
}

impl MergedSeries {
    pub(crate) fn append(&mut self, other: Self) {
        self.lists.extend(other.lists);
        self.histograms.extend(other.histograms);
        self.annotations.extend(other.annotations);
        self.annotation_only.extend(other.annotation_only);
        self.read_points += other.read_points;
        self.keys.extend(other.keys);
    }
}
