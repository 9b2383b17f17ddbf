//! Parser of the retentions by metric (`tsd.storage.retention_file`). [`crate::followed_file`] follows the file.
//!
//! Each line has a pattern of metric names, in which `*` stands for any text, and a duration. The first
//! line that matches a metric applies.

use tsd_storage::{MetricPattern, RetentionRule};

/// Maximum number of rules, because each metric is compared with all rules.
const MAX_RULES: usize = 1_000;
/// Keeps points without a limit.
const FOREVER: &str = "forever";
/// Cut-offs are full hours.
const MIN_SECS: u64 = 3_600;

/// The file of rules cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RetentionFileError {
    /// It has too many rules.
    #[error("the file has more than {MAX_RULES} rules")]
    TooManyRules,
    /// A line is not a rule.
    #[error("line {line}: {what}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
}

/// A text that is not a retention.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is not a retention; expected a number and a unit (h, d, w, n, y) such as 400d, at least one hour, or \
    {FOREVER}"
)]
pub(crate) struct NoRetention(String);

/// Parses a retention to seconds; `None` means for ever. The parser is stricter than for durations in queries, where
/// OpenTSDB reads `1h30m` as a minute, because a mistake here deletes points.
pub(crate) fn parse_retention(text: &str) -> Result<Option<u64>, NoRetention> {
    if text == FOREVER {
        return Ok(None);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let parsed = text.split_at_checked(digits).and_then(|(number, unit)| {
        let unit = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            "w" => 7 * 86_400,
            "n" => 30 * 86_400,
            "y" => 365 * 86_400,
            _ => return None,
        };
        number.parse::<u64>().ok()?.checked_mul(unit)
    });
    match parsed.filter(|secs| *secs >= MIN_SECS) {
        Some(secs) => Ok(Some(secs)),
        None => Err(NoRetention(text.to_owned())),
    }
}

/// The rules of a file, in its order.
pub(crate) fn parse_rules(text: &str) -> Result<Vec<RetentionRule>, RetentionFileError> {
    let mut rules = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        // No metric contains this character.
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let (pattern, keep) = match words[..] {
            [] => continue,
            [pattern, keep] => (MetricPattern::new(pattern), keep),
            _ => {
                let what = "expected a pattern and a retention such as 400d".to_owned();
                return Err(RetentionFileError::Line { line: number, what });
            }
        };
        let keep_secs = parse_retention(keep)
            .map_err(|error| RetentionFileError::Line { line: number, what: error.to_string() })?;
        rules.push(RetentionRule { pattern, keep_secs });
        if rules.len() > MAX_RULES {
            return Err(RetentionFileError::TooManyRules);
        }
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn rules_are_read_in_file_order() {
        let rules = parse_rules("# all\na.* 2d\n\nb forever # kept\n").unwrap();
        let keep: Vec<_> = rules.iter().map(|rule| rule.keep_secs).collect();
        assert_eq!(keep, [Some(172_800), None]);
    }

    #[test]
    fn errors_name_the_line_and_the_cause() {
        for (text, expected) in [
            ("a 1d\nb", "line 2: expected a pattern and a retention"),
            ("a 1d 2d", "line 1: expected a pattern and a retention"),
            ("\n\na 10", "line 3: \"10\" is not a retention"),
            ("a 99999999999999999999d", "line 1: \"99999999999999999999d\" is not a retention"),
        ] {
            let error = parse_rules(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let many = "a 1d\n".repeat(MAX_RULES + 1);
        assert!(matches!(parse_rules(&many), Err(RetentionFileError::TooManyRules)));
    }
}
