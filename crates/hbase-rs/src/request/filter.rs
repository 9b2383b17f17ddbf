//! Filters and comparators that run on the server.
//!
//! Each is the name of a Java class and that class's own message. A server without the class, or
//! with a pattern that it cannot read, refuses the whole request for good.

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use prost::Message;

const PACKAGE: &str = "org.apache.hadoop.hbase.filter.";

/// How two values compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompareOp {
    /// `<`
    Less,
    /// `≤`
    LessOrEqual,
    /// `=`
    Equal,
    /// `≠`
    NotEqual,
    /// `≥`
    GreaterOrEqual,
    /// `>`
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

/// What a filter compares with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparator(pb::Comparator);

/// `DOTALL` of `java.util.regex.Pattern`: a dot is any byte, a line's end too.
pub const REGEX_DOTALL: i32 = 32;

impl Comparator {
    fn of(class: &str, message: &impl Message) -> Self {
        Self(pb::Comparator {
            name: format!("{PACKAGE}{class}"),
            serialized_comparator: Some(message.encode_to_vec().into()),
        })
    }

    /// By byte order.
    pub fn binary(value: impl Into<Bytes>) -> Self {
        Self::of("BinaryComparator", &pb::BinaryComparator { comparable: comparable(value) })
    }

    /// By byte order of the first bytes, as many as `value` has.
    pub fn binary_prefix(value: impl Into<Bytes>) -> Self {
        Self::of(
            "BinaryPrefixComparator",
            &pb::BinaryPrefixComparator { comparable: comparable(value) },
        )
    }

    /// By byte order of the bytes at `offset`.
    pub fn binary_component(value: impl Into<Bytes>, offset: u32) -> Self {
        Self::of(
            "BinaryComponentComparator",
            &pb::BinaryComponentComparator { value: value.into(), offset },
        )
    }

    /// As signed numbers of eight bytes.
    #[must_use]
    pub fn long(value: i64) -> Self {
        let comparable = comparable(value.to_be_bytes().to_vec());
        Self::of("LongComparator", &pb::LongComparator { comparable })
    }

    /// By whether the value is there at all.
    #[must_use]
    pub fn null() -> Self {
        Self::of("NullComparator", &pb::NullComparator {})
    }

    /// By whether the text occurs, in lower case.
    pub fn substring(text: impl Into<String>) -> Self {
        Self::of("SubstringComparator", &pb::SubstringComparator { substr: text.into() })
    }

    /// By a Java regular expression on UTF-8 text. It is not anchored.
    pub fn regex(pattern: impl Into<String>, flags: i32) -> Self {
        Self::regex_in(pattern.into(), flags, "UTF-8")
    }

    /// By a Java regular expression on bytes. It is not anchored.
    ///
    /// A pattern travels as text, so each byte becomes the character of its number and the server
    /// turns the key's bytes into such characters too.
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

/// Appends `literal` to a Java pattern so that it matches itself and nothing else.
///
/// `\Q…\E` does so for all bytes but an `\E` among them, where the quotation is left and taken up again.
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

/// A range of rows or columns with its ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// Lower end; empty: open.
    pub start: Bytes,
    /// Whether the lower end belongs to it.
    pub include_start: bool,
    /// Upper end; empty: open.
    pub stop: Bytes,
    /// Whether the upper end belongs to it.
    pub include_stop: bool,
}

impl Interval {
    /// From `start` on, up to but not with `stop`.
    pub fn half_open(start: impl Into<Bytes>, stop: impl Into<Bytes>) -> Self {
        Self { start: start.into(), include_start: true, stop: stop.into(), include_stop: false }
    }
}

/// A key of which some bytes may be anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FuzzyKey {
    key: Bytes,
    mask: Bytes,
}

