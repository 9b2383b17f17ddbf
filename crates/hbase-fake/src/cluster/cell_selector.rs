//! Selection of the cells that a read returns: columns, time range, filter.

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use prost::Message;
use regex::bytes::Regex;

/// `java.util.regex.Pattern.DOTALL`.
const DOTALL: i32 = 32;

/// Columns, time range and filter of a get or a scan.
#[derive(Debug)]
pub(crate) struct CellSelector {
    columns: Vec<pb::Column>,
    times: Option<pb::TimeRange>,
    filter: Option<ParsedFilter>,
}

/// A supported filter.
#[derive(Debug)]
enum ParsedFilter {
    Row(Regex),
    Fuzzy(Vec<pb::BytesBytesPair>),
    ColumnIs { family: Bytes, qualifier: Bytes, value: Bytes },
    All(Vec<ParsedFilter>),
    Any(Vec<ParsedFilter>),
}

impl CellSelector {
    pub(crate) fn of_get(get: &pb::Get) -> Self {
        Self::new(&get.column, get.time_range.as_ref(), get.filter.as_ref())
    }

    pub(crate) fn of_scan(scan: &pb::Scan) -> Self {
        Self::new(&scan.column, scan.time_range.as_ref(), scan.filter.as_ref())
    }

    /// Selects all cells that pass a filter.
    pub(crate) fn of_filter(filter: &pb::Filter) -> Self {
        Self::new(&[], None, Some(filter))
    }

    fn new(
        columns: &[pb::Column],
        times: Option<&pb::TimeRange>,
        filter: Option<&pb::Filter>,
    ) -> Self {
        Self { columns: columns.to_vec(), times: times.copied(), filter: filter.map(parse_filter) }
    }

    pub(crate) fn matches(
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
        let passes = |filter: &ParsedFilter| filter.passes(row, (family, qualifier), value);
        column && time && self.filter.as_ref().is_none_or(passes)
    }
}

impl ParsedFilter {
    fn passes(&self, row: &[u8], column: (&[u8], &[u8]), value: &[u8]) -> bool {
        match self {
            Self::Row(expression) => expression.is_match(row),
            // A row of another length is compared up to the shorter length.
            Self::Fuzzy(keys) => keys.iter().any(|pair| {
                let fixed = pair.first.iter().zip(&pair.second).zip(row);
                fixed.into_iter().all(|((byte, mask), actual)| *mask != 0 || byte == actual)
            }),
            Self::ColumnIs { family, qualifier, value: expected } => {
                column == (&family[..], &qualifier[..]) && value == expected
            }
            Self::All(filters) => filters.iter().all(|filter| filter.passes(row, column, value)),
            Self::Any(filters) => filters.iter().any(|filter| filter.passes(row, column, value)),
        }
    }
}

fn parse_filter(filter: &pb::Filter) -> ParsedFilter {
    let body = filter.serialized_filter.clone().unwrap_or_default();
    match filter.name.rsplit('.').next().unwrap() {
        "RowFilter" => {
            let compare = pb::RowFilter::decode(body).unwrap().compare_filter;
            assert_eq!(compare.compare_op(), pb::CompareType::Equal, "operator of a row filter");
            ParsedFilter::Row(expression(&compare.comparator.unwrap()))
        }
        // Callers that ask for keys ignore additional cells.
        "FirstKeyOnlyFilter" | "KeyOnlyFilter" => ParsedFilter::All(Vec::new()),
        "FuzzyRowFilter" => {
            ParsedFilter::Fuzzy(pb::FuzzyRowFilter::decode(body).unwrap().fuzzy_keys_data)
        }
        "ColumnValueFilter" => {
            let filter = pb::ColumnValueFilter::decode(body).unwrap();
            assert_eq!(
                filter.compare_op(),
                pb::CompareType::Equal,
                "operator of a column value filter"
            );
            let comparator = filter.comparator.serialized_comparator.unwrap();
            let comparator = pb::BinaryComparator::decode(comparator).unwrap();
            ParsedFilter::ColumnIs {
                family: filter.family,
                qualifier: filter.qualifier,
                value: comparator.comparable.value.unwrap_or_default(),
            }
        }
        "FilterList" => {
            let list = pb::FilterList::decode(body).unwrap();
            let filters = list.filters.iter().map(parse_filter).collect();
            match list.operator() {
                pb::filter_list::Operator::MustPassAll => ParsedFilter::All(filters),
                pb::filter_list::Operator::MustPassOne => ParsedFilter::Any(filters),
            }
        }
        other => panic!("filter {other} is not supported by the fake cluster"),
    }
}

/// Compiles a Java expression. The syntaxes agree on plain ASCII, `\xHH`, groups, classes and
/// repetitions.
fn expression(comparator: &pb::Comparator) -> Regex {
    let body = comparator.serialized_comparator.clone().unwrap();
    let comparator = pb::RegexStringComparator::decode(body).unwrap();
    assert_eq!((comparator.pattern_flags, &*comparator.charset), (DOTALL, "ISO-8859-1"));
    assert!(comparator.pattern.is_ascii());
    Regex::new(&format!("(?s-u){}", comparator.pattern)).unwrap()
}
