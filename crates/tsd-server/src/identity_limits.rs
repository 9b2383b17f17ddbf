//! Limits of each identity, so that one client cannot take the daemon from all others.
//!
//! An identity is a user. Clients without users are counted by their network: a /24 of IPv4, a /64 of IPv6. Telnet
//! clients over their rate of points are read more slowly; HTTP requests get a 429 before anything of them is stored.
//! A query over the limit gets a 429 instead of a place in a queue: the engine has a queue for admitted queries, and a
//! second one would hold the bodies and connections of the client that already has more than its share.
//!
//! While all limits are off, a request takes no lock and no look-up here.

mod bucket;
mod metrics;
mod sender;
mod table;
mod usage;

use std::time::Duration;

pub(crate) use self::{
    metrics::IdentityMetrics,
    sender::{LimitExceeded, LimitedSender},
    table::IdentityTable,
    usage::RunningQuery,
};
use crate::auth::UserLimits;

/// Limits of each identity (`tsd.limits.*`); 0 means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityLimits {
    /// Points a second (`tsd.limits.points_per_second`).
    pub points_per_second: u64,
    /// After a rest, the points of this much time may come at once (`tsd.limits.points_burst`).
    pub points_burst: Duration,
    /// New series an hour (`tsd.limits.new_series_per_hour`).
    pub new_series_per_hour: u64,
    /// Concurrent queries (`tsd.limits.concurrent_queries`).
    pub concurrent_queries: u64,
    /// Bytes that a query reads from storage (`tsd.limits.query_bytes`).
    pub query_bytes: u64,
    /// Bytes of memory of a query (`tsd.limits.query_memory`).
    pub query_memory: u64,
    /// Counts what identities use, also without a limit (`tsd.limits.measure`).
    pub measure: bool,
}

impl Default for IdentityLimits {
    fn default() -> Self {
        Self {
            points_per_second: 0,
            points_burst: Duration::from_secs(10),
            new_series_per_hour: 0,
            concurrent_queries: 0,
            query_bytes: 0,
            query_memory: 0,
            measure: false,
        }
    }
}

impl IdentityLimits {
    /// Returns true if no identity is limited or counted.
    fn are_off(&self) -> bool {
        let off = Self { points_burst: self.points_burst, ..Self::default() };
        *self == off
    }

    /// Returns the limits of a user, whose own limits come first.
    fn with(self, user: UserLimits) -> Self {
        Self {
            points_per_second: user.points_per_second.unwrap_or(self.points_per_second),
            new_series_per_hour: user.new_series_per_hour.unwrap_or(self.new_series_per_hour),
            concurrent_queries: user.concurrent_queries.unwrap_or(self.concurrent_queries),
            query_bytes: user.query_bytes.unwrap_or(self.query_bytes),
            query_memory: user.query_memory.unwrap_or(self.query_memory),
            ..self
        }
    }
}

#[cfg(test)]
mod tests;
