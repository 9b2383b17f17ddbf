//! Series and their row keys.
//!
//! All row keys of a series are equal except for the base time, so a key is encoded once and each row
//! fills in four bytes. The salt is a hash of the series without the time, so a series stays in its
//! bucket; without salting the same hash selects the write shard.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::{
    base_time::BaseTime,
    java_hash::{continue_bytes_hash, java_bytes_hash},
    kind_uid::{KindUid, KnownKind, MetricUid, TagkUid, TagvUid},
    row_key::{RowKey, RowKeyError},
    table_schema::TableSchema,
    tsuid::{Tsuid, TsuidError},
    uid::UidKind,
};

/// Number of a salt bucket, below the schema's bucket count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SaltBucket(u32);

impl SaltBucket {
    /// Bucket of a series, whose metric UID and tag bytes are hashed.
    ///
    /// As in Java, the remainder has the sign of the hash; then the sign is dropped.
    #[must_use]
    pub fn of_series(schema: &TableSchema, metric: &[u8], tags: &[u8]) -> Self {
        Self::of_hash(continue_bytes_hash(java_bytes_hash(metric), tags), schema.salt_buckets())
    }

    /// Bucket of a Java hash.
    #[must_use]
    pub const fn of_hash(hash: i32, buckets: u32) -> Self {
        if buckets == 0 {
            return Self(0);
        }
        Self((hash as i64 % buckets as i64).unsigned_abs() as u32)
    }

    /// The bucket with this number.
    #[must_use]
    pub const fn from_index(index: u32) -> Self {
        Self(index)
    }

    /// Number of the bucket.
    #[must_use]
    #[inline]
    pub const fn index(self) -> u32 {
        self.0
    }

    /// The salt: the low `width` bytes of the bucket, big-endian. A larger bucket number is
    /// truncated, as in OpenTSDB.
    #[must_use]
    pub fn salt(self, width: usize) -> SmallVec<[u8; 8]> {
        let number = u64::from(self.0).to_be_bytes();
        number.get(8 - width.min(8)..).unwrap_or_default().into()
    }
}

/// A series: metric and tags in row key encoding. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SeriesKey {
    /// A row key whose base time is zero.
    template: Bytes,
    time_at: u8,
    salt_width: u8,
    bucket: SaltBucket,
}

