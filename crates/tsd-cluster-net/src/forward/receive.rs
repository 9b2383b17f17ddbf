//! Executes writes that other nodes forward.

use tokio::time::timeout;
use tsd_cluster::SlotRoute;
use tsd_storage::{BoxFuture, BytePermit, Receipt, Storage, StorageError, Write};

use super::{
    ForwardedWrites,
    receiver::{ForwardFrame, ForwardReceiver, ForwardReply},
    slots::SlotView,
    wire::ForwardedMessage,
};

impl<S: Storage + ?Sized> ForwardedWrites<S> {
    /// Makes a write, if this node owns all of its slots and the frame is not void.
    async fn write_for_peer(&self, frame: ForwardFrame) -> ForwardedMessage {
        let ForwardFrame { message, epoch } = frame;
        if message.generation > self.slots.view().generation() {
            // The sender has a newer assignment. If HBase fails, the response reports it.
            let _ = timeout(self.config.timeout, self.slots.refresh()).await;
        }
        let view = self.slots.view();
        let receipt = Receipt::until(epoch, message.void_after_ms);
        let version = message.version;
        let Some((table, write)) = message.into_write() else {
            let text = "a forwarded write that this version does not know";
            let error = StorageError::Rejected(text.into());
            return ForwardedMessage::of(Err(error));
        };
        if !self.has_owners(&table) || !self.accepts(&view, &write) {
            return ForwardedMessage::not_owner(view.generation());
        }
        // Each sender bounds the bytes of its writes. They bypass this node's byte budget: writes that wait for the
        // sender may have used it up.
        let permit = BytePermit::exempt(Some(receipt));
        let Write::Rewrite(rewrite) = write else {
            return ForwardedMessage::of(self.execute(&view, &table, write, Some(&permit)).await);
        };
        let rewritten = self.rewrite(&view, &table, (rewrite, version), Some(&permit)).await;
        ForwardedMessage::of(rewritten).with_version(self.own_version(&view, &table))
    }
}

impl<S: Storage + ?Sized> ForwardedWrites<S> {
    /// True if this node takes all slots of the write.
    fn accepts(&self, view: &SlotView, write: &Write) -> bool {
        if view.is_sole() {
            return true;
        }
        match (write.batch(), write.row()) {
            (Some(batch), _) => self.routes_of(view, batch).are_own(),
            (None, Some(key)) => view.route(self.config.rule.slot_of(key)) == SlotRoute::Own,
            (None, None) => true,
        }
    }
}

impl<S: Storage + ?Sized> ForwardReceiver for ForwardedWrites<S> {
    fn receive(&self, frame: ForwardFrame) -> BoxFuture<'_, ForwardReply> {
        Box::pin(async { ForwardReply(self.write_for_peer(frame).await) })
    }
}
