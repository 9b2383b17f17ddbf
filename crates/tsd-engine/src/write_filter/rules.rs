//! The built-in filter: a list of rules, of which the first match decides.
//!
//! A line is `allow` or `deny`, a pattern of metrics, and conditions on tags, all of which must hold: `TAGK=PATTERN`,
//! or `TAGK!=PATTERN`, which series without the tag also meet. In a pattern, `*` stands for any text. A series that
//! matches no line is allowed.

use tsd_model::encode_latin1;
use tsd_storage::MetricPattern;

use super::{FilteredSeries, WriteFilter};

/// Most rules. Every new series is compared with all of them.
const MAX_RULES: usize = 10_000;

/// The rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterRules(Vec<FilterRule>);

/// A line that is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct FilterRulesError {
    line: usize,
    what: FilterLineError,
}

/// Why a line is not a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum FilterLineError {
    #[error("expected allow or deny, got {0:?}")]
    Action(String),
    #[error("expected a pattern of metrics")]
    NoMetric,
    #[error("expected TAGK=PATTERN or TAGK!=PATTERN, got {0:?}")]
    TagCondition(String),
    #[error("more than {MAX_RULES} rules")]
    TooManyRules,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FilterRule {
    line: usize,
    allows: bool,
    metric: MetricPattern,
    tags: Vec<TagCondition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct TagCondition {
    tagk: Vec<u8>,
    value: MetricPattern,
    /// True if the value must not match.
    negated: bool,
}

impl FilterRules {
    /// Parses the content of a file; `#` begins a comment.
    pub fn parse(text: &str) -> Result<Self, FilterRulesError> {
        let mut rules = Vec::new();
        for (at, text) in text.lines().enumerate() {
            let line = at + 1;
            let mut words = text.split_whitespace();
            let Some(action) = words.next().filter(|word| !word.starts_with('#')) else { continue };
            let fail = |what| FilterRulesError { line, what };
            let allows = match action {
                "allow" => true,
                "deny" => false,
                _ => return Err(fail(FilterLineError::Action(action.to_owned()))),
            };
            let metric = words.next().ok_or_else(|| fail(FilterLineError::NoMetric))?;
            let tags = words.map(TagCondition::parse).collect::<Result<_, _>>().map_err(fail)?;
            let metric = MetricPattern::new(metric);
            rules.push(FilterRule { line, allows, metric, tags });
            if rules.len() > MAX_RULES {
                return Err(fail(FilterLineError::TooManyRules));
            }
        }
        Ok(Self(rules))
    }
}

impl TagCondition {
    fn parse(word: &str) -> Result<Self, FilterLineError> {
        let bad = || FilterLineError::TagCondition(word.to_owned());
        let (tagk, value) = word.split_once('=').ok_or_else(bad)?;
        let (tagk, negated) = match tagk.strip_suffix('!') {
            Some(tagk) => (tagk, true),
            None => (tagk, false),
        };
        if tagk.is_empty() || value.is_empty() || tagk.contains('*') {
            return Err(bad());
        }
        let tagk = encode_latin1(tagk).map_err(|_| bad())?;
        Ok(Self { tagk, value: MetricPattern::new(value), negated })
    }

    fn holds(&self, series: FilteredSeries<'_>) -> bool {
        let matches = series.tag(&self.tagk).is_some_and(|value| self.value.matches(value));
        matches != self.negated
    }
}

impl WriteFilter for FilterRules {
    fn refusal(&self, series: FilteredSeries<'_>) -> Option<String> {
        let rule = self.0.iter().find(|rule| {
            rule.metric.matches(series.metric()) && rule.tags.iter().all(|tag| tag.holds(series))
        })?;
        (!rule.allows).then(|| format!("line {} of its rules", rule.line))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::ingest::NameList;

    fn names(series: &str) -> NameList {
        let mut names = NameList::default();
        for name in series.split([' ', '=']) {
            names.push(name.chars().map(|c| c as u8));
        }
        names
    }

    #[track_caller]
    fn check(rules: &str, series: &str, refused_by: Option<usize>) {
        let rules = FilterRules::parse(rules).unwrap();
        let refusal = rules.refusal(FilteredSeries(&names(series)));
        let expected = refused_by.map(|line| format!("line {line} of its rules"));
        assert_eq!(refusal, expected, "{series}");
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules = "# comment\n\nallow sys.*\ndeny sys.cpu\ndeny app.* env=test*\ndeny *.tmp";
        check(rules, "sys.cpu host=a", None);
        check(rules, "app.x env=test1 host=a", Some(5));
        check(rules, "app.x host=a env=prod", None);
        check(rules, "app.x host=a", None);
        check(rules, "x.tmp host=a", Some(6));
        check(rules, "other host=a", None);
        check("", "m host=a", None);
    }

    #[test]
    fn all_conditions_of_a_rule_must_hold() {
        let rules = "allow m host=web* dc!=lax\ndeny *";
        check(rules, "m host=web1 dc=sjc", None);
        check(rules, "m dc=lax host=web1", Some(2));
        check(rules, "m host=web1", None);
        check(rules, "m host=db1", Some(2));
        check(rules, "m env=web1", Some(2));
        check("deny * host!=*", "m dc=a", Some(1));
        check("deny * host!=*", "m host=a", None);
        check("deny caf\u{e9} caf\u{e9}=\u{fc}*", "caf\u{e9} caf\u{e9}=\u{fc}x", Some(1));
    }

    #[test]
    fn other_lines_are_errors() {
        for (text, expected) in [
            ("permit *", "line 1: expected allow or deny"),
            ("# x\ndeny", "line 2: expected a pattern of metrics"),
            ("deny * host", "line 1: expected TAGK=PATTERN"),
            ("deny * =a", "line 1: expected TAGK=PATTERN"),
            ("deny * host=", "line 1: expected TAGK=PATTERN"),
            ("deny * h*=a", "line 1: expected TAGK=PATTERN"),
            ("deny * \u{4e2d}=a", "line 1: expected TAGK=PATTERN"),
        ] {
            let error = FilterRules::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
