//! What finding series by their tags takes, in the meta table and in the data table: ranges of keys and a
//! filter for the store.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use tsd_model::{TableSchema, Uid};
use tsd_storage::{RowFilter, TagCondition, TagPattern};

/// Tag keys that must be there, each with the values it may have; `None` takes any.
pub(crate) type WantedTags = BTreeMap<Uid, Option<BTreeSet<Uid>>>;

/// The filter for rows whose tags begin at `tags_start`; `None` where every row will do.
pub(crate) fn tags_filter(
    schema: TableSchema,
    tags_start: usize,
    wanted: &WantedTags,
) -> Option<RowFilter> {
    if wanted.is_empty() {
        return None;
    }
    let bytes = |uid: &Uid| Bytes::copy_from_slice(uid.as_bytes());
    let wanted = wanted
        .iter()
        .map(|(tagk, tagvs)| TagCondition {
            tagk: bytes(tagk),
            tagvs: tagvs.as_ref().map(|tagvs| tagvs.iter().map(bytes).collect()),
        })
        .collect();
    Some(RowFilter::Tags(Arc::new(TagPattern {
        tags_start,
        tagk_width: schema.tagk_width(),
        tagv_width: schema.tagv_width(),
        conditions: wanted,
        explicit: false,
    })))
}

/// First key with a prefix, and the one to stop before; empty where there is none.
pub(crate) fn prefix_range(prefix: &[u8]) -> (Bytes, Bytes) {
    let mut stop = prefix.to_vec();
    while let Some(last) = stop.pop() {
        if let Some(next) = last.checked_add(1) {
            stop.push(next);
            break;
        }
    }
    (Bytes::copy_from_slice(prefix), stop.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_the_next_begins() {
        let stop = |prefix: &[u8]| prefix_range(prefix).1.to_vec();
        assert_eq!(stop(&[0, 0, 1]), [0, 0, 2]);
        assert_eq!(stop(&[0, 7, 255]), [0, 8]);
        assert!(stop(&[255, 255]).is_empty());
        assert!(stop(&[]).is_empty());
    }
}
