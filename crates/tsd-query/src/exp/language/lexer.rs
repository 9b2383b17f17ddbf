//! Lexer of the expression language.

use super::number::{Literal, read_number};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Literal(Literal),
    Name(String),
    /// A path such as `Math.sqrt`, by its first part.
    Path(String),
    Sign(&'static str),
}

/// Operators and punctuation, longest first.
const SIGNS: &[&str] = &[
    "?:", "==", "!=", "<=", ">=", "&&", "||", "+", "-", "*", "/", "%", "<", ">", "!", "?", ":",
    "(", ")", "{", "}", ",", ";", "&", "|", "^", "~", "=",
];

/// Keywords and the operators that they stand for.
const WORDS: &[(&str, &str)] = &[
    ("eq", "=="),
    ("ne", "!="),
    ("lt", "<"),
    ("le", "<="),
    ("gt", ">"),
    ("ge", ">="),
    ("and", "&&"),
    ("or", "||"),
    ("not", "!"),
    ("div", "/"),
    ("mod", "%"),
    ("if", "if"),
    ("else", "else"),
];

/// Splits an expression into tokens; `None` for text that is not a token.
pub(super) fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if first.is_ascii_digit() {
            let (literal, after) = read_number(rest)?;
            tokens.push(Token::Literal(literal));
            rest = after;
        } else if first.is_alphabetic() || matches!(first, '_' | '$' | '@') {
            let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '@');
            let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            let (word, mut after) = rest.split_at_checked(end)?;
            let is_path = after.starts_with('.');
            while let Some(part) = after.strip_prefix('.') {
                let end = part.find(|c| !is_name(c)).unwrap_or(part.len());
                after = part.get(end..)?;
            }
            tokens.push(match word {
                "true" => Token::Literal(Literal::Boolean(true)),
                "false" => Token::Literal(Literal::Boolean(false)),
                "null" => Token::Literal(Literal::Null),
                word => match WORDS.iter().find(|(name, _)| *name == word) {
                    Some((_, sign)) => Token::Sign(sign),
                    None if is_path => Token::Path(word.to_owned()),
                    None => Token::Name(word.to_owned()),
                },
            });
            rest = after;
        } else if matches!(first, '\'' | '"') {
            let inner = rest.get(1..)?;
            let end = inner.find(first)?;
            let (string, after) = inner.split_at_checked(end)?;
            tokens.push(Token::Literal(Literal::Text(string.to_owned())));
            rest = after.get(1..)?;
        } else {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign))?;
            tokens.push(Token::Sign(sign));
            rest = rest.get(sign.len()..)?;
        }
        rest = rest.trim_start();
    }
    Some(tokens)
}
