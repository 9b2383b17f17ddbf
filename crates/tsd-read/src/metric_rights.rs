//! The metrics on which the sender of a request may act.
//!
//! Rights are patterns of metric names for each act. [`QueryControl`](crate::QueryControl) has the rights of a read.
//! `read_subject` compares them with what the read shows.

use std::{fmt, sync::Arc};

use tsd_model::{encode_latin1_lossy, to_hex};
use tsd_storage::MetricPattern;

/// What a sender does with the points of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricAct {
    /// Reads points, names and annotations.
    Read,
    /// Writes points and annotations.
    Write,
    /// Deletes points and annotations.
    Delete,
}

/// The metrics on which a sender may act; by default all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricRights(Option<Arc<ActPatterns>>);

/// The allowed metrics of each act.
#[derive(Debug, Default, PartialEq, Eq)]
struct ActPatterns {
    read: Vec<MetricPattern>,
    write: Vec<MetricPattern>,
    delete: Vec<MetricPattern>,
}

/// A text is not a list of rights.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a right: expected read:PATTERN, write:PATTERN or delete:PATTERN, separated by |, such as \
     read:sys.*|write:app.*"
)]
pub struct MetricRightsError(String);

/// The sender may not act on a metric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the user has no right to {} {subject}", .act.as_str())]
pub struct MetricForbidden {
    act: MetricAct,
    subject: ForbiddenSubject,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ForbiddenSubject {
    Metric(String),
    /// Named by the request, whose sender must not learn the metric.
    Tsuid(String),
    AllMetrics,
}

impl fmt::Display for ForbiddenSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metric(name) => write!(f, "metric {name:?}"),
            Self::Tsuid(tsuid) => write!(f, "the metric of TSUID {tsuid}"),
            Self::AllMetrics => f.write_str("all metrics, which this request needs"),
        }
    }
}

impl MetricAct {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
        }
    }
}

impl MetricRights {
    /// Parses `read:PATTERN|write:PATTERN|delete:PATTERN`, each any number of times. `*` stands for any text. An act
    /// without a pattern is allowed on no metric.
    pub fn parse(text: &str) -> Result<Self, MetricRightsError> {
        let mut patterns = ActPatterns::default();
        for part in text.split('|') {
            let error = || MetricRightsError(part.to_owned());
            let (act, pattern) = part.split_once(':').ok_or_else(error)?;
            let of_act = match act {
                "read" => &mut patterns.read,
                "write" => &mut patterns.write,
                "delete" => &mut patterns.delete,
                _ => return Err(error()),
            };
            if pattern.is_empty() {
                return Err(error());
            }
            of_act.push(MetricPattern::new(pattern));
        }
        Ok(Self(Some(Arc::new(patterns))))
    }

    /// True if every act is allowed on every metric.
    #[must_use]
    pub const fn are_all(&self) -> bool {
        self.0.is_none()
    }

    /// True if the act is allowed on the metric with this name as stored (Latin-1).
    #[must_use]
    pub fn allows_stored(&self, act: MetricAct, name: &[u8]) -> bool {
        let Some(patterns) = &self.0 else { return true };
        let patterns = match act {
            MetricAct::Read => &patterns.read,
            MetricAct::Write => &patterns.write,
            MetricAct::Delete => &patterns.delete,
        };
        patterns.iter().any(|pattern| pattern.matches(name))
    }

    /// True if the act is allowed on a metric.
    #[must_use]
    pub fn allows(&self, act: MetricAct, name: &str) -> bool {
        // Look-ups encode names in this way, too.
        self.are_all() || self.allows_stored(act, &encode_latin1_lossy(name))
    }

    /// Fails unless the act is allowed on a metric.
    pub fn check(&self, act: MetricAct, name: &str) -> Result<(), MetricForbidden> {
        if self.allows(act, name) {
            return Ok(());
        }
        Err(MetricForbidden { act, subject: ForbiddenSubject::Metric(name.to_owned()) })
    }

    /// Fails unless every act is allowed on every metric.
    pub fn check_all(&self, act: MetricAct) -> Result<(), MetricForbidden> {
        if self.are_all() {
            return Ok(());
        }
        Err(MetricForbidden { act, subject: ForbiddenSubject::AllMetrics })
    }

    /// Fails unless the act is allowed on the metric of a TSUID. `metric` is its name, if it has one.
    pub fn check_tsuid(
        &self,
        act: MetricAct,
        tsuid: &[u8],
        metric: Option<&str>,
    ) -> Result<(), MetricForbidden> {
        if self.are_all() || metric.is_some_and(|name| self.allows(act, name)) {
            return Ok(());
        }
        Err(MetricForbidden { act, subject: ForbiddenSubject::Tsuid(to_hex(tsuid)) })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn rights_are_patterns_for_each_act() {
        use MetricAct::{Delete, Read, Write};

        let rights = MetricRights::parse("read:sys.*|read:app.up|write:app.*").unwrap();
        for (act, name, expected) in [
            (Read, "sys.cpu", true),
            (Read, "app.up", true),
            (Read, "app.down", false),
            (Read, "system", false),
            (Write, "app.down", true),
            (Write, "sys.cpu", false),
            (Delete, "app.up", false),
        ] {
            assert_eq!(rights.allows(act, name), expected, "{act:?} {name}");
            assert_eq!(rights.check(act, name).is_ok(), expected, "{act:?} {name}");
            assert!(MetricRights::default().allows(act, name));
        }
        assert!(rights.check_all(Read).is_err() && MetricRights::default().check_all(Read).is_ok());
    }

    /// A look-up stores and finds letters outside of Latin-1 as question marks.
    #[test]
    fn a_name_is_compared_as_it_is_looked_up() {
        let rights = MetricRights::parse("read:a?|read:\u{4e2d}*").unwrap();
        assert!(rights.allows(MetricAct::Read, "a\u{4e2d}"));
        assert!(!rights.allows(MetricAct::Read, "\u{4e2d}b"));
    }

    #[test]
    fn errors_name_what_the_sender_sent() {
        let rights = MetricRights::parse("read:sys.*").unwrap();
        let text = |result: Result<(), MetricForbidden>| result.unwrap_err().to_string();
        assert_eq!(
            text(rights.check(MetricAct::Write, "sys.cpu")),
            "the user has no right to write metric \"sys.cpu\""
        );
        assert_eq!(
            text(rights.check_tsuid(MetricAct::Read, &[0, 1], Some("app.up"))),
            "the user has no right to read the metric of TSUID 0001"
        );
        assert!(rights.check_tsuid(MetricAct::Read, &[0, 1], None).is_err());
        assert!(rights.check_tsuid(MetricAct::Read, &[0, 1], Some("sys.cpu")).is_ok());
    }

    #[test]
    fn other_texts_are_no_rights() {
        for text in ["", "sys.*", "read:", "read:a|", "reads:a", "READ:a", "read:a||write:b"] {
            assert!(MetricRights::parse(text).is_err(), "{text:?}");
        }
        assert!(MetricRights::parse("read:*|write:*|delete:*").is_ok());
    }
}
