//! The series of one metric.

use parking_lot::RwLock;
use std::{collections::BTreeMap, hash::BuildHasher, sync::Arc};

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable, hash_map::Entry};
use roaring::RoaringBitmap;
use tsd_model::{BaseTime, DAY_SECS, TableSchema, TagvUid, Uid};

use crate::posting::Posting;

/// Most rows that are noted during a copy; with more rows the copy is abandoned.
pub(crate) const MAX_NOTED_ROWS: usize = 1 << 18;

/// A tag value's UID as a number: UIDs have at most 8 bytes, and equal widths within a table.
type ValueUid = u64;

/// Series and postings.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent states")]
pub(crate) struct MetricSeries {
    pair_width: usize,
    tagk_width: usize,
    /// Tag pairs of all series, in the order of their numbers.
    tags: Vec<u8>,
    /// End of the tags of each series, in pairs.
    ends: Vec<u32>,
    /// Numbers of the series by their tags.
    by_tags: HashTable<u32>,
    keys: HashMap<Box<[u8]>, TagKey, RandomState>,
    pub(crate) days: BTreeMap<u32, Day>,
    /// False if the index does not know the days on which series are active.
    pub(crate) has_days: bool,
    /// Series that are registered in a table that all writers share.
    pub(crate) registered: RoaringBitmap,
    hasher: RandomState,
    /// Approximate bytes of the postings.
    posting_bytes: usize,
    /// Series with lower numbers are persistent.
    pub(crate) persisted: u32,
    /// True if a row has a base time other than a full hour; such a row cannot be found by its key.
    pub(crate) is_irregular: bool,
    pub(crate) is_irregular_persisted: bool,
    /// Rows that are added while the series are copied.
    pub(crate) noted: Option<NotedRows>,
    /// True if a copy has replaced these series; writers must not add to them.
    pub(crate) is_replaced: bool,
}

/// The series of a metric, shared with readers.
pub(crate) type SharedMetric = Arc<RwLock<MetricSeries>>;

/// Rows that were added to a metric while it is copied.
#[derive(Debug)]
pub(crate) enum NotedRows {
    /// Series number and base time of each row.
    Rows(Vec<(u32, u32)>),
    /// More than [`MAX_NOTED_ROWS`] rows.
    TooMany,
}

impl NotedRows {
    pub(crate) fn note(&mut self, id: u32, base_secs: u32) {
        match self {
            Self::Rows(rows) if rows.len() < MAX_NOTED_ROWS => rows.push((id, base_secs)),
            _ => *self = Self::TooMany,
        }
    }
}

/// The series with a tag key.
#[derive(Debug, Default)]
struct TagKey {
    series: RoaringBitmap,
    values: HashMap<ValueUid, Posting, RandomState>,
}

/// Active series and hours of a UTC day.
#[derive(Debug, Default)]
pub(crate) struct Day {
    /// Series with rows.
    pub(crate) series: RoaringBitmap,
    /// Hours with rows of any series, a bit for each.
    pub(crate) hours: u32,
    /// Subset of `series` that is not persistent yet for this day.
    pub(crate) new_series: RoaringBitmap,
    /// Hours that are persistent.
    pub(crate) persisted_hours: u32,
}

impl MetricSeries {
    pub(crate) fn new(schema: TableSchema, has_days: bool) -> Self {
        Self {
            pair_width: schema.tag_pair_width(),
            tagk_width: schema.tagk_width(),
            tags: Vec::new(),
            ends: Vec::new(),
            by_tags: HashTable::new(),
            keys: HashMap::default(),
            days: BTreeMap::new(),
            has_days,
            registered: RoaringBitmap::new(),
            hasher: RandomState::default(),
            posting_bytes: 0,
            persisted: 0,
            is_irregular: false,
            is_irregular_persisted: false,
            noted: None,
            is_replaced: false,
        }
    }

