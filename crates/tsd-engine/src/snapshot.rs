//! Snapshots of the store, one at a time.

use parking_lot::Mutex;
use std::sync::Arc;

use tokio::task::spawn_blocking;
use tsd_files::{SnapshotError, SnapshotProgress, SnapshotReport, SnapshotRequest, SnapshotTarget};
use tsd_model::TableSchema;
use tsd_storage::{Storage, StorageError};

/// The snapshot in progress, if there is one.
#[derive(Debug, Default)]
pub(crate) struct SnapshotSlot(Mutex<Option<Arc<SnapshotProgress>>>);

/// Frees the slot. Stops the snapshot if the call that waits for it was dropped.
struct SlotPermit<'a> {
    slot: &'a SnapshotSlot,
    progress: Arc<SnapshotProgress>,
}

impl SnapshotSlot {
    fn acquire(&self) -> Result<SlotPermit<'_>, SnapshotError> {
        let mut running = self.0.lock();
        if running.is_some() {
            return Err(SnapshotError::InProgress);
        }
        let progress = Arc::<SnapshotProgress>::default();
        *running = Some(Arc::clone(&progress));
        Ok(SlotPermit { slot: self, progress })
    }

    /// Takes a snapshot, unless one is in progress. Dropping the future cancels it. `program` is the version of the
    /// program.
    pub(crate) async fn snapshot(
        &self,
        storage: &dyn Storage,
        schema: TableSchema,
        request: SnapshotRequest,
        program: &str,
    ) -> Result<SnapshotReport, SnapshotError> {
        let permit = self.acquire()?;
        let program = program.to_owned();
        let target = in_thread(move || SnapshotTarget::create(request)).await?;
        let pinned = storage.maintenance().pin_files().await?;
        let progress = Arc::clone(&permit.progress);
        let report = in_thread(move || target.write(&pinned, schema, &program, &progress)).await?;
        let SnapshotReport { files, bytes, linked_bytes, copied_bytes, .. } = report;
        let target = report.target.display();
        tracing::info!(%target, files, bytes, linked_bytes, copied_bytes, "snapshot taken");
        Ok(report)
    }

    /// Progress of the present snapshot; `None` at other times.
    pub(crate) fn progress(&self) -> Option<Arc<SnapshotProgress>> {
        self.0.lock().clone()
    }
}

impl Drop for SlotPermit<'_> {
    fn drop(&mut self) {
        self.progress.cancel();
        *self.slot.0.lock() = None;
    }
}

/// Runs blocking work on a thread that may block.
async fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SnapshotError> + Send + 'static,
) -> Result<T, SnapshotError> {
    // A panic of the task was reported already.
    spawn_blocking(work).await.unwrap_or(Err(SnapshotError::Store(StorageError::Closed)))
}
