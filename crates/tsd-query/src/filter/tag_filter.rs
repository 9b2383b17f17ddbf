//! Filters on tag values.

use regex::{Regex, RegexBuilder};

use super::{java_pattern::translate, wildcard::Wildcard};

/// Maximum size of a compiled pattern in bytes. Matching takes linear time for any pattern.
const REGEX_SIZE_LIMIT: usize = 1 << 20;
/// Maximum size of a pattern's matching cache in bytes.
const REGEX_CACHE_LIMIT: usize = 1 << 19;

/// A filter on one tag key.
#[derive(Clone, Debug)]
pub struct TagFilter {
    /// Tag key.
    pub tagk: String,
    /// The condition on the value.
    pub kind: FilterKind,
    /// The filter expression as given, without its type.
    pub filter: String,
    /// True if series are grouped by the value.
    pub group_by: bool,
}

/// Condition on a tag value. Lists are sorted and distinct.
#[derive(Clone, Debug)]
pub enum FilterKind {
    /// One of these; resolved to UIDs and pushed down into the scan.
    LiteralOr(Vec<String>),
    /// One of these, compared in lower case (the list is in lower case).
    IliteralOr(Vec<String>),
    /// None of these.
    NotLiteralOr(Vec<String>),
    /// None of these, compared in lower case.
    NotIliteralOr(Vec<String>),
    /// A pattern with asterisks.
    Wildcard(Wildcard),
    /// A pattern with asterisks, compared in lower case.
    Iwildcard(Wildcard),
    /// A regular expression that matches anywhere in the value.
    Regexp(Regex),
}

/// An invalid filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Unknown type.
    #[error("Could not find a tag value filter of the type: {0}")]
    UnknownType(String),
    /// No tag key.
    #[error("Tagk cannot be null or empty")]
    NoTagKey,
    /// No expression.
    #[error("Filter cannot be null or empty")]
    Empty,
    /// A literal filter of only separators.
    #[error("Filter must contain more than just a pipe")]
    OnlyPipes,
    /// A wildcard without an asterisk.
    #[error("Filter must contain an asterisk")]
    NoStar,
    /// A short notation `type(filter` without its end.
    #[error("Filter must end with a ')': {0}")]
    NoEnd(String),
    /// A regular expression that does not compile.
    #[error("{0}{advice}", advice = if .0.has_look_around() { LOOK_AROUND_ADVICE } else { "" })]
    Regexp(#[from] PatternError),
}

/// Alternative to look-around, for error texts.
const LOOK_AROUND_ADVICE: &str =
    "; use a filter of the type not_literal_or, not_iliteral_or or wildcard";

/// A regular expression that does not compile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Invalid pattern \"{pattern}\": {problem}")]
pub struct PatternError {
    pattern: String,
    problem: String,
}

impl PatternError {
    fn new(pattern: &str, problem: &impl ToString) -> Self {
        // The last line of a syntax error is the reason; earlier lines draw the pattern.
        let problem = problem.to_string();
        let reason = problem.lines().next_back().unwrap_or_default();
        let reason = reason.strip_prefix("error: ").unwrap_or(reason);
        Self { pattern: pattern.to_owned(), problem: reason.to_owned() }
    }

    /// True if the pattern looks ahead or behind, which Java supports.
    fn has_look_around(&self) -> bool {
        self.problem.starts_with("look-around")
    }
}

/// Type names, as in `/api/config/filters`.
pub(crate) const TYPES: &[&str] = &[
    "iliteral_or",
    "wildcard",
    "not_iliteral_or",
    "not_literal_or",
    "iwildcard",
    "literal_or",
    "regexp",
];

/// Compiles a regular expression in Java's syntax; fails if the result is too large.
pub fn compile_pattern(pattern: &str) -> Result<Regex, PatternError> {
    let translated = translate(pattern).map_err(|error| PatternError::new(pattern, &error))?;
    RegexBuilder::new(&translated)
        .size_limit(REGEX_SIZE_LIMIT)
        .dfa_size_limit(REGEX_CACHE_LIMIT)
        .build()
        .map_err(|error| PatternError::new(pattern, &error))
}

