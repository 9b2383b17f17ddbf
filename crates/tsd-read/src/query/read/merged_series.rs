//! The finished series of a read.

use bytes::Bytes;
use hashbrown::HashMap;
use tsd_model::Annotation;
use tsd_query::{HistogramSeries, OrderedSpans, SpanList};

use crate::query::delete::ReadRow;

/// All finished series of a read.
#[derive(Default)]
pub(crate) struct MergedSeries {
    /// Series with points, from several tasks.
    pub(crate) lists: Vec<SpanList>,
    /// All series of the lists, after they were put in order.
    pub(crate) spans: OrderedSpans,
    /// Series of histograms.
    pub(crate) histograms: Vec<HistogramSeries>,
    /// True if histograms were requested and some series have numbers instead.
    pub(crate) has_only_numbers: bool,
    /// Annotations of the series in `spans`, by TSUID.
    pub(crate) annotations: HashMap<Bytes, Vec<Annotation>, foldhash::fast::RandomState>,
    /// Series that have annotations and no points.
    pub(crate) annotation_only: Vec<(Bytes, Vec<Annotation>)>,
    /// Points of the series that take part in the result, before downsampling.
    pub(crate) read_points: u64,
    /// Rows that were read, if the query deletes.
    pub(crate) read_rows: Vec<ReadRow>,
}

impl MergedSeries {
    pub(crate) fn append(&mut self, other: Self) {
        self.lists.extend(other.lists);
        self.histograms.extend(other.histograms);
        self.has_only_numbers |= other.has_only_numbers;
        self.annotations.extend(other.annotations);
        self.annotation_only.extend(other.annotation_only);
        self.read_points += other.read_points;
        self.read_rows.extend(other.read_rows);
    }
}
