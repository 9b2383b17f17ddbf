//! Measures counts, errors and latencies of every call of a store.

use std::{fmt, future::Future, sync::Arc, time::Instant};

use crate::{
    HookedStorage, Operation, OperationHook, Storage, StorageError, metrics::OperationMetrics,
};

/// A store whose calls are counted and timed, per operation:
/// `tsd_storage_calls_total`, `tsd_storage_errors_total`, `tsd_storage_call_seconds`.
pub type MeteredStorage<S> = HookedStorage<S, CallMeters>;

/// The hook of [`MeteredStorage`].
pub struct CallMeters([OperationMetrics; Operation::ALL.len()]);

impl CallMeters {
    /// Handles are created once: a call then costs three atomic operations and no lookup.
    fn new(store: &'static str) -> Self {
        OperationMetrics::describe();
        Self(Operation::ALL.map(|operation| {
            let labels = [("store", store), ("operation", operation.as_str())];
            OperationMetrics::with_labels(&labels.map(|(label, value)| (label, value.to_owned())))
        }))
    }
}

impl fmt::Debug for CallMeters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallMeters").finish_non_exhaustive()
    }
}

impl OperationHook for CallMeters {
    async fn around<T: Send>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, StorageError>> + Send,
    ) -> Result<T, StorageError> {
        let started = Instant::now();
        let result = call.await;
        if let Some(meter) = self.0.get(operation as usize) {
            meter.calls.increment(1);
            meter.seconds.record(started.elapsed());
            if result.is_err() {
                meter.errors.increment(1);
            }
        }
        result
    }
}

impl<S: Storage + ?Sized> MeteredStorage<S> {
    /// Meters `inner`; `store` is the label that distinguishes the layers (`hbase`, `tree`, `log`).
    /// The metrics recorder must be installed before.
    #[must_use]
    pub fn new(store: &'static str, inner: Arc<S>) -> Self {
        Self::with_hook(CallMeters::new(store), inner)
    }
}
