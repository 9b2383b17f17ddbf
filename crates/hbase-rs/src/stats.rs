//! What a client counts, as plain data.
//!
//! The crate knows no library of metrics: whoever runs it takes a snapshot when it is asked and
//! publishes that. Counters never go back; gauges say how it was at the moment of the snapshot. Numbers
//! that belong together are read one after the other, so they may be a call or two apart.

use std::time::Duration;

use crate::{exception::ExceptionClass, server_name::ServerName};

/// Counters and gauges of a client since it was made.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ClientStats {
    /// All servers together, those that are forgotten too.
    pub total: Traffic,
    /// Servers that there are connections to, or were a short while ago.
    pub servers: Vec<ServerStats>,
    /// Calls by what they ask.
    pub methods: Vec<MethodStats>,
    /// Attempts after which there was another one, by what they met with.
    pub retries: Vec<(RetryReason, u64)>,
    /// Regions that were found without a lookup.
    pub region_hits: u64,
    /// Regions that had to be looked up.
    pub region_misses: u64,
    /// Gauge: regions whose server is known.
    pub cached_regions: u64,
    /// Lookups in hbase:meta.
    pub lookups: u64,
    /// Callers who waited for somebody else's lookup instead of making one.
    pub lookups_shared: u64,
    /// Lookups that did not find the region.
    pub lookups_failed: u64,
    /// Scanners opened.
    pub scanners_opened: u64,
    /// Leases of scanners renewed because the caller was slow.
    pub scanners_renewed: u64,
    /// Scanners opened in the middle of a region, after a fault.
    pub scanners_reopened: u64,
    /// Multis that were sent.
    pub batches: u64,
    /// Actions in them.
    pub batch_actions: u64,
    /// What is in the buffers of writers.
    pub buffers: BufferStats,
}

/// What goes to servers and comes from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Gauge: connections that are open.
    pub connections: u64,
    /// Connections opened.
    pub connections_opened: u64,
    /// Connections closed.
    pub connections_closed: u64,
    /// Connections that did not come up.
    pub connections_failed: u64,
    /// Calls begun.
    pub calls: u64,
    /// Gauge: calls under way.
    pub calls_in_flight: u64,
    /// Gauge: bytes of their requests.
    pub bytes_in_flight: u64,
    /// Calls that waited for room on a connection.
    pub admission_waits: u64,
    /// Bytes written.
    pub bytes_sent: u64,
    /// Bytes read.
    pub bytes_received: u64,
}

/// One server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerStats {
    /// Which.
    pub server: ServerName,
    /// What goes to it and comes from it.
    pub traffic: Traffic,
}

/// Calls of one kind.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MethodStats {
    /// `Get`, `Mutate`, `Multi`, `Scan`, `Meta` for all about hbase:meta, `Admin` for the rest.
    pub method: &'static str,
    /// Calls that brought no answer.
    pub failed: u64,
    /// Time to the answer, with the wait for room on the connection.
    pub latency: Latency,
}

/// Times by powers of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latency {
    /// Calls that were answered.
    pub count: u64,
    /// Sum of their times.
    pub sum: Duration,
    /// Calls by time; [`Self::bound`] says up to which. The last takes all that is longer.
    pub buckets: [u64; Self::BUCKETS],
}

impl Latency {
    /// Number of buckets.
    pub const BUCKETS: usize = 24;

    /// Time below which calls of a bucket took: 32 microseconds in the first, twice as much in
    /// every next one, up to more than four minutes.
    #[must_use]
    pub const fn bound(bucket: usize) -> Duration {
        let exponent = if bucket < Self::BUCKETS { bucket } else { Self::BUCKETS - 1 };
        Duration::from_micros(32 << exponent)
    }

    /// Bucket of a time.
    #[must_use]
    pub(crate) fn bucket(time: Duration) -> usize {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        // Bits beyond the 32 microseconds of the first.
        let bits = (u64::BITS - (micros >> 5).leading_zeros()) as usize;
        bits.min(Self::BUCKETS - 1)
    }

    /// Bound of the bucket in which a share of the calls is reached; zero without calls.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = (self.count as f64 * share.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Self::bound(bucket);
            }
        }
        Duration::ZERO
    }
}

/// Why something was tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RetryReason {
    /// The server answered with an exception.
    Exception(ExceptionClass),
    /// No connection came up.
    Connect,
    /// The connection was lost.
    Disconnected,
    /// Time for the call was up.
    Timeout,
    /// The region is not to be found now.
    Unlocated,
    /// The first servers are not to be found now.
    Discovery,
    /// The answer left something open.
    Answer,
}

/// What is in the buffers of all writers of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferStats {
    /// Gauge: bytes taken from callers and not settled.
    pub bytes: u64,
    /// Gauge: mutations taken from callers and not settled.
    pub mutations: u64,
    /// Gauge: bytes of them that wait for a region that is not available.
    pub unavailable_bytes: u64,
    /// Gauge: regions that are not available.
    pub unavailable_regions: u64,
    /// Gauge: bytes of memory kept for batches to come.
    pub pool_bytes: u64,
    /// Callers who waited for room.
    pub admission_waits: u64,
    /// Mutations that were settled well.
    pub written: u64,
    /// Mutations that failed for good.
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
    fn a_time_is_below_the_bound_of_its_bucket_and_of_none_before() {
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
    fn a_quantile_is_the_bound_that_its_share_stays_below() {
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
