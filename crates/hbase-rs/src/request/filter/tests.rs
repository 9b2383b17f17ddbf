use super::*;
use crate::recorded;

#[track_caller]
fn check(vector: &str, filter: Filter) {
    let message: pb::Filter = filter.into();
    assert_eq!(message.encode_to_vec(), recorded::vector(vector));
}

#[test]
fn filters_are_written_like_the_examples() {
    let mut pattern = b"(?s)^.{7}(?:.{6})*".to_vec();
    quote_regex(&[0, 0, 1, 0, 0, 0xe9], &mut pattern);
    pattern.extend_from_slice(b"(?:.{6})*$");
    check(
        "filter-row-regex",
        Filter::row(CompareOp::Equal, Comparator::binary_regex(&pattern, REGEX_DOTALL)),
    );
    check("filter-prefix", Filter::prefix(vec![0, 0, 1]));
    check("filter-key-only", Filter::key_only());
    check("filter-first-key-only", Filter::first_key_only());
    check(
        "filter-qualifier",
        Filter::qualifier(CompareOp::Equal, Comparator::binary(vec![0, 0xf3])),
    );
    check("filter-column-prefix", Filter::column_prefix(vec![5]));
    check(
        "filter-column-range",
        Filter::column_range(Interval::half_open(vec![0, 0], vec![0xf0, 0])),
    );
    check("filter-column-pagination", Filter::column_page(0, 100));
    check("filter-timestamps", Filter::timestamps([1, 300]));
    check("filter-page", Filter::page(25));
    let any = [None; 4];
    let fuzzy = FuzzyKey::new([Some(0), Some(0), Some(1)].into_iter().chain(any));
    check("filter-fuzzy", Filter::fuzzy_rows([fuzzy]));
    let (second, first) = (Interval::half_open("c", "d"), Interval::half_open("a", "b"));
    check("filter-multi-row-range", Filter::row_ranges([second, first]));
    check("filter-list", Filter::all_of([Filter::prefix(vec![0, 0, 1]), Filter::first_key_only()]));
}

#[test]
fn a_quoted_literal_may_hold_the_end_of_its_quotation() {
    for (literal, expected) in [
        (&b"a.b"[..], &b"\\Qa.b\\E"[..]),
        (b"", b"\\Q\\E"),
        (b"a\\Eb", b"\\Qa\\E\\\\E\\Qb\\E"),
        (b"\\E\\E", b"\\Q\\E\\\\E\\Q\\E\\\\E\\Q\\E"),
        (b"a\\", b"\\Qa\\\\E"),
    ] {
        let mut pattern = Vec::new();
        quote_regex(literal, &mut pattern);
        assert_eq!(pattern, expected, "{literal:?}");
    }
}

#[test]
fn bytes_of_a_pattern_become_characters_of_their_number() {
    let Comparator(message) = Comparator::binary_regex(&[0x80, 0xff], 0);
    let body = message.serialized_comparator.unwrap();
    let body = pb::RegexStringComparator::decode(body).unwrap();
    assert_eq!(body.pattern, "\u{80}\u{ff}");
    assert_eq!(body.charset, "ISO-8859-1");
}

#[test]
fn open_ends_of_a_column_range_are_absent() {
    let message: pb::Filter = Filter::column_range(Interval::default()).into();
    let range = pb::ColumnRangeFilter::decode(message.serialized_filter.unwrap()).unwrap();
    assert_eq!((range.min_column, range.max_column), (None, None));
}
