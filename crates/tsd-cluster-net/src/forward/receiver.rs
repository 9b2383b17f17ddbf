//! Takes the writes that other nodes forward.

use tsd_storage::{BoxFuture, Epoch};

use super::wire::{ForwardMessage, ForwardedMessage};

/// Takes the writes that other nodes forward.
pub trait ForwardReceiver: std::fmt::Debug + Send + Sync + 'static {
    /// Makes a write, if this node owns its slots.
    fn receive(&self, frame: ForwardFrame) -> BoxFuture<'_, ForwardReply>;
}

/// A frame with a write.
#[derive(Debug)]
pub struct ForwardFrame {
    pub(crate) message: ForwardMessage,
    /// The epoch of its connection; `None` if standstills are not detected.
    pub(crate) epoch: Option<Epoch>,
}

/// Outcome of a forwarded write.
#[derive(Debug)]
pub struct ForwardReply(pub(crate) ForwardedMessage);
