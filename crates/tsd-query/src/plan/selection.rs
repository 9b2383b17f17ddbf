//! Which series of a metric are read, decided from the bytes of their row keys.

use bytes::Bytes;

/// Which series of a metric are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SeriesSelection {
    /// Those whose tag pairs satisfy a pattern.
    Tags(TagSelection),
    /// Those with exactly these tag pairs; sorted.
    Tsuids(Vec<Bytes>),
}

/// What the tag pairs of a series must satisfy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagSelection {
    /// Tag keys that must be present, by UID.
    pub wanted: Vec<TagUidCondition>,
    /// Whether other keys rule a series out.
    pub explicit: bool,
    /// Whether at most one key may have another than its first wanted value. That is what
    /// OpenTSDB's fuzzy row filter lets through.
    pub one_deviation: bool,
}

/// One tag key of a [`TagSelection`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagUidCondition {
    /// UID of the tag key.
    pub tagk: Bytes,
    /// UIDs of the values, sorted; `None` takes any value.
    pub tagvs: Option<Vec<Bytes>>,
}

impl SeriesSelection {
    /// Whether nothing can match.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Tags(tags) => {
                tags.wanted.iter().any(|want| want.tagvs.as_ref().is_some_and(Vec::is_empty))
            }
            Self::Tsuids(tsuids) => tsuids.is_empty(),
        }
    }

    /// Whether a series with these tag pairs (key UID, value UID, …; sorted by key) is read.
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
        let mut wanted = self.wanted.iter().peekable();
        let mut deviations = 0;
        for pair in tags.chunks_exact(tagk_width + tagv_width) {
            let (tagk, tagv) = pair.split_at(tagk_width);
            match wanted.next_if(|want| want.tagk.as_ref() == tagk) {
                Some(TagUidCondition { tagvs: Some(tagvs), .. }) => {
                    match tagvs.binary_search_by(|v| v.as_ref().cmp(tagv)) {
                        Ok(0) => {}
                        Ok(_) => deviations += 1,
                        Err(_) => return false,
                    }
                }
                None if self.explicit => return false,
                Some(_) | None => {}
            }
        }
        wanted.peek().is_none() && !(self.one_deviation && deviations > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn want(tagk: u8, tagvs: Option<&[u8]>) -> TagUidCondition {
        TagUidCondition {
            tagk: vec![tagk].into(),
            tagvs: tagvs.map(|v| v.iter().map(|v| vec![*v].into()).collect()),
        }
    }

    #[test]
    fn wanted_keys_must_be_there_with_a_wanted_value() {
        let wanted = vec![want(1, Some(&[5, 7])), want(3, None)];
        let mut tags = TagSelection { wanted, explicit: false, one_deviation: false };
        assert!(tags.admits(&[1, 5, 3, 9], 1, 1));
        assert!(tags.admits(&[1, 7, 2, 2, 3, 9, 4, 4], 1, 1));
        assert!(!tags.admits(&[1, 6, 3, 9], 1, 1));
        assert!(!tags.admits(&[1, 5], 1, 1));
        tags.explicit = true;
        assert!(tags.admits(&[1, 5, 3, 9], 1, 1));
        assert!(!tags.admits(&[1, 7, 2, 2, 3, 9], 1, 1));
    }

    #[test]
    fn the_fuzzy_filter_lets_one_key_deviate() {
        let wanted = vec![want(1, Some(&[5, 7])), want(3, Some(&[8, 9]))];
        let tags = TagSelection { wanted, explicit: true, one_deviation: true };
        assert!(tags.admits(&[1, 5, 3, 9], 1, 1));
        assert!(tags.admits(&[1, 7, 3, 8], 1, 1));
        assert!(!tags.admits(&[1, 7, 3, 9], 1, 1));
    }
}
