//! Key ranges and row filters that select series by their tags, in the meta table and the data table.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use tsd_model::{SaltBucket, TableSchema, TagkUid, TagvUid};

use crate::filter::{RowFilter, TagCondition, TagPattern};

/// Required tag keys with their allowed values; `None` allows any value.
pub type TagUids = BTreeMap<TagkUid, Option<BTreeSet<TagvUid>>>;

/// The filter for keys whose tags start at `tags_start`; `None` if every row matches.
#[must_use]
pub fn tags_filter(schema: TableSchema, tags_start: usize, tags: &TagUids) -> Option<RowFilter> {
    if tags.is_empty() {
        return None;
    }
    let conditions = tags
        .iter()
        .map(|(tagk, tagvs)| TagCondition {
            tagk: *tagk,
            tagvs: tagvs.as_ref().map(|tagvs| tagvs.iter().copied().collect()),
        })
        .collect();
    Some(tag_pattern(schema, tags_start, conditions, false))
}

/// Filter on tags that begin at `tags_start`; `explicit` admits no other tag keys.
#[must_use]
pub fn tag_pattern(
    schema: TableSchema,
    tags_start: usize,
    conditions: Vec<TagCondition>,
    explicit: bool,
) -> RowFilter {
    RowFilter::Tags(Arc::new(TagPattern {
        tags_start,
        tagk_width: schema.tagk_width(),
        tagv_width: schema.tagv_width(),
        conditions,
        explicit,
    }))
}

/// Start and exclusive stop key of the rows with a prefix.
#[must_use]
pub fn prefix_range(prefix: &[u8]) -> (Bytes, Bytes) {
    (Bytes::copy_from_slice(prefix), prefix_end(prefix))
}

/// The distinct salts. With many buckets and a narrow salt, some buckets share a salt.
#[must_use]
pub fn salts(schema: TableSchema) -> BTreeSet<Vec<u8>> {
    let buckets = if schema.salt_width() == 0 { 1 } else { schema.salt_buckets() };
    (0..buckets)
        .map(|bucket| SaltBucket::from_index(bucket).salt(schema.salt_width()).to_vec())
        .collect()
}

/// The first key after all keys with `prefix`. Empty if all bytes of `prefix` are 0xFF, which means the end of the
/// table.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            break;
        }
    }
    end.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_ends_at_the_next_prefix() {
        let stop = |prefix: &[u8]| prefix_end(prefix).to_vec();
        assert_eq!(stop(&[0, 0, 1]), [0, 0, 2]);
        assert_eq!(stop(&[0, 7, 255]), [0, 8]);
        assert!(stop(&[255, 255]).is_empty());
        assert!(stop(&[]).is_empty());
    }
}
