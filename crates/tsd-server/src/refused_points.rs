//! Log messages about points that were refused.
//!
//! The sender gets an error for each refused point, but often does not read it. So the log has an
//! example of each cause: the sender, the reason and the point.

use std::{fmt::Display, net::SocketAddr, time::Duration};

use tracing::warn;
use tsd_engine::LogLimit;
use tsd_protocol::PutErrorKind;

/// Minimum interval between two messages of the same cause.
const INTERVAL: Duration = Duration::from_secs(10);
/// Maximum logged bytes of a point.
const MAX_LINE: usize = 256;

/// Limits of the messages, by cause, so that frequent causes do not hide others.
#[derive(Debug)]
pub(crate) struct RefusedPointLog {
    by_kind: [LogLimit; PutErrorKind::ALL.len()],
    no_uid: LogLimit,
}

/// Why a point was refused.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RefusalCause {
    /// An error of a kind.
    Kind(PutErrorKind),
    /// A name cannot get a UID.
    NoUid,
}

impl Default for RefusedPointLog {
    fn default() -> Self {
        let limit = || LogLimit::new(INTERVAL);
        Self { by_kind: PutErrorKind::ALL.map(|_| limit()), no_uid: limit() }
    }
}

impl RefusedPointLog {
    /// Logs a refused point, at most one per cause and interval. `line` is the point as received, or its
    /// known fields.
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
        // Escapes control characters, since the text comes from a client.
        warn!(%peer, ?reason, ?line, suppressed, "a point was refused");
    }
}
