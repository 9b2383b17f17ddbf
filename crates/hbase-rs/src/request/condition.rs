//! Conditions of check-and-mutate operations.

use bytes::Bytes;
use hbase_rs_protobuf as pb;

use super::{
    filter::{Comparator, CompareOp, Filter},
    selection::TimeRange,
};

/// Condition that a row must meet for a mutation to be applied.
///
/// For an absent column every comparison with a non-empty value is false, even
/// [`CompareOp::NotEqual`]. An empty stored value counts as absent.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    test: ConditionTest,
    time_range: Option<TimeRange>,
}

#[derive(Clone, Debug, PartialEq)]
enum ConditionTest {
    Column { family: Bytes, qualifier: Bytes, op: CompareOp, value: Bytes },
    Filter(Filter),
}

impl Condition {
    /// The column is absent or its value is empty.
    pub fn absent(family: impl Into<Bytes>, qualifier: impl Into<Bytes>) -> Self {
        Self::equals(family, qualifier, Bytes::new())
    }

    /// The column has this value.
    pub fn equals(
        family: impl Into<Bytes>,
        qualifier: impl Into<Bytes>,
        value: impl Into<Bytes>,
    ) -> Self {
        Self::compare(value, CompareOp::Equal, family, qualifier)
    }

    /// `value op stored` is true: the given value is on the left.
    pub fn compare(
        value: impl Into<Bytes>,
        op: CompareOp,
        family: impl Into<Bytes>,
        qualifier: impl Into<Bytes>,
    ) -> Self {
        let (family, qualifier, value) = (family.into(), qualifier.into(), value.into());
        Self { test: ConditionTest::Column { family, qualifier, op, value }, time_range: None }
    }

    /// A cell of the row passes the filter. Requires HBase 2.4.
    #[must_use]
    pub const fn filter(filter: Filter) -> Self {
        Self { test: ConditionTest::Filter(filter), time_range: None }
    }

    /// Considers only cells of this time range.
    #[must_use]
    pub const fn time_range(mut self, range: TimeRange) -> Self {
        self.time_range = Some(range);
        self
    }

    /// True if servers before 2.4 ignore a part of the condition.
    pub(crate) const fn needs_support(&self) -> bool {
        matches!(self.test, ConditionTest::Filter(_)) || self.time_range.is_some()
    }

    pub(crate) fn to_message(&self, row: &Bytes) -> pb::Condition {
        let base = pb::Condition {
            row: row.clone(),
            time_range: self.time_range.map(TimeRange::to_message),
            ..pb::Condition::default()
        };
        match &self.test {
            ConditionTest::Filter(filter) => {
                pb::Condition { filter: Some(filter.clone().into_message()), ..base }
            }
            ConditionTest::Column { family, qualifier, op, value } => pb::Condition {
                family: Some(family.clone()),
                qualifier: Some(qualifier.clone()),
                compare_type: Some(op.to_message().into()),
                comparator: Some(Comparator::binary(value.clone()).into_message()),
                ..base
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;
    use crate::recorded;

    #[test]
    fn absence_is_equality_with_an_empty_value() {
        let frame = recorded::vector("mutate-check-and-put-absent");
        let mut rest = frame.slice(4..);
        let header = prost::decode_length_delimiter(&mut rest).unwrap();
        let request = pb::MutateRequest::decode_length_delimited(rest.slice(header..)).unwrap();
        let expected = request.condition.unwrap();
        let family = expected.family.clone().unwrap();
        let condition = Condition::absent(family, expected.qualifier.clone().unwrap());
        // The recorded message has the default range.
        let condition = condition.time_range(TimeRange::try_new(0, i64::MAX as u64).unwrap());
        assert_eq!(condition.to_message(&expected.row), expected);
    }

    #[test]
    fn filter_condition_has_no_column() {
        let condition = Condition::filter(Filter::first_key_only())
            .time_range(TimeRange::try_new(1, 2).unwrap());
        let message = condition.to_message(&"r".into());
        assert!(
            message.filter.is_some() && message.family.is_none() && message.comparator.is_none()
        );
        assert_eq!(message.time_range, Some(pb::TimeRange { from: Some(1), to: Some(2) }));
    }
}
