//! Server-side filters and comparators.
//!
//! Each filter or comparator consists of the name of a Java class and the message of that class. A server
//! without the class, or one that cannot parse a pattern, rejects the request permanently.

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use prost::Message;

const PACKAGE: &str = "org.apache.hadoop.hbase.filter.";

/// Comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompareOp {
    /// The left operand is less than the right one.
    Less,
    /// The left operand is less than the right one, or equal.
    LessOrEqual,
    /// The operands are equal.
    Equal,
    /// The operands differ.
    NotEqual,
    /// The left operand is greater than the right one, or equal.
    GreaterOrEqual,
    /// The left operand is greater than the right one.
    Greater,
}

impl CompareOp {
    pub(crate) const fn to_message(self) -> pb::CompareType {
        match self {
            Self::Less => pb::CompareType::Less,
            Self::LessOrEqual => pb::CompareType::LessOrEqual,
            Self::Equal => pb::CompareType::Equal,
            Self::NotEqual => pb::CompareType::NotEqual,
            Self::GreaterOrEqual => pb::CompareType::GreaterOrEqual,
            Self::Greater => pb::CompareType::Greater,
        }
    }
}

/// Comparator of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparator(pb::Comparator);

/// `DOTALL` of `java.util.regex.Pattern`: a dot also matches line terminators.
pub const REGEX_DOTALL: i32 = 32;

impl Comparator {
    fn of(class: &str, message: &impl Message) -> Self {
        Self(pb::Comparator {
            name: format!("{PACKAGE}{class}"),
            serialized_comparator: Some(message.encode_to_vec().into()),
        })
    }

    /// Compares byte strings lexicographically.
    pub fn binary(value: impl Into<Bytes>) -> Self {
        Self::of("BinaryComparator", &pb::BinaryComparator { comparable: comparable(value) })
    }

    /// Compares the prefix of the length of `value` lexicographically.
    pub fn binary_prefix(value: impl Into<Bytes>) -> Self {
        let comparable = comparable(value);
        Self::of("BinaryPrefixComparator", &pb::BinaryPrefixComparator { comparable })
    }

    /// Compares the bytes at `offset` lexicographically.
    pub fn binary_component(value: impl Into<Bytes>, offset: u32) -> Self {
        Self::of(
            "BinaryComponentComparator",
            &pb::BinaryComponentComparator { value: value.into(), offset },
        )
    }

    /// Compares signed eight-byte numbers.
    #[must_use]
    pub fn long(value: i64) -> Self {
        let comparable = comparable(value.to_be_bytes().to_vec());
        Self::of("LongComparator", &pb::LongComparator { comparable })
    }

    /// Tests for the presence of a value.
    #[must_use]
    pub fn null() -> Self {
        Self::of("NullComparator", &pb::NullComparator {})
    }

    /// Tests for a substring, ignoring case.
    pub fn substring(text: impl Into<String>) -> Self {
        Self::of("SubstringComparator", &pb::SubstringComparator { substr: text.into() })
    }

    /// Tests UTF-8 text with an unanchored Java regular expression.
    pub fn regex(pattern: impl Into<String>, flags: i32) -> Self {
        Self::regex_in(pattern.into(), flags, "UTF-8")
    }

    /// Tests bytes with an unanchored Java regular expression.
    ///
    /// Patterns are sent as text, so pattern and key are interpreted as ISO-8859-1.
    #[must_use]
    pub fn binary_regex(pattern: &[u8], flags: i32) -> Self {
        let text = pattern.iter().copied().map(char::from).collect();
        Self::regex_in(text, flags, "ISO-8859-1")
    }

    fn regex_in(pattern: String, flags: i32, charset: &str) -> Self {
        let message = pb::RegexStringComparator {
            pattern,
            pattern_flags: flags,
            charset: charset.to_owned(),
            engine: None,
        };
        Self::of("RegexStringComparator", &message)
    }

    pub(crate) fn into_message(self) -> pb::Comparator {
        self.0
    }
}

fn comparable(value: impl Into<Bytes>) -> pb::ByteArrayComparable {
    pb::ByteArrayComparable { value: Some(value.into()) }
}

