#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::sync::Arc;

use proptest::prelude::*;
use regex::bytes::Regex;
use tsd_storage::{SeriesSet, TagCondition};

use super::*;

/// What the server would let through.
fn passes(plan: &PushedDown, key: &[u8]) -> bool {
    match plan {
        PushedDown::Nothing => true,
        PushedDown::NoRow => false,
        PushedDown::Keys(keys) => keys.iter().any(|one| one == key),
        PushedDown::Tests(tests) => tests.iter().all(|test| match test {
            Test::Pattern(text) => Regex::new(&format!("(?s-u){text}")).unwrap().is_match(key),
            Test::Fuzzy(keys) => keys.iter().any(|fuzzy| {
                fuzzy.iter().zip(key).all(|(want, byte)| want.is_none_or(|want| want == *byte))
            }),
        }),
    }
}

/// UIDs of two bytes out of few, so that they meet; among them what means something in expressions.
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
    // Now and then a key that is none.
    (head, tags(), prop::bool::weighted(0.1))
        .prop_map(|(head, tags, cut)| [&head[usize::from(cut)..], &tags].concat())
}

fn pattern() -> impl Strategy<Value = RowFilter> {
    let values = prop::option::of(prop::collection::vec(uid(), 0..4).prop_map(sorted));
    (prop::collection::btree_map(uid(), values, 0..4), any::<bool>()).prop_map(
        |(conditions, explicit)| {
            let conditions =
                conditions.into_iter().map(|(tagk, tagvs)| TagCondition { tagk, tagvs }).collect();
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

/// Rows that the server lets through although they are not wanted: only those with keys that are none.
fn is_well_formed(key: &[u8]) -> bool {
    key.get(HEAD..).is_some_and(|tags| tags.len() % 4 == 0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_server_lets_through_what_matches_and_little_else(filter in filter(), keys in prop::collection::vec(key(), 1..20)) {
        let scan = Scan {
            start: Bytes::from_static(b"m"),
            stop: Bytes::from_static(b"n"),
            filter: Some(filter.clone()),
            ..Scan::default()
        };
        let plan = PushedDown::plan(&scan);
        for key in keys.iter().filter(|key| key.starts_with(b"m")) {
            let (wanted, sent) = (filter.matches(key), passes(&plan, key));
            prop_assert!(sent || !wanted, "{key:02x?} does not pass {plan:?}");
            // Keys are looked at before they are asked for.
            let exact = is_well_formed(key) && !matches!(plan, PushedDown::Keys(_));
            prop_assert!(wanted || !sent || !exact, "{key:02x?} passes {plan:?}");
        }
    }
}

#[test]
fn the_pattern_of_tags_is_anchored_and_in_order() {
    let wanted = |tagk: &'static [u8], tagvs: Option<&[&'static [u8]]>| TagCondition {
        tagk: Bytes::from_static(tagk),
        tagvs: tagvs.map(|values| values.iter().map(|v| Bytes::from_static(v)).collect()),
    };
    let mut tags = TagPattern {
        tags_start: 7,
        tagk_width: 3,
        tagv_width: 3,
        conditions: vec![
            wanted(&[0, 0, 1], None),
            wanted(&[0, 0, 2], Some(&[&[0, 0, 9], &[0, 1, 9]])),
        ],
        explicit: false,
    };
    let text = |tags: &TagPattern| match of_tags(tags, b"abc") {
        PushedDown::Tests(tests) => tests,
        other => panic!("{other:?}"),
    };
    let pattern =
        r"^.{7}(?:.{6})*\x00\x00\x01.{3}(?:.{6})*\x00\x00\x02\x00[\x00-\x01]\x09(?:.{6})*\z";
    assert_eq!(text(&tags), [Test::Pattern(pattern.to_owned())]);
    tags.explicit = true;
    let [Test::Fuzzy(keys), Test::Pattern(pattern)] = &text(&tags)[..] else { panic!() };
    assert_eq!(pattern, r"^.{7}\x00\x00\x01.{3}\x00\x00\x02\x00[\x00-\x01]\x09\z");
    let shown: Vec<String> = keys
        .iter()
        .map(|key| key.iter().map(|b| b.map_or("?".to_owned(), |b| format!("{b:x}"))).collect())
        .collect();
    assert_eq!(shown, ["616263????001???002009", "616263????001???002019"]);
}

#[test]
fn what_no_row_can_match_asks_no_server() {
    let none = TagPattern {
        tags_start: 7,
        tagk_width: 3,
        tagv_width: 3,
        conditions: vec![TagCondition {
            tagk: Bytes::from_static(b"abc"),
            tagvs: Some(Vec::new()),
        }],
        explicit: false,
    };
    assert_eq!(of_tags(&none, b""), PushedDown::NoRow);
    let none = RowFilter::Series(Arc::new(SeriesSet { tags_start: 7, tags: Vec::new() }));
    let both = RowFilter::All(vec![RowFilter::Keys(Arc::default()), none]);
    assert_eq!(of_filter(&both, b""), PushedDown::NoRow);
}

#[test]
fn values_too_many_for_a_pattern_are_any_value() {
    let scattered = |count: u32| -> Vec<Bytes> {
        (0..count).map(|i| Bytes::copy_from_slice(&(i * 7_919).to_be_bytes())).collect()
    };
    let tags = TagPattern {
        tags_start: 0,
        tagk_width: 1,
        tagv_width: 4,
        conditions: vec![TagCondition {
            tagk: Bytes::from_static(b"k"),
            tagvs: Some(scattered(20_000)),
        }],
        explicit: false,
    };
    assert_eq!(
        of_tags(&tags, b""),
        PushedDown::Tests(vec![Test::Pattern(r"^(?:.{5})*\x6b.{4}(?:.{5})*\z".to_owned())])
    );
    let series = SeriesSet { tags_start: 0, tags: scattered(20_000) };
    assert_eq!(of_filter(&RowFilter::Series(Arc::new(series)), b""), PushedDown::Nothing);
}
