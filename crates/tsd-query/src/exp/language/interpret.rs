//! Works an expression out, with JEXL's lenient arithmetic.

use super::{Binary, Node, Program, Unary, number::Literal};

/// Values of the variables, by their place in the program.
type Scope<'a> = &'a [f64];

/// Value of an expression; an error names the Java class of a result that is no number. Booleans
/// count 1 and 0.
pub(in crate::exp) fn evaluate(program: &Program, scope: Scope<'_>) -> Result<f64, &'static str> {
    match value(&program.root, scope) {
        Literal::Double(v) => Ok(v),
        Literal::Boolean(b) => Ok(f64::from(u8::from(b))),
        other => Err(other.class()),
    }
}

fn value(node: &Node, scope: Scope<'_>) -> Literal {
    match node {
        Node::Literal(literal) => literal.clone(),
        Node::Variable(at) => scope.get(*at).map_or(Literal::Null, |v| Literal::Double(*v)),
        Node::Call(_) => Literal::Null,
        Node::Unary(operator, inner) => unary(*operator, &value(inner, scope)),
        Node::Binary(Binary::And, left, right) => {
            Literal::Boolean(value(left, scope).to_boolean() && value(right, scope).to_boolean())
        }
        Node::Binary(Binary::Or, left, right) => {
            Literal::Boolean(value(left, scope).to_boolean() || value(right, scope).to_boolean())
        }
        Node::Binary(operator, left, right) => {
            binary(*operator, &value(left, scope), &value(right, scope))
        }
        Node::Choice(condition, then, other) => {
            value(if value(condition, scope).to_boolean() { then } else { other }, scope)
        }
        Node::Elvis(first, other) => match value(first, scope) {
            first if first.to_boolean() => first,
            _ => value(other, scope),
        },
        Node::Sequence(statements) => {
            statements.iter().fold(Literal::Null, |_, statement| value(statement, scope))
        }
    }
}

fn unary(operator: Unary, inner: &Literal) -> Literal {
    match (operator, inner) {
        (Unary::Not, inner) => Literal::Boolean(!inner.to_boolean()),
        (Unary::Complement, inner) => {
            inner.to_whole().map_or(Literal::Null, |v| Literal::Long(!(v as i64)))
        }
        (Unary::Negate, Literal::Integer(v)) => Literal::Integer(v.wrapping_neg()),
        (Unary::Negate, Literal::Long(v)) => Literal::Long(v.wrapping_neg()),
        (Unary::Negate, Literal::Single(v)) => Literal::Single(-v),
        (Unary::Negate, Literal::Double(v)) => Literal::Double(-v),
        (Unary::Negate, Literal::Boolean(b)) => Literal::Boolean(!b),
        (Unary::Negate, other) => other.to_double().map_or(Literal::Null, |v| Literal::Double(-v)),
    }
}

fn binary(operator: Binary, left: &Literal, right: &Literal) -> Literal {
    match operator {
        Binary::Add | Binary::Subtract | Binary::Multiply | Binary::Divide | Binary::Remainder => {
            arithmetic(operator, left, right)
        }
        Binary::BitAnd | Binary::BitOr | Binary::BitXor => {
            let (Some(left), Some(right)) = (left.to_whole(), right.to_whole()) else {
                return Literal::Null;
            };
            let (left, right) = (left as i64, right as i64);
            Literal::Long(match operator {
                Binary::BitAnd => left & right,
                Binary::BitOr => left | right,
                _ => left ^ right,
            })
        }
        _ => Literal::Boolean(compare(operator, left, right)),
    }
}

fn arithmetic(operator: Binary, left: &Literal, right: &Literal) -> Literal {
    if left.is_floating() || right.is_floating() {
        let (Some(l), Some(r)) = (left.to_double(), right.to_double()) else {
            return not_numbers(operator, left, right);
        };
        return Literal::Double(match operator {
            Binary::Add => l + r,
            Binary::Subtract => l - r,
            Binary::Multiply => l * r,
            // Division by zero is zero.
            _ if r == 0.0 => 0.0,
            Binary::Divide => l / r,
            _ => l % r,
        });
    }
    let (Some(l), Some(r)) = (left.to_whole(), right.to_whole()) else {
        return not_numbers(operator, left, right);
    };
    let whole = match operator {
        Binary::Add => l.wrapping_add(r),
        Binary::Subtract => l.wrapping_sub(r),
        Binary::Multiply => l.wrapping_mul(r),
        _ if r == 0 => return Literal::Double(0.0),
        Binary::Divide => l.wrapping_div(r),
        _ => l.wrapping_rem(r),
    };
    match (left, right, i64::try_from(whole)) {
        (Literal::Long(_), _, Ok(v)) | (_, Literal::Long(_), Ok(v)) => Literal::Long(v),
        _ => Literal::Integer(whole),
    }
}

/// Texts that are no numbers can be put together; everything else with them has no value.
fn not_numbers(operator: Binary, left: &Literal, right: &Literal) -> Literal {
    if operator != Binary::Add {
        return Literal::Null;
    }
    let text = |side: &Literal| match side {
        Literal::Text(text) => text.clone(),
        other => other.to_double().map(|v| v.to_string()).unwrap_or_default(),
    };
    Literal::Text(text(left) + &text(right))
}

#[expect(clippy::float_cmp, reason = "the expression asks for equal numbers")]
fn compare(operator: Binary, left: &Literal, right: &Literal) -> bool {
    if let (Literal::Null, _) | (_, Literal::Null) = (left, right) {
        let same = left == right;
        return match operator {
            Binary::Equal | Binary::LessOrEqual | Binary::GreaterOrEqual => same,
            Binary::NotEqual => !same,
            _ => false,
        };
    }
    let (Some(l), Some(r)) = (left.to_double(), right.to_double()) else {
        return match operator {
            Binary::Equal => left == right,
            Binary::NotEqual => left != right,
            _ => false,
        };
    };
    match operator {
        Binary::Equal => l == r,
        Binary::NotEqual => l != r,
        Binary::Less => l < r,
        Binary::LessOrEqual => l <= r,
        Binary::Greater => l > r,
        _ => l >= r,
    }
}
