//! Errors of telnet lines that write, and their replies.

use tsd_model::{TimestampTextError, ValueTextError};

use crate::{PointError, PutErrorKind};

/// A rejected line. `Display` is the reply without the command and the line end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PutLineError {
    /// Too few words.
    #[error("illegal argument: not enough arguments (need least {needed}, got {got})")]
    NotEnoughArguments {
        /// Required words after the command, in OpenTSDB's count.
        needed: usize,
        /// Words found after the command.
        got: usize,
    },
    /// An empty metric.
    #[error("illegal argument: empty metric name")]
    EmptyMetric,
    /// A time that is not an integer.
    #[error("invalid value: {0}")]
    TimestampText(#[source] TimestampTextError),
    /// A time that is not positive.
    #[error("illegal argument: invalid timestamp: {timestamp}")]
    InvalidTimestamp {
        /// The time.
        timestamp: i64,
    },
    /// An empty value.
    #[error("illegal argument: empty value")]
    EmptyValue,
    /// An empty histogram.
    #[error("illegal argument: empty histogram value")]
    EmptyHistogram,
    /// A tag that is not `k=v`.
    #[error("illegal argument: invalid tag: {word}")]
    InvalidTag {
        /// The tag as sent.
        word: String,
    },
    /// One key with two values.
    #[error("illegal argument: duplicate tag: {word}, tags={tags}")]
    DuplicateTag {
        /// The second tag as sent.
        word: String,
        /// The tags before it, as `{k=v}`.
        tags: String,
    },
    /// A value that is not a number.
    #[error("invalid value: {0}")]
    ValueText(#[source] ValueTextError),
    /// A point that cannot be stored.
    #[error("illegal argument: {0}")]
    Point(#[from] PointError),
    /// Empty interval and aggregator.
    #[error("illegal argument: Missing interval or aggregator")]
    MissingRollupSpec,
    /// An interval or aggregator while rollups are disabled.
    #[error("illegal argument: No rollup or aggregations were configured")]
    RollupsDisabled,
    /// A histogram while histograms are disabled.
    #[error(
        "illegal argument: Histogram storage has not been enabled. Check the \
         'tsd.core.histograms.config' configuration."
    )]
    HistogramsDisabled,
}

/// Errors of the engine about a parsed telnet point.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TelnetPutError {
    /// A name without a UID that may not be created.
    #[error("unknown metric: No such name for '{kind}': '{name}'")]
    UnknownName {
        /// `metrics`, `tagk` or `tagv`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A name cannot get a UID: all UIDs are assigned, or the UID filter rejects the name. OpenTSDB sends
    /// no reply; the text is its exception's.
    #[error("illegal argument: {0}")]
    NoUid(String),
    /// The point is older than the retention of its metric. OpenTSDB has no retention of its own.
    #[error("illegal argument: {0}")]
    Expired(String),
    /// The time series filter rejects the series. OpenTSDB sends no reply.
    #[error("illegal argument: {0}")]
    Filtered(String),
    /// The user may not write the metric. OpenTSDB has no rights by metric.
    #[error("illegal argument: {0}")]
    Forbidden(String),
    /// The series is new, and the sender has added as many series as it may. OpenTSDB has no such limit.
    #[error("Too many new series: {0}")]
    NewSeriesLimit(String),
    /// The write was rejected because the queues are full.
    #[error("Please throttle writes: {0}")]
    PleaseThrottle(String),
    /// The write failed.
    #[error("HBase error: {0}")]
    Storage(String),
}

impl PutLineError {
    /// Returns the `rpc.errors` counter of this error.
    #[must_use]
    pub fn kind(&self) -> PutErrorKind {
        match self {
            Self::TimestampText(_) | Self::ValueText(_) => PutErrorKind::InvalidValue,
            _ => PutErrorKind::IllegalArgument,
        }
    }
}

impl TelnetPutError {
    /// Returns the `rpc.errors` counter of this error.
    #[must_use]
    pub fn kind(&self) -> PutErrorKind {
        match self {
            Self::UnknownName { .. } => PutErrorKind::UnknownMetric,
            Self::NoUid(_)
            | Self::Expired(_)
            | Self::Filtered(_)
            | Self::Forbidden(_)
            | Self::NewSeriesLimit(_) => PutErrorKind::IllegalArgument,
            _ => PutErrorKind::Storage,
        }
    }

    /// Returns true if `tsd.rpc.telnet.return_errors=false` suppresses this reply.
    #[must_use]
    pub fn is_asynchronous(&self) -> bool {
        matches!(self, Self::PleaseThrottle(_) | Self::Storage(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_about_parsed_points() {
        let msg = || "msg".to_owned();
        let replies = [
            TelnetPutError::UnknownName { kind: "metrics", name: "m".into() },
            TelnetPutError::UnknownName { kind: "tagv", name: "a".into() },
            TelnetPutError::NoUid(msg()),
            TelnetPutError::PleaseThrottle(msg()),
            TelnetPutError::Storage(msg()),
        ];
        let text = replies.each_ref().map(|reply| format!("put: {reply}\n"));
        insta::assert_snapshot!(text.concat(), @"
        put: unknown metric: No such name for 'metrics': 'm'
        put: unknown metric: No such name for 'tagv': 'a'
        put: illegal argument: msg
        put: Please throttle writes: msg
        put: HBase error: msg
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