impl TagFilter {
    /// Builds a filter. `kind` is a type name in lower case.
    pub fn try_new(
        tagk: &str,
        kind: &str,
        filter: &str,
        group_by: bool,
    ) -> Result<Self, FilterError> {
        if !TYPES.contains(&kind) {
            return Err(FilterError::UnknownType(kind.to_owned()));
        }
        if tagk.is_empty() {
            return Err(FilterError::NoTagKey);
        }
        if filter.is_empty() {
            return Err(FilterError::Empty);
        }
        let kind = match kind {
            "literal_or" => FilterKind::LiteralOr(alternatives(filter)?),
            "iliteral_or" => FilterKind::IliteralOr(alternatives(&filter.to_lowercase())?),
            "not_literal_or" => FilterKind::NotLiteralOr(alternatives(filter)?),
            "not_iliteral_or" => FilterKind::NotIliteralOr(alternatives(&filter.to_lowercase())?),
            "wildcard" => FilterKind::Wildcard(Wildcard::parse(filter).ok_or(FilterError::NoStar)?),
            "iwildcard" => FilterKind::Iwildcard(
                Wildcard::parse(&filter.to_lowercase()).ok_or(FilterError::NoStar)?,
            ),
            _ => FilterKind::Regexp(compile_pattern(filter)?),
        };
        Ok(Self { tagk: tagk.to_owned(), kind, filter: filter.to_owned(), group_by })
    }

    /// Type name.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self.kind {
            FilterKind::LiteralOr(_) => "literal_or",
            FilterKind::IliteralOr(_) => "iliteral_or",
            FilterKind::NotLiteralOr(_) => "not_literal_or",
            FilterKind::NotIliteralOr(_) => "not_iliteral_or",
            FilterKind::Wildcard(_) => "wildcard",
            FilterKind::Iwildcard(_) => "iwildcard",
            FilterKind::Regexp(_) => "regexp",
        }
    }

    /// True if the filter accepts this tag value.
    #[must_use]
    pub fn accepts(&self, tagv: &str) -> bool {
        let lower = || tagv.to_lowercase();
        let has = |values: &[String], value: &str| {
            values.binary_search_by(|other| other.as_str().cmp(value)).is_ok()
        };
        match &self.kind {
            FilterKind::LiteralOr(values) => has(values, tagv),
            FilterKind::IliteralOr(values) => has(values, &lower()),
            FilterKind::NotLiteralOr(values) => !has(values, tagv),
            FilterKind::NotIliteralOr(values) => !has(values, &lower()),
            FilterKind::Wildcard(pattern) => pattern.matches(tagv),
            FilterKind::Iwildcard(pattern) => pattern.matches(&lower()),
            FilterKind::Regexp(pattern) => pattern.is_match(tagv),
        }
    }

    /// True if a series without the tag key passes.
    #[must_use]
    pub const fn accepts_absence(&self) -> bool {
        matches!(self.kind, FilterKind::NotLiteralOr(_) | FilterKind::NotIliteralOr(_))
    }

    /// True if every value is accepted, so that only the key is required.
    #[must_use]
    pub fn accepts_all(&self) -> bool {
        match &self.kind {
            FilterKind::Wildcard(pattern) | FilterKind::Iwildcard(pattern) => pattern.matches_all(),
            _ => false,
        }
    }

    /// True if two filters are equal, apart from `group_by`.
    #[must_use]
    pub(crate) fn same_filter(&self, other: &Self) -> bool {
        self.tagk == other.tagk
            && match (&self.kind, &other.kind) {
                (FilterKind::LiteralOr(a), FilterKind::LiteralOr(b))
                | (FilterKind::IliteralOr(a), FilterKind::IliteralOr(b))
                | (FilterKind::NotLiteralOr(a), FilterKind::NotLiteralOr(b))
                | (FilterKind::NotIliteralOr(a), FilterKind::NotIliteralOr(b)) => a == b,
                (FilterKind::Wildcard(a), FilterKind::Wildcard(b))
                | (FilterKind::Iwildcard(a), FilterKind::Iwildcard(b)) => a == b,
                (FilterKind::Regexp(a), FilterKind::Regexp(b)) => a.as_str() == b.as_str(),
                _ => false,
            }
    }
}

