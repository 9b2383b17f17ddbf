#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::sync::Arc;

use proptest::prelude::*;
use regex::bytes::Regex;
use tsd_model::{TagkUid, TagvUid};
use tsd_storage::{SeriesSet, TagCondition};

use super::*;

/// True if the server returns the row.
fn passes(plan: &FilterPlan, key: &[u8]) -> bool {
    match plan {
        FilterPlan::NoServerFilter => true,
        FilterPlan::NoRow => false,
        FilterPlan::Keys(keys) => keys.iter().any(|one| one == key),
        FilterPlan::Tests(tests) => tests.iter().all(|test| match test {
            KeyTest::Pattern(text) => Regex::new(&format!("(?s-u){text}")).unwrap().is_match(key),
            KeyTest::Fuzzy(keys) => keys.iter().any(|fuzzy| {
                fuzzy.iter().zip(key).all(|(expected, byte)| expected.is_none_or(|b| b == *byte))
            }),
        }),
    }
}

/// A small set of two-byte UIDs, so that they collide; some have a meaning in regular expressions.
fn uid() -> impl Strategy<Value = Bytes> {
    prop::sample::select(vec![
        &b"\0\x01"[..],
        b"\0\x02",
        b"\0\n",
        b"\n\n",
        b"\\E",
        b".*",
        b"\xff\xff",
        b"\x80\x01",
    ])
    .prop_map(Bytes::from_static)
}

fn condition(tagk: &[u8], tagvs: Option<&[Bytes]>) -> TagCondition {
    TagCondition {
        tagk: TagkUid::try_new(tagk).unwrap(),
        tagvs: tagvs.map(|tagvs| tagvs.iter().map(|v| TagvUid::try_new(v).unwrap()).collect()),
    }
}

fn sorted<T: Ord>(mut of: Vec<T>) -> Vec<T> {
    of.sort();
    of.dedup();
    of
}

const HEAD: usize = 3;

fn tags() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::btree_map(uid(), uid(), 0..4)
        .prop_map(|tags| tags.into_iter().flat_map(|(k, v)| [k, v]).flatten().collect())
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let head = prop::sample::select(vec![b"mtt", b"m\n\n", b"\xff\xff\xff"]);
    // Some keys are malformed.
    (head, tags(), prop::bool::weighted(0.1))
        .prop_map(|(head, tags, cut)| [&head[usize::from(cut)..], &tags].concat())
}

fn pattern() -> impl Strategy<Value = RowFilter> {
    let values = prop::option::of(prop::collection::vec(uid(), 0..4).prop_map(sorted));
    (prop::collection::btree_map(uid(), values, 0..4), any::<bool>()).prop_map(
        |(conditions, explicit)| {
            let conditions =
                conditions.iter().map(|(tagk, tagvs)| condition(tagk, tagvs.as_deref())).collect();
            let (tagk_width, tagv_width) = (2, 2);
            let tags =
                TagPattern { tags_start: HEAD, tagk_width, tagv_width, conditions, explicit };
            RowFilter::Tags(Arc::new(tags))
        },
    )
}

fn one_filter() -> impl Strategy<Value = RowFilter> {
    let members = |member: BoxedStrategy<Vec<u8>>| {
        prop::collection::vec(member.prop_map(Bytes::from), 0..8).prop_map(sorted)
    };
    prop_oneof![
        4 => pattern(),
        2 => members(tags().boxed()).prop_map(|tags| {
            RowFilter::Series(Arc::new(SeriesSet { tags_start: HEAD, tags }))
        }),
        1 => members(key().boxed()).prop_map(|keys| RowFilter::Keys(Arc::new(keys))),
    ]
}

fn filter() -> impl Strategy<Value = RowFilter> {
    prop_oneof![
        4 => one_filter(),
        1 => prop::collection::vec(one_filter(), 0..3).prop_map(RowFilter::All),
    ]
}

