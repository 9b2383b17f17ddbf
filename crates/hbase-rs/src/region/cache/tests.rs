use proptest::{collection::vec, prelude::*};

use super::*;

fn table() -> TableName {
    "t".parse().unwrap()
}

fn server(port: u16) -> ServerName {
    ServerName::new("rs", port, 1)
}

fn region(start: &str, end: &str, id: u64) -> Arc<Region> {
    Arc::new(Region::new(table(), start.to_owned().into(), end.to_owned().into(), id))
}

fn location(start: &str, end: &str, id: u64, port: u16, seq_num: i64) -> RegionLocation {
    RegionLocation { region: region(start, end, id), server: server(port), seq_num }
}

fn cache(locations: &[(&str, &str, u64)]) -> RegionCache {
    let mut cache = RegionCache::new(100);
    for (start, end, id) in locations {
        assert!(cache.insert(location(start, end, *id, 1, 5)));
    }
    cache
}

#[track_caller]
fn check(cache: &RegionCache, row: &str, start: Option<&str>) {
    let found =
        cache.holding(&table(), row.as_bytes()).map(|location| location.region.start_key().clone());
    assert_eq!(found, start.map(|start| start.to_owned().into()), "{row}");
    let locate = Locate::Holding(row.to_owned().into());
    assert_eq!(cache.find(&table(), &locate), cache.holding(&table(), row.as_bytes()));
}

#[test]
fn a_row_is_found_in_the_region_that_holds_it() {
    let cache = cache(&[("", "b", 1), ("b", "d", 1), ("f", "", 1)]);
    for (row, start) in [
        ("", Some("")),
        ("a", Some("")),
        ("b", Some("b")),
        ("cz", Some("b")),
        ("d", None),
        ("e", None),
        ("f", Some("f")),
        ("zz", Some("f")),
    ] {
        check(&cache, row, start);
    }
    assert_eq!(cache.holding(&"other".parse().unwrap(), b"a"), None);
}

#[test]
fn the_region_before_a_row_ends_where_the_row_begins() {
    let cache = cache(&[("", "b", 1), ("b", "d", 1), ("f", "", 1)]);
    let before = |row: &str| {
        let locate = Locate::Before(row.to_owned().into());
        cache.find(&table(), &locate).map(|location| location.region.start_key().clone())
    };
    assert_eq!(before("b"), Some("".into()));
    assert_eq!(before("c"), Some("b".into()));
    assert_eq!(before("d"), Some("b".into()));
    assert_eq!(before("f"), None);
    assert_eq!(before("g"), Some("f".into()));
    assert_eq!(before(""), Some("f".into()));
}

#[test]
fn daughters_replace_their_parent_and_a_merged_region_its_parts() {
    let mut cache = cache(&[("a", "z", 1)]);
    assert!(cache.insert(location("a", "m", 2, 1, 5)));
    check(&cache, "n", None);
    assert!(cache.insert(location("m", "z", 2, 1, 5)));
    assert_eq!(cache.len(), 2);
    assert!(cache.insert(location("a", "z", 3, 1, 5)));
    assert_eq!(cache.len(), 1);
    check(&cache, "n", Some("a"));
}

#[test]
fn an_older_region_or_an_older_location_is_no_news() {
    let mut cache = cache(&[("a", "m", 2)]);
    assert!(!cache.insert(location("a", "z", 1, 9, 50)));
    assert!(!cache.insert(location("a", "m", 2, 9, 4)));
    assert_eq!(cache.holding(&table(), b"b").unwrap().server, server(1));
    assert!(cache.insert(location("a", "m", 2, 9, 6)));
    assert_eq!(cache.holding(&table(), b"b").unwrap().server, server(9));
    assert_eq!(cache.len(), 1);
}

#[test]
fn a_failure_forgets_only_the_location_that_failed() {
    let mut cache = cache(&[("a", "m", 2)]);
    let old = location("a", "m", 2, 1, 5);
    assert!(cache.insert(location("a", "m", 2, 9, 6)));
    cache.failed(&old);
    assert_eq!(cache.len(), 1);
    // The same server opened it again meanwhile.
    let mut again = self::cache(&[("a", "m", 2)]);
    assert!(again.insert(location("a", "m", 2, 1, 8)));
    again.failed(&old);
    assert_eq!(again.len(), 1);
    again.failed(&location("a", "m", 2, 1, 8));
    assert!(again.is_empty());
}

