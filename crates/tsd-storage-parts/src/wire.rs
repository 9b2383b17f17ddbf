//! Encodes numbers and byte strings in blocks.

use crate::error::Malformed;

/// Appends a number with seven bits per byte, lowest bits first.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Appends a signed number. Small magnitudes take few bytes.
pub(crate) fn put_signed(out: &mut Vec<u8>, v: i64) {
    put_varint(out, ((v << 1) ^ (v >> 63)) as u64);
}

/// Reads numbers and bytes with bounds checks.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) const fn remaining(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let (&first, rest) = self.rest.split_first().ok_or(Malformed("cut short"))?;
        self.rest = rest;
        Ok(first)
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(count).ok_or(Malformed("cut short"))?;
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Malformed> {
        let mut v = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            v |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(v);
            }
        }
        Err(Malformed("a number over 64 bits"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64, Malformed> {
        let v = self.varint()?;
        Ok((v >> 1) as i64 ^ -((v & 1) as i64))
    }

    #[inline]
    pub(crate) fn varint_u32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.varint()?).map_err(|_| Malformed("a number over 32 bits"))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        let bytes = self.take(4)?;
        Ok(bytes.iter().rev().fold(0, |v, &b| v << 8 | u32::from(b)))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn reading_inverts_writing(v: u64, signed: i64, word: u32) {
            let mut out = Vec::new();
            put_varint(&mut out, v);
            put_signed(&mut out, signed);
            out.extend_from_slice(&word.to_le_bytes());
            let mut cursor = Cursor::new(&out);
            prop_assert_eq!(cursor.varint().unwrap(), v);
            prop_assert_eq!(cursor.signed().unwrap(), signed);
            prop_assert_eq!(cursor.u32().unwrap(), word);
            prop_assert_eq!(cursor.remaining(), 0);
            prop_assert!(cursor.byte().is_err());
        }
    }
}
