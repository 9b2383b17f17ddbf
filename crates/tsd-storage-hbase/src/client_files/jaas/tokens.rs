//! Words, quoted texts and symbols of a JAAS file, without its comments.

use std::{fmt, iter::Peekable, str::Chars};

/// Symbols that are tokens of their own.
const SYMBOLS: [char; 4] = ['{', '}', ';', '='];

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A word without quotes.
    Word(String),
    /// The text between two quotes.
    Quoted(String),
    /// One of `{`, `}`, `;` and `=`.
    Symbol(char),
}

impl Token {
    /// The text of a word or quoted text; fails with the symbol.
    pub(super) fn into_text(self) -> Result<String, char> {
        match self {
            Self::Word(text) | Self::Quoted(text) => Ok(text),
            Self::Symbol(symbol) => Err(symbol),
        }
    }
}

/// Quoted texts may be passwords, so they are not shown.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => f.write_str(word),
            Self::Quoted(_) => f.write_str("a quoted text"),
            Self::Symbol(symbol) => write!(f, "{symbol}"),
        }
    }
}

/// A text that is not a JAAS file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TokenError {
    /// Line, from 1.
    pub(super) line: usize,
    /// What was found and what is expected.
    pub(super) problem: String,
}

impl TokenError {
    pub(super) fn new(line: usize, problem: String) -> Self {
        Self { line, problem }
    }
}

/// The tokens of a text, with their lines.
pub(super) struct Tokens<'a> {
    rest: Peekable<Chars<'a>>,
    line: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { rest: text.chars().peekable(), line: 1 }
    }

    /// The next token and its line; `None` at the end of the text.
    pub(super) fn next(&mut self) -> Result<Option<(usize, Token)>, TokenError> {
        self.skip_blanks()?;
        let line = self.line;
        let Some(first) = self.take() else { return Ok(None) };
        let token = match first {
            '"' | '\'' => Token::Quoted(self.quoted(first)?),
            symbol if SYMBOLS.contains(&symbol) => Token::Symbol(symbol),
            first => Token::Word(self.word(first)),
        };
        Ok(Some((line, token)))
    }

    /// The next token. Fails at the end of the text; `expected` says what is missing.
    pub(super) fn needed(&mut self, expected: &str) -> Result<(usize, Token), TokenError> {
        self.next()?.ok_or_else(|| {
            TokenError::new(self.line, format!("expected {expected}, found the end of the file"))
        })
    }

    /// Takes a symbol. `place` says where it is expected.
    pub(super) fn expect(&mut self, symbol: char, place: &str) -> Result<(), TokenError> {
        match self.needed(&format!("{symbol} {place}"))? {
            (_, Token::Symbol(found)) if found == symbol => Ok(()),
            (line, found) => {
                Err(TokenError::new(line, format!("expected {symbol} {place}, found {found}")))
            }
        }
    }

    fn take(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    /// The character behind the next one.
    fn second(&self) -> Option<char> {
        self.rest.clone().nth(1)
    }

    /// True if a comment of either kind begins here.
    fn at_comment(&mut self) -> bool {
        self.rest.peek() == Some(&'/') && matches!(self.second(), Some('/' | '*'))
    }

    /// Skips white space and comments.
    fn skip_blanks(&mut self) -> Result<(), TokenError> {
        loop {
            if self.at_comment() {
                self.skip_comment()?;
            } else if self.rest.peek().is_some_and(|next| next.is_whitespace()) {
                self.take();
            } else {
                return Ok(());
            }
        }
    }

    fn skip_comment(&mut self) -> Result<(), TokenError> {
        let begin = self.line;
        self.take();
        if self.take() == Some('/') {
            while self.take().is_some_and(|next| next != '\n') {}
            return Ok(());
        }
        loop {
            match self.take() {
                Some('*') if self.rest.peek() == Some(&'/') => {
                    self.take();
                    return Ok(());
                }
                Some(_) => {}
                None => {
                    let problem = "expected */ at the end of this comment".to_owned();
                    return Err(TokenError::new(begin, problem));
                }
            }
        }
    }

    fn word(&mut self, first: char) -> String {
        let mut word = String::from(first);
        while let Some(&next) = self.rest.peek() {
            let ends = next.is_whitespace() || SYMBOLS.contains(&next) || "\"'".contains(next);
            if ends || self.at_comment() {
                break;
            }
            word.push(next);
            self.take();
        }
        word
    }

    /// The text up to the closing quote, which must be in the same line.
    fn quoted(&mut self, quote: char) -> Result<String, TokenError> {
        let line = self.line;
        let mut text = String::new();
        loop {
            match self.take() {
                Some('\\') => text.extend(self.escaped()),
                Some(next) if next == quote => return Ok(text),
                Some('\n') | None => {
                    return Err(TokenError::new(
                        line,
                        format!("expected {quote} at the end of a value"),
                    ));
                }
                Some(next) => text.push(next),
            }
        }
    }

    /// The character of an escape: a control character, up to three octal digits, or the character itself.
    fn escaped(&mut self) -> Option<char> {
        const MAX_FIRST_OF_THREE: u32 = 3;
        let first = self.take()?;
        let Some(mut number) = first.to_digit(8) else {
            return Some(match first {
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\u{b}',
                other => other,
            });
        };
        let more = if number <= MAX_FIRST_OF_THREE { 2 } else { 1 };
        for _ in 0..more {
            let Some(digit) = self.rest.peek().and_then(|next| next.to_digit(8)) else { break };
            number = number * 8 + digit;
            self.take();
        }
        char::from_u32(number)
    }
}
