//! What an owner of a log knows about the log table: whether it is gone, and whether its attributes are right.
//! `table_loss.rs` and `attribute_check.rs` find out.

use parking_lot::Mutex;
use std::{sync::OnceLock, time::Duration};

use tokio::time::Instant;
use tsd_storage::StorageError;

/// Condition of the log table.
#[derive(Debug)]
pub(crate) struct TableCondition {
    /// The last time at which no other process can have fenced this one.
    unfenced: Mutex<Instant>,
    loss: OnceLock<TableLoss>,
    /// Wrong attributes of the table.
    attribute_problem: Mutex<Option<String>>,
}

/// The loss of the table.
#[derive(Debug)]
struct TableLoss {
    text: String,
    /// True if this process owned its log until the loss, so that no other one has stored its rows.
    is_owner: bool,
}

impl TableCondition {
    pub(crate) fn new() -> Self {
        let unfenced = Mutex::new(Instant::now());
        Self { unfenced, loss: OnceLock::new(), attribute_problem: Mutex::default() }
    }

    /// Records that no other process had fenced this one before `at`.
    pub(crate) fn is_unfenced_until(&self, at: Instant) {
        let mut unfenced = self.unfenced.lock();
        *unfenced = (*unfenced).max(at);
    }

    /// Time since which another process may have fenced this one.
    pub(crate) fn unfenced_age(&self) -> Duration {
        self.unfenced.lock().elapsed()
    }

    /// Records the loss of the table. Returns false if it is known already.
    pub(crate) fn set_lost(&self, text: String, is_owner: bool) -> bool {
        self.loss.set(TableLoss { text, is_owner }).is_ok()
    }

    /// Why the table is gone; `None` while it is not known to be.
    pub(crate) fn loss(&self) -> Option<&str> {
        self.loss.get().map(|loss| loss.text.as_str())
    }

    /// Fails once the table is gone.
    pub(crate) fn check(&self) -> Result<(), StorageError> {
        self.loss().map_or(Ok(()), |text| Err(StorageError::Unavailable(text.into())))
    }

    /// True if the table is gone and this process must flush the rows of its log.
    pub(crate) fn keeps_lost_rows(&self) -> bool {
        self.loss.get().is_some_and(|loss| loss.is_owner)
    }

    pub(crate) fn attribute_problem(&self) -> Option<String> {
        self.attribute_problem.lock().clone()
    }

    /// Sets or ends the problem of the attributes. Returns true if it is new.
    pub(crate) fn set_attribute_problem(&self, problem: Option<String>) -> bool {
        let is_set = problem.is_some();
        let before = std::mem::replace(&mut *self.attribute_problem.lock(), problem);
        is_set && before.is_none()
    }
}