/// Appends `literal`, quoted, to a Java pattern.
///
/// The literal is quoted by `\Q…\E`. An `\E` inside it ends the quotation, is escaped, and starts another
/// quotation.
pub fn quote_regex(literal: &[u8], pattern: &mut Vec<u8>) {
    pattern.extend_from_slice(b"\\Q");
    let mut rest = literal;
    while let Some(at) = rest.windows(2).position(|pair| pair == b"\\E") {
        let (before, after) = rest.split_at_checked(at + 2).unwrap_or((rest, &[]));
        pattern.extend_from_slice(before);
        pattern.extend_from_slice(b"\\\\E\\Q");
        rest = after;
    }
    pattern.extend_from_slice(rest);
    pattern.extend_from_slice(b"\\E");
}

/// Range of rows or columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// Lower bound; empty if unbounded.
    pub start: Bytes,
    /// True if the lower bound is inclusive.
    pub include_start: bool,
    /// Upper bound; empty if unbounded.
    pub stop: Bytes,
    /// True if the upper bound is inclusive.
    pub include_stop: bool,
}

impl Interval {
    /// Range from `start`, inclusive, to `stop`, exclusive.
    pub fn half_open(start: impl Into<Bytes>, stop: impl Into<Bytes>) -> Self {
        Self { start: start.into(), include_start: true, stop: stop.into(), include_stop: false }
    }
}

/// Row key with wildcard bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FuzzyKey {
    key: Bytes,
    mask: Bytes,
}

impl FuzzyKey {
    /// Builds a key from its bytes; `None` matches any byte.
    pub fn new(bytes: impl IntoIterator<Item = Option<u8>>) -> Self {
        let (key, mask): (Vec<_>, Vec<_>) =
            bytes.into_iter().map(|byte| byte.map_or((0, 1), |byte| (byte, 0))).unzip();
        Self { key: key.into(), mask: mask.into() }
    }
}

/// Test of a column that decides whether its row passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnTest {
    /// Family of the column.
    pub family: Bytes,
    /// Qualifier of the column.
    pub qualifier: Bytes,
    /// Operator; the stored value is on the left.
    pub op: CompareOp,
    /// Right operand.
    pub comparator: Comparator,
    /// True if rows without the column are filtered out.
    pub required: bool,
    /// True if older versions are tested as well.
    pub all_versions: bool,
}

/// A server-side filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(pb::Filter);

impl Filter {
    pub(crate) fn into_message(self) -> pb::Filter {
        self.0
    }

    fn of(class: &str, message: &impl Message) -> Self {
        Self(pb::Filter {
            name: format!("{PACKAGE}{class}"),
            serialized_filter: Some(message.encode_to_vec().into()),
        })
    }

    /// A filter of another Java class: full class name and encoded message.
    pub fn custom(class: impl Into<String>, message: impl Into<Bytes>) -> Self {
        Self(pb::Filter { name: class.into(), serialized_filter: Some(message.into()) })
    }

    /// Selects rows by key.
    #[must_use]
    pub fn row(op: CompareOp, comparator: Comparator) -> Self {
        Self::of("RowFilter", &pb::RowFilter { compare_filter: compare(op, comparator) })
    }

    /// Selects cells by qualifier.
    #[must_use]
    pub fn qualifier(op: CompareOp, comparator: Comparator) -> Self {
        Self::of(
            "QualifierFilter",
            &pb::QualifierFilter { compare_filter: compare(op, comparator) },
        )
    }

    /// Selects cells by family.
    #[must_use]
    pub fn family(op: CompareOp, comparator: Comparator) -> Self {
        Self::of("FamilyFilter", &pb::FamilyFilter { compare_filter: compare(op, comparator) })
    }

    /// Selects cells by value.
    #[must_use]
    pub fn value(op: CompareOp, comparator: Comparator) -> Self {
        Self::of("ValueFilter", &pb::ValueFilter { compare_filter: compare(op, comparator) })
    }

