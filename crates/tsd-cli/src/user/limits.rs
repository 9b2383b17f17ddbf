//! Changes limits in lines of the file of users, and keeps everything else of them.

use tsd_server::UserLine;

use super::new_line::check_limit;

/// Stands for the limit of the configuration: removes the field.
const DEFAULT: &str = "default";

/// A file with other limits for some of its users: its text, and the former lines that changed.
pub(super) fn with_limits(
    text: &str,
    is_changed: impl Fn(&UserLine) -> bool,
    limits: &[(&'static str, &str)],
) -> anyhow::Result<(String, Vec<UserLine>)> {
    for (field, value) in limits.iter().filter(|(_, value)| *value != DEFAULT) {
        check_limit(field, value)?;
    }
    let mut changed = Vec::new();
    let mut edit = |line: &str| {
        let parsed = UserLine::parse(line.strip_prefix('\u{feff}').unwrap_or(line));
        match parsed.and_then(Result::ok).filter(&is_changed) {
            Some(parsed) => {
                changed.push(parsed);
                limits.iter().fold(line.to_owned(), |line, (field, value)| set(&line, field, value))
            }
            None => line.to_owned(),
        }
    };
    let edited = text.split_inclusive('\n').map(&mut edit).collect();
    Ok((edited, changed))
}

/// Sets a field of a line, which begins with a name, a hash and roles.
fn set(line: &str, field: &str, value: &str) -> String {
    // The fields end at the comment, and the last field ends before the white space.
    let end = words(line).skip(3).find(|(_, word)| word.starts_with('#')).map(|(at, _)| at);
    let (fields, comment) = line.split_at_checked(end.unwrap_or(line.len())).unwrap_or((line, ""));
    let trimmed = fields.trim_end();
    let space = fields.get(trimmed.len()..).unwrap_or_default();
    let name = format!("{field}=");
    let found = words(trimmed).skip(3).find(|(_, word)| word.starts_with(&name));
    let kept = match found {
        Some((at, word)) => {
            let before = trimmed.get(..at).unwrap_or_default();
            let after = trimmed.get(at + word.len()..).unwrap_or_default();
            if value != DEFAULT {
                return format!("{before}{name}{value}{after}{space}{comment}");
            }
            format!("{}{after}", before.trim_end())
        }
        None if value == DEFAULT => trimmed.to_owned(),
        None => format!("{trimmed} {name}{value}"),
    };
    format!("{kept}{space}{comment}")
}

/// The words of a line with their places.
fn words(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let trimmed = rest.trim_start();
        let at = line.len() - trimmed.len();
        let word = trimmed.split_whitespace().next()?;
        rest = trimmed.get(word.len()..).unwrap_or_default();
        Some((at, word))
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[track_caller]
    fn check(line: &str, limits: &[(&'static str, &str)], expected: &str) {
        let (text, changed) = with_limits(line, |line| line.name() == "a", limits).unwrap();
        assert_eq!((text.as_str(), changed.len()), (expected, 1));
    }

    #[test]
    fn a_field_is_added_replaced_or_removed_and_the_rest_stays() {
        let points = &[("points", "5/s")];
        check("a  certificate  GUEST\n", points, "a  certificate  GUEST points=5/s\n");
        check("a certificate GUEST  # b\r\n", points, "a certificate GUEST points=5/s  # b\r\n");
        check(
            "a certificate GUEST points=1/s  queries=2",
            points,
            "a certificate GUEST points=5/s  queries=2",
        );
        let none = &[("points", "default")];
        check(
            "a certificate GUEST points=1/s  queries=2\n",
            none,
            "a certificate GUEST  queries=2\n",
        );
        check("a certificate GUEST # points=1/s\n", none, "a certificate GUEST # points=1/s\n");
        check(
            "# a\nb certificate GUEST\na certificate GUEST",
            &[("points", "off"), ("memory", "1GiB")],
            "# a\nb certificate GUEST\na certificate GUEST points=off memory=1GiB",
        );
    }

    #[test]
    fn an_error_names_the_field() {
        let text = "a certificate GUEST\n";
        let error = with_limits(text, |_| true, &[("bytes", "many")]).unwrap_err().to_string();
        assert!(error.starts_with("--bytes: \"many\" is not a limit for bytes"), "{error}");
        assert!(with_limits(text, |_| true, &[("bytes", "")]).is_err());
    }
}
