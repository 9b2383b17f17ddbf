//! Points of a chunk that wait for UIDs, and those behind them.
//!
//! Two points of one connection for one cell must land in the order they were sent, also when the
//! first was of an unknown series. So from the first unknown series on, a chunk is kept as a log
//! of points and turned into cells, in order, when the names are resolved.

use smallvec::SmallVec;
use tsd_model::{PointValue, Timestamp};

use super::extra_cell::ExtraCell;

/// What a point says, beside its series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PointBody {
    pub(crate) timestamp: Timestamp,
    pub(crate) value: PointValue,
    pub(crate) tag: u32,
}

/// What is to be stored of a series.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// A point.
    Point(PointBody),
    /// Another cell, and the tag that names it in failures.
    Cell(Box<ExtraCell>, u32),
}

impl Body {
    /// What names it in failures.
    pub(crate) const fn tag(&self) -> u32 {
        match self {
            Self::Point(body) => body.tag,
            Self::Cell(_, tag) => *tag,
        }
    }
}

/// A point in the log.
#[derive(Debug)]
pub(crate) enum LogEntry {
    /// Its series was in the cache.
    Known {
        /// Row key without time.
        template: Box<[u8]>,
        /// Write actor.
        shard: usize,
        /// Whether row compaction is to be told of the row.
        touched: bool,
        /// What is stored.
        body: Body,
    },
    /// Its series was not.
    New(Box<NewPoint>),
}

/// A point of a series that was not in the cache.
#[derive(Debug)]
pub(crate) struct NewPoint {
    /// Metric as sent.
    pub(crate) metric: Box<[u8]>,
    /// Tags as sent.
    pub(crate) tags: Box<[u8]>,
    /// Names to resolve.
    pub(crate) names: NameList,
    /// What is stored.
    pub(crate) body: Body,
}

/// Names of one point as they are stored: metric, then key and value of each tag, in the order
/// in which OpenTSDB assigns their UIDs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameList {
    bytes: Vec<u8>,
    ends: SmallVec<[u32; 9]>,
}

impl NameList {
    /// Appends a name, byte by byte.
    pub(crate) fn push(&mut self, name: impl IntoIterator<Item = u8>) {
        self.bytes.extend(name);
        self.ends.push(self.bytes.len() as u32);
    }

    /// The `i`-th name.
    pub(crate) fn get(&self, i: usize) -> Option<&[u8]> {
        let end = *self.ends.get(i)? as usize;
        let start = match i.checked_sub(1) {
            Some(before) => *self.ends.get(before)? as usize,
            None => 0,
        };
        self.bytes.get(start..end)
    }

    /// Number of names.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The names, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|i| self.get(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_in_order() {
        let mut names = NameList::default();
        for name in ["m", "", "host", "web01"] {
            names.push(name.bytes());
        }
        assert_eq!(names.len(), 4);
        assert_eq!(names.iter().collect::<Vec<_>>(), [&b"m"[..], b"", b"host", b"web01"]);
        assert_eq!(names.get(4), None);
    }
}
