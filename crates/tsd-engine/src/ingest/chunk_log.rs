//! The log of a chunk: entries that wait for UIDs, and all entries after them.
//!
//! Two points of one connection for one cell must be stored in the order in which they were sent, even if the series
//! of the first is not cached. So from its first uncached series on, a chunk is kept as a log. After the names are
//! resolved, the log is turned into cells, in order.

use smallvec::SmallVec;
use tsd_model::{PointValue, Timestamp, decode_latin1};

use super::{
    extra_cell::{CellView, ExtraCell},
    name_list::NameList,
    sample::check_numbers,
};
use crate::{point_plugins::PointRecord, put_error::PutError};

/// A point without its series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PointBody {
    pub(crate) timestamp: Timestamp,
    pub(crate) value: PointValue,
    pub(crate) tag: u32,
}

impl PointBody {
    /// Checks a point.
    #[inline]
    pub(crate) fn try_new(timestamp: i64, value: PointValue, tag: u32) -> Result<Self, PutError> {
        Ok(Self { timestamp: check_numbers(timestamp, value)?, value, tag })
    }

    /// Timestamp in epoch seconds.
    pub(crate) fn time_secs(&self) -> u32 {
        self.timestamp.as_secs()
    }
}

/// What an entry stores.
#[derive(Clone, Debug)]
pub(crate) enum EntryBody {
    /// A point.
    Point(PointBody),
    /// A cell other than a point, and the tag that identifies it in failures.
    Cell(Box<ExtraCell<'static>>, u32),
}

impl EntryBody {
    /// Timestamp in epoch seconds.
    pub(crate) fn time_secs(&self) -> u32 {
        match self {
            Self::Point(body) => body.time_secs(),
            Self::Cell(cell, _) => cell.time_secs(),
        }
    }

    /// The value in the form that plug-ins get.
    pub(crate) fn view(&self) -> CellView<'_> {
        match self {
            Self::Point(body) => CellView::Point(body.timestamp, body.value),
            Self::Cell(cell, _) => cell.view(),
        }
    }

    /// The tag that identifies the entry in failures.
    pub(crate) const fn tag(&self) -> u32 {
        match self {
            Self::Point(body) => body.tag,
            Self::Cell(_, tag) => *tag,
        }
    }
}

/// An entry of the log.
#[derive(Debug)]
pub(crate) enum LogEntry {
    /// An entry of a cached series.
    Cached {
        /// Row key without time.
        template: Box<[u8]>,
        /// Write shard.
        shard: usize,
        /// True if the row must be reported to row compaction.
        notify: bool,
        /// What is stored.
        body: EntryBody,
        /// Names of the series, if a plug-in gets the point.
        names: Option<Box<NameList>>,
    },
    /// An entry of a series that is not cached.
    New(Box<UnresolvedPoint>),
}

/// An entry whose series must be resolved.
#[derive(Debug)]
pub(crate) struct UnresolvedPoint {
    /// Metric as sent.
    pub(crate) metric: Box<[u8]>,
    /// Tags as sent.
    pub(crate) tags: Box<[u8]>,
    /// Names to resolve.
    pub(crate) names: NameList,
    /// What is stored.
    pub(crate) body: EntryBody,
}

impl UnresolvedPoint {
    /// The point in the form that plug-ins get, without a TSUID.
    pub(crate) fn record(&self) -> PointRecord {
        PointRecord::new(&self.names, SmallVec::new(), self.body.view())
    }

    /// Returns true if it is a rolled-up value or a histogram.
    pub(crate) const fn is_cell(&self) -> bool {
        matches!(self.body, EntryBody::Cell(..))
    }

    /// Its names, for messages: `metric tagk=tagv ...`.
    pub(crate) fn series(&self) -> String {
        let mut names = self.names.iter().map(decode_latin1);
        let mut text = names.next().unwrap_or_default();
        while let (Some(tagk), Some(tagv)) = (names.next(), names.next()) {
            text.push(' ');
            text.push_str(&tagk);
            text.push('=');
            text.push_str(&tagv);
        }
        text
    }
}
