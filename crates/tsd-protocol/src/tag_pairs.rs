//! Collects the tags of one point.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::java_map::sort_tags_as_java_map;

/// Tag pairs in ISO-8859-1, keys distinct, in the order of a Java hash map.
///
/// OpenTSDB prints tags and assigns UIDs to new names in that order.
pub type TagPairs<'a> = SmallVec<[(&'a [u8], &'a [u8]); 8]>;

/// Number of pairs up to which a linear search is faster than a map.
const LINEAR: usize = 32;

/// Collects tag pairs with distinct keys, in linear time for any input.
#[derive(Debug, Default)]
pub(crate) struct TagCollector<'a> {
    pairs: TagPairs<'a>,
    index: HashMap<&'a [u8], usize>,
}

impl<'a> TagCollector<'a> {
    /// Adds a pair if its key is new. Otherwise returns the present value.
    pub(crate) fn insert(&mut self, key: &'a [u8], value: &'a [u8]) -> Option<&mut &'a [u8]> {
        if let Some(at) = self.position(key) {
            return self.pairs.get_mut(at).map(|(_, v)| v);
        }
        if self.pairs.len() == LINEAR {
            self.index = self.pairs.iter().enumerate().map(|(at, (k, _))| (*k, at)).collect();
        }
        if self.pairs.len() >= LINEAR {
            self.index.insert(key, self.pairs.len());
        }
        self.pairs.push((key, value));
        None
    }

    fn position(&self, key: &[u8]) -> Option<usize> {
        if self.pairs.len() > LINEAR {
            self.index.get(key).copied()
        } else {
            self.pairs.iter().position(|(k, _)| *k == key)
        }
    }

    /// Returns the pairs in the order of a Java hash map.
    pub(crate) fn finish(mut self) -> TagPairs<'a> {
        sort_tags_as_java_map(&mut self.pairs);
        self.pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_kept_once_however_many_there_are() {
        let keys: Vec<String> = (0..200).map(|n| format!("k{n}")).collect();
        let mut tags = TagCollector::default();
        for _ in 0..2 {
            for key in &keys {
                if let Some(value) = tags.insert(key.as_bytes(), b"1") {
                    *value = b"2";
                }
            }
        }
        let pairs = tags.finish();
        assert_eq!(pairs.len(), 200);
        assert!(pairs.iter().all(|(_, v)| *v == b"2"));
    }
}
