//! Parser of `name(param{,param})`, where a parameter is a call, a metric or a word.

use super::{
    call::{Call, CallInput},
    function::Function,
};
use crate::error::GexpError;

/// Maximum nesting depth of calls.
const MAX_DEPTH: usize = 64;

/// Maximum length of an expression: four times what fits into OpenTSDB's request line.
const MAX_BYTES: usize = 16 << 10;

/// Parses an expression. Text after it is ignored.
pub(super) fn parse(text: &str) -> Result<Call, GexpError> {
    if text.len() > MAX_BYTES {
        return Err(GexpError::TooLong { limit: MAX_BYTES });
    }
    let mut parser = Parser { text, rest: text };
    let name = parser.word().ok_or_else(|| parser.error())?;
    parser.expect('(')?;
    parser.call(name, 0)
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
}

/// A parsed parameter.
enum Parameter {
    Input(CallInput),
    Word(String),
}

impl<'a> Parser<'a> {
    fn error(&self) -> GexpError {
        GexpError::Grammar(self.text.to_owned())
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, expected: char) -> bool {
        self.skip_blanks();
        match self.rest.strip_prefix(expected) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, expected: char) -> Result<(), GexpError> {
        if self.take(expected) { Ok(()) } else { Err(self.error()) }
    }

    /// Reads letters, digits and some punctuation, or a single star.
    fn word(&mut self) -> Option<&'a str> {
        self.word_with("")
    }

    /// Reads a word that may have more punctuation.
    fn word_with(&mut self, more: &str) -> Option<&'a str> {
        self.skip_blanks();
        if let Some(rest) = self.rest.strip_prefix('*') {
            self.rest = rest;
            return Some("*");
        }
        let is_word =
            |c: char| c.is_ascii_alphanumeric() || "-_#/$@|.'[]".contains(c) || more.contains(c);
        let end = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    /// Parses the parameters of a call after its opening parenthesis.
    fn call(&mut self, name: &str, depth: usize) -> Result<Call, GexpError> {
        if depth > MAX_DEPTH {
            return Err(GexpError::TooDeep { limit: MAX_DEPTH });
        }
        let mut inputs = Vec::new();
        let mut parameters = Vec::new();
        loop {
            match self.parameter(depth)? {
                Parameter::Word(word) => parameters.push(word),
                Parameter::Input(_) if !parameters.is_empty() => {
                    return Err(GexpError::ParameterBeforeInput(parameters.concat()));
                }
                Parameter::Input(input) => inputs.push(input),
            }
            if self.take(')') {
                break;
            }
            self.expect(',')?;
        }
        let function =
            Function::from_name(name).ok_or_else(|| GexpError::UnknownFunction(name.to_owned()))?;
        Ok(Call { function, inputs, parameters })
    }

    fn parameter(&mut self, depth: usize) -> Result<Parameter, GexpError> {
        let word = self.word().ok_or_else(|| self.error())?;
        if self.take('(') {
            return Ok(Parameter::Input(CallInput::Call(self.call(word, depth + 1)?)));
        }
        if !self.take(':') {
            return Ok(Parameter::Word(word.to_owned()));
        }
        let mut metric = word.to_owned();
        loop {
            metric.push(':');
            metric.push_str(self.word().ok_or_else(|| self.error())?);
            if !self.take(':') {
                break;
            }
        }
        if self.take('{') {
            metric.push('{');
            if !self.take('}') {
                loop {
                    metric.push_str(self.word().ok_or_else(|| self.error())?);
                    self.expect('=')?;
                    metric.push('=');
                    metric.push_str(self.word_with(":").ok_or_else(|| self.error())?);
                    if self.take('}') {
                        break;
                    }
                    self.expect(',')?;
                    metric.push(',');
                }
            }
            metric.push('}');
        }
        Ok(Parameter::Input(CallInput::Metric(metric)))
    }
}
