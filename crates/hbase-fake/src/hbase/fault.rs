//! Misbehaviour on demand.

use std::time::Duration;

/// What a server does instead of answering well.
#[derive(Clone, Debug)]
pub enum Misdeed {
    /// Answers with this exception (class without HBase's package, unless it has a dot in front of a
    /// known one) and does nothing.
    Exception {
        /// Java class, below `org.apache.hadoop.hbase.`.
        class: &'static str,
        /// Its text.
        text: &'static str,
    },
    /// Inside Multi: every region fails with this exception.
    RegionException {
        /// Java class, below `org.apache.hadoop.hbase.`.
        class: &'static str,
        /// Its text.
        text: &'static str,
    },
    /// Inside Multi: the first action of each region fails with this exception.
    ActionException {
        /// Java class, below `org.apache.hadoop.hbase.`.
        class: &'static str,
        /// Its text.
        text: &'static str,
    },
    /// Inside Multi: says nothing of the last action of each region, though it was done.
    LoseAction,
    /// Does it and never answers.
    Silence,
    /// Does nothing and closes the connection.
    Close,
    /// Does it and closes the connection after so many bytes of the answer.
    CloseAfter(usize),
    /// Does it and answers late; later answers may overtake.
    Delay(Duration),
    /// Sends an answer to a call that nobody made, then answers well.
    UnknownCallFirst,
    /// Answers with a header and a message of noise.
    Garbage,
    /// Sends a frame whose header cannot be read, and does not answer.
    GarbageHeader,
    /// Announces a frame of four gigabytes.
    Oversized,
    /// Says more cells than it sends.
    WrongCount,
    /// A scan gets a heartbeat without rows.
    Heartbeat,
    /// Says that the connection is over.
    RefuseConnection,
}

/// When a server misbehaves.
#[derive(Clone, Debug)]
pub struct Fault {
    pub(crate) method: &'static str,
    pub(crate) server: Option<usize>,
    pub(crate) meta: bool,
    pub(crate) skip: usize,
    pub(crate) times: usize,
    pub(crate) misdeed: Misdeed,
}

impl Fault {
    /// At the next call of the method for a table of users.
    #[must_use]
    pub const fn once(method: &'static str, misdeed: Misdeed) -> Self {
        Self { method, server: None, meta: false, skip: 0, times: 1, misdeed }
    }

    /// So many times.
    #[must_use]
    pub const fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    /// After so many calls that fit went well.
    #[must_use]
    pub const fn after(mut self, calls: usize) -> Self {
        self.skip = calls;
        self
    }

    /// Only on this server.
    #[must_use]
    pub const fn on(mut self, server: usize) -> Self {
        self.server = Some(server);
        self
    }

    /// At calls about hbase:meta instead.
    #[must_use]
    pub const fn of_meta(mut self) -> Self {
        self.meta = true;
        self
    }
}
