//! Patterns of metric names.

/// A name in which `*` stands for any text, also the empty text. All other characters are literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricPattern {
    text: String,
    /// Stored bytes of the texts between the stars; `None` if stored names cannot have such a
    /// letter.
    parts: Option<Vec<Vec<u8>>>,
}

impl MetricPattern {
    /// The pattern with this text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let latin1 = |part: &str| part.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
        Self { text: text.to_owned(), parts: text.split('*').map(latin1).collect() }
    }

    /// Text of the pattern.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// True if the name, as stored (Latin-1), matches.
    #[must_use]
    pub fn matches(&self, name: &[u8]) -> bool {
        let Some((first, rest)) = self.parts.as_ref().and_then(|parts| parts.split_first()) else {
            return false;
        };
        let Some((last, middle)) = rest.split_last() else { return name == first };
        let Some(name) = name.strip_prefix(&first[..]) else { return false };
        let Some(mut name) = name.strip_suffix(&last[..]) else { return false };
        for part in middle {
            if part.is_empty() {
                continue;
            }
            // The first occurrence leaves the most text for the next parts.
            let Some(at) = name.windows(part.len()).position(|window| window == part) else {
                return false;
            };
            name = name.get(at + part.len()..).unwrap_or_default();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, name: &str, expected: bool) {
        let name: Vec<u8> = name.chars().map(|c| c as u8).collect();
        assert_eq!(MetricPattern::new(pattern).matches(&name), expected);
    }

    #[test]
    fn stars_stand_for_any_text() {
        check("sys.cpu", "sys.cpu", true);
        check("sys.cpu", "sys.cpu.user", false);
        check("sys.*", "sys.", true);
        check("sys.*", "sys", false);
        check("*", "", true);
        check("*.cpu", "sys.cpu", true);
        check("a*b", "ab", true);
        check("a*a", "a", false);
        check("a*b*c", "a1b2b3c", true);
        check("a*bb*c", "abc", false);
        check("a**c", "abc", true);
        check("sys?cpu", "sys.cpu", false);
        check("é*", "éa", true);
        check("中*", "-a", false);
    }
}