impl FuzzyKey {
    /// A key by its bytes; `None` stands for any.
    pub fn new(bytes: impl IntoIterator<Item = Option<u8>>) -> Self {
        let (key, mask): (Vec<_>, Vec<_>) =
            bytes.into_iter().map(|byte| byte.map_or((0, 1), |byte| (byte, 0))).unzip();
        Self { key: key.into(), mask: mask.into() }
    }
}

/// What a single column must look like for its row to pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnTest {
    /// Family of the column.
    pub family: Bytes,
    /// Qualifier of the column.
    pub qualifier: Bytes,
    /// Stored value on the left.
    pub op: CompareOp,
    /// Value on the right.
    pub comparator: Comparator,
    /// Whether a row without the column is left out.
    pub required: bool,
    /// Whether older versions count as well.
    pub all_versions: bool,
}

/// A filter that runs on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(pb::Filter);

impl From<Filter> for pb::Filter {
    fn from(filter: Filter) -> Self {
        filter.0
    }
}

impl Filter {
    fn of(class: &str, message: &impl Message) -> Self {
        Self(pb::Filter {
            name: format!("{PACKAGE}{class}"),
            serialized_filter: Some(message.encode_to_vec().into()),
        })
    }

    /// A filter of another class: its full name and its message.
    pub fn custom(class: impl Into<String>, message: impl Into<Bytes>) -> Self {
        Self(pb::Filter { name: class.into(), serialized_filter: Some(message.into()) })
    }

    /// Rows by their key.
    #[must_use]
    pub fn row(op: CompareOp, comparator: Comparator) -> Self {
        Self::of("RowFilter", &pb::RowFilter { compare_filter: compare(op, comparator) })
    }

    /// Cells by their qualifier.
    #[must_use]
    pub fn qualifier(op: CompareOp, comparator: Comparator) -> Self {
        Self::of(
            "QualifierFilter",
            &pb::QualifierFilter { compare_filter: compare(op, comparator) },
        )
    }

    /// Cells by their family.
    #[must_use]
    pub fn family(op: CompareOp, comparator: Comparator) -> Self {
        Self::of("FamilyFilter", &pb::FamilyFilter { compare_filter: compare(op, comparator) })
    }

    /// Cells by their value.
    #[must_use]
    pub fn value(op: CompareOp, comparator: Comparator) -> Self {
        Self::of("ValueFilter", &pb::ValueFilter { compare_filter: compare(op, comparator) })
    }

    /// Rows that begin so. The scan still starts where it is told to.
    pub fn prefix(prefix: impl Into<Bytes>) -> Self {
        Self::of("PrefixFilter", &pb::PrefixFilter { prefix: Some(prefix.into()) })
    }

    /// Cells without their values.
    #[must_use]
    pub fn key_only() -> Self {
        Self::of("KeyOnlyFilter", &pb::KeyOnlyFilter { len_as_val: false })
    }

    /// The length of each value in four bytes, instead of the value.
    #[must_use]
    pub fn value_lengths() -> Self {
        Self::of("KeyOnlyFilter", &pb::KeyOnlyFilter { len_as_val: true })
    }

    /// The first cell of each row.
    #[must_use]
    pub fn first_key_only() -> Self {
        Self::of("FirstKeyOnlyFilter", &pb::FirstKeyOnlyFilter {})
    }

    /// Columns that begin so.
    pub fn column_prefix(prefix: impl Into<Bytes>) -> Self {
        Self::of("ColumnPrefixFilter", &pb::ColumnPrefixFilter { prefix: prefix.into() })
    }

    /// Columns that begin with one of these.
    pub fn column_prefixes(prefixes: impl IntoIterator<Item = Bytes>) -> Self {
        let mut sorted_prefixes: Vec<_> = prefixes.into_iter().collect();
        sorted_prefixes.sort();
        Self::of("MultipleColumnPrefixFilter", &pb::MultipleColumnPrefixFilter { sorted_prefixes })
    }

    /// Columns of a range.
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