#[test]
fn a_move_is_believed_only_if_it_is_younger() {
    let mut cache = cache(&[("a", "m", 2)]);
    let old = location("a", "m", 2, 1, 5);
    let to = |seq_num| MovedTo { server: server(7), seq_num };
    let news = cache.moved(&old, &to(8)).unwrap();
    assert_eq!((news.server.clone(), news.seq_num), (server(7), 8));
    assert_eq!(cache.holding(&table(), b"b"), Some(&news));
    // The second server sends back to the first one with the same number.
    let back = MovedTo { server: server(1), seq_num: 8 };
    assert_eq!(cache.moved(&news, &back), None);
    assert!(cache.is_empty());
    assert_eq!(cache.moved(&old, &to(5)), None);
}

#[test]
fn a_gone_server_takes_its_regions_along_but_not_those_of_its_next_life() {
    let mut cache = cache(&[("a", "b", 1), ("b", "c", 1)]);
    let reborn = ServerName::new("rs", 1, 2);
    let next = RegionLocation { region: region("c", "d", 1), server: reborn, seq_num: 1 };
    assert!(cache.insert(next));
    assert_eq!(cache.server_gone(&server(1)), 2);
    assert_eq!(cache.len(), 1);
    cache.table_gone(&table());
    assert!(cache.is_empty());
}

#[test]
fn the_bound_holds() {
    let mut cache = RegionCache::new(3);
    for start in 'a'..='z' {
        let end = char::from(start as u8 + 1).to_string();
        assert!(cache.insert(location(&start.to_string(), &end, 1, 1, 1)));
        assert!(cache.len() <= 3);
        check(&cache, &start.to_string(), Some(&start.to_string()));
    }
}

proptest! {
    /// Whatever comes, regions never overlap one that is younger and starts at the same key, and
    /// the count is the truth.
    #[test]
    fn what_is_found_holds_the_row(
        steps in vec((0..6_u8, 1..6_u8, 0..4_u64, 0..3_u16, 0..4_i64, any::<bool>()), 0..40),
        row in 0..9_u8,
    ) {
        let mut cache = RegionCache::new(5);
        for (start, length, id, port, seq_num, fail) in steps {
            let key = |at: u8| char::from(b'a' + at).to_string();
            let location = location(&key(start), &key(start + length), id, port, seq_num);
            if fail { cache.failed(&location) } else { cache.insert(location); }
            prop_assert!(cache.len() <= 5);
            let count: usize = cache.tables.values().map(BTreeMap::len).sum();
            prop_assert_eq!(count, cache.len());
        }
        let row = [b'a' + row];
        if let Some(found) = cache.holding(&table(), &row) {
            prop_assert!(found.region.contains(&row));
        }
    }
}

#[track_caller]
fn check_span(cache: &RegionCache, row: &str, start: &str, end: &str, exact: bool) {
    let span = cache.span(&table(), row.as_bytes());
    let expected = Span { start: start.to_owned().into(), end: end.to_owned().into(), exact };
    assert_eq!(span, expected, "{row}");
    assert!(span.contains(row.as_bytes()));
}

#[test]
fn a_row_without_a_region_lies_between_the_known_ones() {
    let cache = cache(&[("b", "d", 1), ("f", "h", 1)]);
    check_span(&cache, "a", "", "b", false);
    check_span(&cache, "d", "d", "f", false);
    check_span(&cache, "e", "d", "f", false);
    check_span(&cache, "x", "h", "", false);
    let empty = RegionCache::new(10);
    check_span(&empty, "x", "", "", false);
}

#[test]
fn a_region_that_lost_its_server_keeps_its_edges() {
    let mut cache = cache(&[("", "b", 1), ("b", "d", 1), ("d", "", 1)]);
    cache.failed(&location("b", "d", 1, 1, 5));
    check_span(&cache, "c", "b", "d", true);
    assert_eq!(cache.server_gone(&server(1)), 2);
    check_span(&cache, "a", "", "b", true);
    check_span(&cache, "z", "d", "", true);
    // Split: what is learned replaces what was, the rest is open.
    assert!(cache.insert(location("d", "m", 2, 2, 6)));
    check_span(&cache, "z", "m", "", false);
    assert!(cache.insert(location("m", "", 2, 2, 6)));
    // Merged.
    assert!(cache.insert(location("", "d", 3, 2, 9)));
    assert_eq!(cache.homeless_regions, 0);
    cache.failed(&location("", "d", 3, 2, 9));
    cache.table_gone(&table());
    check_span(&cache, "a", "", "", false);
    assert_eq!(cache.homeless_regions, 0);
}
