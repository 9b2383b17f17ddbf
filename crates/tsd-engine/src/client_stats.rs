//! Statistics of the storage's client, shown with the engine's own.

use std::{fmt, sync::Arc, time::Duration};

/// One line of the `stats` command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Name without the leading `tsd.`.
    pub name: &'static str,
    /// Value.
    pub value: i64,
    /// Tags of this line.
    pub tags: Vec<(&'static str, &'static str)>,
}

/// Calls to one server of the storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionClientStats {
    /// Host and port of the server.
    pub endpoint: String,
    /// Open connections.
    pub connections: u64,
    /// Calls started.
    pub calls: u64,
    /// Calls in flight.
    pub calls_in_flight: u64,
    /// Calls that waited because too many were in flight.
    pub admission_waits: u64,
    /// Calls without a response.
    pub failed: u64,
    /// Half of the answered calls took at most this long; zero without any.
    pub latency_p50: Duration,
    /// 99 of 100 answered calls took at most this long.
    pub latency_p99: Duration,
}

/// Reads the statistics of the storage's client: lines of `stats`, and its servers.
#[derive(Clone)]
pub struct ClientStats {
    pub(crate) lines: Arc<dyn Fn() -> Vec<Stat> + Send + Sync>,
    pub(crate) servers: Arc<dyn Fn() -> Vec<RegionClientStats> + Send + Sync>,
}

impl ClientStats {
    /// Uses these sources. Names of lines are OpenTSDB's.
    pub fn new(
        lines: impl Fn() -> Vec<Stat> + Send + Sync + 'static,
        servers: impl Fn() -> Vec<RegionClientStats> + Send + Sync + 'static,
    ) -> Self {
        Self { lines: Arc::new(lines), servers: Arc::new(servers) }
    }
}

impl fmt::Debug for ClientStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientStats")
    }
}
