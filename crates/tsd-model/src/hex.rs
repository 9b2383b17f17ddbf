//! Upper-case hexadecimal, the text form of UIDs and TSUIDs.

const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// Bytes as upper-case hex without separators.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|b| [b >> 4, b & 15])
        .filter_map(|nibble| DIGITS.get(usize::from(nibble)))
        .map(|digit| char::from(*digit))
        .collect()
}

/// Bytes of a hex text of either case; `None` for a text that is not pairs of hex digits.
#[must_use]
pub fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.chunks_exact(2)
        .map(|pair| match pair {
            [high, low] => Some((nibble(*high)? << 4) | nibble(*low)?),
            _ => None,
        })
        .collect()
}

const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_inverts_encode() {
        let bytes = [0, 1, 0xAB, 0xFF];
        assert_eq!(to_hex(&bytes), "0001ABFF");
        assert_eq!(from_hex(b"0001abFF"), Some(bytes.to_vec()));
    }

    #[test]
    fn half_bytes_and_other_letters_are_rejected() {
        assert_eq!(from_hex(b"ABC"), None);
        assert_eq!(from_hex(b"0G"), None);
    }
}
