//! Row-key filters that a scan pushes down to the store.
//!
//! They are data, not closures: the HBase backend translates them to filters of the region server,
//! the other backends call [`RowFilter::matches`].

use std::sync::Arc;

use tsd_model::{TagkUid, TagvUid};

/// A condition on the row key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowFilter {
    /// The tag pairs must match a pattern.
    Tags(Arc<TagPattern>),
    /// The row key must be one of these sorted keys.
    Keys(Arc<Vec<bytes::Bytes>>),
    /// The tag pairs must be the pairs of one of the series.
    Series(Arc<SeriesSet>),
    /// All filters must match.
    All(Vec<RowFilter>),
}

/// Conditions on the tag pairs of a row key. The pairs of a key are sorted by tagk UID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagPattern {
    /// Bytes before the first tag pair: salt, metric UID, base time.
    pub tags_start: usize,
    /// Bytes of a tagk UID.
    pub tagk_width: usize,
    /// Bytes of a tagv UID.
    pub tagv_width: usize,
    /// Conditions on single tag keys, sorted by UID; every one of these keys must be present.
    pub conditions: Vec<TagCondition>,
    /// True if a row with any other tag key does not match (OpenTSDB's `explicitTags`).
    pub explicit: bool,
}

/// Condition on one tag key of a [`TagPattern`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagCondition {
    /// UID of the tag key.
    pub tagk: TagkUid,
    /// UIDs of the accepted values, sorted; `None` accepts any value.
    pub tagvs: Option<Vec<TagvUid>>,
}

/// A set of series of one metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesSet {
    /// Bytes before the first tag pair: salt, metric UID, base time.
    pub tags_start: usize,
    /// Concatenated tag pairs of each series, sorted.
    pub tags: Vec<bytes::Bytes>,
}

impl RowFilter {
    /// True if a scan returns the row with this key.
    #[must_use]
    pub fn matches(&self, key: &[u8]) -> bool {
        match self {
            Self::Tags(pattern) => pattern.matches(key),
            Self::Keys(keys) => keys.binary_search_by(|k| k.as_ref().cmp(key)).is_ok(),
            Self::Series(series) => key.get(series.tags_start..).is_some_and(|tags| {
                series.tags.binary_search_by(|other| other.as_ref().cmp(tags)).is_ok()
            }),
            Self::All(filters) => filters.iter().all(|f| f.matches(key)),
        }
    }
}

impl TagPattern {
    /// True if the tag pairs of `key` match. A malformed key never does.
    #[must_use]
    pub fn matches(&self, key: &[u8]) -> bool {
        let pair = self.tagk_width + self.tagv_width;
        let Some(tags) = key.get(self.tags_start..) else { return false };
        if pair == 0 || tags.len() % pair != 0 {
            return false;
        }
        let mut conditions = self.conditions.iter().peekable();
        for tag in tags.chunks_exact(pair) {
            let (tagk, tagv) = tag.split_at(self.tagk_width);
            match conditions.peek() {
                Some(condition) if condition.tagk.as_bytes() == tagk => {
                    if let Some(tagvs) = &condition.tagvs
                        && tagvs.binary_search_by(|v| v.as_bytes().cmp(tagv)).is_err()
                    {
                        return false;
                    }
                    conditions.next();
                }
                _ if self.explicit => return false,
                _ => {}
            }
        }
        conditions.peek().is_none()
    }
}
