//! Faults that a test injects into calls.

use std::time::Duration;

/// What a server does instead of a correct response.
#[derive(Clone, Debug)]
pub enum FaultKind {
    /// Responds with this exception and does not execute the call.
    Exception {
        /// Java class, below `org.apache.hadoop.hbase.` unless it starts with `java.`.
        class: &'static str,
        /// The exception's message.
        text: &'static str,
    },
    /// Executes the call and responds with this exception.
    ExceptionAfter {
        /// Java class, below `org.apache.hadoop.hbase.` unless it starts with `java.`.
        class: &'static str,
        /// The exception's message.
        text: &'static str,
    },
    /// In a Multi: every region fails with this exception.
    RegionException {
        /// Java class, below `org.apache.hadoop.hbase.`.
        class: &'static str,
        /// The exception's message.
        text: &'static str,
    },
    /// In a Multi: the first action of each region fails with this exception.
    ActionException {
        /// Java class, below `org.apache.hadoop.hbase.`.
        class: &'static str,
        /// The exception's message.
        text: &'static str,
    },
    /// In a Multi: the response lacks the last action of each region, which was executed.
    OmitActionResult,
    /// Executes the call and never responds.
    NoResponse,
    /// Closes the connection without executing the call.
    Close,
    /// Closes the connection, and executes the call when
    /// [`FakeCluster::execute_late_calls`](crate::FakeCluster::execute_late_calls) is called.
    Late,
    /// Executes the call and closes the connection after this many bytes of the response.
    CloseAfter(usize),
    /// Executes the call and responds late; later responses may overtake it.
    Delay(Duration),
    /// Sends a response with an unknown call id before the correct one.
    UnknownCallIdFirst,
    /// Responds with a valid header and an undecodable message.
    GarbageResponse,
    /// Sends a frame with an undecodable header and no response.
    GarbageHeader,
    /// Sends a frame length of four gigabytes.
    OversizedFrame,
    /// Announces more cells than it sends.
    WrongCellCount,
    /// Responds to a scan with a heartbeat without rows.
    Heartbeat,
    /// As [`Self::Heartbeat`], with this row as the cursor if the scan requests one.
    HeartbeatAt(&'static str),
    /// Sends a `FatalConnectionException` and closes the connection.
    FatalConnectionException,
}

/// A fault and the calls that it applies to.
#[derive(Clone, Debug)]
pub struct InjectedFault {
    pub(crate) method: &'static str,
    pub(crate) server: Option<usize>,
    pub(crate) meta: bool,
    pub(crate) skip: usize,
    pub(crate) times: usize,
    pub(crate) kind: FaultKind,
}

impl InjectedFault {
    /// Applies to the next call of the method, except calls to hbase:meta.
    #[must_use]
    pub const fn once(method: &'static str, kind: FaultKind) -> Self {
        Self { method, server: None, meta: false, skip: 0, times: 1, kind }
    }

    /// Applies to this many calls.
    #[must_use]
    pub const fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    /// Skips the first matching calls.
    #[must_use]
    pub const fn after(mut self, calls: usize) -> Self {
        self.skip = calls;
        self
    }

    /// Applies to calls of this server only.
    #[must_use]
    pub const fn on(mut self, server: usize) -> Self {
        self.server = Some(server);
        self
    }

    /// Applies to calls to hbase:meta instead.
    #[must_use]
    pub const fn of_meta(mut self) -> Self {
        self.meta = true;
        self
    }
}
