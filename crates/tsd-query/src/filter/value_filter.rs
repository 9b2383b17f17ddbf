//! Value filters, such as `{value=gt(16)}`: an extension of OpenTSDB's queries.
//!
//! They are applied to decoded points before all other operators.

use tsd_model::{PointColumns, Value, ValueKinds};

use crate::number::as_double;

/// A comparison that points must satisfy.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueFilter {
    /// Type name in lower case.
    pub kind: &'static str,
    /// The text between the parentheses, as given.
    pub filter: String,
    /// The comparison.
    pub comparison: Comparison,
}

/// Comparison of a value filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Comparison {
    /// Greater than.
    Gt(Value),
    /// Greater or equal.
    Ge(Value),
    /// Less than.
    Lt(Value),
    /// Less or equal.
    Le(Value),
    /// Equal as numbers.
    Eq(Value),
    /// Not equal as numbers.
    Ne(Value),
    /// Between the bounds, both included.
    Between(Value, Value),
    /// Below the first or above the second.
    Outside(Value, Value),
}

/// An invalid value filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueFilterError {
    /// A missing number.
    #[error("Missing number in value filter: {0}")]
    Missing(String),
    /// Text that is not a number, or too many numbers.
    #[error("Invalid number in value filter: {0}")]
    Invalid(String),
    /// A range whose upper bound is below its lower bound.
    #[error("Value filter {0} has its bounds in the wrong order")]
    Bounds(String),
}

const KINDS: &[&str] = &["gt", "ge", "lt", "le", "eq", "ne", "between", "outside"];

impl ValueFilter {
    /// The tag key of value filters in the short notation.
    pub const KEY: &'static str = "value";

    /// True if `kind` is the name of a type, ignoring case.
    #[must_use]
    pub fn is_kind(kind: &str) -> bool {
        KINDS.iter().any(|k| k.eq_ignore_ascii_case(kind))
    }

    /// Parses `gt(16)`; `None` if the text does not have the form of a value filter.
    #[must_use]
    pub fn parse(text: &str) -> Option<Result<Self, ValueFilterError>> {
        let (kind, rest) = text.split_once('(')?;
        let inner = rest.strip_suffix(')')?;
        let kind = kind.trim();
        Self::is_kind(kind).then(|| Self::try_new(kind, inner))
    }

    /// Builds a filter of a type (see [`Self::is_kind`]) from its operands as text.
    pub fn try_new(kind: &str, filter: &str) -> Result<Self, ValueFilterError> {
        let written = || format!("{}({filter})", kind.to_ascii_lowercase());
        let Some(kind) = KINDS.iter().find(|k| k.eq_ignore_ascii_case(kind)).copied() else {
            return Err(ValueFilterError::Invalid(written()));
        };
        let number = |text: &str| match text.trim() {
            "" => Err(ValueFilterError::Missing(written())),
            text => parse_number(text).ok_or_else(|| ValueFilterError::Invalid(written())),
        };
        let comparison = if matches!(kind, "between" | "outside") {
            let Some((low, high)) = filter.split_once(',') else {
                number(filter)?;
                return Err(ValueFilterError::Missing(written()));
            };
            let (low, high) = (number(low)?, number(high)?);
            if less(high, low) {
                return Err(ValueFilterError::Bounds(written()));
            }
            if kind == "between" {
                Comparison::Between(low, high)
            } else {
                Comparison::Outside(low, high)
            }
        } else {
            let operand = number(filter)?;
            match kind {
                "gt" => Comparison::Gt(operand),
                "ge" => Comparison::Ge(operand),
                "lt" => Comparison::Lt(operand),
                "le" => Comparison::Le(operand),
                "eq" => Comparison::Eq(operand),
                _ => Comparison::Ne(operand),
            }
        };
        Ok(Self { kind, filter: filter.trim().to_owned(), comparison })
    }

    /// True if the filter accepts this value.
    #[must_use]
    pub fn accepts(&self, value: Value) -> bool {
        match self.comparison {
            Comparison::Gt(a) => less(a, value),
            Comparison::Ge(a) => less(a, value) || equal(a, value),
            Comparison::Lt(a) => less(value, a),
            Comparison::Le(a) => less(value, a) || equal(a, value),
            Comparison::Eq(a) => equal(value, a),
            Comparison::Ne(a) => !equal(value, a),
            Comparison::Between(a, b) => {
                (less(a, value) || equal(a, value)) && (less(value, b) || equal(value, b))
            }
            Comparison::Outside(a, b) => less(value, a) || less(b, value),
        }
    }
}

