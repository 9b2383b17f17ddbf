//! Finds the first special byte of a string, eight bytes at a time.

/// Repeats a byte eight times.
const fn splat(byte: u8) -> u64 {
    byte as u64 * 0x0101_0101_0101_0101
}

/// Counts the leading plain bytes of eight: not a quote, backslash, control character or non-ASCII
/// byte.
#[inline]
const fn plain_bytes(eight: [u8; 8]) -> usize {
    let word = u64::from_le_bytes(eight);
    let quote = word ^ splat(b'"');
    let backslash = word ^ splat(b'\\');
    // A borrow sets the top bit of a byte below the subtrahend. It may propagate to higher bytes,
    // which is harmless, since only the lowest one counts.
    let special = (quote.wrapping_sub(splat(1)) & !quote)
        | (backslash.wrapping_sub(splat(1)) & !backslash)
        | word.wrapping_sub(splat(0x20))
        | word;
    // Bytes from 0xA0 do not borrow, but have the top bit set.
    (special & splat(0x80)).trailing_zeros() as usize / 8
}

/// Returns true for a special byte of a string.
#[inline]
const fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte >= 0x80 || byte == b'"' || byte == b'\\'
}

/// Returns the length of the prefix of `text` without special bytes.
#[inline]
pub(super) fn plain_prefix(text: &[u8]) -> usize {
    let mut rest = text;
    while let Some((eight, tail)) = rest.split_first_chunk::<8>() {
        let plain = plain_bytes(*eight);
        if plain < 8 {
            return text.len() - rest.len() + plain;
        }
        rest = tail;
    }
    let plain = rest.iter().position(|b| is_special(*b)).unwrap_or(rest.len());
    text.len() - rest.len() + plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn eight_bytes_at_a_time_agree_with_one_at_a_time(
            text in prop::collection::vec(
                prop_oneof![
                    4 => b'a'..=b'z',
                    1 => any::<u8>(),
                    1 => prop::sample::select(vec![0, 0x1F, 0x20, 0x21, 0x22, 0x23, 0x5B, 0x5C, 0x5D, 0x7F, 0x80, 0xA0]),
                ],
                0..40,
            ),
        ) {
            let expected = text.iter().position(|b| is_special(*b)).unwrap_or(text.len());
            prop_assert_eq!(plain_prefix(&text), expected);
        }
    }
}