    /// Selects rows with a key prefix. The start row of the scan is unaffected.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        Self::of("PrefixFilter", &pb::PrefixFilter { prefix: Some(prefix.into()) })
    }

    /// Strips values.
    #[must_use]
    pub fn key_only() -> Self {
        Self::of("KeyOnlyFilter", &pb::KeyOnlyFilter { len_as_val: false })
    }

    /// Replaces each value by its length in four bytes.
    #[must_use]
    pub fn value_lengths() -> Self {
        Self::of("KeyOnlyFilter", &pb::KeyOnlyFilter { len_as_val: true })
    }

    /// Selects the first cell of each row.
    #[must_use]
    pub fn first_key_only() -> Self {
        Self::of("FirstKeyOnlyFilter", &pb::FirstKeyOnlyFilter {})
    }

    /// Selects columns with a qualifier prefix.
    pub fn column_prefix(prefix: impl Into<Bytes>) -> Self {
        Self::of("ColumnPrefixFilter", &pb::ColumnPrefixFilter { prefix: prefix.into() })
    }

    /// Selects columns with one of these qualifier prefixes.
    pub fn column_prefixes(prefixes: impl IntoIterator<Item = Bytes>) -> Self {
        let mut sorted_prefixes: Vec<_> = prefixes.into_iter().collect();
        sorted_prefixes.sort();
        Self::of("MultipleColumnPrefixFilter", &pb::MultipleColumnPrefixFilter { sorted_prefixes })
    }

    /// Selects columns in a range of qualifiers.
    #[must_use]
    pub fn column_range(range: Interval) -> Self {
        let end = |key: Bytes| Some(key).filter(|key| !key.is_empty());
        let message = pb::ColumnRangeFilter {
            min_column: end(range.start),
            min_column_inclusive: Some(range.include_start),
            max_column: end(range.stop),
            max_column_inclusive: Some(range.include_stop),
        };
        Self::of("ColumnRangeFilter", &message)
    }

    /// Selects `limit` columns of each row after the first `offset`.
    #[must_use]
    pub fn column_page(offset: i32, limit: i32) -> Self {
        let message =
            pb::ColumnPaginationFilter { limit, offset: Some(offset), column_offset: None };
        Self::of("ColumnPaginationFilter", &message)
    }

    /// Selects the first `limit` columns of each row.
    #[must_use]
    pub fn column_count(limit: i32) -> Self {
        Self::of("ColumnCountGetFilter", &pb::ColumnCountGetFilter { limit })
    }

    /// Selects cells of one column by value.
    pub fn column_value(
        family: impl Into<Bytes>,
        qualifier: impl Into<Bytes>,
        op: CompareOp,
        comparator: Comparator,
    ) -> Self {
        let message = pb::ColumnValueFilter {
            family: family.into(),
            qualifier: qualifier.into(),
            compare_op: op.to_message().into(),
            comparator: comparator.into_message(),
        };
        Self::of("ColumnValueFilter", &message)
    }

    /// Selects rows by the value of one column.
    #[must_use]
    pub fn single_column(test: ColumnTest) -> Self {
        Self::of("SingleColumnValueFilter", &single_column(test))
    }

    /// Selects rows by the value of one column and strips that column.
    #[must_use]
    pub fn single_column_exclude(test: ColumnTest) -> Self {
        let message =
            pb::SingleColumnValueExcludeFilter { single_column_value_filter: single_column(test) };
        Self::of("SingleColumnValueExcludeFilter", &message)
    }

    /// Selects rows that match one of the keys.
    pub fn fuzzy_rows(keys: impl IntoIterator<Item = FuzzyKey>) -> Self {
        let pair = |key: FuzzyKey| pb::BytesBytesPair { first: key.key, second: key.mask };
        let fuzzy_keys_data = keys.into_iter().map(pair).collect();
        // Without this field HBase 2.5 and 2.6 treat a mask of zeros as a wildcard; other versions
        // ignore it.
        let message = pb::FuzzyRowFilter { fuzzy_keys_data, is_mask_v2: Some(true) };
        Self::of("FuzzyRowFilter", &message)
    }

    /// Selects rows in any of the ranges.
    pub fn row_ranges(ranges: impl IntoIterator<Item = Interval>) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().collect();
        ranges.sort_by(|a, b| a.start.cmp(&b.start));
        let range = |range: Interval| pb::RowRange {
            start_row: Some(range.start),
            start_row_inclusive: Some(range.include_start),
            stop_row: Some(range.stop),
            stop_row_inclusive: Some(range.include_stop),
        };
        let row_range_list = ranges.into_iter().map(range).collect();
        Self::of("MultiRowRangeFilter", &pb::MultiRowRangeFilter { row_range_list })
    }

    /// Selects cells with these timestamps.
    pub fn timestamps(timestamps: impl IntoIterator<Item = i64>) -> Self {
        let timestamps = timestamps.into_iter().collect();
        Self::of("TimestampsFilter", &pb::TimestampsFilter { timestamps, can_hint: Some(false) })
    }

    /// Limits the rows per region. To limit the rows of a scan use
    /// [`Scan::limit`](super::scan::Scan::limit).
    #[must_use]
    pub fn page(rows: i64) -> Self {
        Self::of("PageFilter", &pb::PageFilter { page_size: rows })
    }

    /// Selects rows up to this one, inclusive.
    pub fn inclusive_stop(row: impl Into<Bytes>) -> Self {
        Self::of("InclusiveStopFilter", &pb::InclusiveStopFilter { stop_row_key: Some(row.into()) })
    }

    /// Selects rows at random with this probability.
    #[must_use]
    pub fn random_row(chance: f32) -> Self {
        Self::of("RandomRowFilter", &pb::RandomRowFilter { chance })
    }

    /// Filters out rows with a cell that does not pass.
    #[must_use]
    pub fn skip(self) -> Self {
        Self::of("SkipFilter", &pb::SkipFilter { filter: self.0 })
    }

    /// Ends the scan at the first row that does not pass.
    #[must_use]
    pub fn while_match(self) -> Self {
        Self::of("WhileMatchFilter", &pb::WhileMatchFilter { filter: self.0 })
    }

    /// Selects what passes all filters. Filters that let the server seek (ranges, fuzzy keys, prefixes)
    /// should be first.
    pub fn all_of(filters: impl IntoIterator<Item = Self>) -> Self {
        Self::list(pb::filter_list::Operator::MustPassAll, filters)
    }

    /// Selects what passes any of the filters.
    pub fn any_of(filters: impl IntoIterator<Item = Self>) -> Self {
        Self::list(pb::filter_list::Operator::MustPassOne, filters)
    }

    fn list(operator: pb::filter_list::Operator, filters: impl IntoIterator<Item = Self>) -> Self {
        let filters = filters.into_iter().map(Self::into_message).collect();
        Self::of("FilterList", &pb::FilterList { operator: operator.into(), filters })
    }
}

