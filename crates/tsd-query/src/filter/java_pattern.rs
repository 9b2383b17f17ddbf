//! Translates Java's regular expressions to the syntax of the `regex` crate, so that filters match
//! as in OpenTSDB.
//!
//! Most patterns mean the same in both. Constructs that would silently mean something else are
//! rewritten (`\d` and the like are ASCII in Java, `\Q…\E` quotes, `\<` is a plain character) or
//! rejected (possessive quantifiers: `a*+` is a repeated repetition in `regex`). Look-around and
//! back references are rejected by `regex` itself, since they prevent matching in linear time.

use std::{fmt::Write, iter::Peekable, str::Chars};

/// A pattern that cannot be translated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum JavaPatternError {
    /// `*+`, `++`, `?+`, `{n}+`
    #[error("possessive quantifiers are not supported")]
    Possessive,
    /// A quantifier after a quantifier.
    #[error("the quantifier '{0}' has nothing to repeat")]
    Dangling(char),
    /// `\G`, `\N{…}` and the like, by the character after the backslash.
    #[error("the escape \\{0} is not supported")]
    Escape(char),
    /// A backslash at the end, or an escape without its digits.
    #[error("an escape is not complete")]
    Incomplete,
}

/// Horizontal white space (`\h`).
const HORIZONTAL: &str = r" \t\x{A0}\x{1680}\x{180E}\x{2000}-\x{200A}\x{202F}\x{205F}\x{3000}";
/// Vertical white space (`\v`).
const VERTICAL: &str = r"\n\x0B\f\r\x{85}\x{2028}\x{2029}";
/// Java's names of ASCII classes, with the names in `regex`.
const POSIX: &[(&str, &str)] = &[
    ("Lower", "lower"),
    ("Upper", "upper"),
    ("ASCII", "ascii"),
    ("Alpha", "alpha"),
    ("Digit", "digit"),
    ("Alnum", "alnum"),
    ("Punct", "punct"),
    ("Graph", "graph"),
    ("Print", "print"),
    ("Blank", "blank"),
    ("Cntrl", "cntrl"),
    ("XDigit", "xdigit"),
    ("Space", "space"),
];

/// Translates a pattern.
pub(super) fn translate(pattern: &str) -> Result<String, JavaPatternError> {
    let mut translator = Translator {
        rest: pattern.chars().peekable(),
        out: String::with_capacity(pattern.len() + 16),
        classes: 0,
        preceding: PrecedingItem::Other,
    };
    translator.run()?;
    Ok(translator.out)
}

/// Kind of the item before the next character.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PrecedingItem {
    /// Anything that can be repeated, or nothing.
    Other,
    /// A quantifier.
    Quantifier,
    /// A lazy quantifier.
    Lazy,
}

struct Translator<'p> {
    rest: Peekable<Chars<'p>>,
    out: String,
    /// Number of open brackets.
    classes: usize,
    preceding: PrecedingItem,
}

