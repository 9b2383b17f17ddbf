//! Interpreter with JEXL's lenient arithmetic.

use super::{BinaryOperator, Node, Program, UnaryOperator, number::Literal};

/// Values of the variables, by their index in the program.
type Scope<'a> = &'a [f64];

/// Value of an expression; booleans are 1 and 0. The error is the Java class of a result that is
/// not a double.
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
        Node::Binary(BinaryOperator::And, left, right) => {
            Literal::Boolean(value(left, scope).to_boolean() && value(right, scope).to_boolean())
        }
        Node::Binary(BinaryOperator::Or, left, right) => {
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

fn unary(operator: UnaryOperator, inner: &Literal) -> Literal {
    match (operator, inner) {
        (UnaryOperator::Not, inner) => Literal::Boolean(!inner.to_boolean()),
        (UnaryOperator::Complement, inner) => {
            inner.to_whole().map_or(Literal::Null, |v| Literal::Long(!(v as i64)))
        }
        (UnaryOperator::Negate, Literal::Integer(v)) => Literal::Integer(v.wrapping_neg()),
        (UnaryOperator::Negate, Literal::Long(v)) => Literal::Long(v.wrapping_neg()),
        (UnaryOperator::Negate, Literal::Single(v)) => Literal::Single(-v),
        (UnaryOperator::Negate, Literal::Double(v)) => Literal::Double(-v),
        (UnaryOperator::Negate, Literal::Boolean(b)) => Literal::Boolean(!b),
        (UnaryOperator::Negate, other) => {
            other.to_double().map_or(Literal::Null, |v| Literal::Double(-v))
        }
    }
}

fn binary(operator: BinaryOperator, left: &Literal, right: &Literal) -> Literal {
    match operator {
        BinaryOperator::Add
        | BinaryOperator::Subtract
        | BinaryOperator::Multiply
        | BinaryOperator::Divide
        | BinaryOperator::Remainder => arithmetic(operator, left, right),
        BinaryOperator::BitAnd | BinaryOperator::BitOr | BinaryOperator::BitXor => {
            let (Some(left), Some(right)) = (left.to_whole(), right.to_whole()) else {
                return Literal::Null;
            };
            let (left, right) = (left as i64, right as i64);
            Literal::Long(match operator {
                BinaryOperator::BitAnd => left & right,
                BinaryOperator::BitOr => left | right,
                _ => left ^ right,
            })
        }
        _ => Literal::Boolean(compare(operator, left, right)),
    }
}

fn arithmetic(operator: BinaryOperator, left: &Literal, right: &Literal) -> Literal {
    if left.is_floating() || right.is_floating() {
        let (Some(l), Some(r)) = (left.to_double(), right.to_double()) else {
            return not_numbers(operator, left, right);
        };
        return Literal::Double(match operator {
            BinaryOperator::Add => l + r,
            BinaryOperator::Subtract => l - r,
            BinaryOperator::Multiply => l * r,
            // Division by zero is zero.
            _ if r == 0.0 => 0.0,
            BinaryOperator::Divide => l / r,
            _ => l % r,
        });
    }
    let (Some(l), Some(r)) = (left.to_whole(), right.to_whole()) else {
        return not_numbers(operator, left, right);
    };
    let whole = match operator {
        BinaryOperator::Add => l.wrapping_add(r),
        BinaryOperator::Subtract => l.wrapping_sub(r),
        BinaryOperator::Multiply => l.wrapping_mul(r),
        _ if r == 0 => return Literal::Double(0.0),
        BinaryOperator::Divide => l.wrapping_div(r),
        _ => l.wrapping_rem(r),
    };
    match (left, right, i64::try_from(whole)) {
        (Literal::Long(_), _, Ok(v)) | (_, Literal::Long(_), Ok(v)) => Literal::Long(v),
        _ => Literal::Integer(whole),
    }
}

/// Adding texts that are not numbers concatenates; any other operation on them is null.
fn not_numbers(operator: BinaryOperator, left: &Literal, right: &Literal) -> Literal {
    if operator != BinaryOperator::Add {
        return Literal::Null;
    }
    let text = |side: &Literal| match side {
        Literal::Text(text) => text.clone(),
        other => other.to_double().map(|v| v.to_string()).unwrap_or_default(),
    };
    Literal::Text(text(left) + &text(right))
}

fn compare(operator: BinaryOperator, left: &Literal, right: &Literal) -> bool {
    if let (Literal::Null, _) | (_, Literal::Null) = (left, right) {
        let same = left == right;
        return match operator {
            BinaryOperator::Equal
            | BinaryOperator::LessOrEqual
            | BinaryOperator::GreaterOrEqual => same,
            BinaryOperator::NotEqual => !same,
            _ => false,
        };
    }
    let (Some(l), Some(r)) = (left.to_double(), right.to_double()) else {
        return match operator {
            BinaryOperator::Equal => left == right,
            BinaryOperator::NotEqual => left != right,
            _ => false,
        };
    };
    // NaN equals itself and is less than any number.
    let order = l.partial_cmp(&r).unwrap_or_else(|| r.is_nan().cmp(&l.is_nan()));
    match operator {
        BinaryOperator::Equal => order.is_eq(),
        BinaryOperator::NotEqual => order.is_ne(),
        BinaryOperator::Less => order.is_lt(),
        BinaryOperator::LessOrEqual => order.is_le(),
        BinaryOperator::Greater => order.is_gt(),
        _ => order.is_ge(),
    }
}
