//! Order-preserving, prefix-free encoding of row keys, the prefixes of tree keys.
//!
//! A row has several entries, and a row key may be a prefix of another (a series with one more tag). So the end of
//! the row key needs a mark that sorts below any byte. UIDs are mostly zeros, and an escape for each zero would
//! make keys half as long again. Therefore one code escapes a whole sequence of zeros. It has the length of the
//! sequence, and whether the key ends after it:
//!
//! ```text
//! nonzero byte                          itself
//! n zeros (1..=127), then more          00, 256 − n
//! n zeros (0..=127), then the end       00, n
//! ```
//!
//! More zeros before a nonzero byte sort lower, more zeros before the end sort higher, and every
//! end sorts before every continuation, as in the plain keys.

/// Longest key of a tree, in bytes; a longer key makes the tree panic.
pub(crate) const MAX_TREE_KEY: usize = u16::MAX as usize;

const MAX_ZEROS: usize = 127;

/// Appends the encoding of a row key.
pub(crate) fn encode(key: &[u8], out: &mut Vec<u8>) {
    let mut rest = key;
    while let Some((&byte, tail)) = rest.split_first() {
        if byte != 0 {
            out.push(byte);
            rest = tail;
            continue;
        }
        let zeros = rest.iter().take(MAX_ZEROS).take_while(|&&b| b == 0).count();
        rest = rest.get(zeros..).unwrap_or_default();
        if rest.is_empty() {
            out.extend_from_slice(&[0, zeros as u8]);
            return;
        }
        out.extend_from_slice(&[0, (zeros as u8).wrapping_neg()]);
    }
    out.extend_from_slice(&[0, 0]);
}

/// Returns the encoding of a row key.
pub(crate) fn encoded(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + 8);
    encode(key, &mut out);
    out
}

/// Returns the encoding of an end of a range of row keys. A bound over the limit of the tree is cut. This does not
/// change the range, since the cut bytes sort after any stored key with the same beginning.
pub(crate) fn encoded_bound(key: &[u8]) -> Vec<u8> {
    let mut out = encoded(key);
    out.truncate(MAX_TREE_KEY);
    out
}

/// Decodes the row key at the start of a tree key; returns it with the length of its encoding.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut key = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        let (&byte, tail) = rest.split_first()?;
        if byte != 0 {
            key.push(byte);
            rest = tail;
            continue;
        }
        let (&code, tail) = tail.split_first()?;
        rest = tail;
        if usize::from(code) <= MAX_ZEROS {
            key.resize(key.len() + usize::from(code), 0);
            return Some((key, bytes.len() - rest.len()));
        }
        key.resize(key.len() + usize::from(code.wrapping_neg()), 0);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    fn keys() -> impl Strategy<Value = Vec<u8>> {
        let pieces = prop_oneof![
            4 => prop::collection::vec(any::<u8>(), 0..4),
            4 => prop::collection::vec(0_u8..3, 0..4),
            1 => (120_usize..260).prop_map(|n| vec![0; n]),
        ];
        prop::collection::vec(pieces, 0..4).prop_map(|p| p.concat())
    }

    proptest! {
        #[test]
        fn encoding_preserves_order(a in keys(), b in keys()) {
            prop_assert_eq!(encoded(&a).cmp(&encoded(&b)), a.cmp(&b));
        }

        #[test]
        fn encoding_is_prefix_free(a in keys(), more in keys()) {
            let longer = [a.as_slice(), &more].concat();
            if longer != a {
                prop_assert!(!encoded(&longer).starts_with(&encoded(&a)));
                prop_assert!(encoded(&longer) > encoded(&a));
            }
        }

        #[test]
        fn decode_inverts_encode(key in keys(), suffix in keys()) {
            let code = encoded(&key);
            let bytes = [code.as_slice(), &suffix].concat();
            prop_assert_eq!(decode(&bytes).unwrap(), (key, code.len()));
        }

        #[test]
        fn arbitrary_bytes_decode_to_a_key_or_nothing(
            bytes in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            if let Some((_, len)) = decode(&bytes) {
                prop_assert!(len <= bytes.len());
            }
        }
    }

    #[test]
    fn ordinary_row_key_grows_by_two_bytes() {
        // Salt, metric 1, base time, tagk 1, tagv 2.
        let key = [7, 0, 0, 1, 0x5B, 0xE8, 0x35, 0xE0, 0, 0, 1, 0, 0, 2];
        assert_eq!(encoded(&key).len(), key.len() + 2);
    }
}
