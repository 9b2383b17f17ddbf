//! Why a line that writes was refused, and the reply that says so.

use std::fmt::Write;

use tsd_model::{TimestampTextError, ValueTextError};

use crate::{PointError, PutErrorKind};

/// A line that writes and cannot. `Display` is the reply without the command and the line end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PutLineError {
    /// Too few words.
    #[error("illegal argument: not enough arguments (need least {needed}, got {got})")]
    NotEnoughArguments {
        /// Words needed behind the command, as OpenTSDB says it.
        needed: usize,
        /// Words found behind the command.
        got: usize,
    },
    /// Two blanks where the metric should be.
    #[error("illegal argument: empty metric name")]
    EmptyMetric,
    /// A time that is no integer.
    #[error("invalid value: {0}")]
    TimestampText(#[source] TimestampTextError),
    /// A time that is not above zero.
    #[error("illegal argument: invalid timestamp: {timestamp}")]
    InvalidTimestamp {
        /// The time.
        timestamp: i64,
    },
    /// Two blanks where the value should be.
    #[error("illegal argument: empty value")]
    EmptyValue,
    /// Two blanks where the histogram should be.
    #[error("illegal argument: empty histogram value")]
    EmptyHistogram,
    /// A tag that is not `k=v`.
    #[error("illegal argument: invalid tag: {word}")]
    InvalidTag {
        /// The tag as it stands.
        word: String,
    },
    /// One key with two values.
    #[error("illegal argument: duplicate tag: {word}, tags={tags}")]
    DuplicateTag {
        /// The second tag as it stands.
        word: String,
        /// The tags before it, as `{k=v}`.
        tags: String,
    },
    /// A value that is no number.
    #[error("invalid value: {0}")]
    ValueText(#[source] ValueTextError),
    /// A point no table can take.
    #[error("illegal argument: {0}")]
    Point(#[from] PointError),
    /// An empty word where interval and aggregator should be.
    #[error("illegal argument: Missing interval or aggregator")]
    MissingRollupSpec,
    /// An interval or aggregator while rollups are off.
    #[error("illegal argument: No rollup or aggregations were configured")]
    RollupsDisabled,
    /// A histogram while those are off.
    #[error(
        "illegal argument: Histogram storage has not been enabled. Check the \
         'tsd.core.histograms.config' configuration."
    )]
    HistogramsDisabled,
}

/// What the engine may say about a telnet point after its line was read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TelnetPutError {
    /// A name without a UID, which must not get one.
    #[error("unknown metric: No such name for '{kind}': '{name}'")]
    UnknownName {
        /// `metrics`, `tagk` or `tagv`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// Storage has no room right now.
    #[error("Throttling exception: {0}")]
    Throttled(String),
    /// Looking up a UID took too long.
    #[error("Request timed out: {0}")]
    TimedOut(String),
    /// The write was turned down later for lack of room.
    #[error("Please throttle writes: {0}")]
    PleaseThrottle(String),
    /// The write failed later.
    #[error("HBase error: {0}")]
    Storage(String),
    /// The connection may not write.
    #[error("illegal argument: Unauthorized command: put")]
    Unauthorized,
    /// Nobody can say yet whether the connection may write.
    #[error("illegal argument: Unauthenticated command: put")]
    Unauthenticated,
}

impl PutLineError {
    /// Which counter of `rpc.errors` this error belongs to.
    #[must_use]
    pub fn kind(&self) -> PutErrorKind {
        match self {
            Self::TimestampText(_) | Self::ValueText(_) => PutErrorKind::InvalidValue,
            _ => PutErrorKind::IllegalArgument,
        }
    }

    /// Writes the whole reply to `command`.
    pub fn render(&self, command: &str, out: &mut String) {
        let _ = writeln!(out, "{command}: {self}");
    }
}

impl TelnetPutError {
    /// Which counter of `rpc.errors` this error belongs to.
    #[must_use]
    pub fn kind(&self) -> PutErrorKind {
        match self {
            Self::UnknownName { .. } => PutErrorKind::UnknownMetric,
            Self::Unauthorized | Self::Unauthenticated => PutErrorKind::IllegalArgument,
            _ => PutErrorKind::Storage,
        }
    }

    /// Whether `tsd.rpc.telnet.return_errors=false` keeps this reply back.
    #[must_use]
    pub fn is_asynchronous(&self) -> bool {
        matches!(self, Self::PleaseThrottle(_) | Self::Storage(_))
    }

    /// Writes the whole reply to `command`.
    pub fn render(&self, command: &str, out: &mut String) {
        let _ = writeln!(out, "{command}: {self}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_about_points_that_were_read() {
        let msg = || "msg".to_owned();
        let replies = [
            TelnetPutError::UnknownName { kind: "metrics", name: "m".into() },
            TelnetPutError::UnknownName { kind: "tagv", name: "a".into() },
            TelnetPutError::Throttled(msg()),
            TelnetPutError::TimedOut(msg()),
            TelnetPutError::PleaseThrottle(msg()),
            TelnetPutError::Storage(msg()),
            TelnetPutError::Unauthorized,
            TelnetPutError::Unauthenticated,
        ];
        let mut text = String::new();
        for reply in &replies {
            reply.render("put", &mut text);
        }
        insta::assert_snapshot!(text, @"
        put: unknown metric: No such name for 'metrics': 'm'
        put: unknown metric: No such name for 'tagv': 'a'
        put: Throttling exception: msg
        put: Request timed out: msg
        put: Please throttle writes: msg
        put: HBase error: msg
        put: illegal argument: Unauthorized command: put
        put: illegal argument: Unauthenticated command: put
        ");
        let asynchronous = replies.iter().filter(|reply| reply.is_asynchronous()).count();
        assert_eq!(asynchronous, 2);
    }

    #[test]
    fn every_error_has_a_counter() {
        let error = PutLineError::TimestampText(TimestampTextError::NotALong);
        assert_eq!(error.kind().as_str(), "invalid_values");
        assert_eq!(PutLineError::EmptyMetric.kind().as_str(), "illegal_arguments");
        let unknown = TelnetPutError::UnknownName { kind: "tagk", name: String::new() };
        assert_eq!(unknown.kind().as_str(), "unknown_metrics");
        assert_eq!(TelnetPutError::Storage(String::new()).kind().as_str(), "hbase_errors");
    }
}
