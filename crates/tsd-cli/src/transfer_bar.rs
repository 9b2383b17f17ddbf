//! Progress bar of a transfer of bytes, with rate and time left.

use std::{cell::Cell, time::Duration};

use indicatif::ProgressBar;
use tsd_files::{SnapshotError, TransferMeter};

use crate::progress_bar::progress_bar;

/// A bar on a terminal; hidden elsewhere.
#[derive(Debug)]
pub(crate) struct TransferBar {
    bar: ProgressBar,
    moved: Cell<u64>,
}

impl TransferBar {
    /// Creates a bar without a size.
    pub(crate) fn new(what: &'static str) -> Self {
        let template = "{prefix} {bar:30} {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left";
        let bar = progress_bar(None, template);
        bar.set_prefix(what);
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar, moved: Cell::new(0) }
    }

    /// Shows the transferred and total bytes.
    pub(crate) fn show(&self, bytes: u64, total_bytes: u64) {
        self.bar.set_length(total_bytes);
        self.bar.set_position(bytes);
    }
}

impl TransferMeter for TransferBar {
    fn moved(&self, bytes: u64) -> Result<(), SnapshotError> {
        self.moved.set(self.moved.get() + bytes);
        self.bar.set_position(self.moved.get());
        Ok(())
    }
}

impl Drop for TransferBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