/// Only rows with malformed keys may pass the server without matching.
fn is_well_formed(key: &[u8]) -> bool {
    key.get(HEAD..).is_some_and(|tags| tags.len() % 4 == 0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn server_filter_accepts_matching_and_few_other_rows(
        filter in filter(),
        keys in prop::collection::vec(key(), 1..20),
    ) {
        let scan = Scan {
            start: Bytes::from_static(b"m"),
            stop: Bytes::from_static(b"n"),
            filter: Some(filter.clone()),
            ..Scan::default()
        };
        let plan = FilterPlan::plan(&scan);
        for key in keys.iter().filter(|key| key.starts_with(b"m")) {
            let (matching, sent) = (filter.matches(key), passes(&plan, key));
            prop_assert!(sent || !matching, "{key:02x?} does not pass {plan:?}");
            // Explicit keys are checked before they are read.
            let exact = is_well_formed(key) && !matches!(plan, FilterPlan::Keys(_));
            prop_assert!(matching || !sent || !exact, "{key:02x?} passes {plan:?}");
        }
    }
}

#[test]
fn pattern_of_tags_is_anchored_and_ordered() {
    let values = [&[0, 0, 9], &[0, 1, 9]].map(|value| Bytes::from_static(value));
    let mut tags = TagPattern {
        tags_start: 7,
        tagk_width: 3,
        tagv_width: 3,
        conditions: vec![condition(&[0, 0, 1], None), condition(&[0, 0, 2], Some(&values))],
        explicit: false,
    };
    let text = |tags: &TagPattern| match plan_tags(tags, b"abc") {
        FilterPlan::Tests(tests) => tests,
        other => panic!("{other:?}"),
    };
    let pattern =
        r"^.{7}(?:.{6})*\x00\x00\x01.{3}(?:.{6})*\x00\x00\x02\x00[\x00-\x01]\x09(?:.{6})*\z";
    assert_eq!(text(&tags), [KeyTest::Pattern(pattern.to_owned())]);
    tags.explicit = true;
    let [KeyTest::Fuzzy(keys), KeyTest::Pattern(pattern)] = &text(&tags)[..] else { panic!() };
    assert_eq!(pattern, r"^.{7}\x00\x00\x01.{3}\x00\x00\x02\x00[\x00-\x01]\x09\z");
    let shown: Vec<String> = keys
        .iter()
        .map(|key| key.iter().map(|b| b.map_or("?".to_owned(), |b| format!("{b:x}"))).collect())
        .collect();
    assert_eq!(shown, ["616263????001???002009", "616263????001???002019"]);
}

#[test]
fn filter_without_matches_makes_no_call() {
    let none = TagPattern {
        tags_start: 7,
        tagk_width: 3,
        tagv_width: 3,
        conditions: vec![condition(b"abc", Some(&[]))],
        explicit: false,
    };
    assert_eq!(plan_tags(&none, b""), FilterPlan::NoRow);
    let none = RowFilter::Series(Arc::new(SeriesSet { tags_start: 7, tags: Vec::new() }));
    let both = RowFilter::All(vec![RowFilter::Keys(Arc::default()), none]);
    assert_eq!(plan_filter(&both, b""), FilterPlan::NoRow);
}

#[test]
fn too_many_values_match_any_value() {
    let scattered = |count: u32| -> Vec<Bytes> {
        (0..count).map(|i| Bytes::copy_from_slice(&(i * 7_919).to_be_bytes())).collect()
    };
    let tags = TagPattern {
        tags_start: 0,
        tagk_width: 1,
        tagv_width: 4,
        conditions: vec![condition(b"k", Some(&scattered(20_000)))],
        explicit: false,
    };
    assert_eq!(
        plan_tags(&tags, b""),
        FilterPlan::Tests(vec![KeyTest::Pattern(r"^(?:.{5})*\x6b.{4}(?:.{5})*\z".to_owned())])
    );
    let series = SeriesSet { tags_start: 0, tags: scattered(20_000) };
    assert_eq!(plan_filter(&RowFilter::Series(Arc::new(series)), b""), FilterPlan::NoServerFilter);
}

#[test]
fn the_server_skips_to_tags_whose_position_is_known() {
    let plan = |conditions: &[(&'static [u8], Option<usize>)]| {
        let value = |n: usize| Bytes::copy_from_slice(&(n as u16 + 1).to_be_bytes());
        let conditions = conditions
            .iter()
            .map(|(tagk, values)| {
                let values = values.map(|count| (0..count).map(value).collect::<Vec<_>>());
                condition(tagk, values.as_deref())
            })
            .collect();
        let (tagk_width, tagv_width, explicit) = (2, 2, false);
        let tags = TagPattern { tags_start: HEAD, tagk_width, tagv_width, conditions, explicit };
        let FilterPlan::Tests(tests) = plan_tags(&tags, b"m") else { panic!("tests") };
        match tests.first() {
            Some(KeyTest::Fuzzy(keys)) => (keys.len(), keys[0].len() - HEAD),
            _ => (0, 0),
        }
    };
    let (first, second, other) = (&b"\0\x01"[..], &b"\0\x02"[..], &b"\0\x09"[..]);
    assert_eq!(plan(&[(first, Some(1))]), (1, 4));
    assert_eq!(plan(&[(first, Some(3)), (second, Some(2))]), (6, 8));
    assert_eq!(plan(&[(first, Some(3)), (other, Some(2))]), (3, 4));
    // Other tags may come before these, or a tag has too many values.
    assert_eq!(plan(&[(second, Some(1))]), (0, 0));
    assert_eq!(plan(&[(first, None)]), (0, 0));
    assert_eq!(plan(&[(first, Some(40))]), (0, 0));
    assert_eq!(plan(&[(first, Some(20)), (second, Some(20))]), (20, 4));
}
