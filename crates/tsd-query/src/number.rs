//! Conversion of point values to doubles.

use tsd_model::Value;

/// The value as a double; integers are rounded to the nearest double.
pub(crate) const fn as_double(value: Value) -> f64 {
    match value {
        Value::Integer(v) => v as f64,
        Value::Float(v) => v,
    }
}
