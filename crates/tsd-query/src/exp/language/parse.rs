//! Recursive-descent parser.

use super::{
    BinaryOperator, Node, Program, UnaryOperator,
    lexer::{Token, tokens},
    number::Literal,
};

/// Maximum nesting depth.
const MAX_DEPTH: usize = 64;

/// Maximum number of tokens; long operator chains nest, too.
const MAX_TOKENS: usize = 2_000;

/// Operators that associate to the left, weakest first.
const LEVELS: &[&[(&str, BinaryOperator)]] = &[
    &[("||", BinaryOperator::Or)],
    &[("&&", BinaryOperator::And)],
    &[("|", BinaryOperator::BitOr)],
    &[("^", BinaryOperator::BitXor)],
    &[("&", BinaryOperator::BitAnd)],
    &[("==", BinaryOperator::Equal), ("!=", BinaryOperator::NotEqual)],
    &[
        ("<", BinaryOperator::Less),
        ("<=", BinaryOperator::LessOrEqual),
        (">", BinaryOperator::Greater),
        (">=", BinaryOperator::GreaterOrEqual),
    ],
    &[("+", BinaryOperator::Add), ("-", BinaryOperator::Subtract)],
    &[
        ("*", BinaryOperator::Multiply),
        ("/", BinaryOperator::Divide),
        ("%", BinaryOperator::Remainder),
    ],
];

/// Reason why a text is not an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exp) enum ExpressionError {
    /// The text does not follow the grammar.
    Grammar,
    /// The text is too long or nested too deeply.
    TooLarge,
}

/// Parses an expression.
pub(in crate::exp) fn parse(text: &str) -> Result<Program, ExpressionError> {
    let tokens = tokens(text).ok_or(ExpressionError::Grammar)?;
    if tokens.len() > MAX_TOKENS {
        return Err(ExpressionError::TooLarge);
    }
    let mut parser = Parser { tokens: &tokens, at: 0, variables: Vec::new(), depth: 0 };
    match parser.statements(None) {
        Some(root) if parser.at == tokens.len() => {
            Ok(Program { root, variables: parser.variables })
        }
        // The depth is decremented only after a complete construct, so it still shows the excess.
        _ if parser.depth > MAX_DEPTH => Err(ExpressionError::TooLarge),
        _ => Err(ExpressionError::Grammar),
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    variables: Vec<String>,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Sign(next)) if *next == sign);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Option<()> {
        self.take(sign).then_some(())
    }

    /// Parses statements up to `end`, or to the end of the text.
    fn statements(&mut self, end: Option<&str>) -> Option<Node> {
        let mut statements = Vec::new();
        loop {
            while self.take(";") {}
            match end {
                Some(end) if self.take(end) => break,
                None if self.peek().is_none() => break,
                _ => {}
            }
            statements.push(self.statement()?);
        }
        match statements.len() {
            1 => statements.pop(),
            _ => Some(Node::Sequence(statements)),
        }
    }

    fn statement(&mut self) -> Option<Node> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let node = if self.take("{") {
            self.statements(Some("}"))?
        } else if self.take("if") {
            self.expect("(")?;
            let condition = self.expression()?;
            self.expect(")")?;
            let then = self.statement()?;
            while self.take(";") {}
            let other =
                if self.take("else") { self.statement()? } else { Node::Literal(Literal::Null) };
            Node::Choice(Box::new(condition), Box::new(then), Box::new(other))
        } else {
            let expression = self.expression()?;
            // Statements are separated by semicolons.
            let ends = matches!(self.peek(), None | Some(Token::Sign(";" | "}" | "else")));
            ends.then_some(expression)?
        };
        self.depth -= 1;
        Some(node)
    }

    fn expression(&mut self) -> Option<Node> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let first = self.binary(0)?;
        let node = if self.take("?:") {
            Node::Elvis(Box::new(first), Box::new(self.expression()?))
        } else if self.take("?") {
            let then = self.expression()?;
            self.expect(":")?;
            Node::Choice(Box::new(first), Box::new(then), Box::new(self.expression()?))
        } else {
            first
        };
        self.depth -= 1;
        Some(node)
    }

    fn binary(&mut self, level: usize) -> Option<Node> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some((_, operator)) = operators.iter().find(|(sign, _)| self.take(sign)) {
            let right = self.binary(level + 1)?;
            left = Node::Binary(*operator, Box::new(left), Box::new(right));
        }
        Some(left)
    }

    fn unary(&mut self) -> Option<Node> {
        let signs = [
            ("-", UnaryOperator::Negate),
            ("!", UnaryOperator::Not),
            ("~", UnaryOperator::Complement),
        ];
        let Some((_, operator)) = signs.iter().find(|(sign, _)| self.take(sign)) else {
            return self.primary();
        };
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let inner = self.unary()?;
        self.depth -= 1;
        Some(Node::Unary(*operator, Box::new(inner)))
    }

    fn primary(&mut self) -> Option<Node> {
        if self.take("(") {
            let inner = self.expression()?;
            self.expect(")")?;
            return Some(inner);
        }
        let token = self.peek()?.clone();
        self.at += 1;
        match token {
            Token::Literal(literal) => Some(Node::Literal(literal)),
            Token::Sign(_) => None,
            Token::Name(_) if self.take("(") => self.arguments().map(Node::Call),
            Token::Name(name) => Some(Node::Variable(self.variable(name))),
            // A property or method of a double: doubles have no members, so the value is null.
            Token::Path(name) => {
                self.variable(name);
                let arguments = if self.take("(") { self.arguments()? } else { Vec::new() };
                Some(Node::Call(arguments))
            }
        }
    }

    /// Parses the arguments of a call after its opening parenthesis.
    fn arguments(&mut self) -> Option<Vec<Node>> {
        let mut arguments = Vec::new();
        while !self.take(")") {
            arguments.push(self.expression()?);
            if !self.take(",") {
                self.expect(")")?;
                break;
            }
        }
        Some(arguments)
    }

    /// The index of a variable, which is added if it is new.
    fn variable(&mut self, name: String) -> usize {
        let at = self.variables.iter().position(|other| *other == name);
        at.unwrap_or_else(|| {
            self.variables.push(name);
            self.variables.len() - 1
        })
    }
}
