//! Finds where a string needs attention, eight bytes at a time.

/// The same byte eight times.
const fn splat(byte: u8) -> u64 {
    byte as u64 * 0x0101_0101_0101_0101
}

/// How many of eight bytes, from the first, need no attention inside a string: no quote, no
/// backslash, no control character, no byte beyond ASCII.
#[inline]
const fn plain_bytes(eight: [u8; 8]) -> usize {
    let word = u64::from_le_bytes(eight);
    let quote = word ^ splat(b'"');
    let backslash = word ^ splat(b'\\');
    // A borrow sets the top bit of a byte that was below the subtrahend. It may also reach the
    // bytes above, which does no harm, since the lowest one counts.
    let special = (quote.wrapping_sub(splat(1)) & !quote)
        | (backslash.wrapping_sub(splat(1)) & !backslash)
        | word.wrapping_sub(splat(0x20))
        | word;
    // Bytes of 0xA0 and more do not borrow, but have the top bit themselves.
    (special & splat(0x80)).trailing_zeros() as usize / 8
}

/// Whether a byte of a string needs attention.
#[inline]
const fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte >= 0x80 || byte == b'"' || byte == b'\\'
}

/// Length of the head of `text` that needs no attention inside a string.
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
        fn eight_at_a_time_finds_what_one_at_a_time_finds(
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
