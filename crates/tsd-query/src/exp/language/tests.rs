#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::*;

/// `a` is 6, `b` is 0, everything else 2.
fn evaluate_text(text: &str) -> Result<f64, &'static str> {
    let program = parse(text).unwrap_or_else(|_| panic!("{text} must parse"));
    let scope: Vec<f64> = program
        .variables
        .iter()
        .map(|name| match name.as_str() {
            "a" => 6.0,
            "b" => 0.0,
            _ => 2.0,
        })
        .collect();
    evaluate(&program, &scope)
}

#[track_caller]
fn check(text: &str, expected: f64) {
    assert_eq!(evaluate_text(text).map(f64::to_bits), Ok(expected.to_bits()), "{text}");
}

#[test]
fn operators_have_the_usual_precedence() {
    check("a + a * 2", 18.0);
    check("(a + a) * 2", 24.0);
    check("a - 1 - 1", 4.0);
    check("-a + 10", 4.0);
    check("a % 4", 2.0);
    check("a > 5 && b < 1 || c == 9", 1.0);
    check("not (a gt 5 and b ne 0)", 1.0);
    check("a > 5 ? a : b", 6.0);
    check("b ?: a", 6.0);
}

#[test]
fn arithmetic_matches_jexl() {
    check("7 / 2 * a", 18.0);
    check("a * 7 / 2", 21.0);
    check("a / (b - b)", 0.0);
    check("a % b", 0.0);
    check("7 / 0 * a", 0.0);
    check("a * 0.1", 0.600_000_000_000_000_1);
    check("a * 0.123456789", 6.0 * 0.123_456_79);
    check("a * 0.123456789D", 6.0 * 0.123_456_789);
    check("a * 16777217.0", 6.0 * 16_777_216.0);
    check("a * 0x10", 96.0);
    check("a * (a > 4)", 6.0);
    check("a + '1'", 7.0);
    check("a + null", 6.0);
    check("(a | 1) * 1.0", 7.0);
    check("0.1 + 0.2 + b", 0.1 + 0.2);
}

#[test]
fn nan_equals_itself_and_is_less_than_any_number() {
    let value = |text: &str| evaluate(&parse(text).unwrap(), &[1.0, f64::NAN]);
    for (text, expected) in [
        ("a > b", 1.0),
        ("b > a", 0.0),
        ("b < a", 1.0),
        ("b <= b", 1.0),
        ("b == b", 1.0),
        ("a != b", 1.0),
    ] {
        assert_eq!(value(&format!("a * 0 + b * 0; {text}")), Ok(expected), "{text}");
    }
}

#[test]
fn statements_have_the_value_of_the_last_one() {
    check("a; a + 1", 7.0);
    check("if (a > 5) a * 2 else b", 12.0);
    check("if (a > 5) { a * 2; } else { b }", 12.0);
    check("if (b > 5) { a } else if (a > 5) { a * 3 } else { b }", 18.0);
}

#[test]
fn results_other_than_doubles_and_booleans_are_rejected() {
    for (text, class) in [
        ("a > 5 ? 1 : 0", "java.lang.Integer"),
        ("a > 5 ? 1.0 : 0.0", "java.lang.Float"),
        ("a ^ 2", "java.lang.Long"),
        ("a | 1", "java.lang.Long"),
        ("sqrt(a)", "null"),
        ("a.b", "null"),
        ("Math.sqrt(a)", "null"),
        ("a + 'x'", "java.lang.String"),
        ("5000000000", "java.lang.Long"),
        ("if (b > 5) a", "null"),
    ] {
        assert_eq!(evaluate_text(text), Err(class), "{text}");
    }
}

#[test]
fn variables_are_listed_in_order_of_appearance() {
    let variables = |text| parse(text).unwrap().variables;
    assert_eq!(variables("b + a * b + max(c)"), ["b", "a", "c"]);
    assert_eq!(variables("Math.PI * a"), ["Math", "a"]);
    assert_eq!(variables("Math.sqrt(a)"), ["Math", "a"]);
    assert_eq!(variables("1 + 2"), [""; 0]);
}

#[test]
fn malformed_expressions_are_rejected() {
    for text in ["a +", "1e3", "a b", "(a", "a ? b", "a = 1", "a #", "'a", "08", "1x"] {
        assert_eq!(parse(text), Err(ExpressionError::Grammar), "{text}");
    }
    assert_eq!(
        parse(&format!("{}a{}", "(".repeat(5000), ")".repeat(5000))),
        Err(ExpressionError::TooLarge)
    );
    assert_eq!(parse(&format!("{}a", "-".repeat(5000))), Err(ExpressionError::TooLarge));
    assert_eq!(parse(&format!("{}a", "a+".repeat(5_000))), Err(ExpressionError::TooLarge));
    assert!(evaluate_text(&format!("{}a", "a+".repeat(999))).is_ok());
    assert_eq!(parse(&format!("{}a", "if (a) ".repeat(5000))), Err(ExpressionError::TooLarge));
}

proptest! {
    #[test]
    fn any_text_is_evaluated_or_rejected(text in "\\PC*") {
        if let Ok(program) = parse(&text) {
            let _ = evaluate(&program, &[1.5]);
        }
    }

    #[test]
    fn text_near_the_grammar_is_evaluated_or_rejected(
        text in "[ab0-9+*/%()?:<>=&|!~^;{}.D' -]{0,30}",
    ) {
        if let Ok(program) = parse(&text) {
            let _ = evaluate(&program, &[1.5, 0.0]);
        }
    }
}
