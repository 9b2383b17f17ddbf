//! Counters and gauges of a client, as plain data.
//!
//! The crate uses no metrics library: its user publishes snapshots. Counters never decrease; gauges
//! have the value at the time of the snapshot. The values of a snapshot are not read atomically and
//! may differ by a few calls.

use std::time::Duration;

use crate::{exception::ExceptionClass, server_name::ServerName};

/// Counters and gauges of a client since its creation.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ClientStats {
    /// Sum over all servers, including former ones.
    pub total: Traffic,
    /// Servers with connections, now or recently.
    pub servers: Vec<ServerStats>,
    /// Calls by method.
    pub methods: Vec<MethodStats>,
    /// Retries by reason.
    pub retries: Vec<(RetryReason, u64)>,
    /// Region cache hits.
    pub region_hits: u64,
    /// Region cache misses.
    pub region_misses: u64,
    /// Gauge: cached region locations.
    pub cached_regions: u64,
    /// Lookups in hbase:meta.
    pub lookups: u64,
    /// Callers that shared a pending lookup.
    pub lookups_shared: u64,
    /// Failed lookups.
    pub lookups_failed: u64,
    /// Scanners opened.
    pub scanners_opened: u64,
    /// Scanner leases renewed because of a slow caller.
    pub scanners_renewed: u64,
    /// Scanners reopened after a failure.
    pub scanners_reopened: u64,
    /// Multi calls sent.
    pub batches: u64,
    /// Actions in them.
    pub batch_actions: u64,
    /// Content of all buffers.
    pub buffers: BufferStats,
    /// Kerberos logins; `None` with another authentication.
    pub logins: Option<LoginStats>,
}

/// Counters and gauges of the Kerberos logins of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoginStats {
    /// Tickets obtained with a keytab, and caches read.
    pub logins: u64,
    /// Failed logins, and service tickets that were not obtained.
    pub login_failures: u64,
    /// Gauge: seconds until the tickets expire; `None` before the first login.
    pub ticket_seconds_left: Option<u64>,
}

/// Connections, calls and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Gauge: open connections.
    pub connections: u64,
    /// Connections opened.
    pub connections_opened: u64,
    /// Connections closed.
    pub connections_closed: u64,
    /// Failed connects.
    pub connections_failed: u64,
    /// Calls started.
    pub calls: u64,
    /// Gauge: calls in flight.
    pub calls_in_flight: u64,
    /// Gauge: request bytes of the calls in flight.
    pub bytes_in_flight: u64,
    /// Calls that waited for a permit of their connection.
    pub admission_waits: u64,
    /// Bytes written.
    pub bytes_sent: u64,
    /// Bytes read.
    pub bytes_received: u64,
}

/// Traffic and calls of one server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerStats {
    /// The server.
    pub server: ServerName,
    /// Its connections, calls and bytes.
    pub traffic: Traffic,
    /// Calls without a response.
    pub failed: u64,
    /// Time to the response of its calls, as in [`MethodStats`].
    pub latency: Latency,
}

/// Calls of one method.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MethodStats {
    /// `Get`, `Mutate`, `Multi`, `Scan`, `Meta` for all calls to hbase:meta, `Admin` for the others.
    pub method: &'static str,
    /// Calls without a response.
    pub failed: u64,
    /// Time to the response, including the wait for a permit of the connection.
    pub latency: Latency,
}

/// Histogram of latencies, with buckets by powers of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latency {
    /// Calls with a response.
    pub count: u64,
    /// Sum of their latencies.
    pub sum: Duration,
    /// Calls by latency, up to [`Self::bound`]. The last bucket has all longer ones.
    pub buckets: [u64; Self::BUCKETS],
}

impl Latency {
    /// Number of buckets.
    pub const BUCKETS: usize = 24;

    /// Returns the upper bound of a bucket: 32 microseconds for the first, doubling with each next
    /// one, up to more than four minutes.
    #[must_use]
    pub const fn bound(bucket: usize) -> Duration {
        let exponent = if bucket < Self::BUCKETS { bucket } else { Self::BUCKETS - 1 };
        Duration::from_micros(32 << exponent)
    }

    /// Returns the bucket of a latency.
    #[must_use]
    pub(crate) fn bucket(time: Duration) -> usize {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        // Number of bits above 32 microseconds.
        let bits = (u64::BITS - (micros >> 5).leading_zeros()) as usize;
        bits.min(Self::BUCKETS - 1)
    }

    /// Returns the upper bound of the bucket that has the quantile (0 to 1); zero without calls.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Duration {
        let rank = (self.count as f64 * quantile.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Self::bound(bucket);
            }
        }
        Duration::ZERO
    }
}

/// Reason of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RetryReason {
    /// The response was an exception.
    Exception(ExceptionClass),
    /// The connect failed.
    Connect,
    /// The connection was lost.
    Disconnected,
    /// The call timed out.
    Timeout,
    /// The region is in transition.
    Unlocated,
    /// Discovery failed.
    Discovery,
    /// The response was invalid or incomplete.
    Answer,
}

/// Content of all buffers of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferStats {
    /// Gauge: bytes of pending mutations.
    pub bytes: u64,
    /// Gauge: pending mutations.
    pub mutations: u64,
    /// Gauge: bytes of pending mutations for unavailable regions.
    pub unavailable_bytes: u64,
    /// Gauge: unavailable regions.
    pub unavailable_regions: u64,
    /// Gauge: regions that are paused because of their load, or were paused before their last call.
    pub regions_under_pressure: u64,
    /// Sum of the pauses of regions because of their load.
    pub pressure_pauses: Duration,
    /// Gauge: bytes of memory in the buffer pools.
    pub pool_bytes: u64,
    /// Callers that waited for admission.
    pub admission_waits: u64,
    /// Mutations written.
    pub written: u64,
    /// Mutations that failed permanently.
    pub failed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(micros: u64, bucket: usize) {
        let time = Duration::from_micros(micros);
        assert_eq!(Latency::bucket(time), bucket);
        assert!(time < Latency::bound(bucket) || bucket == Latency::BUCKETS - 1);
        assert!(bucket == 0 || time >= Latency::bound(bucket - 1));
    }

    #[test]
    fn latency_is_within_the_bounds_of_its_bucket() {
        check(0, 0);
        check(31, 0);
        check(32, 1);
        check(63, 1);
        check(64, 2);
        check(1_000, 5);
        check(10_000_000, 19);
        check(u64::MAX, Latency::BUCKETS - 1);
        assert!(Latency::bound(Latency::BUCKETS - 1) > Duration::from_mins(4));
    }

    #[test]
    fn quantile_is_the_upper_bound_of_its_bucket() {
        let mut latency = Latency::default();
        assert_eq!(latency.quantile(0.5), Duration::ZERO);
        latency.buckets[0] = 90;
        latency.buckets[5] = 10;
        latency.count = 100;
        assert_eq!(latency.quantile(0.5), Latency::bound(0));
        assert_eq!(latency.quantile(0.9), Latency::bound(0));
        assert_eq!(latency.quantile(0.99), Latency::bound(5));
        assert_eq!(latency.quantile(1.0), Latency::bound(5));
    }
}
