#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use tsd_model::{BaseTime, KindUid, KnownKind, TableSchema, TagvUid};

use crate::{LoadError, SeriesIndex, TagCondition};

const HOUR: u32 = 3_600;

fn schema() -> TableSchema {
    TableSchema::try_new(3, 3, 3, 1, 20).unwrap()
}

/// A series of the model: tag key to value.
type Tags = BTreeMap<u8, u8>;

/// A row of the model: metric, tags and hour since the epoch.
type ModelRow = (u8, Tags, u32);

fn uid(number: u8) -> [u8; 3] {
    [0, number / 100, number]
}

fn typed<K: KnownKind>(number: u8) -> KindUid<K> {
    KindUid::try_new(&uid(number)).unwrap()
}

fn tag_bytes(tags: &Tags) -> Vec<u8> {
    tags.iter().flat_map(|(k, v)| [uid(*k), uid(*v)].concat()).collect()
}

fn row_key((metric, tags, hour): &ModelRow) -> Vec<u8> {
    let salt = [metric % 7];
    [&salt[..], &uid(*metric), &(hour * HOUR).to_be_bytes(), &tag_bytes(tags)].concat()
}

fn base(hour: u32) -> BaseTime {
    BaseTime::containing(hour * HOUR)
}

fn add(index: &SeriesIndex, rows: &[ModelRow]) {
    let keys: Vec<_> = rows.iter().map(row_key).collect();
    index.add_rows(keys.iter().map(Vec::as_slice));
}

/// Writes the changes, as a store does.
fn write(index: &SeriesIndex, file: &mut Vec<Vec<u8>>, all: bool) {
    if all {
        file.clear();
    }
    if let Some(mut delta) = index.delta(all) {
        file.append(&mut delta.frames);
        index.commit(delta);
    }
    assert!(index.delta(false).is_none());
}

fn loaded(file: &[Vec<u8>]) -> SeriesIndex {
    let index = SeriesIndex::new(schema());
    for frame in file {
        index.load(frame).unwrap();
    }
    assert!(index.delta(false).is_none());
    index
}

fn rows() -> impl Strategy<Value = Vec<ModelRow>> {
    let tags = prop::collection::btree_map(1_u8..5, 0_u8..4, 1..4);
    prop::collection::vec((1_u8..4, tags, 0_u32..80), 0..60)
}

#[derive(Clone, Debug)]
struct ModelQuery {
    metric: u8,
    conditions: BTreeMap<u8, Option<BTreeSet<u8>>>,
    explicit: bool,
    hours: (u32, u32),
}

fn query() -> impl Strategy<Value = ModelQuery> {
    let values = prop::option::of(prop::collection::btree_set(0_u8..5, 0..3));
    let conditions = prop::collection::btree_map(1_u8..5, values, 0..3);
    (1_u8..5, conditions, any::<bool>(), (0_u32..80, 0_u32..40)).prop_map(
        |(metric, conditions, explicit, (from, hours))| ModelQuery {
            metric,
            conditions,
            explicit,
            hours: (from, from + hours),
        },
    )
}

impl ModelQuery {
    fn admits(&self, tags: &Tags) -> bool {
        let has = |(tagk, values): (&u8, &Option<BTreeSet<u8>>)| {
            tags.get(tagk).is_some_and(|v| values.as_ref().is_none_or(|set| set.contains(v)))
        };
        self.conditions.iter().all(has) && (!self.explicit || tags.len() == self.conditions.len())
    }
}

