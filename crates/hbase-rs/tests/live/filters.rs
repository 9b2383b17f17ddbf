//! Server-side filters.

use futures_util::TryStreamExt;
use hbase_rs::{
    Scan, Selection,
    filter::{
        ColumnTest, Comparator, CompareOp, Filter, FuzzyKey, Interval, REGEX_DOTALL, quote_regex,
    },
};

use super::Fixture;

#[tokio::test]
#[ignore = "needs HBASE_QUORUM"]
async fn filters_select_the_expected_cells() {
    let fixture = Fixture::new("live_filters").await;
    fixture.fill().await;
    let mut quoted = b"^".to_vec();
    quote_regex(b"h00", &mut quoted);
    let test = |op| ColumnTest {
        family: "f".into(),
        qualifier: "q".into(),
        op,
        comparator: Comparator::binary("b000"),
        required: true,
        all_versions: false,
    };
    let fuzzy = FuzzyKey::new([None, Some(b'0'), Some(b'0'), Some(b'1')]);
    let ranges = [Interval::half_open("x", "y"), Interval::half_open("b", "c")];
    let all = 26 * 39;
    for (filter, expected) in [
        (Filter::prefix("c"), 39),
        (Filter::row(CompareOp::Equal, Comparator::binary_regex(&quoted, REGEX_DOTALL)), 10),
        (Filter::row(CompareOp::Equal, Comparator::regex("^[ab]00", 0)), 20),
        (Filter::row(CompareOp::Equal, Comparator::binary_prefix("d01")), 10),
        (Filter::row(CompareOp::Less, Comparator::binary("b")), 39),
        (Filter::row(CompareOp::Equal, Comparator::binary_component("000", 1)), 26),
        (Filter::fuzzy_rows([fuzzy]), 26),
        (Filter::row_ranges(ranges), 78),
        (Filter::qualifier(CompareOp::Equal, Comparator::binary("q")), all),
        (Filter::qualifier(CompareOp::NotEqual, Comparator::binary("q")), 0),
        (Filter::family(CompareOp::Equal, Comparator::substring("F")), all),
        (Filter::value(CompareOp::Equal, Comparator::substring("z00")), 10),
        (Filter::column_prefix("q"), all),
        (Filter::column_prefixes(["x".into(), "q".into()]), all),
        (Filter::column_range(Interval::half_open("a", "q")), 0),
        (Filter::column_page(0, 1), all),
        (Filter::column_count(1), all),
        (Filter::column_value("f", "q", CompareOp::Equal, Comparator::binary("k005")), 1),
        (Filter::single_column(test(CompareOp::Less)), 39),
        (Filter::single_column_exclude(test(CompareOp::Less)), 0),
        (Filter::timestamps([1_700_000_000_000, 5]), all),
        (Filter::inclusive_stop("a001"), 2),
        (Filter::random_row(1.0), all),
        (Filter::first_key_only(), all),
        (Filter::key_only(), all),
        (Filter::value_lengths(), all),
        (Filter::value(CompareOp::NotEqual, Comparator::binary("a000")).skip(), all - 1),
        (Filter::prefix("a").while_match(), 39),
        (
            Filter::all_of([
                Filter::prefix("a"),
                Filter::row(CompareOp::Less, Comparator::binary("a005")),
            ]),
            5,
        ),
        (Filter::any_of([Filter::prefix("a"), Filter::prefix("z")]), 78),
        (Filter::value(CompareOp::NotEqual, Comparator::null()), all),
    ] {
        let scan = Scan::all().select(Selection::all().filter(filter.clone()));
        let rows: Vec<_> = fixture.table.scan(scan).try_collect().await.unwrap();
        assert_eq!(rows.len(), expected, "{filter:?}");
    }
    fixture.delete().await;
}