    /// Adds a row of a series.
    pub(crate) fn add_row(&mut self, tags: &[u8], base_secs: u32) {
        if !base_secs.is_multiple_of(BaseTime::SPAN_SECONDS) {
            self.is_irregular = true;
        }
        let id = self.find(tags).unwrap_or_else(|| self.add_series(tags));
        if !self.has_days {
            return;
        }
        let day = self.days.entry(base_secs / DAY_SECS).or_default();
        let hour = 1 << (base_secs % DAY_SECS / BaseTime::SPAN_SECONDS);
        let mut is_new = day.hours & hour == 0;
        day.hours |= hour;
        if day.series.insert(id) {
            day.new_series.insert(id);
            is_new = true;
        }
        if is_new && let Some(noted) = &mut self.noted {
            noted.note(id, base_secs);
        }
    }

    /// Number of a series.
    pub(crate) fn find(&self, tags: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(tags);
        self.by_tags.find(hash, |id| self.tags_of(*id) == tags).copied()
    }

    /// Adds a new series. Returns its number.
    pub(crate) fn add_series(&mut self, tags: &[u8]) -> u32 {
        let id = self.ends.len() as u32;
        let hash = self.hasher.hash_one(tags);
        self.tags.extend_from_slice(tags);
        self.ends.push((self.tags.len() / self.pair_width.max(1)) as u32);
        let Self { by_tags, hasher, tags: all, ends, pair_width, .. } = self;
        by_tags
            .insert_unique(hash, id, |id| hasher.hash_one(slice_of(all, ends, *pair_width, *id)));
        self.add_postings(tags, id);
        id
    }

    /// Rebuilds the postings from the tags of all series, and removes entries of unknown series.
    pub(crate) fn restore_postings(&mut self) {
        self.keys.clear();
        self.posting_bytes = 0;
        for id in 0..self.len() {
            let tags = self.tags_of(id).to_vec();
            self.add_postings(&tags, id);
        }
        let len = self.len();
        for day in self.days.values_mut() {
            day.series.remove_range(len..);
            day.new_series.remove_range(len..);
        }
    }

    /// Adds a series with the highest number to the postings of its tags.
    fn add_postings(&mut self, tags: &[u8], id: u32) {
        for pair in tags.chunks_exact(self.pair_width.max(1)) {
            let (tagk, tagv) = pair.split_at(self.tagk_width);
            let key = match self.keys.get_mut(tagk) {
                Some(key) => key,
                None => self.keys.entry(tagk.into()).or_default(),
            };
            key.series.insert(id);
            match key.values.entry(Uid::number_of(tagv)) {
                Entry::Occupied(mut posting) => self.posting_bytes += posting.get_mut().push(id),
                Entry::Vacant(entry) => {
                    entry.insert(Posting::One(id));
                }
            }
        }
    }

    /// True if the postings of the tags have the series.
    pub(crate) fn has_postings(&self, tags: &[u8], id: u32) -> bool {
        tags.chunks_exact(self.pair_width.max(1)).all(|pair| {
            let (tagk, tagv) = pair.split_at(self.tagk_width);
            self.keys.get(tagk).is_some_and(|key| {
                let posting = key.values.get(&Uid::number_of(tagv));
                key.series.contains(id) && posting.is_some_and(|posting| posting.contains(id))
            })
        })
    }

    /// Number of series.
    pub(crate) fn len(&self) -> u32 {
        self.ends.len() as u32
    }

    /// Tag pairs of the series with this number; empty for an unknown number.
    pub(crate) fn tags_of(&self, id: u32) -> &[u8] {
        slice_of(&self.tags, &self.ends, self.pair_width, id)
    }

    /// All series.
    pub(crate) fn all(&self) -> RoaringBitmap {
        let mut all = RoaringBitmap::new();
        all.insert_range(0..self.len());
        all
    }

