use super::*;

const TEXT: NameText = NameText::Latin1;

fn template(cache: &SeriesCache, metric: &[u8], tags: &[u8]) -> Option<Vec<u8>> {
    cache.read().find(TEXT, metric, tags).map(|series| series.template().to_vec())
}

fn series<'a>(metric: &'a [u8], tags: &'a [u8], template: &'a [u8]) -> NewSeries<'a> {
    NewSeries { metric, tags, template, write_shard: 3, last_notified: LastNotifiedRow::NONE }
}

fn insert(cache: &SeriesCache, metric: &[u8], tags: &[u8], template: &[u8]) {
    cache.insert(cache.epoch(), TEXT, [series(metric, tags, template)]);
}

#[test]
fn bytes_as_sent_are_the_key() {
    let cache = SeriesCache::new(1_000);
    insert(&cache, b"m", b"a=1 b=2", b"row");
    insert(&cache, b"m", b"a=1 b=2", b"row");
    assert_eq!(cache.len(), 1);
    assert_eq!(template(&cache, b"m", b"a=1 b=2"), Some(b"row".to_vec()));
    for (metric, tags) in [(&b"ma"[..], &b"=1 b=2"[..]), (b"m", b"b=2 a=1"), (b"", b"")] {
        assert_eq!(template(&cache, metric, tags), None);
    }
    let reader = cache.read();
    assert!(reader.find(NameText::Utf8, b"m", b"a=1 b=2").is_none());
    assert_eq!(reader.find(TEXT, b"m", b"a=1 b=2").map(CachedSeries::write_shard), Some(3));
}

#[test]
fn last_notified_row_is_kept_per_series() {
    let cache = SeriesCache::new(1_000);
    insert(&cache, b"m", b"a=1", b"row");
    let notifies = |base| {
        let reader = cache.read();
        let series = reader.find(TEXT, b"m", b"a=1");
        series.map(|series| series.last_notified().advance(|last| last.next(base, 0, || 0)))
    };
    assert_eq!([3_600, 3_600, 7_200].map(notifies), [Some(true), Some(false), Some(true)]);
    insert(&cache, b"m", b"a=1", b"row");
    assert_eq!(notifies(7_200), Some(true), "inserted again");
}

#[test]
fn group_look_up_equals_single_look_ups() {
    let cache = SeriesCache::new(10_000);
    let names: Vec<_> = (0..1_000).map(|i| (format!("m{}", i % 7), format!("host={i}"))).collect();
    let cached = names.iter().step_by(3);
    let cached =
        cached.map(|(metric, tags)| series(metric.as_bytes(), tags.as_bytes(), tags.as_bytes()));
    cache.insert(cache.epoch(), TEXT, cached);
    let reader = cache.read();
    // In the order of insertion, and in others.
    let mut order = SeriesOrder::default();
    for len in [0, 1, 2, GROUP - 1, GROUP, GROUP + 5] {
        for group in names.chunks(len.max(1)) {
            let group = group.get(..len.min(group.len())).unwrap_or_default();
            let pairs = group.iter().map(|(metric, tags)| (metric.as_bytes(), tags.as_bytes()));
            let found = reader.find_group(TEXT, pairs.clone(), &mut order);
            let singly = pairs.map(|(metric, tags)| reader.find(TEXT, metric, tags));
            let singly = singly.chain(std::iter::repeat(None)).take(GROUP);
            let template = |series: Option<CachedSeries<'_>>| series.map(|s| s.template().to_vec());
            assert_eq!(
                found.map(template).to_vec(),
                singly.map(template).collect::<Vec<_>>(),
                "{len}"
            );
        }
    }
}

#[test]
fn series_in_the_order_of_their_insertion_are_found_without_the_index() {
    let cache = SeriesCache::new(10_000);
    let names: Vec<_> = (0..2_000).map(|i| format!("host={i}")).collect();
    let all = names.iter().map(|tags| series(b"m", tags.as_bytes(), tags.as_bytes()));
    cache.insert(cache.epoch(), TEXT, all);
    let mut order = SeriesOrder::default();
    let mut find = |names: &[String]| {
        let pairs = names.iter().map(|tags| (&b"m"[..], tags.as_bytes()));
        let reader = cache.read();
        let found = reader.find_group(TEXT, pairs, &mut order);
        for (name, found) in names.iter().zip(found) {
            assert_eq!(found.map(CachedSeries::template), Some(name.as_bytes()));
        }
        order.is_kept
    };
    let kept: Vec<bool> = names.chunks(GROUP).map(&mut find).collect();
    assert!(kept.iter().all(|kept| *kept));
    // The same order again, without one series.
    let mut rest = names;
    rest.remove(700);
    assert!(rest.chunks(GROUP).skip(1).all(&mut find));
    rest.reverse();
    let kept: Vec<bool> = rest.chunks(GROUP).map(&mut find).collect();
    assert!(!kept.iter().any(|kept| *kept));
}

#[test]
fn full_cache_evicts_unused_entries() {
    let cache = SeriesCache::new(SHARDS * 8);
    for i in 0..SHARDS * 80 {
        insert(&cache, b"m", format!("host={i}").as_bytes(), format!("row{i}").as_bytes());
        assert!(template(&cache, b"m", b"host=0").is_some(), "used continuously");
    }
    assert!(cache.len() <= SHARDS * 8);
    let cached = (0..SHARDS * 80).filter(|i| {
        let found = template(&cache, b"m", format!("host={i}").as_bytes());
        found.is_some_and(|found| found == format!("row{i}").as_bytes())
    });
    assert_eq!(cached.count(), cache.len(), "each entry is of one series");
}

#[test]
fn series_resolved_before_a_clear_are_not_inserted() {
    let cache = SeriesCache::new(1_000);
    insert(&cache, b"m", b"a=1", b"old");
    let before = cache.epoch();
    cache.clear();
    assert_eq!((cache.len(), template(&cache, b"m", b"a=1")), (0, None));
    cache.insert(before, TEXT, [series(b"m", b"a=1", b"old")]);
    assert_eq!(template(&cache, b"m", b"a=1"), None);
    insert(&cache, b"m", b"a=1", b"new");
    assert_eq!(template(&cache, b"m", b"a=1"), Some(b"new".to_vec()));
}