/// Retains the points that all filters accept.
pub(crate) fn retain_values(filters: &[ValueFilter], columns: &mut PointColumns) {
    if filters.is_empty() {
        return;
    }
    let mut retained = PointColumns::default();
    for i in 0..columns.len() {
        if let (Some(value), Some(time)) = (columns.value(i), columns.times_ms.get(i))
            && filters.iter().all(|filter| filter.accepts(value))
        {
            retained.push(*time, value);
        }
    }
    if retained.is_empty() {
        retained.kinds = ValueKinds::AllIntegers;
    }
    *columns = retained;
}

fn less(a: Value, b: Value) -> bool {
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => a < b,
        _ => as_double(a) < as_double(b),
    }
}

#[expect(clippy::float_cmp, reason = "the filter compares for equality")]
fn equal(a: Value, b: Value) -> bool {
    match (a, b) {
        (Value::Integer(a), Value::Integer(b)) => a == b,
        _ => as_double(a) == as_double(b),
    }
}

/// Parses a decimal number; `inf` and `nan` are not accepted.
fn parse_number(text: &str) -> Option<Value> {
    if let Ok(integer) = text.parse::<i64>() {
        return Some(Value::Integer(integer));
    }
    if !text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E')) {
        return None;
    }
    text.parse::<f64>().ok().filter(|v| v.is_finite()).map(Value::Float)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, accepted: &[Value], rejected: &[Value]) {
        let filter = ValueFilter::parse(text);
        let Some(Ok(filter)) = filter else { panic!("{text}: {filter:?}") };
        for value in accepted {
            assert!(filter.accepts(*value), "{text} must keep {value:?}");
        }
        for value in rejected {
            assert!(!filter.accepts(*value), "{text} must drop {value:?}");
        }
    }

    fn int(v: i64) -> Value {
        Value::Integer(v)
    }

    fn float(v: f64) -> Value {
        Value::Float(v)
    }

    #[test]
    fn comparisons_are_numeric() {
        check("gt(16)", &[int(17), float(16.1)], &[int(16), float(f64::NAN)]);
        check("GE( 16 )", &[int(16), float(16.0)], &[int(15)]);
        check("lt(1.5)", &[int(1), float(1.4)], &[float(1.5)]);
        check("le(-2)", &[int(-2)], &[int(-1)]);
        check("eq(4)", &[int(4), float(4.0)], &[int(5), float(f64::NAN)]);
        check("ne(4)", &[int(5), float(f64::NAN)], &[float(4.0)]);
        check("between(0,10)", &[int(0), int(10)], &[int(11), int(-1)]);
        check("outside( 0 , 10 )", &[int(-1), float(10.5)], &[int(0), int(10)]);
        check("gt(9007199254740992)", &[int(9_007_199_254_740_993)], &[]);
    }

    #[test]
    fn other_texts_are_not_value_filters() {
        for text in ["*", "17", "literal_or(x)", "gt", "gt(1", "gt1)", ""] {
            assert!(ValueFilter::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn errors_name_the_filter() {
        let error_of = |text| match ValueFilter::parse(text) {
            Some(Err(e)) => e.to_string(),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(error_of("gt()"), "Missing number in value filter: gt()");
        assert_eq!(error_of("gt(x)"), "Invalid number in value filter: gt(x)");
        assert_eq!(error_of("gt(NaN)"), "Invalid number in value filter: gt(NaN)");
        assert_eq!(error_of("between(5)"), "Missing number in value filter: between(5)");
        assert_eq!(error_of("between(1,2,3)"), "Invalid number in value filter: between(1,2,3)");
        assert_eq!(
            error_of("between(5,1)"),
            "Value filter between(5,1) has its bounds in the wrong order"
        );
    }

    #[test]
    fn points_that_fail_one_filter_are_dropped() {
        let mut columns = PointColumns::default();
        for (time, value) in [(1, int(1)), (2, float(2.0)), (3, int(3)), (4, int(4))] {
            columns.push(time, value);
        }
        let filters: Vec<_> = ["gt(1)", "lt(4)"]
            .iter()
            .filter_map(|t| ValueFilter::parse(t).and_then(Result::ok))
            .collect();
        retain_values(&filters, &mut columns);
        assert_eq!(columns.times_ms, [2, 3]);
        assert_eq!(columns.value(0), Some(float(2.0)));
        assert_eq!(columns.value(1), Some(int(3)));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_rejected(text in "\\PC*") {
            let _ = ValueFilter::parse(&text);
        }
    }
}
