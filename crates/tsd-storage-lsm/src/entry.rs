//! Encoding of the values of tree entries: the cells.
//!
//! ```text
//! cell = timestamp | value          (the key has the row, the family and the qualifier)
//! ```
//!
//! A timestamp is a zigzag varint (seven bits per byte).

use bytes::Bytes;

/// Encodes the entry of a cell.
pub(crate) fn encode(value: &[u8], timestamp_ms: i64) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 7);
    put_varint(zigzag(timestamp_ms), &mut out);
    out.extend_from_slice(value);
    out
}

/// Decodes the entry of a cell: its timestamp and value.
pub(crate) fn decode(entry: &Bytes) -> Option<(i64, Bytes)> {
    let mut v = 0_u64;
    for (i, &byte) in entry.iter().enumerate().take(10) {
        v |= u64::from(byte & 0x7F) << (7 * i as u32);
        if byte < 0x80 {
            return Some((unzigzag(v), entry.slice(i + 1..)));
        }
    }
    None
}

fn put_varint(mut v: u64, out: &mut Vec<u8>) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

const fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

const fn unzigzag(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn decoding_undoes_encoding(value in prop::collection::vec(any::<u8>(), 0..20), ms: i64) {
            let (timestamp_ms, decoded) = decode(&encode(&value, ms).into()).unwrap();
            prop_assert_eq!((timestamp_ms, decoded.to_vec()), (ms, value));
        }

        #[test]
        fn arbitrary_bytes_decode_to_a_cell_or_none(bytes in prop::collection::vec(any::<u8>(), 0..30)) {
            let len = bytes.len();
            prop_assert!(decode(&bytes.into()).is_none_or(|(_, value)| value.len() < len));
        }
    }
}
