//! State of a telnet connection. `telnet.rs`, `login.rs` and `storage_errors.rs` implement its behaviour.

use std::{pin::Pin, sync::Arc};

use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tsd_engine::PointFailure;

use super::{
    lines::LineProcessor, read_buffer::ReadBuffer, read_pace::ReadPace, throttle::Throttle,
    unstored::Unstored,
};
use crate::{
    connection_epoch::ConnectionEpoch,
    timeout_io::{RequestTracker, TimeoutIo},
};

/// A telnet connection.
pub(super) struct Connection<S> {
    pub(super) io: TimeoutIo<S>,
    pub(super) tracker: Arc<RequestTracker>,
    pub(super) read_buffer: ReadBuffer,
    pub(super) pace: ReadPace,
    pub(super) throttle: Throttle,
    pub(super) lines: LineProcessor,
    pub(super) failures: mpsc::UnboundedReceiver<PointFailure>,
    pub(super) unstored: Unstored,
    /// `None` if standstills are not detected.
    pub(super) epoch: Option<Arc<ConnectionEpoch>>,
    /// Cancelled when the connection must close.
    pub(super) closing: CancellationToken,
    pub(super) stopping: Pin<Box<WaitForCancellationFutureOwned>>,
}
