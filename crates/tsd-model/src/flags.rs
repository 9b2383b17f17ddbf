//! The low four bits of a point qualifier: type and length of the value.

/// Type and length of a value: bit 3 is set for floating point, bits 2 to 0 are the length minus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flags(u8);

impl Flags {
    /// Single precision.
    pub const SINGLE: Self = Self(0xB);
    /// Double precision.
    pub const DOUBLE: Self = Self(0xF);

    /// Flags from the low four bits of `bits`.
    #[must_use]
    #[inline]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & 0xF)
    }

    /// Flags of an integer on `len` bytes (1, 2, 4 or 8).
    #[must_use]
    #[inline]
    pub const fn integer(len: usize) -> Option<Self> {
        match len {
            1 | 2 | 4 | 8 => Some(Self(len as u8 - 1)),
            _ => None,
        }
    }

    /// The four bits.
    #[must_use]
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// True for floating point.
    #[must_use]
    #[inline]
    pub const fn is_float(self) -> bool {
        self.0 & 8 != 0
    }

    /// Length of the value, 1 to 8 bytes; [`Self::is_valid`] checks it against the type.
    #[must_use]
    #[inline]
    pub const fn value_len(self) -> usize {
        (self.0 & 7) as usize + 1
    }

    /// True if the length is valid for the type.
    #[must_use]
    #[inline]
    pub const fn is_valid(self) -> bool {
        // Integers on 1, 2, 4, 8 bytes: 0, 1, 3, 7. Floating on 4 and 8: 11, 15.
        (0b1000_1000_1000_1011_u16 >> self.0) & 1 != 0
    }

    /// The same type with another length.
    #[must_use]
    #[inline]
    pub const fn with_len(self, len: usize) -> Option<Self> {
        if len == 0 || len > 8 {
            return None;
        }
        let flags = Self((self.0 & 8) | (len as u8 - 1));
        if flags.is_valid() { Some(flags) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_combinations_are_valid() {
        let valid: Vec<u8> = (0..16).filter(|b| Flags::from_bits(*b).is_valid()).collect();
        assert_eq!(valid, [0, 1, 3, 7, 11, 15]);
    }
}
