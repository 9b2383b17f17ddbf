//! Values of points and their encoding.
//!
//! Integers take the shortest of 1, 2, 4 and 8 bytes. Whether a floating point value takes 4 or 8
//! bytes depends on the interface (see [`crate::parse_point_value`]), so the width is part of the
//! value.

use std::ops::Deref;

use crate::{columns::Value, flags::Flags};

/// Value of one point as stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PointValue {
    /// Signed integer.
    Integer(i64),
    /// Single precision, 4 bytes.
    Single(f32),
    /// Double precision, 8 bytes.
    Double(f64),
}

/// Bytes of a value, one to eight, without allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodedValue {
    bytes: [u8; 8],
    len: u8,
}

impl Deref for EncodedValue {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&self.bytes)
    }
}

/// Value bytes that do not fit their flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// An integer of a length other than 1, 2, 4 or 8.
    #[error("integer value on {0} bytes, not on 8/4/2/1")]
    IntegerLength(usize),
    /// A floating value of a length other than 4 or 8.
    #[error("floating point value on {0} bytes, not on 8/4")]
    FloatLength(usize),
    /// The flags have another length.
    #[error("value of {actual} bytes where its qualifier says {expected}")]
    Length {
        /// Length in the qualifier.
        expected: usize,
        /// Length of the value.
        actual: usize,
    },
}

impl PointValue {
    /// Flags for the qualifier, and the bytes.
    #[must_use]
    #[inline]
    pub const fn encode(self) -> (Flags, EncodedValue) {
        match self {
            Self::Integer(v) => {
                let [b0, b1, b2, b3, b4, b5, b6, b7] = v.to_be_bytes();
                let (len, bytes) = if v == v as i8 as i64 {
                    (1, [b7, 0, 0, 0, 0, 0, 0, 0])
                } else if v == v as i16 as i64 {
                    (2, [b6, b7, 0, 0, 0, 0, 0, 0])
                } else if v == v as i32 as i64 {
                    (4, [b4, b5, b6, b7, 0, 0, 0, 0])
                } else {
                    (8, [b0, b1, b2, b3, b4, b5, b6, b7])
                };
                (Flags::from_bits(len - 1), EncodedValue { bytes, len })
            }
            Self::Single(v) => {
                let [b0, b1, b2, b3] = v.to_be_bytes();
                (Flags::SINGLE, EncodedValue { bytes: [b0, b1, b2, b3, 0, 0, 0, 0], len: 4 })
            }
            Self::Double(v) => (Flags::DOUBLE, EncodedValue { bytes: v.to_be_bytes(), len: 8 }),
        }
    }

    /// Decodes `bytes`, whose length must match `flags`.
    #[inline]
    pub fn decode(flags: Flags, bytes: &[u8]) -> Result<Self, ValueError> {
        if bytes.len() != flags.value_len() {
            return Err(ValueError::Length { expected: flags.value_len(), actual: bytes.len() });
        }
        if flags.is_float() {
            if let Ok(four) = <[u8; 4]>::try_from(bytes) {
                return Ok(Self::Single(f32::from_be_bytes(four)));
            }
            return match <[u8; 8]>::try_from(bytes) {
                Ok(eight) => Ok(Self::Double(f64::from_be_bytes(eight))),
                Err(_) => Err(ValueError::FloatLength(bytes.len())),
            };
        }
        match *bytes {
            [b0] => Ok(Self::Integer(i64::from(b0 as i8))),
            [b0, b1] => Ok(Self::Integer(i64::from(i16::from_be_bytes([b0, b1])))),
            [b0, b1, b2, b3] => Ok(Self::Integer(i64::from(i32::from_be_bytes([b0, b1, b2, b3])))),
            [b0, b1, b2, b3, b4, b5, b6, b7] => {
                Ok(Self::Integer(i64::from_be_bytes([b0, b1, b2, b3, b4, b5, b6, b7])))
            }
            _ => Err(ValueError::IntegerLength(bytes.len())),
        }
    }

    /// The value as used by queries: singles are widened.
    #[must_use]
    #[inline]
    pub fn widen(self) -> Value {
        match self {
            Self::Integer(v) => Value::Integer(v),
            Self::Single(v) => Value::Float(f64::from(v)),
            Self::Double(v) => Value::Float(v),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn invalid_lengths_are_errors() {
        assert_eq!(
            PointValue::decode(Flags::from_bits(2), &[1, 2, 3]),
            Err(ValueError::IntegerLength(3))
        );
        assert_eq!(PointValue::decode(Flags::from_bits(8), &[1]), Err(ValueError::FloatLength(1)));
        assert_eq!(
            PointValue::decode(Flags::SINGLE, &[1]),
            Err(ValueError::Length { expected: 4, actual: 1 })
        );
    }

    proptest! {
        #[test]
        fn decode_inverts_encode_of_integers(v: i64, shift in 0..64_u32) {
            let value = PointValue::Integer(v >> shift);
            let (flags, bytes) = value.encode();
            prop_assert_eq!(PointValue::decode(flags, &bytes), Ok(value));
            prop_assert!(flags.is_valid());
        }

        #[test]
        fn decode_inverts_encode_of_floats(single: u32, double: u64) {
            for value in [
                PointValue::Single(f32::from_bits(single)),
                PointValue::Double(f64::from_bits(double)),
            ] {
                let (flags, bytes) = value.encode();
                let decoded = PointValue::decode(flags, &bytes).map(PointValue::encode);
                prop_assert_eq!(decoded, Ok((flags, bytes)));
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bits: u8, bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let _ = PointValue::decode(Flags::from_bits(bits), &bytes);
        }
    }
}