/// UIDs that do not form a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SeriesKeyError {
    /// A UID has another width than the tables.
    #[error("{kind} UID of {actual} bytes where the tables have {expected}")]
    Width {
        /// Kind of the UID.
        kind: UidKind,
        /// Configured width.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
    /// No tags.
    #[error("series without tags")]
    NoTags,
    /// Invalid row key or TSUID.
    #[error(transparent)]
    RowKey(#[from] RowKeyError),
}

impl SeriesKey {
    /// Builds the key of a series. Tags may be in any order; they are sorted by their
    /// encoded pairs, unsigned.
    pub fn try_new(
        schema: &TableSchema,
        metric: MetricUid,
        tags: &[(TagkUid, TagvUid)],
    ) -> Result<Self, SeriesKeyError> {
        check_width(*schema, metric)?;
        let mut sorted: SmallVec<[(TagkUid, TagvUid); 8]> = SmallVec::from_slice(tags);
        sorted.sort_unstable();
        let mut pairs: SmallVec<[u8; 64]> = SmallVec::new();
        for (tagk, tagv) in &sorted {
            check_width(*schema, *tagk)?;
            check_width(*schema, *tagv)?;
            pairs.extend_from_slice(tagk.as_bytes());
            pairs.extend_from_slice(tagv.as_bytes());
        }
        if pairs.is_empty() {
            return Err(SeriesKeyError::NoTags);
        }
        Ok(Self::from_parts(*schema, metric.as_bytes(), &pairs))
    }

    /// The series of a TSUID.
    #[must_use]
    pub fn from_tsuid(schema: &TableSchema, tsuid: &Tsuid) -> Self {
        let bytes = tsuid.as_bytes();
        let (metric, tags) = bytes.split_at_checked(schema.metric_width()).unwrap_or((bytes, &[]));
        Self::from_parts(*schema, metric, tags)
    }

    /// The series of a metric with these tag pairs, which must be sorted.
    pub fn from_tags(schema: &TableSchema, metric: &[u8], tags: &[u8]) -> Result<Self, TsuidError> {
        let is_whole = tags.len().is_multiple_of(schema.tag_pair_width());
        if metric.len() != schema.metric_width() || tags.is_empty() || !is_whole {
            return Err(TsuidError::Length(metric.len() + tags.len()));
        }
        Ok(Self::from_parts(*schema, metric, tags))
    }

    /// The series of a stored row key. The salt is recomputed.
    pub fn from_row_key(schema: &TableSchema, key: &[u8]) -> Result<Self, SeriesKeyError> {
        let key = RowKey::decode(schema, key)?;
        Ok(Self::from_parts(*schema, key.metric(), key.tag_bytes()))
    }

    /// The rows of global annotations: a metric UID of zeros, no tags, and a salt of zeros.
    #[must_use]
    pub fn global_annotations(schema: &TableSchema) -> Self {
        Self::from_parts(*schema, [0; 8].get(..schema.metric_width()).unwrap_or_default(), &[])
    }

    fn from_parts(schema: TableSchema, metric: &[u8], tags: &[u8]) -> Self {
        // A metric of zeros marks global annotations, which are never salted.
        let bucket = if metric.iter().all(|b| *b == 0) {
            SaltBucket(0)
        } else {
            SaltBucket::of_series(&schema, metric, tags)
        };
        let mut template = Vec::with_capacity(schema.tags_start() + tags.len());
        template.extend_from_slice(&bucket.salt(schema.salt_width()));
        template.extend_from_slice(metric);
        let time_at = template.len() as u8;
        template.extend_from_slice(&[0; 4]);
        template.extend_from_slice(tags);
        Self { template: template.into(), time_at, salt_width: schema.salt_width() as u8, bucket }
    }

    /// Bucket of the series; does not depend on whether keys are salted.
    #[must_use]
    #[inline]
    pub const fn bucket(&self) -> SaltBucket {
        self.bucket
    }

    /// Length of the row keys of the series, bytes.
    #[must_use]
    #[inline]
    pub fn key_len(&self) -> usize {
        self.template.len()
    }

    /// Key of the row that covers `base`.
    #[must_use]
    pub fn row_key(&self, base: BaseTime) -> Bytes {
        let mut key = Vec::new();
        self.write_row_key(base, &mut key);
        key.into()
    }

    /// Appends the key of the row that covers `base`.
    #[inline]
    pub fn write_row_key(&self, base: BaseTime, out: &mut Vec<u8>) {
        let start = out.len() + usize::from(self.time_at);
        out.extend_from_slice(&self.template);
        if let Some(gap) = out.get_mut(start..).and_then(<[u8]>::first_chunk_mut::<4>) {
            *gap = base.to_bytes();
        }
    }

    /// The metric UID.
    #[must_use]
    pub fn metric(&self) -> &[u8] {
        self.template
            .get(usize::from(self.salt_width)..usize::from(self.time_at))
            .unwrap_or_default()
    }

    /// The encoded tag pairs.
    #[must_use]
    pub fn tag_bytes(&self) -> &[u8] {
        self.template.get(usize::from(self.time_at) + 4..).unwrap_or_default()
    }

    /// The identity of the series.
    #[must_use]
    pub fn tsuid(&self) -> Tsuid {
        Tsuid::from_parts(self.metric(), self.tag_bytes())
    }
}

fn check_width<K: KnownKind>(schema: TableSchema, uid: KindUid<K>) -> Result<(), SeriesKeyError> {
    let (kind, expected, actual) = (K::KIND, K::KIND.width(&schema), uid.width());
    if expected == actual { Ok(()) } else { Err(SeriesKeyError::Width { kind, expected, actual }) }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn uid<K: KnownKind>(number: u64) -> KindUid<K> {
        KindUid::from_number(number, 3).unwrap()
    }

    #[test]
    fn tag_pairs_are_sorted_by_tagk_uid() {
        let schema = TableSchema::opentsdb_default();
        let key = SeriesKey::try_new(
            &schema,
            uid(1),
            &[(uid(0x80_0000), uid(1)), (uid(0x7F_FFFF), uid(2))],
        )
        .unwrap();
        assert_eq!(key.tsuid().to_string(), "0000017FFFFF000002800000000001");
    }

    #[test]
    fn the_remainder_is_taken_before_the_sign_is_dropped() {
        assert_eq!(SaltBucket::of_hash(i32::MIN, 20).index(), 8);
        assert_eq!(SaltBucket::of_hash(-941_436_285, 20).index(), 5);
        assert_eq!(SaltBucket::of_hash(7, u32::MAX).index(), 7);
    }

    #[test]
    fn salt_keeps_the_low_bytes() {
        assert_eq!(SaltBucket(0x1234).salt(1).as_slice(), [0x34]);
        assert_eq!(SaltBucket(0x1234).salt(4).as_slice(), [0, 0, 0x12, 0x34]);
        assert!(SaltBucket(0x1234).salt(0).is_empty());
    }

    #[test]
    fn global_rows_are_not_salted() {
        let schema = TableSchema::try_new(3, 3, 3, 1, 20).unwrap();
        let key = SeriesKey::global_annotations(&schema).row_key(BaseTime::containing(3_600));
        assert_eq!(key.as_ref(), [0, 0, 0, 0, 0, 0, 0x0E, 0x10]);
    }

    #[test]
    fn wrong_widths_and_no_tags_are_errors() {
        let schema = TableSchema::opentsdb_default();
        let wide = TagkUid::from_number(1, 4).unwrap();
        assert!(matches!(
            SeriesKey::try_new(&schema, uid(1), &[(wide, uid(1))]),
            Err(SeriesKeyError::Width { kind: UidKind::Tagk, expected: 3, actual: 4 })
        ));
        assert_eq!(SeriesKey::try_new(&schema, uid(1), &[]), Err(SeriesKeyError::NoTags));
    }

    proptest! {
        #[test]
        fn row_keys_decode_to_the_series(
            m in 1..=8_usize, k in 1..=8_usize, v in 1..=8_usize, salt in 0..=8_usize,
            buckets in 1..2_000_u32, metric in 1..=255_u64,
            tags in prop::collection::vec((1..=255_u64, 1..=255_u64), 1..8), secs: u32,
        ) {
            let schema = TableSchema::try_new(m, k, v, salt, buckets).unwrap();
            let tags: Vec<_> = tags
                .into_iter()
                .map(|(tagk, tagv)| {
                    let tagk = TagkUid::from_number(tagk, k).unwrap();
                    (tagk, TagvUid::from_number(tagv, v).unwrap())
                })
                .collect();
            let metric = MetricUid::from_number(metric, m).unwrap();
            let key = SeriesKey::try_new(&schema, metric, &tags).unwrap();
            let base = BaseTime::containing(secs);
            let row = key.row_key(base);
            prop_assert_eq!(row.len(), key.key_len());
            let decoded = RowKey::decode(&schema, &row).unwrap();
            prop_assert_eq!(decoded.base_time(), base);
            prop_assert_eq!(decoded.tsuid(), key.tsuid());
            prop_assert!(key.bucket().index() < buckets);
            prop_assert_eq!(SeriesKey::from_row_key(&schema, &row).unwrap(), key.clone());
            prop_assert_eq!(SeriesKey::from_tsuid(&schema, &key.tsuid()), key);
        }
    }
}
