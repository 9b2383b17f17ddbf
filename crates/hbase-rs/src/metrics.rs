//! The counters behind [`ClientStats`].
//!
//! Counting is a few relaxed additions a call. What has more than one name (reasons, servers) is bounded
//! by what there is of it: classes of exceptions, servers that are connected to.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::stats::{BufferStats, ClientStats, Latency, MethodStats, RetryReason, Traffic};

/// A number that many count on.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
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

/// Kinds of calls, in the order of [`Metrics::methods`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Mutate,
    Multi,
    Scan,
    Meta,
    Admin,
}

const METHODS: [(Method, &str); 6] = [
    (Method::Get, "Get"),
    (Method::Mutate, "Mutate"),
    (Method::Multi, "Multi"),
    (Method::Scan, "Scan"),
    (Method::Meta, "Meta"),
    (Method::Admin, "Admin"),
];

impl Method {
    /// Kind of a call of that name that is not about hbase:meta.
    pub(crate) fn named(name: &str) -> Self {
        let known = METHODS.iter().find(|(method, of)| *of == name && *method != Self::Meta);
        known.map_or(Self::Admin, |(method, _)| *method)
    }
}

type ObserveLatency = dyn Fn(&'static str, Duration) + Send + Sync;

/// Called with the method and the latency of every answered call, if there is one.
#[derive(Clone, Default)]
pub(crate) struct LatencyObserver(pub(crate) Option<Arc<ObserveLatency>>);

impl fmt::Debug for LatencyObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LatencyObserver").field(&self.0.is_some()).finish()
    }
}

/// Everything a client counts.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    latency_observer: LatencyObserver,
    pub(crate) total: TrafficCounts,
    methods: [MethodCounts; METHODS.len()],
    retries: Mutex<HashMap<RetryReason, u64>>,
    pub(crate) region_hits: Count,
    pub(crate) region_misses: Count,
    pub(crate) lookups: Count,
    pub(crate) lookups_shared: Count,
    pub(crate) lookups_failed: Count,
    pub(crate) scanners_opened: Count,
    pub(crate) scanners_renewed: Count,
    pub(crate) scanners_reopened: Count,
    pub(crate) batches: Count,
    pub(crate) batch_actions: Count,
    pub(crate) buffers: BufferCounts,
}

#[derive(Debug, Default)]
pub(crate) struct TrafficCounts {
    pub(crate) opened: Count,
    pub(crate) closed: Count,
    pub(crate) failed: Count,
    pub(crate) calls: Count,
    pub(crate) calls_in_flight: Count,
    pub(crate) bytes_in_flight: Count,
    pub(crate) waits: Count,
    pub(crate) sent: Count,
    pub(crate) received: Count,
}

#[derive(Debug, Default)]
pub(crate) struct BufferCounts {
    pub(crate) bytes: Count,
    pub(crate) mutations: Count,
    pub(crate) unavailable_bytes: Count,
    pub(crate) unavailable_regions: Count,
    pub(crate) pool_bytes: Count,
    pub(crate) waits: Count,
    pub(crate) written: Count,
    pub(crate) failed: Count,
}

#[derive(Debug, Default)]
struct MethodCounts {
    failed: Count,
    count: Count,
    micros: Count,
    buckets: [Count; Latency::BUCKETS],
}

impl Metrics {
    pub(crate) fn observed_by(latency_observer: LatencyObserver) -> Self {
        Self { latency_observer, ..Self::default() }
    }

    /// Counts a call that took so long.
    pub(crate) fn called(&self, method: Method, time: Duration, answered: bool) {
        let Some(counts) = self.methods.get(method as usize) else { return };
        if !answered {
            counts.failed.one();
            return;
        }
        counts.count.one();
        counts.micros.add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        if let Some(bucket) = counts.buckets.get(Latency::bucket(time)) {
            bucket.one();
        }
        if let (Some(observe), Some((_, name))) =
            (&self.latency_observer.0, METHODS.get(method as usize))
        {
            observe(name, time);
        }
    }

    /// Counts another attempt because of this.
    pub(crate) fn retried(&self, reason: RetryReason) {
        *self.retries.lock().unwrap_or_else(PoisonError::into_inner).entry(reason).or_default() +=
            1;
    }

    /// All of it but what others know: servers, and the number of known regions.
    pub(crate) fn snapshot(&self) -> ClientStats {
        let method = |(counts, (_, method)): (&MethodCounts, &(Method, &'static str))| {
            MethodStats { method, failed: counts.failed.get(), latency: counts.latency() }
        };
        let mut retries: Vec<_> = self
            .retries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|(reason, count)| (*reason, *count))
            .collect();
        retries.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        ClientStats {
            total: self.total.snapshot(),
            servers: Vec::new(),
            methods: self.methods.iter().zip(&METHODS).map(method).collect(),
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
                pool_bytes: self.buffers.pool_bytes.get(),
                admission_waits: self.buffers.waits.get(),
                written: self.buffers.written.get(),
                failed: self.buffers.failed.get(),
            },
        }
    }
}

impl TrafficCounts {
    pub(crate) fn snapshot(&self) -> Traffic {
        // Closed first: a connection in between counts as open rather than as less than none.
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

impl MethodCounts {
    fn latency(&self) -> Latency {
        let mut buckets = [0; Latency::BUCKETS];
        for (number, count) in buckets.iter_mut().zip(&self.buckets) {
            *number = count.get();
        }
        Latency { count: self.count.get(), sum: Duration::from_micros(self.micros.get()), buckets }
    }
}

/// Counts of one server and of all of them.
#[derive(Clone, Debug)]
pub(crate) struct PeerMetrics {
    pub(crate) client: Arc<Metrics>,
    pub(crate) server: Arc<TrafficCounts>,
}

impl PeerMetrics {
    pub(crate) fn new(client: Arc<Metrics>) -> Self {
        Self { client, server: Arc::default() }
    }

    /// Changes a count of the server and the same one of the client.
    pub(crate) fn count(&self, change: impl Fn(&TrafficCounts)) {
        change(&self.server);
        change(&self.client.total);
    }

    /// Counts a call under way until it is dropped.
    pub(crate) fn in_flight(&self, bytes: u64) -> InFlight<'_> {
        self.count(|counts| {
            counts.calls.one();
            counts.calls_in_flight.one();
            counts.bytes_in_flight.add(bytes);
        });
        InFlight { peer: self, bytes }
    }
}

/// A call under way.
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
