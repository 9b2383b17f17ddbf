//! Selection of series by the bytes of their row keys.

use bytes::Bytes;
use tsd_model::{TagkUid, TagvUid};

/// Selects the series of a metric to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeriesSelection {
    /// Series whose tag pairs match a pattern.
    Tags(TagSelection),
    /// Series with exactly these tag pairs; sorted.
    Tsuids(Vec<Bytes>),
}

/// Conditions on the tag pairs of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagSelection {
    /// Tag keys that must be present, ascending by UID.
    pub conditions: Vec<TagUidCondition>,
    /// True if a series must not have other keys.
    pub explicit: bool,
    /// True if at most one key may have a value other than its first accepted value, as OpenTSDB's
    /// fuzzy row filter requires.
    pub one_deviation: bool,
}

/// One tag key of a [`TagSelection`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagUidCondition {
    /// UID of the tag key.
    pub tagk: TagkUid,
    /// UIDs of the accepted values, sorted; `None` accepts any value.
    pub tagvs: Option<Vec<TagvUid>>,
}

impl SeriesSelection {
    /// True if nothing can match.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Tags(tags) => tags
                .conditions
                .iter()
                .any(|condition| condition.tagvs.as_ref().is_some_and(Vec::is_empty)),
            Self::Tsuids(tsuids) => tsuids.is_empty(),
        }
    }

    /// True if a series with these tag pairs (key UID, value UID, …; sorted by key) is selected.
    #[must_use]
    pub fn admits(&self, tags: &[u8], tagk_width: usize, tagv_width: usize) -> bool {
        match self {
            Self::Tsuids(tsuids) => {
                tsuids.binary_search_by(|tsuid| tsuid.as_ref().cmp(tags)).is_ok()
            }
            Self::Tags(selection) => selection.admits(tags, tagk_width, tagv_width),
        }
    }
}

impl TagSelection {
    fn admits(&self, tags: &[u8], tagk_width: usize, tagv_width: usize) -> bool {
        let mut conditions = self.conditions.iter().peekable();
        let mut deviations = 0;
        for pair in tags.chunks_exact(tagk_width + tagv_width) {
            let (tagk, tagv) = pair.split_at(tagk_width);
            match conditions.next_if(|condition| condition.tagk.as_bytes() == tagk) {
                Some(TagUidCondition { tagvs: Some(tagvs), .. }) => {
                    match tagvs.binary_search_by(|v| v.as_bytes().cmp(tagv)) {
                        Ok(0) => {}
                        Ok(_) => deviations += 1,
                        Err(_) => return false,
                    }
                }
                None if self.explicit => return false,
                Some(_) | None => {}
            }
        }
        conditions.peek().is_none() && !(self.one_deviation && deviations > 1)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn condition(tagk: u8, tagvs: Option<&[u8]>) -> TagUidCondition {
        TagUidCondition {
            tagk: TagkUid::try_new(&[tagk]).unwrap(),
            tagvs: tagvs.map(|v| v.iter().map(|v| TagvUid::try_new(&[*v]).unwrap()).collect()),
        }
    }

    #[test]
    fn required_keys_must_have_an_accepted_value() {
        let conditions = vec![condition(1, Some(&[5, 7])), condition(3, None)];
        let mut tags = TagSelection { conditions, explicit: false, one_deviation: false };
        assert!(tags.admits(&[1, 5, 3, 9], 1, 1));
        assert!(tags.admits(&[1, 7, 2, 2, 3, 9, 4, 4], 1, 1));
        assert!(!tags.admits(&[1, 6, 3, 9], 1, 1));
        assert!(!tags.admits(&[1, 5], 1, 1));
        tags.explicit = true;
        assert!(tags.admits(&[1, 5, 3, 9], 1, 1));
        assert!(!tags.admits(&[1, 7, 2, 2, 3, 9], 1, 1));
    }

    #[test]
    fn fuzzy_filter_accepts_one_deviating_key() {
        let conditions = vec![condition(1, Some(&[5, 7])), condition(3, Some(&[8, 9]))];
        let tags = TagSelection { conditions, explicit: true, one_deviation: true };
        assert!(tags.admits(&[1, 5, 3, 9], 1, 1));
        assert!(tags.admits(&[1, 7, 3, 8], 1, 1));
        assert!(!tags.admits(&[1, 7, 3, 9], 1, 1));
    }
}
