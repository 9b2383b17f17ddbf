//! Server-side filters and comparators.
//!
//! Each is the name of a Java class and the message of that class. A server without the class, or one
//! that cannot parse a pattern, rejects the request permanently.

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use prost::Message;

const PACKAGE: &str = "org.apache.hadoop.hbase.filter.";

/// Comparison operator.
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
        let comparable = pb::ByteArrayComparable { value: Some(value.into()) };
        Self::of("BinaryComparator", &pb::BinaryComparator { comparable })
    }

    /// Tests bytes with an unanchored Java regular expression.
    ///
    /// Patterns are sent as text, so pattern and key are interpreted as ISO-8859-1.
    #[must_use]
    pub fn binary_regex(pattern: &[u8], flags: i32) -> Self {
        let message = pb::RegexStringComparator {
            pattern: pattern.iter().copied().map(char::from).collect(),
            pattern_flags: flags,
            charset: "ISO-8859-1".to_owned(),
            engine: None,
        };
        Self::of("RegexStringComparator", &message)
    }

    pub(crate) fn into_message(self) -> pb::Comparator {
        self.0
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

/// A server-side filter.
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

    /// Selects rows by key.
    #[must_use]
    pub fn row(op: CompareOp, comparator: Comparator) -> Self {
        let compare_filter = pb::CompareFilter {
            compare_op: op.to_message().into(),
            comparator: Some(comparator.into_message()),
        };
        Self::of("RowFilter", &pb::RowFilter { compare_filter })
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

    /// Selects rows that match one of the keys.
    pub fn fuzzy_rows(keys: impl IntoIterator<Item = FuzzyKey>) -> Self {
        let pair = |key: FuzzyKey| pb::BytesBytesPair { first: key.key, second: key.mask };
        let fuzzy_keys_data = keys.into_iter().map(pair).collect();
        // Without this field HBase 2.5 and 2.6 treat a mask of zeros as a wildcard; other versions
        // ignore it.
        let message = pb::FuzzyRowFilter { fuzzy_keys_data, is_mask_v2: Some(true) };
        Self::of("FuzzyRowFilter", &message)
    }

    /// Selects what passes all filters. Filters that let the server seek (ranges, fuzzy keys, prefixes)
    /// should be first.
    pub fn all_of(filters: impl IntoIterator<Item = Self>) -> Self {
        let operator = pb::filter_list::Operator::MustPassAll.into();
        let filters = filters.into_iter().map(Into::into).collect();
        Self::of("FilterList", &pb::FilterList { operator, filters })
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
    fn filters_encode_as_recorded() {
        let pattern = b"(?s)^.{7}(?:.{6})*\\Q\0\0\x01\0\0\xe9\\E(?:.{6})*$";
        check(
            "filter-row-regex",
            Filter::row(CompareOp::Equal, Comparator::binary_regex(pattern, REGEX_DOTALL)),
        );
        let any = [None; 4];
        let fuzzy = FuzzyKey::new([Some(0), Some(0), Some(1)].into_iter().chain(any));
        check("filter-fuzzy", Filter::fuzzy_rows([fuzzy]));
        let prefix = pb::PrefixFilter { prefix: Some(vec![0, 0, 1].into()) };
        let prefix = Filter::of("PrefixFilter", &prefix);
        let first_key = Filter::of("FirstKeyOnlyFilter", &pb::FirstKeyOnlyFilter {});
        check("filter-list", Filter::all_of([prefix, first_key]));
    }

    #[test]
    fn binary_patterns_are_iso_8859_1() {
        let Comparator(message) = Comparator::binary_regex(&[0x80, 0xff], 0);
        let body = message.serialized_comparator.unwrap();
        let body = pb::RegexStringComparator::decode(body).unwrap();
        assert_eq!(body.pattern, "\u{80}\u{ff}");
        assert_eq!(body.charset, "ISO-8859-1");
    }
}