fn check_query(index: &SeriesIndex, rows: &[ModelRow], query: &ModelQuery) {
    let of_metric: Vec<_> = rows.iter().filter(|row| row.0 == query.metric).collect();
    let Some(metric) = index.metric(typed(query.metric)) else {
        assert!(of_metric.is_empty());
        return;
    };
    let uids = |set: &BTreeSet<u8>| set.iter().map(|v| typed(*v)).collect::<Vec<TagvUid>>();
    let values = query.conditions.iter().map(|(tagk, values)| (*tagk, values.as_ref().map(uids)));
    let values: Vec<_> = values.collect();
    let conditions: Vec<_> = values
        .iter()
        .map(|(tagk, tagvs)| TagCondition { tagk: typed(*tagk), tagvs: tagvs.as_deref() })
        .collect();
    let set = metric.matching(&conditions, query.explicit);
    let mut found = BTreeSet::new();
    metric.for_each(&set, |number, tags| {
        assert!(set.contains(number));
        found.insert(tags.to_vec());
    });
    let selected: Vec<_> = of_metric.iter().filter(|row| query.admits(&row.1)).collect();
    let expected: BTreeSet<_> = selected.iter().map(|row| tag_bytes(&row.1)).collect();
    assert_eq!(found, expected);
    assert_eq!(metric.of_tags(expected.iter().map(Vec::as_slice)), set);

    for tagk in 1..5 {
        let expected: BTreeSet<_> =
            selected.iter().filter_map(|row| row.1.get(&tagk)).map(|v| u64::from(*v)).collect();
        let values = metric.values(typed(tagk), &set);
        assert_eq!(values.len(), expected.len(), "each once: {values:?}");
        let mut with_values = metric.with_value_uids(typed(tagk), &values);
        with_values.intersect(&set);
        let mut with_key = metric.with_key(typed(tagk));
        with_key.intersect(&set);
        assert_eq!(with_values, with_key);
        assert_eq!(values.into_iter().collect::<BTreeSet<u64>>(), expected);
    }

    // Rows: exact by series and day, and by metric and hour.
    let (from, to) = query.hours;
    let in_range = |row: &ModelRow| (from..=to).contains(&row.2);
    let mut found = BTreeSet::new();
    let days = metric.rows(&set, base(from), base(to));
    for day in &days {
        metric.for_each(&day.series, |_, tags| {
            found.extend(day.hours.iter().map(|hour| (tags.to_vec(), hour.as_secs() / HOUR)));
        });
    }
    let expected: BTreeSet<_> = selected
        .iter()
        .flat_map(|row| {
            let hours = of_metric.iter().filter(|other| other.2 / 24 == row.2 / 24);
            hours.filter(|other| in_range(other)).map(|other| (tag_bytes(&row.1), other.2))
        })
        .collect();
    assert_eq!(found, expected);
    let counts = metric.count_rows(&set, base(from), base(to));
    assert_eq!(counts.selected, found.len() as u64);
    let all = metric.matching(&[], false);
    assert_eq!(counts.all, metric.count_rows(&all, base(from), base(to)).selected);
}

proptest! {
    #[test]
    fn index_equals_a_list_of_rows(
        batches in prop::collection::vec((rows(), 0_u8..4), 1..4),
        queries in prop::collection::vec(query(), 1..12),
    ) {
        let index = SeriesIndex::new(schema());
        let (mut all, mut file) = (Vec::new(), Vec::new());
        for (rows, then) in batches {
            add(&index, &rows);
            all.extend(rows);
            match then {
                0 => write(&index, &mut file, false),
                1 => write(&index, &mut file, true),
                _ => {}
            }
        }
        for query in &queries {
            check_query(&index, &all, query);
        }
        write(&index, &mut file, false);
        let restarted = loaded(&file);
        for query in &queries {
            check_query(&restarted, &all, query);
        }
        prop_assert_eq!(restarted.size().series, index.size().series);
        let series: BTreeSet<_> = all.iter().map(|row| (row.0, &row.1)).collect();
        prop_assert_eq!(index.size().series, series.len() as u64);
    }

    #[test]
    fn arbitrary_frames_do_not_panic(
        rows in rows(),
        cut in 0_usize..400,
        flip in any::<prop::sample::Index>(),
        bit in 0_u8..8,
    ) {
        let index = SeriesIndex::new(schema());
        add(&index, &rows);
        let Some(delta) = index.delta(false) else { return Ok(()) };
        let mut frame = delta.frames.concat();
        let at = flip.index(frame.len());
        frame[at] ^= 1 << bit;
        let _ = SeriesIndex::new(schema()).load(&frame);
        frame.truncate(cut);
        let _ = SeriesIndex::new(schema()).load(&frame);
    }
}

