//! Splits a read buffer into lines.

/// Iterates over the complete lines of a read buffer, without their ends.
///
/// A line ends with `\n` or `\r\n`. After the iteration the caller drops [`Self::consumed`] bytes;
/// an incomplete line stays in the buffer.
#[derive(Clone, Debug)]
pub struct LineSplitter<'b> {
    buffer: &'b [u8],
    consumed: usize,
}

impl<'b> LineSplitter<'b> {
    /// Starts at the beginning of `buffer`.
    #[must_use]
    pub fn new(buffer: &'b [u8]) -> Self {
        Self { buffer, consumed: 0 }
    }

    /// Returns the bytes of the lines returned so far, with their ends.
    #[must_use]
    pub fn consumed(&self) -> usize {
        self.consumed
    }
}

impl<'b> Iterator for LineSplitter<'b> {
    type Item = &'b [u8];

    #[inline]
    fn next(&mut self) -> Option<&'b [u8]> {
        let rest = self.buffer.get(self.consumed..)?;
        let end = memchr::memchr(b'\n', rest)?;
        self.consumed += end + 1;
        let line = rest.get(..end)?;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(buffer: &str, lines: &[&str], rest: &str) {
        let mut splitter = LineSplitter::new(buffer.as_bytes());
        let cut: Vec<&[u8]> = splitter.by_ref().collect();
        assert_eq!(cut, lines.iter().map(|l| l.as_bytes()).collect::<Vec<_>>());
        assert_eq!(buffer.get(splitter.consumed()..), Some(rest));
    }

    #[test]
    fn lines_end_with_lf_or_crlf() {
        check("", &[], "");
        check("put", &[], "put");
        check("a\nb\r\nc", &["a", "b"], "c");
        check("\n\r\n\n", &["", "", ""], "");
        check("a\rb\r\r\n", &["a\rb\r"], "");
    }

    #[test]
    fn complete_lines_may_have_any_length() {
        let long = "x".repeat(2_000);
        check(
            &format!(
                "{long}
"
            ),
            &[&long],
            "",
        );
        check(&long, &[], &long);
    }

    proptest! {
        #[test]
        fn splitting_in_two_reads_gives_the_same_lines(
            bytes in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..200),
            split in 0_usize..200,
        ) {
            let whole: Vec<Vec<u8>> = LineSplitter::new(&bytes).map(<[u8]>::to_vec).collect();
            let split = split.min(bytes.len());
            let mut pieces = Vec::new();
            let mut buffer = bytes.get(..split).unwrap_or_default().to_vec();
            let mut first = LineSplitter::new(&buffer);
            pieces.extend(first.by_ref().map(<[u8]>::to_vec));
            let consumed = first.consumed();
            buffer.drain(..consumed);
            buffer.extend_from_slice(bytes.get(split..).unwrap_or_default());
            pieces.extend(LineSplitter::new(&buffer).map(<[u8]>::to_vec));
            prop_assert_eq!(pieces, whole);
        }
    }
}