impl Translator<'_> {
    fn run(&mut self) -> Result<(), JavaPatternError> {
        while let Some(c) = self.rest.next() {
            match c {
                '\\' => {
                    self.escape()?;
                    self.preceding = PrecedingItem::Other;
                    continue;
                }
                '[' => self.classes += 1,
                ']' => self.classes = self.classes.saturating_sub(1),
                '*' | '+' | '?' | '{' if self.classes == 0 => {
                    self.quantifier(c)?;
                    continue;
                }
                '(' if self.classes == 0 && self.rest.peek() == Some(&'?') => {
                    self.out.push('(');
                    self.flags();
                    self.preceding = PrecedingItem::Other;
                    continue;
                }
                _ => {}
            }
            self.out.push(c);
            self.preceding = PrecedingItem::Other;
        }
        Ok(())
    }

    fn quantifier(&mut self, sign: char) -> Result<(), JavaPatternError> {
        self.preceding = match (self.preceding, sign) {
            (PrecedingItem::Other, _) => PrecedingItem::Quantifier,
            (PrecedingItem::Quantifier, '?') => PrecedingItem::Lazy,
            (PrecedingItem::Quantifier, '+') => {
                return Err(JavaPatternError::Possessive);
            }
            _ => return Err(JavaPatternError::Dangling(sign)),
        };
        self.out.push(sign);
        if sign == '{' {
            for c in self.rest.by_ref() {
                self.out.push(c);
                if c == '}' {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Translates `(?i)`, `(?i:` and the like. Drops flags that `regex` lacks or interprets
    /// differently, which do not affect tag values.
    fn flags(&mut self) {
        let flags = |c: &char| c.is_ascii_alphabetic() || *c == '-';
        let mut ahead = self.rest.clone();
        ahead.next();
        let mut written: String = String::new();
        while let Some(c) = ahead.next_if(flags) {
            if !matches!(c, 'd' | 'u' | 'U') {
                written.push(c);
            }
        }
        if matches!(ahead.peek(), Some(')' | ':')) {
            self.rest = ahead;
            let empty = written.trim_matches('-').is_empty();
            match (empty, self.rest.next()) {
                // No flags remain: an empty group.
                (true, Some(')')) => self.out.push_str("?:)"),
                (true, _) => self.out.push_str("?:"),
                (false, end) => {
                    let _ = write!(self.out, "?{}", written.trim_end_matches('-'));
                    self.out.extend(end);
                }
            }
        }
    }

    /// Translates an escape after its backslash.
    fn escape(&mut self) -> Result<(), JavaPatternError> {
        let sign = self.rest.next().ok_or(JavaPatternError::Incomplete)?;
        match sign {
            'Q' => self.quote(),
            // The end of a quotation without a beginning.
            'E' => {}
            'd' => self.class("0-9", false),
            'D' => self.class("0-9", true),
            'w' => self.class("a-zA-Z_0-9", false),
            'W' => self.class("a-zA-Z_0-9", true),
            's' => self.class(r" \t\n\x0B\f\r", false),
            'S' => self.class(r" \t\n\x0B\f\r", true),
            'h' => self.class(HORIZONTAL, false),
            'H' => self.class(HORIZONTAL, true),
            'v' => self.class(VERTICAL, false),
            'V' => self.class(VERTICAL, true),
            'R' => {
                let _ = write!(self.out, r"(?:\r\n|[{VERTICAL}])");
            }
            'b' => self.out.push_str(r"(?-u:\b)"),
            'Z' => self.out.push_str(r"\n?\z"),
            'e' => self.out.push_str(r"\x1B"),
            'c' => {
                let control = self.rest.next().ok_or(JavaPatternError::Incomplete)?;
                let _ = write!(self.out, r"\x{{{:X}}}", u32::from(control) ^ 64);
            }
            '0' => self.octal()?,
            'p' | 'P' => self.property(sign == 'P'),
            'G' | 'N' | 'X' => {
                return Err(JavaPatternError::Escape(sign));
            }
            // Word boundaries in `regex`, plain characters in Java.
            '<' | '>' => self.out.push(sign),
            sign if sign.is_ascii() => {
                self.out.push('\\');
                self.out.push(sign);
            }
            sign => self.out.push(sign),
        }
        Ok(())
    }

    /// Translates quoted text up to `\E`.
    fn quote(&mut self) {
        let mut text = String::new();
        while let Some(c) = self.rest.next() {
            if c == '\\' && self.rest.next_if_eq(&'E').is_some() {
                break;
            }
            text.push(c);
        }
        self.out.push_str(&regex::escape(&text));
    }

    /// Writes a character class, inside or outside of brackets.
    fn class(&mut self, members: &str, negated: bool) {
        let _ = match (self.classes > 0, negated) {
            (true, false) => write!(self.out, "{members}"),
            (_, true) => write!(self.out, "[^{members}]"),
            (false, false) => write!(self.out, "[{members}]"),
        };
    }

    /// `\0n`, `\0nn`, `\0mnn`
    fn octal(&mut self) -> Result<(), JavaPatternError> {
        let (mut value, mut digits) = (0, 0);
        while digits < 3
            && let Some(digit) = self.rest.peek().and_then(|c| c.to_digit(8))
            && value * 8 + digit <= 0o377
        {
            value = value * 8 + digit;
            digits += 1;
            self.rest.next();
        }
        if digits == 0 {
            return Err(JavaPatternError::Incomplete);
        }
        let _ = write!(self.out, r"\x{{{value:X}}}");
        Ok(())
    }

    /// `\p{Lower}`: an ASCII class of that name, or a Unicode class, which `regex` accepts or
    /// rejects.
    fn property(&mut self, negated: bool) {
        let mut ahead = self.rest.clone();
        let mut name = String::new();
        if ahead.next_if_eq(&'{').is_some() {
            name.extend(std::iter::from_fn(|| ahead.next_if(|c| *c != '}')));
        }
        let posix = POSIX.iter().find(|(java, _)| *java == name);
        let not = if negated { "^" } else { "" };
        match posix {
            Some((_, posix)) => {
                ahead.next();
                self.rest = ahead;
                let _ = if self.classes > 0 {
                    write!(self.out, "[:{not}{posix}:]")
                } else {
                    write!(self.out, "[[:{not}{posix}:]]")
                };
            }
            None if name.starts_with("Is") => {
                ahead.next();
                self.rest = ahead;
                let letter = if negated { 'P' } else { 'p' };
                let name = name.trim_start_matches("Is");
                let _ = write!(self.out, r"\{letter}{{{name}}}");
            }
            None => self.out.push_str(if negated { r"\P" } else { r"\p" }),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    #[track_caller]
    fn check(pattern: &str, found: &[&str], missed: &[&str]) {
        let translated = translate(pattern).unwrap();
        let regex = Regex::new(&translated).unwrap_or_else(|e| panic!("{pattern}: {e}"));
        for text in found {
            assert!(regex.is_match(text), "{pattern} ({translated}) in {text}");
        }
        for text in missed {
            assert!(!regex.is_match(text), "{pattern} ({translated}) in {text}");
        }
    }

    #[test]
    fn common_patterns_are_unchanged() {
        for pattern in
            ["web[0-9]+\\.lax", "^(a|b)*?$", "a{2,3}", "(?<n>x)", "[^a-c&&[b]]", "\\x41\\u0042\\."]
        {
            assert_eq!(translate(pattern).unwrap(), pattern);
        }
    }

    #[test]
    fn classes_are_ascii() {
        check(r"^\d+$", &["012"], &["٣", "a"]);
        check(r"^[\d.]+$", &["1.2"], &["٣.٣", "d"]);
        check(r"^\w\W\s\S$", &["a- x", "_é\tx"], &["é- x"]);
        check(r"^[^\w]$", &["é", "-"], &["w", "_"]);
        check(r"^[\D]$", &["a"], &["5"]);
        check(r"\bweb\b", &["a web b", "éwebé"], &["webs"]);
        check(r"^\p{Lower}[\p{Digit}x]\P{Alpha}$", &["a1-", "bx1"], &["éx1", "A1-", "a1b"]);
        check(r"^\p{L}\p{IsGreek}$", &["éα"], &["1α", "éa"]);
        check(r"^a\hb\Rc\v$", &["a\u{a0}b\r\nc\n"], &["a\nb\nc\n"]);
    }

    #[test]
    fn escapes_match_java() {
        check(r"^\Qa.b*\E+$", &["a.b*", "a.b**"], &["aab"]);
        check(r"^[\Q]^\E]$", &["]", "^"], &["a"]);
        check(r"^\Qa\b", &[], &["a"]);
        check(r"^\<a\>\-\é$", &["<a>-é"], &[]);
        check(r"^\0101\e\cA$", &["A\u{1b}\u{1}"], &[]);
        check(r"^x\Z", &["x", "x\n"], &["x\ny"]);
        check(r"(?iu)^WEB$", &["web"], &[]);
        check(r"(?d)^a(?U:b)(?i-u:C)$", &["abc"], &["abd"]);
    }

    #[test]
    fn incompatible_constructs_are_rejected() {
        for pattern in ["a*+", "a++b", "a?+", "a{2}+"] {
            let error = translate(pattern).unwrap_err();
            assert_eq!(error, JavaPatternError::Possessive);
        }
        for pattern in ["a**", "a+*", "a*?+", "\\", "\\0", "\\G", "\\c"] {
            translate(pattern).unwrap_err();
        }
        for pattern in ["(?=a)", "(?<!a)b", "(a)\\1", "(?>a)", "\\k<n>", "\\p{javaLowerCase}"] {
            assert!(Regex::new(&translate(pattern).unwrap()).is_err(), "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_translated_or_rejected(pattern in "([a-z\\\\QEdwspPb0-9{}()\\[\\]?*+^<>:-]|\\PC)*") {
            if let Ok(translated) = translate(&pattern) {
                let _ = Regex::new(&translated);
            }
        }

        #[test]
        fn quoted_text_matches_literally(text in "[^\\\\]*") {
            let translated = translate(&format!("\\Q{text}\\E"))?;
            prop_assert!(Regex::new(&translated)?.is_match(&text));
        }
    }
}
