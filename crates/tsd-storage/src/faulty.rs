//! A store that fails on purpose, by a script. For tests only.

use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    sync::Arc,
    time::Duration,
};

use crate::{HookedStorage, Operation, OperationHook, Storage, StorageError};

/// A fault of one call.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The call fails and has no effect.
    Error(StorageError),
    /// The call starts later, by tokio's timer: paused time applies.
    Delay(Duration),
    /// The call takes effect, but its result is replaced by this error.
    LostAck(StorageError),
    /// No fault.
    Pass,
}

/// A store with scripted faults. Each operation has its own script: a call consumes the next fault,
/// and passes after the last fault.
pub type FaultyStorage<S> = HookedStorage<S, FaultScript>;

/// The hook of [`FaultyStorage`].
#[derive(Debug, Default)]
pub struct FaultScript {
    faults: Mutex<HashMap<Operation, VecDeque<Fault>>>,
}

impl FaultScript {
    fn faults(&self) -> MutexGuard<'_, HashMap<Operation, VecDeque<Fault>>> {
        self.faults.lock()
    }

    fn next(&self, operation: Operation) -> Fault {
        self.faults().get_mut(&operation).and_then(VecDeque::pop_front).unwrap_or(Fault::Pass)
    }
}

impl OperationHook for FaultScript {
    async fn around<T: Send>(
        &self,
        operation: Operation,
        call: impl Future<Output = Result<T, StorageError>> + Send,
    ) -> Result<T, StorageError> {
        match self.next(operation) {
            Fault::Pass => call.await,
            Fault::Error(error) => Err(error),
            Fault::Delay(pause) => {
                tokio::time::sleep(pause).await;
                call.await
            }
            Fault::LostAck(error) => {
                call.await?;
                Err(error)
            }
        }
    }
}

impl<S: Storage + ?Sized> FaultyStorage<S> {
    /// A store without faults so far.
    #[must_use]
    pub fn new(inner: Arc<S>) -> Self {
        Self::with_hook(FaultScript::default(), inner)
    }

    /// Adds faults to the script of one operation, in order.
    pub fn script(&self, operation: Operation, faults: impl IntoIterator<Item = Fault>) {
        self.hook().faults().entry(operation).or_default().extend(faults);
    }

    /// Removes all pending faults.
    pub fn heal(&self) {
        self.hook().faults().clear();
    }

    /// True if no fault of this operation is pending.
    #[must_use]
    pub fn is_used_up(&self, operation: Operation) -> bool {
        self.hook().faults().get(&operation).is_none_or(VecDeque::is_empty)
    }

    /// Number of open scans.
    #[must_use]
    pub fn open_scans(&self) -> usize {
        // Each open scan has a reference to the hook.
        Arc::strong_count(self.hook()) - 1
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use bytes::Bytes;
    use tsd_model::Family;

    use super::*;
    use crate::{
        CellBatch, CellRef, Delete, Get, MemoryStorage, Scan, StorageExt, Table, conformance,
    };

    fn faulty() -> (FaultyStorage<MemoryStorage>, Table) {
        let table = Table::new("tsdb");
        (FaultyStorage::new(Arc::new(MemoryStorage::new([table.clone()]))), table)
    }

    fn one_cell() -> CellBatch {
        let cell = CellRef { family: Family::T, qualifier: b"q", value: b"v", timestamp_ms: None };
        CellBatch::single(b"row", cell).unwrap()
    }

    #[tokio::test]
    async fn store_without_faults_passes_the_conformance_suite() {
        conformance::run_all(async || {
            Arc::new(FaultyStorage::new(Arc::new(MemoryStorage::new(conformance::tables()))))
        })
        .await;
    }

    #[tokio::test]
    async fn error_has_no_effect_and_lost_acknowledgement_has() {
        let (store, table) = faulty();
        let row = || Get::row(Bytes::from_static(b"row"));
        let timeout = StorageError::Timeout("put");
        store.script(
            Operation::Put,
            [Fault::Error(timeout.clone()), Fault::Pass, Fault::LostAck(timeout)],
        );
        assert!(store.put(&table, one_cell()).await.is_err());
        assert!(store.get(&table, row()).await.unwrap().is_none());
        store.put(&table, one_cell()).await.unwrap();
        store.delete(&table, Delete::Row(Bytes::from_static(b"row"))).await.unwrap();
        assert!(store.put(&table, one_cell()).await.is_err());
        assert!(store.get(&table, row()).await.unwrap().is_some());
        store.put(&table, one_cell()).await.unwrap();
    }

    #[tokio::test]
    async fn failed_scan_stays_failed() {
        let (store, table) = faulty();
        store.put(&table, one_cell()).await.unwrap();
        store.script(Operation::ScanBatch, [Fault::Error(StorageError::Timeout("scan"))]);
        let mut scanner = store.scan(&table, Scan::default());
        assert!(scanner.next_rows().await.is_err());
        assert!(scanner.next_rows().await.is_err());
        assert!(store.scan(&table, Scan::default()).next_rows().await.unwrap().is_some());
    }

    #[tokio::test]
    async fn heal_clears_the_script() {
        let (store, table) = faulty();
        store.script(Operation::Put, vec![Fault::Error(StorageError::DiskFull); 3]);
        store.heal();
        store.put(&table, one_cell()).await.unwrap();
    }
}
