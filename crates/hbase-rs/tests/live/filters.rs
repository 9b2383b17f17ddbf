//! Server-side filters.

use futures_util::TryStreamExt;
use hbase_rs::{Comparator, CompareOp, Filter, FuzzyKey, REGEX_DOTALL, Scan, Selection};

use super::Fixture;

#[tokio::test]
async fn filters_select_the_expected_cells() {
    let fixture = Fixture::new("live_filters").await;
    fixture.fill().await;
    let fuzzy = FuzzyKey::new([None, Some(b'0'), Some(b'0'), Some(b'1')]);
    for (filter, expected) in [
        (Filter::row(CompareOp::Equal, Comparator::binary_regex(b"^\\Qh00\\E", REGEX_DOTALL)), 10),
        (Filter::row(CompareOp::Less, Comparator::binary("b")), 39),
        (Filter::fuzzy_rows([fuzzy]), 26),
        (Filter::column_value("f", "q", CompareOp::Equal, Comparator::binary("k005")), 1),
        (
            Filter::all_of([
                Filter::row(CompareOp::Less, Comparator::binary("b")),
                Filter::row(CompareOp::Less, Comparator::binary("a005")),
            ]),
            5,
        ),
    ] {
        let scan = Scan::all().select(Selection::all().filter(filter.clone()));
        let rows: Vec<_> = fixture.table.scan(scan).try_collect().await.unwrap();
        assert_eq!(rows.len(), expected, "{filter:?}");
    }
    fixture.delete().await;
}
