//! How to recover from a failed call.

use std::time::Duration;

use crate::server_name::ServerName;

/// How to recover from a failed call. All retry loops use it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recovery {
    /// Invalidate the location, locate the region again, retry after a backoff.
    Relocate,
    /// As [`Self::Relocate`], immediately but only once: the request itself may be wrong.
    RelocateOnce,
    /// Use the location of the exception and retry immediately if it is newer than the cached one;
    /// otherwise locate the region again after a backoff.
    Moved(MovedTo),
    /// Keep the location, retry after a backoff.
    SamePlace,
    /// Keep the location, retry after the longer backoff. The whole server is overloaded.
    Overloaded,
    /// Invalidate every location on the server, close its connections, retry after a backoff.
    ServerGone,
    /// Discover the active master again, retry after a backoff.
    FindMaster,
    /// Reopen the scanner after the last complete row.
    ReopenScanner,
    /// Nothing was executed: retry immediately.
    ResendNow,
    /// Keep the location, retry after exactly this time.
    Wait(Duration),
    /// Retry in smaller calls; a call of one action fails.
    SplitBatch,
    /// The connection is unusable: the call fails.
    CloseConnection,
    /// Do not retry.
    Fail,
}

/// New location of a region, as reported by its former server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedTo {
    /// Server to which the region was moved.
    pub server: ServerName,
    /// Sequence number of the region when it was moved. Two servers can redirect to each other for
    /// minutes: only a number above the cached one is newer.
    pub seq_num: i64,
}
