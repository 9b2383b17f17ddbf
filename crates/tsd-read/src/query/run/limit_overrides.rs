//! Limits for single metrics, which replace the configured limits.
//!
//! The rules come from an operator's file, which the daemon re-reads while queries run; this module does not read it.
//! A sub query uses the rules in effect when it starts.

use parking_lot::RwLock;
use std::sync::Arc;

use regex::Regex;
use tsd_query::{PatternError, compile_pattern};

/// Limits for the metrics whose name contains a match of a pattern.
#[derive(Clone, Debug)]
pub struct LimitOverride {
    pattern: Regex,
    max_bytes: u64,
    max_data_points: u64,
}

/// An invalid rule.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{pattern:?} is no pattern, or one that is too large")]
pub struct LimitOverrideError {
    /// The pattern.
    pub pattern: String,
    source: PatternError,
}

/// The rules, in order. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct LimitOverrides(Arc<RwLock<Arc<[LimitOverride]>>>);

impl LimitOverride {
    /// Creates a rule with a pattern in Java's syntax; a limit of 0 means unlimited.
    ///
    /// Fails if the pattern is invalid or too large when compiled.
    pub fn try_new(
        pattern: &str,
        max_bytes: u64,
        max_data_points: u64,
    ) -> Result<Self, LimitOverrideError> {
        let pattern = compile_pattern(pattern)
            .map_err(|source| LimitOverrideError { pattern: pattern.to_owned(), source })?;
        Ok(Self { pattern, max_bytes, max_data_points })
    }
}

impl LimitOverrides {
    /// Replaces the rules. Only sub queries that start later use them.
    pub fn replace(&self, rules: Vec<LimitOverride>) {
        *self.0.write() = rules.into();
    }

    /// True if there are no rules.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules().is_empty()
    }

    /// Most bytes and data points for a metric, from the first rule whose pattern matches in its name.
    #[must_use]
    pub fn find(&self, metric: &str) -> Option<(u64, u64)> {
        let rules = self.rules();
        let rule = rules.iter().find(|rule| rule.pattern.is_match(metric))?;
        Some((rule.max_bytes, rule.max_data_points))
    }

    fn rules(&self) -> Arc<[LimitOverride]> {
        Arc::clone(&self.0.read())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn first_matching_rule_applies() {
        let rules = LimitOverrides::default();
        assert!(rules.is_empty());
        assert_eq!(rules.find("sys.cpu.user"), None);
        let shared = rules.clone();
        shared.replace(vec![
            LimitOverride::try_new("^sys\\.cpu", 10, 20).unwrap(),
            LimitOverride::try_new("cpu", 30, 0).unwrap(),
        ]);
        for (metric, expected) in [
            ("sys.cpu.user", Some((10, 20))),
            ("a.sys.cpu", Some((30, 0))),
            ("sys.mem", None),
            ("", None),
        ] {
            assert_eq!(rules.find(metric), expected, "{metric}");
        }
        rules.replace(Vec::new());
        assert_eq!(rules.find("sys.cpu.user"), None);
    }

    #[test]
    fn invalid_and_oversized_patterns_are_rejected() {
        assert!(LimitOverride::try_new("((", 0, 0).is_err());
        assert!(LimitOverride::try_new("(a{1000}){1000}", 0, 0).is_err());
        assert!(LimitOverride::try_new("a*+", 0, 0).is_err());
    }
}
