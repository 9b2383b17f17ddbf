//! Configuration of a buffer.

use std::time::Duration;

/// Bounds and delays of a [`BufferedMutator`](crate::BufferedMutator).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BufferConfig {
    /// Maximum linger: how long a partial call may wait for more mutations while other calls to its
    /// server are in flight. Without calls in flight it does not wait.
    pub linger: Duration,
    /// Maximum bytes of mutations that are accepted and not complete; callers wait for admission.
    pub max_bytes: usize,
    /// Mutations of a full call, which is sent without lingering. No call has more.
    pub batch_actions: usize,
    /// Bytes of cells of a full call, which is sent without lingering. No call has more, except for
    /// a call of one mutation.
    pub batch_bytes: usize,
    /// Maximum number of calls in flight to one server.
    pub calls_per_server: usize,
    /// Longest pause of a region under memstore pressure; zero disables these pauses. Servers
    /// report loads only if `hbase.client.backpressure.enabled` is true in their configuration.
    pub max_pressure_pause: Duration,
    /// Time for each mutation from submission to its result. The default is the timeout of the
    /// table's operations.
    pub timeout: Option<Duration>,
}

impl Default for BufferConfig {
    /// Values for many small mutations.
    fn default() -> Self {
        Self {
            linger: Duration::from_millis(5),
            // Enough for the calls in flight to a few servers; more exceeds the CPU caches.
            max_bytes: 16 << 20,
            batch_actions: 4_096,
            batch_bytes: 2 << 20,
            calls_per_server: 2,
            max_pressure_pause: Duration::from_secs(2),
            timeout: None,
        }
    }
}
