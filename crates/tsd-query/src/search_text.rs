//! The query language of searches for meta objects and annotations.
//!
//! ```text
//! text  = term (blank term)*           every term must match
//! term  = [field ":"] value
//! value = word | '"' characters '"'
//! ```
//!
//! | value | matches |
//! |---|---|
//! | a word after a field | a text that is the word, or has it between blanks; `*` stands for any characters |
//! | a word without a field and without `*` | a text that contains it, in any field |
//! | a word without a field, with `*` | as after a field, in any field |
//! | characters in quotes | a text that contains them |
//!
//! A backslash makes the next character literal. Case is ignored. Empty texts match nothing, so `notes:*`
//! finds the objects with notes. A field is a field of the object, or the key of a custom field or of a tag.
//! Unknown fields match nothing and are not an error.
//!
//! The time of a match is proportional to the text and the value, however many stars there are.

/// Longest text of a query, bytes.
const MAX_BYTES: usize = 4_096;
/// Most terms of a query.
const MAX_TERMS: usize = 64;

/// A parsed query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchText {
    terms: Vec<SearchTerm>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct SearchTerm {
    /// In lower case; `None` for any field.
    field: Option<String>,
    pattern: ValuePattern,
}

/// Patterns are in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ValuePattern {
    /// The text contains it.
    Contains(String),
    /// The text, or a word of it, is this: parts with any characters between them.
    Glob(Vec<String>),
}

/// Text that is not a query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchTextError {
    /// No term.
    #[error("the query has no words")]
    Empty,
    /// Too many bytes.
    #[error("the query has {0} bytes, more than {MAX_BYTES}")]
    TooLong(usize),
    /// Too many terms.
    #[error("the query has more than {MAX_TERMS} words")]
    TooManyTerms,
    /// A quote that is not closed.
    #[error("a quote is not closed")]
    OpenQuote,
    /// A backslash at the end.
    #[error("nothing follows the last backslash")]
    OpenEscape,
    /// A colon without a field before it.
    #[error("a colon without a field before it; a colon of the value follows a backslash")]
    NoField,
    /// A field without a value.
    #[error("the field '{0}' has no value; '{0}:*' finds any")]
    NoValue(String),
}

