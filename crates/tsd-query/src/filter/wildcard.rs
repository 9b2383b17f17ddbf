//! Wildcard patterns as OpenTSDB matches them.
//!
//! Two oddities are visible to users and kept: a pattern without a star at either end is anchored
//! at neither (`web*.com` accepts `xweb01.lax.comx`), and the search position grows by a
//! component's length only, so components may overlap.

/// A pattern with at least one `*`.
#[derive(Clone, Debug)]
pub struct Wildcard {
    components: Vec<String>,
    starts_with_star: bool,
    ends_with_star: bool,
}

/// Where the stars stand is not compared: `*a` equals `a*`, as in the original, which matters to
/// the merging of equal filters.
impl PartialEq for Wildcard {
    fn eq(&self, other: &Self) -> bool {
        self.components == other.components
    }
}

impl Eq for Wildcard {}

impl Wildcard {
    /// Reads a pattern; `None` where it has no star.
    #[must_use]
    pub fn parse(pattern: &str) -> Option<Self> {
        pattern.contains('*').then(|| Self {
            components: pattern.split('*').filter(|c| !c.is_empty()).map(str::to_owned).collect(),
            starts_with_star: pattern.starts_with('*'),
            ends_with_star: pattern.ends_with('*'),
        })
    }

    /// Whether every value matches.
    #[must_use]
    pub fn matches_all(&self) -> bool {
        self.components.is_empty()
    }

    /// Whether `value` matches. For case-insensitive patterns both sides come in lower case.
    #[must_use]
    pub fn matches(&self, value: &str) -> bool {
        let (Some(first), Some(last)) = (self.components.first(), self.components.last()) else {
            return true;
        };
        if self.starts_with_star && !self.ends_with_star && !value.ends_with(last.as_str()) {
            return false;
        }
        if self.ends_with_star && !self.starts_with_star && !value.starts_with(first.as_str()) {
            return false;
        }
        let mut from = 0;
        for component in &self.components {
            if !found_at_or_after(value, component, from) {
                return false;
            }
            from += component.len();
        }
        true
    }
}

/// Whether `part` occurs in `text` at byte `from` or later. Bytes, since `from` may fall inside a
/// character; a match of whole text can only begin at a character's start.
fn found_at_or_after(text: &str, part: &str, from: usize) -> bool {
    text.as_bytes()
        .get(from..)
        .is_some_and(|rest| rest.windows(part.len()).any(|window| window == part.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, value: &str, expected: bool) {
        let wildcard = Wildcard::parse(pattern);
        assert_eq!(wildcard.map(|w| w.matches(value)), Some(expected), "{pattern} on {value}");
    }

    #[test]
    fn stars_at_the_ends_decide_the_anchors() {
        check("*", "anything", true);
        check("***", "", true);
        check("*.com", "web01.com", true);
        check("*.com", "web01.com.au", false);
        check("web*", "web01", true);
        check("web*", "xweb01", false);
        check("*eb*", "web01", true);
        check("*eb*", "db01", false);
    }

    #[test]
    fn a_pattern_between_two_texts_is_not_anchored() {
        check("web*.com", "web01.lax.com", true);
        check("web*.com", "xweb01.lax.comx", true);
        check("web*.com", "db01.lax.com", false);
    }

    #[test]
    fn search_position_grows_by_length_only() {
        check("*ab*bc*", "xxabc", true);
        check("ab*ab", "ab", false);
        check("ab*ab", "xxab", true);
    }

    #[test]
    fn a_star_is_needed() {
        assert_eq!(Wildcard::parse("web01"), None);
    }
}
