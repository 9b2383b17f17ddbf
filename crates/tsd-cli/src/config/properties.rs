//! Parser of Java's .properties text.
//!
//! OpenTSDB reads `opentsdb.conf` with `java.util.Properties`, so an existing file must have the same meaning here:
//! ISO-8859-1 bytes, `\uXXXX`, keys that end at `=`, `:` or blanks, lines continued by an odd number of backslashes,
//! `#` and `!` comments.

/// One assignment of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// Key, unescaped.
    pub key: String,
    /// Value, unescaped; trailing blanks are kept, as in Java.
    pub value: String,
    /// First line of the assignment, from 1.
    pub line: usize,
}

/// A `\u` without four hexadecimal digits. Java rejects the whole file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: malformed \\uxxxx escape")]
pub struct PropertiesError {
    /// Line of the escape, from 1.
    pub line: usize,
}

/// Parses all assignments in order. A later assignment of a key replaces an earlier one.
pub fn parse(text: &[u8]) -> Result<Vec<Property>, PropertiesError> {
    let mut properties = Vec::new();
    let mut lines = Lines { rest: text, line: 0 };
    while let Some((line, logical)) = lines.next_logical() {
        let (key, value) = split(&logical);
        properties.push(Property {
            key: unescape(key, line)?,
            value: unescape(value, line)?,
            line,
        });
    }
    Ok(properties)
}

struct Lines<'a> {
    rest: &'a [u8],
    line: usize,
}

impl<'a> Lines<'a> {
    fn next_natural(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        self.line += 1;
        let end = self.rest.iter().position(|b| matches!(b, b'\n' | b'\r'));
        let (line, rest) = match end {
            None => (self.rest, &[][..]),
            Some(end) => {
                let (line, tail) = self.rest.split_at(end);
                (line, tail.strip_prefix(b"\r\n").unwrap_or_else(|| tail.get(1..).unwrap_or(&[])))
            }
        };
        self.rest = rest;
        Some(line)
    }

    /// The next line with content, joined with its continuation lines.
    fn next_logical(&mut self) -> Option<(usize, Vec<u8>)> {
        loop {
            let natural = trim_start(self.next_natural()?);
            if natural.is_empty() || matches!(natural.first(), Some(b'#' | b'!')) {
                continue;
            }
            let line = self.line;
            let mut logical = natural.to_vec();
            while ends_in_odd_backslashes(&logical) {
                logical.pop();
                let Some(more) = self.next_natural() else { break };
                logical.extend_from_slice(trim_start(more));
            }
            return Some((line, logical));
        }
    }
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0c)
}

fn trim_start(line: &[u8]) -> &[u8] {
    let blanks = line.iter().take_while(|b| is_blank(**b)).count();
    line.get(blanks..).unwrap_or(&[])
}

fn ends_in_odd_backslashes(line: &[u8]) -> bool {
    line.iter().rev().take_while(|b| **b == b'\\').count() % 2 == 1
}

/// Splits a logical line into key and value, both still escaped.
fn split(line: &[u8]) -> (&[u8], &[u8]) {
    let mut escaped = false;
    let end = line
        .iter()
        .position(|&b| {
            let ends = !escaped && (is_blank(b) || b == b'=' || b == b':');
            escaped = b == b'\\' && !escaped;
            ends
        })
        .unwrap_or(line.len());
    let (key, rest) = line.split_at(end);
    let rest = trim_start(rest);
    let value = match rest.split_first() {
        Some((b'=' | b':', value)) => trim_start(value),
        _ => rest,
    };
    (key, value)
}

fn unescape(text: &[u8], line: usize) -> Result<String, PropertiesError> {
    // UTF-16 units, because Java's escapes may be surrogate pairs.
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            units.push(u16::from(byte));
            continue;
        }
        let unit = match bytes.next() {
            None => break,
            Some(b't') => u16::from(b'\t'),
            Some(b'n') => u16::from(b'\n'),
            Some(b'r') => u16::from(b'\r'),
            Some(b'f') => 0x0c,
            Some(b'u') => {
                let mut unit = 0_u16;
                for _ in 0..4 {
                    let digit = bytes
                        .next()
                        .and_then(|b| char::from(b).to_digit(16))
                        .ok_or(PropertiesError { line })?;
                    unit = unit << 4 | digit as u16;
                }
                unit
            }
            Some(other) => u16::from(other),
        };
        units.push(unit);
    }
    Ok(String::from_utf16_lossy(&units))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str)]) {
        let got = parse(text.as_bytes()).unwrap();
        let got: Vec<_> = got.iter().map(|p| (p.key.as_str(), p.value.as_str())).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn separators_are_equals_colon_and_blanks() {
        check("a=1\nb : 2\nc 3\nd\t=\t4\n", &[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]);
    }

    #[test]
    fn the_second_separator_belongs_to_the_value() {
        check("a==1\nb:=2\nc = :3\n", &[("a", "=1"), ("b", "=2"), ("c", ":3")]);
    }

    #[test]
    fn comments_and_empty_lines_are_ignored() {
        check("# a=1\n  ! b=2\n\n   \nc=3 # kept\n", &[("c", "3 # kept")]);
    }

    #[test]
    fn an_odd_back_slash_joins_lines() {
        check(
            "a = x,\\\n    y,\\\n    z\nb=1\\\\\nc=2",
            &[("a", "x,y,z"), ("b", "1\\"), ("c", "2")],
        );
    }

    #[test]
    fn a_comment_has_no_continuation() {
        check("# nothing \\\na=1", &[("a", "1")]);
    }

    #[test]
    fn all_line_ends_are_accepted() {
        check("a=1\r\nb=2\rc=3\n", &[("a", "1"), ("b", "2"), ("c", "3")]);
    }

    #[test]
    fn escapes_in_keys_and_values() {
        check(
            r"a\ b\=c = \ d\te
u=\u00e9\ud83d\ude00\q",
            &[("a b=c", " d\te"), ("u", "é😀q")],
        );
    }

    #[test]
    fn a_key_alone_has_an_empty_value() {
        check("a\nb=\n=c", &[("a", ""), ("b", ""), ("", "c")]);
    }

    #[test]
    fn blanks_at_the_end_are_kept() {
        check("a=1  \n", &[("a", "1  ")]);
    }

    #[test]
    fn bytes_are_latin_1() {
        let got = parse(b"a=\xe9").unwrap();
        assert_eq!(got.first().unwrap().value, "é");
    }

    #[test]
    fn line_numbers_are_those_where_assignments_begin() {
        let got = parse(b"\n# x\na=1\\\n2\nb=3").unwrap();
        assert_eq!(got.iter().map(|p| p.line).collect::<Vec<_>>(), [3, 5]);
    }

    #[test]
    fn a_bad_unicode_escape_names_its_line() {
        assert_eq!(parse(b"a=1\nb=\\u12"), Err(PropertiesError { line: 2 }));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic() {
        for a in 0..=255_u8 {
            for b in [b'\\', b'=', b'\n', b'u', b' ', 0xff] {
                let _ = parse(&[b, a, b, b, a]);
            }
        }
    }
}
