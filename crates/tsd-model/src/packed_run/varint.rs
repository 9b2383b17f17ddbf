//! Varints, and a bounds-checked reader.

use super::error::PackedRunError;

/// Encoded length of a number, bytes.
pub(super) const fn len(v: u64) -> usize {
    (64 - (v | 1).leading_zeros() as usize).div_ceil(7)
}

/// Appends seven bits per byte, lowest first.
pub(super) fn put(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Maps signed numbers to unsigned ones of similar magnitude.
pub(super) const fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

/// Inverse of [`zigzag`].
pub(super) const fn unzigzag(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}

const SHORT: PackedRunError = PackedRunError::Damaged("cut short");

/// Bytes not read yet.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// A second reader at the same position.
    pub(super) const fn fork(&self) -> Self {
        Self { rest: self.rest }
    }

    pub(super) const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Fails if unread bytes remain.
    pub(super) fn ended(&self) -> Result<(), PackedRunError> {
        if self.rest.is_empty() { Ok(()) } else { Err(PackedRunError::Damaged("bytes left over")) }
    }

    pub(super) fn byte(&mut self) -> Result<u8, PackedRunError> {
        let (&first, rest) = self.rest.split_first().ok_or(SHORT)?;
        self.rest = rest;
        Ok(first)
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], PackedRunError> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(SHORT)?;
        self.rest = rest;
        Ok(head)
    }

    pub(super) fn varint(&mut self) -> Result<u64, PackedRunError> {
        let mut v = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if shift == 63 && bits > 1 {
                break;
            }
            v |= bits << shift;
            if byte < 0x80 {
                return Ok(v);
            }
        }
        Err(PackedRunError::Damaged("number over 64 bits"))
    }

    pub(super) fn zigzag(&mut self) -> Result<i64, PackedRunError> {
        self.varint().map(unzigzag)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn decode_inverts_encode(v: u64, signed: i64) {
            let mut out = Vec::new();
            put(&mut out, v);
            prop_assert_eq!(out.len(), len(v));
            put(&mut out, zigzag(signed));
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint().unwrap(), v);
            prop_assert_eq!(reader.zigzag().unwrap(), signed);
            prop_assert_eq!(reader.remaining(), 0);
        }
    }

    #[test]
    fn eleven_bytes_are_rejected() {
        assert!(Reader::new(&[0xFF; 11]).varint().is_err());
        assert!(Reader::new(&[0x80, 0x80]).varint().is_err());
    }
}
