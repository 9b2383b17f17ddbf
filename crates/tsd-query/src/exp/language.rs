//! The expression language: parser and interpreter.

mod interpret;
mod lexer;
mod number;
mod parse;

pub(super) use interpret::evaluate;
pub(super) use parse::{ExpressionError, parse};

use number::Literal;

/// Syntax tree of an expression or a sequence of statements.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Literal(Literal),
    /// A variable, by its index in [`Program::variables`].
    Variable(usize),
    /// A function call. No functions are defined, so its value is null.
    Call(Vec<Node>),
    Unary(UnaryOperator, Box<Node>),
    Binary(BinaryOperator, Box<Node>, Box<Node>),
    /// `a ? b : c`, and `if (a) b else c`; a missing else part is null.
    Choice(Box<Node>, Box<Node>, Box<Node>),
    /// `a ?: b`
    Elvis(Box<Node>, Box<Node>),
    /// Statements; the value is the value of the last statement.
    Sequence(Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnaryOperator {
    Negate,
    Not,
    Complement,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinaryOperator {
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
    /// Distinct names in order of appearance.
    pub(super) variables: Vec<String>,
}

#[cfg(test)]
mod tests;
