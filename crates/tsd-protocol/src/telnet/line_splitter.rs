//! Cuts a read buffer into lines.

/// Longest line OpenTSDB is sure to take, and the default limit here.
pub const DEFAULT_LINE_LIMIT: usize = 1_024;

/// Iterates over the complete lines of a read buffer, without their ends.
///
/// A line ends with `\n` or `\r\n`. What follows the last end stays in the buffer: after the
/// iteration the caller drops [`Self::consumed`] bytes and reads more behind the rest.
///
/// The length limit is soft, as in OpenTSDB: a line that arrives complete is taken whatever its
/// length; only bytes that pile up *without* an end are held against it
/// ([`Self::rest_exceeds`]).
#[derive(Clone, Debug)]
pub struct LineSplitter<'b> {
    buffer: &'b [u8],
    consumed: usize,
}

impl<'b> LineSplitter<'b> {
    /// Starts at the head of `buffer`.
    #[must_use]
    pub fn new(buffer: &'b [u8]) -> Self {
        Self { buffer, consumed: 0 }
    }

    /// Bytes taken by the lines handed out so far.
    #[must_use]
    pub fn consumed(&self) -> usize {
        self.consumed
    }

    /// Whether what is left is longer than `limit` and still holds no line end: time to close the
    /// connection.
    #[must_use]
    pub fn rest_exceeds(&self, limit: usize) -> bool {
        self.buffer.len() - self.consumed > limit
            && memchr::memchr(b'\n', self.buffer.get(self.consumed..).unwrap_or_default()).is_none()
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
        let mut cutter = LineSplitter::new(buffer.as_bytes());
        let cut: Vec<&[u8]> = cutter.by_ref().collect();
        assert_eq!(cut, lines.iter().map(|l| l.as_bytes()).collect::<Vec<_>>());
        assert_eq!(buffer.get(cutter.consumed()..), Some(rest));
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
    fn only_bytes_without_a_line_end_count_against_the_limit() {
        let long = "x".repeat(2_000) + "\n";
        let mut cutter = LineSplitter::new(long.as_bytes());
        assert!(!cutter.rest_exceeds(1_024));
        assert_eq!(cutter.next().map(<[u8]>::len), Some(2_000));
        assert!(!cutter.rest_exceeds(1_024));

        let piling = "x".repeat(1_025);
        assert!(LineSplitter::new(piling.as_bytes()).rest_exceeds(1_024));
        assert!(!LineSplitter::new(piling.as_bytes()).rest_exceeds(1_025));
    }

    proptest! {
        #[test]
        fn cutting_piecewise_gives_the_same_lines(
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