/// A field of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchField<'a> {
    /// A field that all objects of the type have.
    Named(&'static str),
    /// A custom field: found by its key, and by its key after `custom.`.
    Custom(&'a str),
    /// A tag, found by its key.
    Tag(&'a str),
}

/// An object that can be searched.
pub trait Searchable {
    /// Calls `visit` with the fields and their texts until it returns true; returns its last result.
    fn any_field(&self, visit: &mut dyn FnMut(SearchField<'_>, &str) -> bool) -> bool;
}

impl SearchText {
    /// Parses a query.
    pub fn parse(text: &str) -> Result<Self, SearchTextError> {
        if text.len() > MAX_BYTES {
            return Err(SearchTextError::TooLong(text.len()));
        }
        let mut terms = Vec::new();
        let mut scanner = TermScanner { rest: text };
        while let Some(term) = scanner.next_term()? {
            if terms.len() == MAX_TERMS {
                return Err(SearchTextError::TooManyTerms);
            }
            terms.push(term);
        }
        if terms.is_empty() { Err(SearchTextError::Empty) } else { Ok(Self { terms }) }
    }

    /// True if every term matches a field of the object.
    pub fn matches(&self, object: &impl Searchable) -> bool {
        self.terms.iter().all(|term| {
            object.any_field(&mut |field, text| {
                !text.is_empty() && term.selects(field) && term.pattern.matches(text)
            })
        })
    }

    /// The exact text of a field, if a term requires it without a star.
    #[must_use]
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.terms.iter().find_map(|term| match &term.pattern {
            ValuePattern::Glob(parts) if term.field.as_deref() == Some(field) => {
                match parts.as_slice() {
                    [part] => Some(part.as_str()),
                    _ => None,
                }
            }
            _ => None,
        })
    }
}

impl SearchTerm {
    fn selects(&self, field: SearchField<'_>) -> bool {
        let Some(wanted) = &self.field else { return true };
        match field {
            SearchField::Named(name) => equals(name, wanted),
            SearchField::Custom(key) => {
                equals(key, wanted)
                    || wanted.strip_prefix("custom.").is_some_and(|wanted| equals(key, wanted))
            }
            SearchField::Tag(key) => equals(key, wanted),
        }
    }
}

/// True if a name is `wanted`, which is in lower case.
fn equals(name: &str, wanted: &str) -> bool {
    if name.is_ascii() { name.eq_ignore_ascii_case(wanted) } else { name.to_lowercase() == wanted }
}

impl ValuePattern {
    fn matches(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        match self {
            Self::Contains(part) => text.contains(part.as_str()),
            Self::Glob(parts) => {
                matches_glob(parts, &text)
                    || text.split_whitespace().any(|word| matches_glob(parts, word))
            }
        }
    }
}

/// True if a text consists of the parts with any characters between them. Each part is searched once, since
/// its first occurrence leaves the most text for the next parts.
fn matches_glob(parts: &[String], text: &str) -> bool {
    let [first, middle @ .., last] = parts else {
        return parts.first().is_some_and(|part| part == text);
    };
    let Some(mut rest) = text.strip_prefix(first.as_str()) else { return false };
    for part in middle {
        match rest.find(part.as_str()).and_then(|at| rest.get(at + part.len()..)) {
            Some(after) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last.as_str())
}

/// Reads terms from a text.
struct TermScanner<'t> {
    rest: &'t str,
}

/// Reason why a word ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WordTerminator {
    Blank,
    Colon,
}

impl TermScanner<'_> {
    fn next_term(&mut self) -> Result<Option<SearchTerm>, SearchTextError> {
        self.rest = self.rest.trim_start();
        if self.rest.is_empty() {
            return Ok(None);
        }
        if let Some(text) = self.quoted()? {
            return Ok(Some(SearchTerm { field: None, pattern: ValuePattern::Contains(text) }));
        }
        let (parts, end) = self.word(true)?;
        if end == WordTerminator::Blank {
            let pattern = match <[String; 1]>::try_from(parts) {
                Ok([word]) => ValuePattern::Contains(word),
                Err(parts) => ValuePattern::Glob(parts),
            };
            return Ok(Some(SearchTerm { field: None, pattern }));
        }
        // A star in a field name is literal.
        let field = parts.join("*");
        if field.is_empty() {
            return Err(SearchTextError::NoField);
        }
        let pattern = match self.quoted()? {
            Some(text) => ValuePattern::Contains(text),
            None => ValuePattern::Glob(self.word(false)?.0),
        };
        let is_empty = match &pattern {
            ValuePattern::Contains(text) => text.is_empty(),
            ValuePattern::Glob(parts) => parts.len() == 1 && parts.iter().all(String::is_empty),
        };
        if is_empty {
            return Err(SearchTextError::NoValue(field));
        }
        Ok(Some(SearchTerm { field: Some(field), pattern }))
    }

    /// Reads the characters of a quote that begins here, in lower case.
    fn quoted(&mut self) -> Result<Option<String>, SearchTextError> {
        let Some(inner) = self.rest.strip_prefix('"') else { return Ok(None) };
        let mut text = String::new();
        let mut chars = inner.chars();
        loop {
            match chars.next() {
                None => return Err(SearchTextError::OpenQuote),
                Some('"') => break,
                Some('\\') => text.push(chars.next().ok_or(SearchTextError::OpenQuote)?),
                Some(c) => text.push(c),
            }
        }
        self.rest = chars.as_str();
        Ok(Some(text.to_lowercase()))
    }

    /// Reads a word up to a blank, or up to a colon if the word may be a field. Returns the parts between
    /// stars, in lower case.
    fn word(
        &mut self,
        may_be_field: bool,
    ) -> Result<(Vec<String>, WordTerminator), SearchTextError> {
        let mut parts = Vec::new();
        let mut part = String::new();
        let mut end = WordTerminator::Blank;
        let mut chars = self.rest.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => part.push(chars.next().ok_or(SearchTextError::OpenEscape)?),
                '*' => parts.push(std::mem::take(&mut part).to_lowercase()),
                ':' if may_be_field => {
                    end = WordTerminator::Colon;
                    break;
                }
                c if c.is_whitespace() => break,
                c => part.push(c),
            }
        }
        parts.push(part.to_lowercase());
        self.rest = chars.as_str();
        Ok((parts, end))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    struct Object;

    impl Searchable for Object {
        fn any_field(&self, visit: &mut dyn FnMut(SearchField<'_>, &str) -> bool) -> bool {
            use SearchField::{Custom, Named, Tag};
            [
                (Named("name"), "sys.cpu.User"),
                (Named("displayName"), ""),
                (Named("notes"), "CPU of the web tier: 5% \"idle\""),
                (Custom("Owner"), "Ärzte Team"),
                (Tag("host"), "web01"),
                (Tag("dc"), "lga*x"),
            ]
            .into_iter()
            .any(|(field, text)| visit(field, text))
        }
    }

    #[track_caller]
    fn check(text: &str, expected: bool) {
        assert_eq!(SearchText::parse(text).unwrap().matches(&Object), expected, "{text}");
    }

    #[test]
    fn every_term_must_match() {
        check("cpu", true);
        check("cpu host:web01", true);
        check("cpu host:web02", false);
        check("  \t cpu \n tier ", true);
        check("*", true);
    }

    #[test]
    fn a_value_after_a_field_is_the_text_or_a_word_of_it() {
        for (text, expected) in [
            ("name:sys.cpu.user", true),
            ("name:cpu", false),
            ("name:*cpu*", true),
            ("name:sys*user", true),
            ("name:sys*users", false),
            ("NAME:SYS.*", true),
            ("notes:web", true),
            ("notes:we", false),
            ("notes:we*", true),
            ("host:web01", true),
            ("host:0*", false),
            ("owner:team", true),
            ("custom.owner:ärzte*", true),
            ("custom.host:web01", false),
            ("owners:*", false),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn a_word_alone_is_found_in_any_field() {
        check("PU.us", true);
        check("eb0", true);
        check("ärz", true);
        check("eb*", false);
        check("*eb*", true);
    }

    #[test]
    fn quotes_and_backslashes_take_characters_as_they_are() {
        check("\"web tier:\"", true);
        check("notes:\"of the web\"", true);
        check("notes:\"of web\"", false);
        check(r#""5% \"idle\"""#, true);
        check(r"tier\:", true);
        check(r"dc:lga\*x", true);
        check(r"dc:lga\*y", false);
        check("dc:lga:x", false);
    }

    #[test]
    fn empty_texts_match_nothing() {
        check("displayName:*", false);
        check("notes:*", true);
    }

    #[test]
    fn invalid_queries_name_the_fault() {
        let error = |text: &str| SearchText::parse(text).unwrap_err();
        assert_eq!(error("  "), SearchTextError::Empty);
        assert_eq!(error("a \"b"), SearchTextError::OpenQuote);
        assert_eq!(error("\"a\\"), SearchTextError::OpenQuote);
        assert_eq!(error("a\\"), SearchTextError::OpenEscape);
        assert_eq!(error(":a"), SearchTextError::NoField);
        assert_eq!(error("a: b"), SearchTextError::NoValue("a".to_owned()));
        assert_eq!(error("a:\"\""), SearchTextError::NoValue("a".to_owned()));
        assert_eq!(error(&"a".repeat(4_097)), SearchTextError::TooLong(4_097));
        assert_eq!(error(&"a ".repeat(65)), SearchTextError::TooManyTerms);
        assert!(SearchText::parse(&"a ".repeat(64)).is_ok());
    }

    #[test]
    fn a_field_without_star_has_one_text() {
        let query = SearchText::parse("a tsuid:00000A host:*").unwrap();
        assert_eq!(query.exact("tsuid"), Some("00000a"));
        assert_eq!(query.exact("host"), None);
        assert_eq!(query.exact("a"), None);
    }

    #[test]
    fn many_stars_cost_no_backtracking() {
        struct Long(String);
        impl Searchable for Long {
            fn any_field(&self, visit: &mut dyn FnMut(SearchField<'_>, &str) -> bool) -> bool {
                visit(SearchField::Named("notes"), &self.0)
            }
        }
        let query = SearchText::parse(&format!("notes:{}b", "a*".repeat(2_000))).unwrap();
        assert!(!query.matches(&Long("a".repeat(1 << 20))));
    }

    proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text: String) {
            if let Ok(query) = SearchText::parse(&text) {
                let _ = query.matches(&Object);
            }
        }

        #[test]
        fn a_glob_matches_as_a_regular_expression(
            parts in prop::collection::vec("[ab]{0,2}", 1..5), text in "[ab]{0,8}",
        ) {
            let expression = format!("^{}$", parts.join(".*"));
            let expected = regex::Regex::new(&expression).unwrap().is_match(&text);
            prop_assert_eq!(matches_glob(&parts, &text), expected);
        }
    }
}
