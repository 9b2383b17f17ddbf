//! Wildcard patterns as OpenTSDB matches them.
//!
//! Two quirks are visible to users and kept: a pattern without an asterisk at either end is not
//! anchored at all (`web*.com` accepts `xweb01.lax.comx`), and the search position advances only by
//! a component's length, so components may overlap.

/// A pattern with at least one `*`.
#[derive(Clone, Debug)]
pub struct Wildcard {
    components: Vec<String>,
    starts_with_star: bool,
    ends_with_star: bool,
}

/// The positions of asterisks are not compared: `*a` equals `a*`, as in OpenTSDB, which affects the
/// deduplication of filters.
impl PartialEq for Wildcard {
    fn eq(&self, other: &Self) -> bool {
        self.components == other.components
    }
}

impl Eq for Wildcard {}

impl Wildcard {
    /// Parses a pattern; `None` if it has no asterisk.
    #[must_use]
    pub fn parse(pattern: &str) -> Option<Self> {
        pattern.contains('*').then(|| Self {
            components: pattern.split('*').filter(|c| !c.is_empty()).map(str::to_owned).collect(),
            starts_with_star: pattern.starts_with('*'),
            ends_with_star: pattern.ends_with('*'),
        })
    }

    /// True if every value matches.
    #[must_use]
    pub fn matches_all(&self) -> bool {
        self.components.is_empty()
    }

    /// True if `value` matches. For case-insensitive patterns both must be in lower case.
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
            if !occurs_at_or_after(value, component, from) {
                return false;
            }
            from += component.len();
        }
        true
    }
}

/// True if `part` occurs in `text` at byte `from` or later. Compares bytes, since `from` may be
/// inside a character; a match always begins at a character boundary.
fn occurs_at_or_after(text: &str, part: &str, from: usize) -> bool {
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
    fn asterisks_at_the_ends_determine_the_anchors() {
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
    fn pattern_without_outer_asterisks_is_not_anchored() {
        check("web*.com", "web01.lax.com", true);
        check("web*.com", "xweb01.lax.comx", true);
        check("web*.com", "db01.lax.com", false);
    }

    #[test]
    fn search_position_advances_by_component_length() {
        check("*ab*bc*", "xxabc", true);
        check("ab*ab", "ab", false);
        check("ab*ab", "xxab", true);
    }

    #[test]
    fn asterisk_is_required() {
        assert_eq!(Wildcard::parse("web01"), None);
    }
}