impl PartialEq for TagFilter {
    fn eq(&self, other: &Self) -> bool {
        self.group_by == other.group_by && self.same_filter(other)
    }
}

/// Distinct alternatives between pipes, sorted. Trailing empty alternatives are dropped.
fn alternatives(filter: &str) -> Result<Vec<String>, FilterError> {
    let trimmed = filter.trim_end_matches('|');
    if trimmed.is_empty() {
        return Err(FilterError::OnlyPipes);
    }
    let mut values: Vec<String> = trimmed.split('|').map(str::to_owned).collect();
    values.sort_unstable();
    values.dedup();
    Ok(values)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[track_caller]
    fn check(kind: &str, filter: &str, accepted: &[&str], rejected: &[&str]) {
        let filter = TagFilter::try_new("host", kind, filter, false).unwrap();
        assert_eq!(filter.type_name(), kind);
        for value in accepted {
            assert!(filter.accepts(value), "{filter:?} must accept {value}");
        }
        for value in rejected {
            assert!(!filter.accepts(value), "{filter:?} must reject {value}");
        }
    }

    #[test]
    fn each_type_accepts_its_values() {
        check("literal_or", "web01|web02", &["web01", "web02"], &["web03", "WEB01", ""]);
        check("iliteral_or", "Web01|web02", &["web01", "WEB02"], &["web03"]);
        check("not_literal_or", "web01|web02", &["web03", "WEB01"], &["web01"]);
        check("not_iliteral_or", "Web01|web02", &["web03"], &["web01", "WEB02"]);
        check("wildcard", "web*", &["web01"], &["Web01", "db01"]);
        check("iwildcard", "WEB*", &["web01", "Web01"], &["db01"]);
        check("regexp", "0[12]", &["web01", "web02x"], &["web03"]);
        check("regexp", "(?i)WEB", &["xweb"], &["db"]);
    }

    #[test]
    fn errors_match_opentsdb() {
        let error_of = |kind, filter| TagFilter::try_new("host", kind, filter, false).unwrap_err();
        assert_eq!(
            error_of("not_key", "").to_string(),
            "Could not find a tag value filter of the type: not_key"
        );
        assert_eq!(error_of("literal_or", "").to_string(), "Filter cannot be null or empty");
        assert_eq!(
            error_of("literal_or", "||").to_string(),
            "Filter must contain more than just a pipe"
        );
        assert_eq!(error_of("wildcard", "web").to_string(), "Filter must contain an asterisk");
        assert!(matches!(error_of("regexp", "(("), FilterError::Regexp(_)));
        assert!(matches!(error_of("regexp", "(a{1000}){1000}"), FilterError::Regexp(_)));
    }

    /// Case B69.
    #[test]
    fn errors_of_patterns_name_the_pattern_and_what_to_use_instead() {
        let error_of = |filter| TagFilter::try_new("host", "regexp", filter, false).unwrap_err();
        assert_eq!(
            error_of("^(?!XG).*").to_string(),
            "Invalid pattern \"^(?!XG).*\": look-around, including look-ahead and look-behind, is not \
             supported; use a filter of the type not_literal_or, not_iliteral_or or wildcard"
        );
        assert_eq!(error_of("a(").to_string(), "Invalid pattern \"a(\": unclosed group");
        assert_eq!(
            error_of("a*+").to_string(),
            "Invalid pattern \"a*+\": possessive quantifiers are not supported"
        );
    }

    #[test]
    fn only_trailing_empty_alternatives_are_dropped() {
        let filter = TagFilter::try_new("host", "literal_or", "|a||a|", false).unwrap();
        assert!(matches!(&filter.kind, FilterKind::LiteralOr(v) if v == &["", "a"]));
    }
}
