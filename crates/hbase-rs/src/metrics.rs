//! The counters behind [`ClientStats`].
//!
//! A call costs a few relaxed additions. The number of labels is bounded by the classes of exceptions
//! and the connected servers.

use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::stats::{BufferStats, ClientStats, Latency, MethodStats, RetryReason, Traffic};

/// A counter or gauge shared by tasks.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, number: u64) {
        self.0.fetch_add(number, Relaxed);
    }

    pub(crate) fn one(&self) {
        self.add(1);
    }

    pub(crate) fn sub(&self, number: u64) {
        self.0.fetch_sub(number, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Method of all calls to hbase:meta.
pub(crate) const META_METHOD: &str = "Meta";

/// Methods that are counted by themselves. The last stands for all others.
const METHODS: [&str; 6] = ["Get", "Mutate", "Multi", "Scan", META_METHOD, "Admin"];

type ObserveLatency = dyn Fn(&'static str, Duration) + Send + Sync;

/// Called with the method and the latency of every answered call, if there is one.
#[derive(Clone, Default)]
pub(crate) struct LatencyObserver(pub(crate) Option<Arc<ObserveLatency>>);

impl fmt::Debug for LatencyObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LatencyObserver").field(&self.0.is_some()).finish()
    }
}

/// All counters and gauges of a client.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    latency_observer: LatencyObserver,
    pub(crate) total: TrafficCounts,
    methods: [CallCounts; METHODS.len()],
    retries: Mutex<HashMap<RetryReason, u64>>,
    pub(crate) region_hits: Counter,
    pub(crate) region_misses: Counter,
    pub(crate) lookups: Counter,
    pub(crate) lookups_shared: Counter,
    pub(crate) lookups_failed: Counter,
    pub(crate) scanners_opened: Counter,
    pub(crate) scanners_renewed: Counter,
    pub(crate) scanners_reopened: Counter,
    pub(crate) batches: Counter,
    pub(crate) batch_actions: Counter,
    pub(crate) buffers: BufferCounts,
}

#[derive(Debug, Default)]
pub(crate) struct TrafficCounts {
    pub(crate) opened: Counter,
    pub(crate) closed: Counter,
    pub(crate) failed: Counter,
    pub(crate) calls: Counter,
    pub(crate) calls_in_flight: Counter,
    pub(crate) bytes_in_flight: Counter,
    pub(crate) waits: Counter,
    pub(crate) sent: Counter,
    pub(crate) received: Counter,
}

#[derive(Debug, Default)]
pub(crate) struct BufferCounts {
    pub(crate) bytes: Counter,
    pub(crate) mutations: Counter,
    pub(crate) unavailable_bytes: Counter,
    pub(crate) unavailable_regions: Counter,
    pub(crate) regions_under_pressure: Counter,
    pub(crate) pressure_pause_micros: Counter,
    pub(crate) pool_bytes: Counter,
    pub(crate) waits: Counter,
    pub(crate) written: Counter,
    pub(crate) failed: Counter,
}

/// Calls of one method, or to one server.
#[derive(Debug, Default)]
pub(crate) struct CallCounts {
    failed: Counter,
    count: Counter,
    micros: Counter,
    buckets: [Counter; Latency::BUCKETS],
}

impl Metrics {
    pub(crate) fn observed_by(latency_observer: LatencyObserver) -> Self {
        Self { latency_observer, ..Self::default() }
    }

    /// Counts a call and its latency.
    fn called(&self, method: &str, time: Duration, answered: bool) {
        let at = METHODS.iter().position(|of| *of == method).unwrap_or(METHODS.len() - 1);
        let Some((counts, name)) = self.methods.get(at).zip(METHODS.get(at)) else { return };
        counts.called(time, answered);
        if answered && let Some(observe) = &self.latency_observer.0 {
            observe(name, time);
        }
    }

    /// Counts a retry.
    pub(crate) fn retried(&self, reason: RetryReason) {
        *self.retries.lock().entry(reason).or_default() += 1;
    }

