//! Decoding of row keys of the data table.
//!
//! ```text
//! salt | metric UID | base time u32 | tagk UID | tagv UID | tagk UID | tagv UID | …
//! ```
//!
//! A key without tags is a row of global annotations.

use crate::{
    base_time::BaseTime,
    kind_uid::{MetricUid, TagkUid, TagvUid},
    table_schema::TableSchema,
    tsuid::Tsuid,
    uid::Uid,
};

/// A row key, split into its fields. Borrows the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowKey<'a> {
    salt: &'a [u8],
    metric: &'a [u8],
    base: BaseTime,
    tags: &'a [u8],
    tagk_width: usize,
    pair_width: usize,
}

/// Bytes that are not a key of the data table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowKeyError {
    /// Ends before the tags begin.
    #[error("row key of {0} bytes ends before its base time does")]
    TooShort(usize),
    /// Bytes left over after the last whole tag pair.
    #[error("row key has {0} bytes of tags, which are no whole pairs")]
    TagBytes(usize),
}

impl<'a> RowKey<'a> {
    /// Splits a stored key.
    #[inline]
    pub fn decode(schema: &TableSchema, key: &'a [u8]) -> Result<Self, RowKeyError> {
        let too_short = RowKeyError::TooShort(key.len());
        let (salt, rest) = key.split_at_checked(schema.salt_width()).ok_or(too_short)?;
        let (metric, rest) = rest.split_at_checked(schema.metric_width()).ok_or(too_short)?;
        let (base, tags) = rest.split_first_chunk::<4>().ok_or(too_short)?;
        if !tags.len().is_multiple_of(schema.tag_pair_width()) {
            return Err(RowKeyError::TagBytes(tags.len()));
        }
        Ok(Self {
            salt,
            metric,
            base: BaseTime::from_stored(*base),
            tags,
            tagk_width: schema.tagk_width(),
            pair_width: schema.tag_pair_width(),
        })
    }

    /// The salt; empty without salting.
    #[must_use]
    pub const fn salt(&self) -> &'a [u8] {
        self.salt
    }

    /// The bytes of the metric UID.
    #[must_use]
    pub const fn metric(&self) -> &'a [u8] {
        self.metric
    }

    /// The metric UID.
    #[must_use]
    pub fn metric_uid(&self) -> MetricUid {
        MetricUid::new(Uid::of_field(self.metric))
    }

    /// The hour the row covers.
    #[must_use]
    pub const fn base_time(&self) -> BaseTime {
        self.base
    }

    /// All tag pairs, encoded.
    #[must_use]
    pub const fn tag_bytes(&self) -> &'a [u8] {
        self.tags
    }

    /// The tag pairs, key and value UID.
    #[must_use]
    pub fn tags(&self) -> impl ExactSizeIterator<Item = (TagkUid, TagvUid)> + use<'a> {
        let tagk_width = self.tagk_width;
        self.tags.chunks_exact(self.pair_width).map(move |pair| {
            let (tagk, tagv) = pair.split_at(tagk_width);
            (TagkUid::new(Uid::of_field(tagk)), TagvUid::new(Uid::of_field(tagv)))
        })
    }

    /// True for a row of global annotations: no tags.
    #[must_use]
    pub const fn is_global(&self) -> bool {
        self.tags.is_empty()
    }

    /// The series; for a global row, the metric alone.
    #[must_use]
    pub fn tsuid(&self) -> Tsuid {
        Tsuid::from_parts(self.metric, self.tags)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_are_at_the_offsets_of_the_schema() {
        let schema = TableSchema::try_new(4, 2, 5, 1, 20).unwrap();
        let key = crate::hex::from_hex(b"090000000150E22700000100000000010002000000000F").unwrap();
        let row = RowKey::decode(&schema, &key).unwrap();
        assert_eq!(row.salt(), [9]);
        assert_eq!(row.metric(), [0, 0, 0, 1]);
        assert_eq!(row.base_time().as_secs(), 1_356_998_400);
        assert_eq!(row.metric_uid().as_bytes(), row.metric());
        let tags: Vec<_> = row.tags().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let tags: Vec<_> = tags.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(tags, [("0001", "0000000001"), ("0002", "000000000F")]);
        assert_eq!(row.tsuid().to_string(), "0000000100010000000001000200000000".to_owned() + "0F");
    }

    #[test]
    fn damaged_keys_are_errors() {
        let schema = TableSchema::opentsdb_default();
        assert_eq!(RowKey::decode(&schema, &[0; 6]), Err(RowKeyError::TooShort(6)));
        assert_eq!(RowKey::decode(&schema, &[0; 8]), Err(RowKeyError::TagBytes(1)));
        assert!(RowKey::decode(&schema, &[0; 7]).unwrap().is_global());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(
            key in prop::collection::vec(any::<u8>(), 0..60),
            m in 1..=8_usize, k in 1..=8_usize, v in 1..=8_usize, salt in 0..=8_usize,
        ) {
            let schema = TableSchema::try_new(m, k, v, salt, 20).unwrap();
            if let Ok(row) = RowKey::decode(&schema, &key) {
                let length = row.salt().len() + row.metric().len() + 4 + row.tag_bytes().len();
                prop_assert_eq!(length, key.len());
                prop_assert_eq!(row.tags().len() * (k + v), row.tag_bytes().len());
                let mut pairs = Vec::new();
                for (tagk, tagv) in row.tags() {
                    pairs.extend([tagk.as_bytes(), tagv.as_bytes()].concat());
                }
                prop_assert_eq!(&pairs[..], row.tag_bytes());
                let metric = row.metric_uid();
                prop_assert_eq!(metric.as_bytes(), row.metric());
            }
        }
    }
}
