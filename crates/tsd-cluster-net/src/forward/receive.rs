//! Writes for other nodes.

use tokio::time::timeout;
use tsd_storage::{BoxFuture, Storage};

use super::{
    ForwardFrame, ForwardMessage, ForwardReceiver, ForwardReply, ForwardedMessage, ForwardedWrites,
    metrics::ForwardMetrics,
};

impl<S: Storage + ?Sized> ForwardedWrites<S> {
    /// Makes a write, if this node owns all of its slots.
    async fn write_for_peer(&self, message: ForwardMessage) -> ForwardedMessage {
        if message.generation > self.slots.view().generation() {
            // The sender knows more. A failure is one of HBase, of which the answer will tell.
            let _ = timeout(self.config.timeout, self.slots.refresh()).await;
        }
        let view = self.slots.view();
        let Some((table, mut write)) = message.into_write() else {
            let text = "a forwarded write that this version does not know";
            let error = tsd_storage::StorageError::Rejected(text.into());
            return ForwardedMessage::of(Err(error));
        };
        if !self.has_owners(&table) || !view.accepts(&write, &self.config.layout) {
            return ForwardedMessage::not_owner(view.generation());
        }
        // Their bytes are bounded by each sender. The budget of this node may be used up by writes that wait for the
        // sender, so they must not wait for it.
        write.set_admitted();
        let cells = write.cell_count();
        let made = self.execute(&view, &table, write).await;
        if made.is_ok() {
            ForwardMetrics::of_process().received_cells.increment(cells);
        }
        ForwardedMessage::of(made)
    }
}

impl<S: Storage + ?Sized> ForwardReceiver for ForwardedWrites<S> {
    fn receive(&self, message: ForwardFrame) -> BoxFuture<'_, ForwardReply> {
        Box::pin(async { ForwardReply(self.write_for_peer(message.0).await) })
    }
}
