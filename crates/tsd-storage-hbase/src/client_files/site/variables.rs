//! Replaces `${name}` in the value of a property.

use crate::client_files::Variables;

/// Replacements in one value, as in Hadoop. The limit also ends a value that refers to itself.
const MAX_REPLACEMENTS: usize = 20;

/// A value whose variables cannot be replaced. The texts follow the name of the property.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum VariableError {
    #[error("refers to ${{{0}}}, which is neither a property nor a known variable")]
    Unknown(String),
    #[error("needs more than {MAX_REPLACEMENTS} replacements of ${{...}}; it may refer to itself")]
    TooMany,
}

/// Replaces the variables of a value, also those in the values of variables.
pub(super) fn replaced<'a>(
    value: &str,
    property: impl Fn(&str) -> Option<&'a str>,
    variables: Variables<'_>,
) -> Result<String, VariableError> {
    let mut value = value.to_owned();
    for _ in 0..MAX_REPLACEMENTS {
        let Some((before, name, after)) = innermost(&value) else { return Ok(value) };
        let found = match name.strip_prefix("env.") {
            Some(name) => environment(name, variables),
            None => variables(name).or_else(|| property(name).map(str::to_owned)),
        };
        let found = found.ok_or_else(|| VariableError::Unknown(name.to_owned()))?;
        value = format!("{before}{found}{after}");
    }
    match innermost(&value) {
        Some(_) => Err(VariableError::TooMany),
        None => Ok(value),
    }
}

/// The text before the first variable that contains no other one, its name, and the text after it. As in Hadoop, a
/// name has no `$`, `}` or white space.
fn innermost(value: &str) -> Option<(&str, &str, &str)> {
    let mut rest = value;
    loop {
        let (_, inner) = rest.split_once("${")?;
        let end = inner.find(|c: char| c == '$' || c == '}' || c.is_whitespace())?;
        let (name, after) = inner.split_at_checked(end)?;
        if let Some(after) = after.strip_prefix('}').filter(|_| !name.is_empty()) {
            let begin = value.len() - inner.len();
            return Some((value.get(..begin - 2)?, name, after));
        }
        rest = inner;
    }
}

/// The value of an environment variable, or its default: `NAME:-default` also replaces an empty value, `NAME-default`
/// only a missing one.
fn environment(text: &str, variables: Variables<'_>) -> Option<String> {
    let get = |name: &str| variables(&format!("env.{name}"));
    match (text.split_once(":-"), text.split_once('-')) {
        (Some((name, default)), _) => {
            Some(get(name).filter(|value| !value.is_empty()).unwrap_or_else(|| default.to_owned()))
        }
        (None, Some((name, default))) => Some(get(name).unwrap_or_else(|| default.to_owned())),
        (None, None) => get(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<String, VariableError> {
        let property = |name: &str| match name {
            "a" => Some("1"),
            "b" => Some("<${a}>"),
            "loop" => Some("x${loop}"),
            "wide" => Some("${a}${a}${a}${a}${a}${a}${a}${a}${a}${a}"),
            _ => None,
        };
        let variables = |name: &str| match name {
            "user.home" => Some("/home/tsdb".to_owned()),
            "env.HOST" => Some("h1".to_owned()),
            "env.EMPTY" => Some(String::new()),
            _ => None,
        };
        replaced(text, property, &variables)
    }

    #[test]
    fn variables_are_replaced_by_their_values() {
        for (text, expected) in [
            ("plain", "plain"),
            ("${a}", "1"),
            ("${a}/${b}/", "1/<1>/"),
            ("${user.home}/k", "/home/tsdb/k"),
            ("hbase/${env.HOST}@R", "hbase/h1@R"),
            ("${env.NONE:-d}${env.EMPTY:-e}${env.NONE-f}${env.EMPTY-g}", "def"),
            ("$a $ {a} ${} ${ a}", "$a $ {a} ${} ${ a}"),
            ("a${", "a${"),
            ("${open", "${open"),
            ("${x${a}", "${x1"),
            ("${wide}", "1111111111"),
        ] {
            assert_eq!(value(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn unknown_and_endless_variables_are_errors() {
        assert_eq!(value("${no.such}"), Err(VariableError::Unknown("no.such".to_owned())));
        assert_eq!(value("${env.NONE}"), Err(VariableError::Unknown("env.NONE".to_owned())));
        assert_eq!(value("${loop}"), Err(VariableError::TooMany));
        assert_eq!(value("${wide}${wide}"), Err(VariableError::TooMany));
        assert!(VariableError::Unknown("x".to_owned()).to_string().contains("refers to ${x},"));
    }
}
