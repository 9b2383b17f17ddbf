//! ISO-8859-1, the character set of stored names and of the telnet port.
//!
//! Every byte is the character with the same code, so decoding never fails. Encoding fails for
//! characters above U+00FF, which OpenTSDB stores as `?`.

use std::fmt::{self, Display, Write};

/// Displays ISO-8859-1 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latin1<'a>(pub &'a [u8]);

impl Display for Latin1<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_ascii()
            && let Ok(text) = std::str::from_utf8(self.0)
        {
            return f.write_str(text);
        }
        self.0.iter().try_for_each(|b| f.write_char(char::from(*b)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_the_character_of_its_number() {
        assert_eq!(Latin1(b"plain").to_string(), "plain");
        assert_eq!(Latin1(b"\xe9\xff").to_string(), "éÿ");
    }
}
