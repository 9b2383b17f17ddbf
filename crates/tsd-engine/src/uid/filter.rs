//! The built-in UID filter: white lists of regular expressions for new names.

use regex::Regex;
use tsd_model::{PerKind, UidKind};

use crate::config::WhiteList;

/// A pattern of a white list that is not a valid regular expression.
#[derive(Debug, thiserror::Error)]
#[error("pattern {pattern:?} of the white list for '{kind}'")]
pub struct FilterError {
    kind: UidKind,
    pattern: String,
    source: regex::Error,
}

/// Compiled white lists. A name is allowed if every pattern of its kind matches somewhere in it.
#[derive(Debug, Default)]
pub(crate) struct NameFilter {
    lists: PerKind<Vec<Regex>>,
}

impl NameFilter {
    /// Compiles the lists; `None` allows every name.
    pub(crate) fn new(list: Option<&WhiteList>) -> Result<Self, FilterError> {
        let Some(list) = list else { return Ok(Self::default()) };
        let compile = |kind, patterns: &[String]| {
            patterns
                .iter()
                .filter(|pattern| !pattern.is_empty())
                .map(|pattern| {
                    Regex::new(pattern).map_err(|source| FilterError {
                        kind,
                        pattern: pattern.clone(),
                        source,
                    })
                })
                .collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            lists: PerKind {
                metric: compile(UidKind::Metric, &list.metric_patterns)?,
                tagk: compile(UidKind::Tagk, &list.tagk_patterns)?,
                tagv: compile(UidKind::Tagv, &list.tagv_patterns)?,
            },
        })
    }

    /// True if a name may get a UID.
    pub(crate) fn allows(&self, kind: UidKind, name: &str) -> bool {
        self.lists[kind].iter().all(|pattern| pattern.is_match(name))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn every_pattern_of_the_kind_must_match() {
        let list = WhiteList {
            metric_patterns: vec!["^sys".into(), "cpu".into()],
            ..WhiteList::default()
        };
        let filter = NameFilter::new(Some(&list)).unwrap();
        for (name, allowed) in [("sys.cpu.user", true), ("sys.mem", false), ("my.sys.cpu", false)] {
            assert_eq!(filter.allows(UidKind::Metric, name), allowed, "{name}");
        }
        assert!(filter.allows(UidKind::Tagk, "anything"));
        assert!(NameFilter::new(None).unwrap().allows(UidKind::Metric, "x"));
    }

    #[test]
    fn error_names_the_invalid_pattern() {
        let list = WhiteList { tagk_patterns: vec!["(".into()], ..WhiteList::default() };
        let error = NameFilter::new(Some(&list)).unwrap_err();
        assert_eq!(error.to_string(), "pattern \"(\" of the white list for 'tagk'");
    }
}