    /// `limit` columns of a row after the first `offset`.
    #[must_use]
    pub fn column_page(offset: i32, limit: i32) -> Self {
        let message =
            pb::ColumnPaginationFilter { limit, offset: Some(offset), column_offset: None };
        Self::of("ColumnPaginationFilter", &message)
    }

    /// The first `limit` columns of a row.
    #[must_use]
    pub fn column_count(limit: i32) -> Self {
        Self::of("ColumnCountGetFilter", &pb::ColumnCountGetFilter { limit })
    }

    /// Cells of one column by their value.
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

    /// Rows by the value of one column.
    #[must_use]
    pub fn single_column(test: ColumnTest) -> Self {
        Self::of("SingleColumnValueFilter", &single_column(test))
    }

    /// Rows by the value of one column, without that column.
    #[must_use]
    pub fn single_column_exclude(test: ColumnTest) -> Self {
        let message =
            pb::SingleColumnValueExcludeFilter { single_column_value_filter: single_column(test) };
        Self::of("SingleColumnValueExcludeFilter", &message)
    }

    /// Rows that match one of the keys.
    pub fn fuzzy_rows(keys: impl IntoIterator<Item = FuzzyKey>) -> Self {
        let pair = |key: FuzzyKey| pb::BytesBytesPair { first: key.key, second: key.mask };
        let fuzzy_keys_data = keys.into_iter().map(pair).collect();
        // Servers 2.5 and 2.6 take a mask of zeros for a wildcard unless told of its form; others
        // do not know the field.
        let message = pb::FuzzyRowFilter { fuzzy_keys_data, is_mask_v2: Some(true) };
        Self::of("FuzzyRowFilter", &message)
    }

    /// Rows of any of the ranges.
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

    /// Cells of exactly these times.
    pub fn timestamps(timestamps: impl IntoIterator<Item = i64>) -> Self {
        let timestamps = timestamps.into_iter().collect();
        Self::of("TimestampsFilter", &pb::TimestampsFilter { timestamps, can_hint: Some(false) })
    }

    /// The first rows of each region, not of the table: a scan's own limit is mostly what is meant.
    #[must_use]
    pub fn page(rows: i64) -> Self {
        Self::of("PageFilter", &pb::PageFilter { page_size: rows })
    }

    /// Rows up to this one and with it.
    pub fn inclusive_stop(row: impl Into<Bytes>) -> Self {
        Self::of("InclusiveStopFilter", &pb::InclusiveStopFilter { stop_row_key: Some(row.into()) })
    }

    /// A share of the rows, by chance.
    #[must_use]
    pub fn random_row(chance: f32) -> Self {
        Self::of("RandomRowFilter", &pb::RandomRowFilter { chance })
    }

    /// Leaves out rows of which a cell is turned down.
    #[must_use]
    pub fn skip(self) -> Self {
        Self::of("SkipFilter", &pb::SkipFilter { filter: self.0 })
    }

    /// Ends with the first row that is turned down.
    #[must_use]
    pub fn while_match(self) -> Self {
        Self::of("WhileMatchFilter", &pb::WhileMatchFilter { filter: self.0 })
    }

    /// What passes all of them. Those that let the server seek (ranges, fuzzy keys, prefixes) go first.
    pub fn all_of(filters: impl IntoIterator<Item = Self>) -> Self {
        Self::list(pb::filter_list::Operator::MustPassAll, filters)
    }

    /// What passes any of them.
    pub fn any_of(filters: impl IntoIterator<Item = Self>) -> Self {
        Self::list(pb::filter_list::Operator::MustPassOne, filters)
    }

    fn list(operator: pb::filter_list::Operator, filters: impl IntoIterator<Item = Self>) -> Self {
        let filters = filters.into_iter().map(Into::into).collect();
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
        check(
            "filter-list",
            Filter::all_of([Filter::prefix(vec![0, 0, 1]), Filter::first_key_only()]),
        );
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
}
