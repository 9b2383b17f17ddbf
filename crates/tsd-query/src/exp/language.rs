//! The expression language.

mod interpret;
mod lexer;
mod number;
mod parse;

pub(super) use interpret::evaluate;
pub(super) use parse::{ParseFault, parse};

use number::Literal;

/// An expression or a sequence of statements.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Literal(Literal),
    /// A variable, by its place in [`Program::variables`].
    Variable(usize),
    /// A call of a function. There are none, so its value is null.
    Call(Vec<Node>),
    Unary(Unary, Box<Node>),
    Binary(Binary, Box<Node>, Box<Node>),
    /// `a ? b : c`, and `if (a) b else c`; without an else part null stands for it.
    Choice(Box<Node>, Box<Node>, Box<Node>),
    /// `a ?: b`
    Elvis(Box<Node>, Box<Node>),
    /// Statements; the last one counts.
    Sequence(Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unary {
    Negate,
    Not,
    Complement,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    And,
    Or,
    BitAnd,
    BitOr,
    BitXor,
}

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Program {
    pub(super) root: Node,
    /// Names in order of appearance.
    pub(super) variables: Vec<String>,
}

#[cfg(test)]
mod tests;
