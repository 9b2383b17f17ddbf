//! Which cells of a row a read brings: columns, times, filters.

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use prost::Message;
use regex::bytes::Regex;

/// `DOTALL` of Java's patterns.
const DOTALL: i32 = 32;

/// What a get or a scan asks for.
#[derive(Debug)]
pub(crate) struct Wanted {
    columns: Vec<pb::Column>,
    times: Option<pb::TimeRange>,
    filter: Option<Test>,
}

/// A filter that was read. Others than these are not known here.
#[derive(Debug)]
enum Test {
    Row(Regex),
    Fuzzy(Vec<pb::BytesBytesPair>),
    ColumnIs { family: Bytes, qualifier: Bytes, value: Bytes },
    All(Vec<Test>),
    Any(Vec<Test>),
}

impl Wanted {
    pub(crate) fn of_get(get: &pb::Get) -> Self {
        Self::new(&get.column, get.time_range.as_ref(), get.filter.as_ref())
    }

    pub(crate) fn of_scan(scan: &pb::Scan) -> Self {
        Self::new(&scan.column, scan.time_range.as_ref(), scan.filter.as_ref())
    }

    /// Everything that passes a filter.
    pub(crate) fn of_filter(filter: &pb::Filter) -> Self {
        Self::new(&[], None, Some(filter))
    }

    fn new(
        columns: &[pb::Column],
        times: Option<&pb::TimeRange>,
        filter: Option<&pb::Filter>,
    ) -> Self {
        Self { columns: columns.to_vec(), times: times.copied(), filter: filter.map(test) }
    }

    pub(crate) fn cell(
        &self,
        row: &[u8],
        (family, qualifier): (&[u8], &[u8]),
        timestamp: u64,
        value: &[u8],
    ) -> bool {
        let column = self.columns.is_empty()
            || self.columns.iter().any(|column| {
                column.family == family
                    && (column.qualifier.is_empty()
                        || column.qualifier.iter().any(|one| *one == qualifier))
            });
        let time = self.times.is_none_or(|range| {
            timestamp >= range.from() && range.to.is_none_or(|to| timestamp < to)
        });
        let passes = |test: &Test| test.passes(row, (family, qualifier), value);
        column && time && self.filter.as_ref().is_none_or(passes)
    }
}

impl Test {
    fn passes(&self, row: &[u8], column: (&[u8], &[u8]), value: &[u8]) -> bool {
        match self {
            Self::Row(expression) => expression.is_match(row),
            // A row that is longer or shorter is compared as far as it goes.
            Self::Fuzzy(keys) => keys.iter().any(|pair| {
                let fixed = pair.first.iter().zip(&pair.second).zip(row);
                fixed.into_iter().all(|((byte, mask), found)| *mask != 0 || byte == found)
            }),
            Self::ColumnIs { family, qualifier, value: wanted } => {
                column == (&family[..], &qualifier[..]) && value == wanted
            }
            Self::All(tests) => tests.iter().all(|test| test.passes(row, column, value)),
            Self::Any(tests) => tests.iter().any(|test| test.passes(row, column, value)),
        }
    }
}

fn test(filter: &pb::Filter) -> Test {
    let body = filter.serialized_filter.clone().unwrap_or_default();
    match filter.name.rsplit('.').next().unwrap() {
        "RowFilter" => {
            let compare = pb::RowFilter::decode(body).unwrap().compare_filter;
            assert_eq!(compare.compare_op(), pb::CompareType::Equal, "of row filters");
            Test::Row(expression(&compare.comparator.unwrap()))
        }
        "FuzzyRowFilter" => Test::Fuzzy(pb::FuzzyRowFilter::decode(body).unwrap().fuzzy_keys_data),
        "ColumnValueFilter" => {
            let filter = pb::ColumnValueFilter::decode(body).unwrap();
            assert_eq!(filter.compare_op(), pb::CompareType::Equal, "of column values");
            let comparator = filter.comparator.serialized_comparator.unwrap();
            let comparator = pb::BinaryComparator::decode(comparator).unwrap();
            Test::ColumnIs {
                family: filter.family,
                qualifier: filter.qualifier,
                value: comparator.comparable.value.unwrap_or_default(),
            }
        }
        "FilterList" => {
            let list = pb::FilterList::decode(body).unwrap();
            let tests = list.filters.iter().map(test).collect();
            match list.operator() {
                pb::filter_list::Operator::MustPassAll => Test::All(tests),
                pb::filter_list::Operator::MustPassOne => Test::Any(tests),
            }
        }
        other => panic!("the fake cluster does not know the filter {other}"),
    }
}

/// Java's expression as one of ours. They agree on what is plain ASCII, `\xHH`, groups, classes and
/// repetitions.
fn expression(comparator: &pb::Comparator) -> Regex {
    let body = comparator.serialized_comparator.clone().unwrap();
    let comparator = pb::RegexStringComparator::decode(body).unwrap();
    assert_eq!((comparator.pattern_flags, &*comparator.charset), (DOTALL, "ISO-8859-1"));
    assert!(comparator.pattern.is_ascii());
    Regex::new(&format!("(?s-u){}", comparator.pattern)).unwrap()
}