    /// Series with a tag key.
    pub(crate) fn with_key(&self, tagk: &[u8]) -> RoaringBitmap {
        self.keys.get(tagk).map(|key| key.series.clone()).unwrap_or_default()
    }

    /// Series with one of several values of a tag key.
    pub(crate) fn with_values(
        &self,
        tagk: &[u8],
        values: impl IntoIterator<Item = TagvUid>,
    ) -> RoaringBitmap {
        let mut series = RoaringBitmap::new();
        let Some(key) = self.keys.get(tagk) else { return series };
        for value in values {
            if let Some(posting) = key.values.get(&value.to_number()) {
                posting.add_to(&mut series);
            }
        }
        series
    }

    /// Series with one of several values of a tag key, given by their UIDs as numbers.
    pub(crate) fn with_value_uids(&self, tagk: &[u8], uids: &[ValueUid]) -> RoaringBitmap {
        let mut series = RoaringBitmap::new();
        let Some(key) = self.keys.get(tagk) else { return series };
        for posting in uids.iter().filter_map(|uid| key.values.get(uid)) {
            posting.add_to(&mut series);
        }
        series
    }

    /// UIDs of the values that series of `set` have for a tag key, each once, in no order.
    pub(crate) fn values(&self, tagk: &[u8], set: &RoaringBitmap) -> Vec<ValueUid> {
        let Some(key) = self.keys.get(tagk) else { return Vec::new() };
        if set.len() < key.values.len() as u64 {
            let mut values: Vec<u64> = set
                .iter()
                .filter_map(|id| {
                    let pairs = self.tags_of(id).chunks_exact(self.pair_width.max(1));
                    let mut pairs = pairs.map(|pair| pair.split_at(self.tagk_width));
                    pairs.find(|(other, _)| *other == tagk).map(|(_, value)| Uid::number_of(value))
                })
                .collect();
            values.sort_unstable();
            values.dedup();
            return values;
        }
        let has_all = key.series.is_subset(set);
        key.values
            .iter()
            .filter(|(_, posting)| has_all || posting.intersects(set))
            .map(|(value, _)| *value)
            .collect()
    }

    /// Number of series with each tag key.
    pub(crate) fn key_counts(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.keys.iter().map(|(tagk, key)| (&**tagk, key.series.len()))
    }

    /// The values of a tag key, with their numbers of series.
    pub(crate) fn values_of(&self, tagk: &[u8]) -> impl Iterator<Item = (ValueUid, u64)> {
        let values = self.keys.get(tagk).into_iter().flat_map(|key| &key.values);
        values.map(|(value, posting)| (*value, posting.len()))
    }

    /// Number of values of each tag key.
    pub(crate) fn value_counts(&self) -> impl Iterator<Item = (&[u8], usize)> {
        self.keys.iter().map(|(tagk, key)| (&**tagk, key.values.len()))
    }

    /// Number of tag pairs of a series.
    pub(crate) fn pair_count(&self, id: u32) -> usize {
        self.tags_of(id).len() / self.pair_width.max(1)
    }

    /// Approximate bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let value = size_of::<(ValueUid, Posting)>() + 1;
        let keys = self.keys.values().map(|key| {
            key.values.capacity() * value + key.series.serialized_size() + size_of::<TagKey>()
        });
        let days = self.days.values().map(|day| {
            size_of::<Day>() + day.series.serialized_size() + day.new_series.serialized_size()
        });
        self.tags.capacity()
            + self.ends.capacity() * size_of::<u32>()
            + self.by_tags.allocation_size()
            + self.posting_bytes
            + self.registered.serialized_size()
            + keys.sum::<usize>()
            + days.sum::<usize>()
    }
}

fn slice_of<'a>(tags: &'a [u8], ends: &[u32], pair_width: usize, id: u32) -> &'a [u8] {
    let at = id as usize;
    let start = at.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    let Some(end) = ends.get(at) else { return &[] };
    tags.get(start as usize * pair_width..*end as usize * pair_width).unwrap_or_default()
}