fn compare(op: CompareOp, comparator: Comparator) -> pb::CompareFilter {
    pb::CompareFilter {
        compare_op: op.to_message().into(),
        comparator: Some(comparator.into_message()),
    }
}

fn single_column(test: ColumnTest) -> pb::SingleColumnValueFilter {
    pb::SingleColumnValueFilter {
        family: Some(test.family),
        qualifier: Some(test.qualifier),
        compare_op: test.op.to_message().into(),
        comparator: test.comparator.into_message(),
        filter_if_missing: Some(test.required),
        latest_version_only: Some(!test.all_versions),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded;

    #[track_caller]
    fn check(vector: &str, filter: Filter) {
        let message: pb::Filter = filter.into_message();
        assert_eq!(message.encode_to_vec(), recorded::vector(vector));
    }

    #[test]
    fn filters_encode_as_recorded() {
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
        check(
            "filter-list",
            Filter::all_of([Filter::prefix(vec![0, 0, 1]), Filter::first_key_only()]),
        );
    }

    #[test]
    fn quoted_literal_may_contain_the_end_of_the_quotation() {
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
    fn binary_patterns_are_iso_8859_1() {
        let Comparator(message) = Comparator::binary_regex(&[0x80, 0xff], 0);
        let body = message.serialized_comparator.unwrap();
        let body = pb::RegexStringComparator::decode(body).unwrap();
        assert_eq!(body.pattern, "\u{80}\u{ff}");
        assert_eq!(body.charset, "ISO-8859-1");
    }

    #[test]
    fn unbounded_column_range_has_no_bounds() {
        let message: pb::Filter = Filter::column_range(Interval::default()).into_message();
        let range = pb::ColumnRangeFilter::decode(message.serialized_filter.unwrap()).unwrap();
        assert_eq!((range.min_column, range.max_column), (None, None));
    }
}
