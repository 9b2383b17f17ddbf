//! The value of a point in the type and width of its cell.

/// The value of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Integer(i64),
    Single(f32),
    Double(f64),
}

/// True if single precision represents the double exactly.
pub(super) fn is_single(v: f64) -> bool {
    f64::from(v as f32).to_bits() == v.to_bits()
}
