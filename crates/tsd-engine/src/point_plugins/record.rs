//! A point in the form that plug-ins get.

use smallvec::SmallVec;
use tsd_model::{PointValue, decode_latin1};

use crate::ingest::{CellView, NameList, RolledUpValue};

/// A value of a series, kept until its write has ended.
#[derive(Clone, Debug)]
pub struct PointRecord {
    names: NameList,
    tsuid: SmallVec<[u8; 32]>,
    timestamp: i64,
    content: RecordContent,
}

/// The value of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordContent {
    /// A point.
    Point(PointValue),
    /// A rolled-up value or a pre-aggregate. The names of a pre-aggregate include the tag of its aggregator.
    Rollup(Box<RolledUpValue>),
    /// A histogram as it is stored: codec id, then the encoded histogram.
    Histogram(Box<[u8]>),
}

impl PointRecord {
    /// Bytes of a record in addition to its names.
    const FIXED_BYTES: usize = size_of::<Self>();

    pub(crate) fn new(names: &NameList, tsuid: SmallVec<[u8; 32]>, cell: CellView<'_>) -> Self {
        let (timestamp, content) = match cell {
            CellView::Point(timestamp, value) => (timestamp, RecordContent::Point(value)),
            CellView::Rollup(timestamp, value) => {
                (timestamp, RecordContent::Rollup(Box::new(value)))
            }
            CellView::Histogram(timestamp, value) => {
                (timestamp, RecordContent::Histogram(value.into()))
            }
        };
        Self { names: names.clone(), tsuid, timestamp: timestamp.as_given(), content }
    }

    /// The metric.
    #[must_use]
    pub fn metric(&self) -> String {
        self.names.get(0).map(decode_latin1).unwrap_or_default()
    }

    /// Keys and values of the tags.
    pub fn tags(&self) -> impl Iterator<Item = (String, String)> {
        let name = |at: usize| self.names.get(at).map(decode_latin1).unwrap_or_default();
        (1..self.names.len()).step_by(2).map(move |at| (name(at), name(at + 1)))
    }

    /// The TSUID; empty if the store failed before the names got UIDs.
    #[must_use]
    pub fn tsuid(&self) -> &[u8] {
        &self.tsuid
    }

    /// Epoch seconds, or milliseconds if the number does not fit 32 bits.
    #[must_use]
    pub const fn timestamp(&self) -> i64 {
        self.timestamp
    }

    /// The value.
    #[must_use]
    pub const fn content(&self) -> &RecordContent {
        &self.content
    }

    /// Bytes of memory.
    pub(crate) fn byte_len(&self) -> usize {
        let value = match &self.content {
            RecordContent::Histogram(value) => value.len(),
            RecordContent::Rollup(value) => size_of_val(&**value),
            RecordContent::Point(_) => 0,
        };
        Self::FIXED_BYTES + self.names.byte_len() + value
    }
}