    /// Returns a snapshot, without the servers and the number of cached regions.
    pub(crate) fn snapshot(&self) -> ClientStats {
        let method = |(counts, method): (&CallCounts, &'static str)| MethodStats {
            method,
            failed: counts.failed(),
            latency: counts.latency(),
        };
        let mut retries: Vec<_> =
            self.retries.lock().iter().map(|(reason, count)| (*reason, *count)).collect();
        retries.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        ClientStats {
            total: self.total.snapshot(),
            servers: Vec::new(),
            methods: self.methods.iter().zip(METHODS).map(method).collect(),
            retries,
            region_hits: self.region_hits.get(),
            region_misses: self.region_misses.get(),
            cached_regions: 0,
            lookups: self.lookups.get(),
            lookups_shared: self.lookups_shared.get(),
            lookups_failed: self.lookups_failed.get(),
            scanners_opened: self.scanners_opened.get(),
            scanners_renewed: self.scanners_renewed.get(),
            scanners_reopened: self.scanners_reopened.get(),
            batches: self.batches.get(),
            batch_actions: self.batch_actions.get(),
            buffers: BufferStats {
                bytes: self.buffers.bytes.get(),
                mutations: self.buffers.mutations.get(),
                unavailable_bytes: self.buffers.unavailable_bytes.get(),
                unavailable_regions: self.buffers.unavailable_regions.get(),
                regions_under_pressure: self.buffers.regions_under_pressure.get(),
                pressure_pauses: Duration::from_micros(self.buffers.pressure_pause_micros.get()),
                pool_bytes: self.buffers.pool_bytes.get(),
                admission_waits: self.buffers.waits.get(),
                written: self.buffers.written.get(),
                failed: self.buffers.failed.get(),
            },
            logins: None,
        }
    }
}

impl TrafficCounts {
    pub(crate) fn snapshot(&self) -> Traffic {
        // Closed connections are read first, so that the difference is never negative.
        let closed = self.closed.get();
        let opened = self.opened.get();
        Traffic {
            connections: opened.saturating_sub(closed),
            connections_opened: opened,
            connections_closed: closed,
            connections_failed: self.failed.get(),
            calls: self.calls.get(),
            calls_in_flight: self.calls_in_flight.get(),
            bytes_in_flight: self.bytes_in_flight.get(),
            admission_waits: self.waits.get(),
            bytes_sent: self.sent.get(),
            bytes_received: self.received.get(),
        }
    }
}

impl CallCounts {
    fn called(&self, time: Duration, answered: bool) {
        if !answered {
            self.failed.one();
            return;
        }
        self.count.one();
        self.micros.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        if let Some(bucket) = self.buckets.get(Latency::bucket(time)) {
            bucket.one();
        }
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed.get()
    }

    pub(crate) fn latency(&self) -> Latency {
        let mut buckets = [0; Latency::BUCKETS];
        for (number, count) in buckets.iter_mut().zip(&self.buckets) {
            *number = count.get();
        }
        Latency { count: self.count.get(), sum: Duration::from_micros(self.micros.get()), buckets }
    }
}

/// Counters of one server and of the client.
#[derive(Clone, Debug)]
pub(crate) struct PeerMetrics {
    pub(crate) client: Arc<Metrics>,
    pub(crate) server: Arc<TrafficCounts>,
    pub(crate) server_calls: Arc<CallCounts>,
}

impl PeerMetrics {
    pub(crate) fn new(client: Arc<Metrics>) -> Self {
        Self { client, server: Arc::default(), server_calls: Arc::default() }
    }

    /// Counts a call and its latency.
    pub(crate) fn called(&self, method: &str, time: Duration, answered: bool) {
        self.client.called(method, time, answered);
        self.server_calls.called(time, answered);
    }

    /// Changes the counters of the server and of the client.
    pub(crate) fn count(&self, change: impl Fn(&TrafficCounts)) {
        change(&self.server);
        change(&self.client.total);
    }

    /// Counts a call in flight until the guard is dropped.
    pub(crate) fn in_flight(&self, bytes: u64) -> InFlight<'_> {
        self.count(|counts| {
            counts.calls.one();
            counts.calls_in_flight.one();
            counts.bytes_in_flight.add(bytes);
        });
        InFlight { peer: self, bytes }
    }
}

/// A call in flight.
#[derive(Debug)]
pub(crate) struct InFlight<'a> {
    peer: &'a PeerMetrics,
    bytes: u64,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.peer.count(|counts| {
            counts.calls_in_flight.sub(1);
            counts.bytes_in_flight.sub(self.bytes);
        });
    }
}
