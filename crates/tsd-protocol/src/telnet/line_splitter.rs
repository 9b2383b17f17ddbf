//! Splits the input of a telnet connection into lines of a bounded length.
//!
//! The result depends on the bytes only, not on how reads split them. The splitter skips the rest of a
//! line that is too long, so that a client with one such line loses no other line.

/// A line, without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputLine<'b> {
    /// A complete line.
    Complete(&'b [u8]),
    /// The beginning of a line that is longer than the limit.
    TooLong(&'b [u8]),
}

/// Splits input into lines. A line ends with `\n` or `\r\n`.
#[derive(Clone, Copy, Debug)]
pub struct LineSplitter {
    limit: usize,
    /// True while the input continues a line that was too long.
    is_skipping: bool,
}

impl LineSplitter {
    /// Splits into lines of at most `limit` bytes before their `\n`.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { limit, is_skipping: false }
    }

    /// Returns true if the input continues a line that was too long.
    #[must_use]
    pub const fn is_skipping(&self) -> bool {
        self.is_skipping
    }

    /// Returns the next line of `buffer`, which begins at `consumed`, and adds its length to `consumed`. On
    /// `None`, the caller drops the consumed bytes and appends the next read to the rest.
    #[inline]
    pub fn next_line<'b>(
        &mut self,
        buffer: &'b [u8],
        consumed: &mut usize,
    ) -> Option<InputLine<'b>> {
        if self.is_skipping {
            self.skip(buffer, consumed);
        }
        let rest = buffer.get(*consumed..)?;
        let Some(end) = memchr::memchr(b'\n', rest) else { return self.unfinished(rest, consumed) };
        *consumed += end + 1;
        let line = rest.get(..end)?;
        if let Some(beginning) = line.get(..self.limit)
            && line.len() > self.limit
        {
            return Some(InputLine::TooLong(beginning));
        }
        Some(InputLine::Complete(line.strip_suffix(b"\r").unwrap_or(line)))
    }

    /// Returns the beginning of an unfinished line that is already too long.
    #[cold]
    fn unfinished<'b>(&mut self, rest: &'b [u8], consumed: &mut usize) -> Option<InputLine<'b>> {
        if rest.len() <= self.limit {
            return None;
        }
        self.is_skipping = true;
        *consumed += rest.len();
        rest.get(..self.limit).map(InputLine::TooLong)
    }

    /// Skips to the end of the line that was too long.
    #[cold]
    fn skip(&mut self, buffer: &[u8], consumed: &mut usize) {
        let rest = buffer.get(*consumed..).unwrap_or_default();
        let end = memchr::memchr(b'\n', rest);
        *consumed += end.map_or(rest.len(), |end| end + 1);
        self.is_skipping = end.is_none();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 8;

    /// Splits these reads. Returns the lines, with `>` before the beginning of a line that is too long, and the rest.
    fn split(reads: &[&[u8]]) -> (Vec<String>, Vec<u8>) {
        let (mut splitter, mut lines) = (LineSplitter::new(LIMIT), Vec::new());
        let mut buffer = Vec::new();
        for read in reads {
            buffer.extend_from_slice(read);
            let mut consumed = 0;
            while let Some(line) = splitter.next_line(&buffer, &mut consumed) {
                lines.push(match line {
                    InputLine::Complete(line) => format!("{:?}", line.escape_ascii().to_string()),
                    InputLine::TooLong(line) => format!(">{:?}", line.escape_ascii().to_string()),
                });
            }
            buffer.drain(..consumed);
            assert!(buffer.len() <= LIMIT, "an unfinished line is bounded");
        }
        (lines, buffer)
    }

    #[track_caller]
    fn check(input: &str, lines: &[&str], rest: &str) {
        assert_eq!(
            split(&[input.as_bytes()]),
            (lines.iter().map(|line| (*line).to_owned()).collect(), rest.as_bytes().to_vec())
        );
    }

    #[test]
    fn lines_end_with_lf_or_crlf() {
        check("", &[], "");
        check("put", &[], "put");
        check("a\nb\r\nc", &[r#""a""#, r#""b""#], "c");
        check("\n\r\n\n", &[r#""""#; 3], "");
        check("a\rb\r\r\n", &[r#""a\\rb\\r""#], "");
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_and_the_next_one_is_not() {
        check("12345678\nx\n", &[r#""12345678""#, r#""x""#], "");
        check("123456789\nx\n", &[r#">"12345678""#, r#""x""#], "");
        check("123456789", &[r#">"12345678""#], "");
        check("x\n123456789012345678901\ny", &[r#""x""#, r#">"12345678""#], "y");
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_the_input_is_cut(
            bytes in prop::collection::vec(
                prop_oneof![1 => Just(b'\n'), 1 => Just(b'\r'), 6 => any::<u8>()], 0..200),
            cuts in prop::collection::vec(0_usize..200, 0..20),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| (*cut).min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pairs = cuts.iter().zip(cuts.iter().skip(1));
            let reads: Vec<&[u8]> =
                pairs.filter_map(|(from, to)| bytes.get(*from..*to)).collect();
            prop_assert_eq!(split(&reads), split(&[&bytes]));
        }
    }
}
