//! Connections that a server closes without sending a byte.
//!
//! A server closes silently if it rejects the connection header (service, codec, compressor) or
//! requires other security. A proxy closes silently while the server behind it is down, until HBase
//! has noticed that and moved its regions. The client cannot distinguish these cases. It retries calls
//! until their deadline, and their error then names all of them.

use std::sync::atomic::{AtomicU32, Ordering};

use super::error::DisconnectReason;

/// Counts consecutive silent closes of one connection group to one server.
#[derive(Debug)]
pub(crate) struct SilentCloseTracker {
    in_a_row: AtomicU32,
    security: &'static str,
}

impl SilentCloseTracker {
    /// Starts at zero; errors name the security of the connections.
    pub(crate) const fn new(security: &'static str) -> Self {
        Self { in_a_row: AtomicU32::new(0), security }
    }

    /// Records the first data received on a connection.
    pub(super) fn record_data(&self) {
        self.in_a_row.store(0, Ordering::Relaxed);
    }

    /// Records a silent close.
    pub(super) fn record_silent_close(&self) -> DisconnectReason {
        let count = self.in_a_row.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        DisconnectReason::SilentClose { count, security: self.security }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_closes_are_counted_until_data_is_received() {
        let tracker = SilentCloseTracker::new("plain text");
        let count = || match tracker.record_silent_close() {
            DisconnectReason::SilentClose { count, .. } => count,
            other => panic!("{other}"),
        };
        assert_eq!((count(), count(), count()), (1, 2, 3));
        tracker.record_data();
        assert_eq!(count(), 1);
    }
}
