//! Log messages about points that were refused.
//!
//! A refused point is told to its sender, who often does not read. So the log has an example of each
//! cause: where it came from, why, and the point.

use std::{fmt::Display, net::SocketAddr, time::Duration};

use tracing::warn;
use tsd_engine::LogLimit;
use tsd_protocol::PutErrorKind;

/// Minimum interval between two messages of one cause.
const INTERVAL: Duration = Duration::from_secs(10);
/// Longest part of a point that is logged, in bytes.
const MAX_LINE: usize = 256;

/// Limits of the messages, by cause, so that many of one do not hide another.
#[derive(Debug)]
pub(crate) struct RefusedPointLog {
    by_kind: [LogLimit; PutErrorKind::ALL.len()],
    no_uid: LogLimit,
}

/// Why a point was refused.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RefusalCause {
    /// An error of this kind.
    Kind(PutErrorKind),
    /// A name can get no UID.
    NoUid,
}

impl Default for RefusedPointLog {
    fn default() -> Self {
        let limit = || LogLimit::new(INTERVAL);
        Self { by_kind: PutErrorKind::ALL.map(|_| limit()), no_uid: limit() }
    }
}

impl RefusedPointLog {
    /// Logs a refused point, at most one of a cause per interval. `line` is the point as received,
    /// or what is known of it.
    pub(crate) fn log(
        &self,
        peer: SocketAddr,
        cause: RefusalCause,
        reason: &dyn Display,
        line: &dyn Display,
    ) {
        let limit = match cause {
            RefusalCause::Kind(kind) => self.by_kind.get(kind as usize).unwrap_or(&self.no_uid),
            RefusalCause::NoUid => &self.no_uid,
        };
        let Some(suppressed) = limit.admit() else { return };
        let (reason, mut line) = (reason.to_string(), line.to_string());
        line.truncate(line.floor_char_boundary(MAX_LINE));
        // Text of a client, so control characters are escaped.
        warn!(%peer, ?reason, ?line, suppressed, "a point was refused");
    }
}
