//! XXH3-128 checksums, as the tree stores them.

use std::{fmt::Write as _, io::Write};

use lsm_tree::checksum::ChecksummedWriter;

/// Computes the checksum of bytes that arrive in pieces.
pub(crate) struct Hasher(ChecksummedWriter<std::io::Sink>);

impl Hasher {
    pub(crate) fn new() -> Self {
        Self(ChecksummedWriter::new(std::io::sink()))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        // Writing to a sink does not fail.
        let _ = self.0.write_all(bytes);
    }

    pub(crate) fn finish(&self) -> u128 {
        self.0.checksum().into_u128()
    }
}

/// The checksum of `bytes`.
pub(crate) fn of(bytes: &[u8]) -> u128 {
    let mut hasher = Hasher::new();
    hasher.update(bytes);
    hasher.finish()
}

/// Appends a line with the checksum of the text before it.
pub(crate) fn seal(text: &mut String) {
    let sum = of(text.as_bytes());
    let _ = writeln!(text, "sum {sum:032x}");
}

/// Returns the text before the checksum line; `None` if it is missing or wrong.
pub(crate) fn unseal(text: &str) -> Option<&str> {
    let start = text.trim_end_matches('\n').rfind('\n').map_or(0, |at| at + 1);
    let (body, line) = text.split_at_checked(start)?;
    let sum = line.strip_prefix("sum ")?.strip_suffix('\n')?;
    (sum.len() == 32 && u128::from_str_radix(sum, 16).ok()? == of(body.as_bytes())).then_some(body)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn every_flipped_byte_breaks_the_seal() {
        let mut text = String::from("a 1\nb 2\n");
        seal(&mut text);
        assert_eq!(unseal(&text), Some("a 1\nb 2\n"));
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            *bytes.get_mut(at).unwrap() ^= 1;
            if let Ok(changed) = String::from_utf8(bytes) {
                assert_eq!(unseal(&changed), None, "{at}");
            }
        }
        for end in 0..text.len() {
            assert_eq!(unseal(text.get(..end).unwrap()), None, "{end}");
        }
    }
}