#[test]
fn frames_of_a_large_metric_are_divided() {
    let index = SeriesIndex::new(schema());
    let key = |n: u32| {
        let value = (n % 250, n / 250);
        let tags = [0, 0, 1, 0, value.1 as u8, value.0 as u8, 0, 0, 2, 0, 0, 1];
        [&[0, 0, 0, 1][..], &(HOUR * (n % 24)).to_be_bytes(), &tags].concat()
    };
    let keys: Vec<_> = (0..60_000).map(key).collect();
    index.add_rows(keys.iter().map(Vec::as_slice));
    let mut file = Vec::new();
    write(&index, &mut file, false);
    let size = index.size();
    assert_eq!((size.metrics, size.series), (1, 60_000));
    assert!(size.memory_bytes > 60_000 * 12, "{size:?}");
    let again = loaded(&file);
    assert_eq!(again.size().series, 60_000);
    let metric = again.metric(typed(1)).unwrap();
    let (set, hour) = (metric.matching(&[], false), BaseTime::containing(HOUR));
    assert_eq!(metric.count_rows(&set, hour, hour).selected, 60_000);
    assert_eq!(metric.values(typed(1), &set).len(), 60_000);
    // The same frame twice: its series are already known.
    let twice = again.load(file.first().unwrap());
    assert_eq!(twice, Err(LoadError::OutOfOrder { found: 0, expected: 60_000 }));
}

#[test]
fn rows_that_are_not_of_series_are_ignored_and_irregular_ones_noted() {
    let index = SeriesIndex::new(schema());
    let global = [&[0, 0, 0, 1][..], &HOUR.to_be_bytes()].concat();
    index.add_rows([&b"no key"[..], &global]);
    assert_eq!(index.size().series, 0);
    let tags: Tags = [(1, 1)].into();
    add(&index, &[(1, tags.clone(), 5)]);
    let metric = index.metric(typed(1)).unwrap();
    assert!(metric.is_regular());
    let irregular = [&[0][..], &uid(1), &(HOUR + 1).to_be_bytes(), &tag_bytes(&tags)].concat();
    index.add_rows([&*irregular]);
    assert!(!metric.is_regular());
    let mut file = Vec::new();
    write(&index, &mut file, false);
    assert!(!loaded(&file).metric(typed(1)).unwrap().is_regular());
}

#[test]
fn rows_that_an_index_lacks_are_counted() {
    let schema = TableSchema::opentsdb_default();
    let index = SeriesIndex::new(schema);
    let key = |hour: u32, series: u8| {
        let mut key = vec![0, 0, 1];
        key.extend_from_slice(&(1_356_998_400 + hour * 3_600).to_be_bytes());
        key.extend_from_slice(&[0, 0, 1, 0, 0, series]);
        key
    };
    let known: Vec<Vec<u8>> = (0..50).map(|series| key(u32::from(series % 3), series)).collect();
    index.add_rows(known.iter().map(Vec::as_slice));
    assert_eq!(index.count_missing(known.iter().map(Vec::as_slice)), 0);
    assert_eq!(index.count_wrong(), 0);
    // Another series, another day, an hour that no series of the metric has, and an invalid row
    // key.
    let others = [key(0, 60), key(24, 1), key(9, 1), vec![1, 2]];
    assert_eq!(index.count_missing(others.iter().map(Vec::as_slice)), 3);
    // Hours are recorded by metric.
    assert_eq!(index.count_missing([key(0, 1).as_slice()]), 0);
}

/// Issue 37: a day beyond the last base time overflowed where it is shown in seconds.
#[test]
fn a_frame_with_a_day_without_base_times_is_refused() {
    let index = SeriesIndex::new(schema());
    add(&index, &[(1, Tags::from([(1, 1)]), 48)]);
    let mut frame = index.delta(true).unwrap().frames.remove(0);
    SeriesIndex::new(schema()).load(&frame).unwrap();
    // One day, the second after the epoch.
    let days_at = frame.windows(8).position(|bytes| bytes == [1, 0, 0, 0, 2, 0, 0, 0]);
    let day_at = days_at.unwrap() + 4;
    let last = u32::MAX / (24 * HOUR);
    frame[day_at..day_at + 4].copy_from_slice(&last.to_le_bytes());
    let loaded = SeriesIndex::new(schema());
    loaded.load(&frame).unwrap();
    assert_eq!(loaded.metric(typed(1)).unwrap().last_days(1), [(last * 24 * HOUR, 1)]);
    frame[day_at..day_at + 4].copy_from_slice(&(last + 1).to_le_bytes());
    assert_eq!(SeriesIndex::new(schema()).load(&frame), Err(LoadError::Day(last + 1)));
}
