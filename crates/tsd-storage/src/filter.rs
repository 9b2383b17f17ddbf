//! Row-key filters that a scan pushes down to the store.
//!
//! They are data, not closures, so that each backend can do what it does best: HBase turns them
//! into its own filters, the others call [`RowFilter::matches`].

use std::sync::Arc;

/// Decides from the row key alone whether a scan returns a row.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowFilter {
    /// Tag pairs must satisfy a pattern.
    Tags(Arc<TagPattern>),
    /// The row key must be one of these; sorted.
    Keys(Arc<Vec<bytes::Bytes>>),
    /// The tag pairs must be those of one of these series.
    Series(Arc<SeriesSet>),
    /// Every filter must hold.
    All(Vec<RowFilter>),
}

/// What the tag pairs of a row key must satisfy. The pairs of a key are sorted by tagk UID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagPattern {
    /// Bytes before the first tag pair: salt, metric UID, base time.
    pub tags_start: usize,
    /// Bytes of a tagk UID.
    pub tagk_width: usize,
    /// Bytes of a tagv UID.
    pub tagv_width: usize,
    /// Tag keys that must be present, sorted by UID, each with the values that are wanted.
    pub wanted: Vec<TagCondition>,
    /// Whether keys that are not in `wanted` rule a row out (OpenTSDB's explicit tags).
    pub explicit: bool,
}

/// One tag key of a [`TagPattern`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagCondition {
    /// UID of the tag key.
    pub tagk: bytes::Bytes,
    /// UIDs of the values, sorted; `None` takes any value.
    pub tagvs: Option<Vec<bytes::Bytes>>,
}

/// Some series of a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesSet {
    /// Bytes before the first tag pair: salt, metric UID, base time.
    pub tags_start: usize,
    /// All tag pairs of each series, sorted.
    pub tags: Vec<bytes::Bytes>,
}

impl RowFilter {
    /// Whether a scan returns the row of that key.
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
    /// Whether the tag pairs of `key` satisfy the pattern. A malformed key never does.
    #[must_use]
    pub fn matches(&self, key: &[u8]) -> bool {
        let pair = self.tagk_width + self.tagv_width;
        let Some(tags) = key.get(self.tags_start..) else { return false };
        if pair == 0 || tags.len() % pair != 0 {
            return false;
        }
        let mut wanted = self.wanted.iter().peekable();
        for tag in tags.chunks_exact(pair) {
            let (tagk, tagv) = tag.split_at(self.tagk_width);
            match wanted.peek() {
                Some(want) if want.tagk.as_ref() == tagk => {
                    if let Some(tagvs) = &want.tagvs
                        && tagvs.binary_search_by(|v| v.as_ref().cmp(tagv)).is_err()
                    {
                        return false;
                    }
                    wanted.next();
                }
                _ if self.explicit => return false,
                _ => {}
            }
        }
        wanted.peek().is_none()
    }
}
