//! Executes writes that other nodes forward.

use tokio::time::timeout;
use tsd_storage::{BoxFuture, BytePermit, Storage};

use super::{
    ForwardedWrites,
    receiver::{ForwardFrame, ForwardReceiver, ForwardReply},
    wire::{ForwardMessage, ForwardedMessage},
};

impl<S: Storage + ?Sized> ForwardedWrites<S> {
    /// Makes a write, if this node owns all of its slots.
    async fn write_for_peer(&self, message: ForwardMessage) -> ForwardedMessage {
        if message.generation > self.slots.view().generation() {
            // The sender has a newer assignment. If HBase fails, the response reports it.
            let _ = timeout(self.config.timeout, self.slots.refresh()).await;
        }
        let view = self.slots.view();
        let Some((table, write)) = message.into_write() else {
            let text = "a forwarded write that this version does not know";
            let error = tsd_storage::StorageError::Rejected(text.into());
            return ForwardedMessage::of(Err(error));
        };
        if !self.has_owners(&table) || !view.accepts(&write, &self.config.layout) {
            return ForwardedMessage::not_owner(view.generation());
        }
        // Each sender bounds the bytes of its writes. They bypass this node's byte budget: writes that wait for the
        // sender may have used it up.
        let permit = BytePermit::exempt();
        ForwardedMessage::of(self.execute(&view, &table, write, Some(&permit)).await)
    }
}

impl<S: Storage + ?Sized> ForwardReceiver for ForwardedWrites<S> {
    fn receive(&self, message: ForwardFrame) -> BoxFuture<'_, ForwardReply> {
        Box::pin(async { ForwardReply(self.write_for_peer(message.0).await) })
    }
}
