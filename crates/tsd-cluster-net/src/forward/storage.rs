//! The decorated store: sends writes to the owners, and all other calls to the store below.

use std::{collections::VecDeque, sync::Arc};

use futures_util::future::join_all;
use tokio::time::Instant;
use tsd_cluster::SlotRoute;
use tsd_storage::{
    BytePermit, CellBatch, HealthImpact, HealthProblem, Maintenance, SeriesReads, Storage,
    StorageError, StorageFuture, StoreComponent, Table, Write, WriteResult, forward_storage,
};

use super::{
    ForwardedWrites,
    batch_shares::divide,
    metrics::ForwardMetrics,
    put_queue::{FRAME_BYTES, Forwarding},
    route_table::BatchRoutes,
    send::SentWrite,
    slots::SlotView,
};

impl<S: Storage + ?Sized> ForwardedWrites<S> {
    /// Executes a write whose slots this node takes by `view`.
    pub(super) async fn execute(
        &self,
        _in_use: &SlotView,
        table: &Table,
        write: Write,
        permit: Option<&BytePermit>,
    ) -> Result<WriteResult, StorageError> {
        if !write.is_conditional() {
            return self.inner.write(table, write, permit).await;
        }
        // HBase may decide the write, and its rows have no fence. The proof makes sure that a fenced node
        // acknowledges nothing.
        self.prove().await?;
        let result = self.inner.write(table, write, permit).await?;
        self.prove().await?;
        Ok(result)
    }

    async fn prove(&self) -> Result<(), StorageError> {
        let proven = self.slots.membership().prove().await;
        proven.map_err(|error| StorageError::Unavailable(error.to_string().into()))
    }

    /// Executes a write on the owners of its slots.
    async fn write_by_owners(
        &self,
        table: &Table,
        write: Write,
        permit: Option<&BytePermit>,
    ) -> Result<WriteResult, StorageError> {
        let view = self.slots.view();
        if view.is_sole() {
            return self.execute(&view, table, write, permit).await;
        }
        let Some(batch) = write.batch() else {
            drop(view);
            return Box::pin(self.write_row(table, write, permit)).await;
        };
        let routes = view.routes().of_batch(batch, &self.config.layout);
        if routes.are_own() {
            return self.execute(&view, table, write, permit).await;
        }
        Box::pin(self.write_batch(table, write, permit, (view, routes))).await?;
        Ok(WriteResult::Done)
    }

    /// Executes a write of one row.
    async fn write_row(
        &self,
        table: &Table,
        write: Write,
        permit: Option<&BytePermit>,
    ) -> Result<WriteResult, StorageError> {
        let deadline = Instant::now() + self.config.timeout;
        let Some(slot) = write.row().map(|key| self.config.layout.slot_of(key)) else {
            return Ok(WriteResult::Done);
        };
        let mut reason = String::new();
        loop {
            let view = self.slots.view();
            let (route, generation) = (view.route(slot), view.generation());
            if route == SlotRoute::Own {
                return self.execute(&view, table, write, permit).await;
            }
            // A release waits for the view, so it is not kept during a request to another node.
            drop(view);
            if let SlotRoute::Peer(to) = route {
                let forwarding = Forwarding { generation, table, deadline };
                match self.sender.send(to, forwarding, &write).await {
                    SentWrite::Ended(result) => return result,
                    SentWrite::NotMade(text) => reason = text,
                }
            }
            self.wait(generation, &reason, deadline).await?;
        }
    }

    /// Executes a write of several rows, on several owners at once. The first routes come from the view.
    async fn write_batch(
        &self,
        table: &Table,
        write: Write,
        permit: Option<&BytePermit>,
        (mut view, mut routes): (Arc<SlotView>, BatchRoutes),
    ) -> Result<(), StorageError> {
        let deadline = Instant::now() + self.config.timeout;
        let kind: fn(CellBatch) -> Write =
            if matches!(write, Write::Append(_)) { Write::Append } else { Write::Put };
        let mut left = write;
        let mut reason = String::new();
        loop {
            let generation = view.generation();
            let Some(batch) = left.batch() else { return Ok(()) };
            let shares = divide(batch, &routes, FRAME_BYTES)?;
            let (mut own, mut to_peers) = (VecDeque::new(), Vec::new());
            let mut again = CellBatch::new();
            for (route, batches) in view.routes().all().iter().zip(shares) {
                match route {
                    SlotRoute::Own => own = batches,
                    SlotRoute::Peer(to) if !batches.is_empty() => to_peers.push((*to, batches)),
                    SlotRoute::Peer(_) => {}
                    SlotRoute::Unsettled => batches.iter().for_each(|batch| again.extend(batch)),
                }
            }
            let written_here = async move {
                for batch in own {
                    self.execute(&view, table, kind(batch), permit).await?;
                }
                Ok::<_, StorageError>(())
            };
            let forwarding = Forwarding { generation, table, deadline };
            let send = |(to, batches)| self.send_batches(to, forwarding, kind, batches);
            let sent = join_all(to_peers.into_iter().map(send));
            let (written, sent) = tokio::join!(written_here, sent);
            written?;
            for unwritten in sent {
                let UnwrittenShare { batch, reason: text } = unwritten?;
                if !batch.is_empty() {
                    again.extend(&batch);
                    reason = text;
                }
            }
            if again.is_empty() {
                return Ok(());
            }
            self.wait(generation, &reason, deadline).await?;
            view = self.slots.view();
            routes = view.routes().of_batch(&again, &self.config.layout);
            left = kind(again);
        }
    }

    /// Sends batches to one owner, in their order. Returns the batches that were not written.
    async fn send_batches(
        &self,
        to: u64,
        forwarding: Forwarding<'_>,
        kind: fn(CellBatch) -> Write,
        mut batches: VecDeque<CellBatch>,
    ) -> Result<UnwrittenShare, StorageError> {
        while let Some(batch) = batches.pop_front() {
            let write = kind(batch);
            match self.sender.send(to, forwarding, &write).await {
                SentWrite::Ended(result) => {
                    result?;
                }
                SentWrite::NotMade(reason) => {
                    let mut batch = CellBatch::new();
                    for left in write.batch().into_iter().chain(&batches) {
                        batch.extend(left);
                    }
                    return Ok(UnwrittenShare { batch, reason });
                }
            }
        }
        Ok(UnwrittenShare::default())
    }

    /// Waits for a change of the assignment.
    async fn wait(
        &self,
        generation: u64,
        reason: &str,
        deadline: Instant,
    ) -> Result<(), StorageError> {
        if Instant::now() < deadline {
            self.slots.await_change(generation, deadline).await;
            return Ok(());
        }
        ForwardMetrics::of_process().failed.increment(1);
        let problem = self.slots.problem();
        let reason = match (reason, &problem) {
            ("", Some(problem)) => problem,
            ("", None) => "it is being moved",
            (reason, _) => reason,
        };
        Err(StorageError::Unavailable(format!("no node takes writes of the slot: {reason}").into()))
    }
}

/// Cells that an owner did not write, and the reason.
#[derive(Default)]
struct UnwrittenShare {
    batch: CellBatch,
    reason: String,
}

impl<S: Storage + ?Sized> Storage for ForwardedWrites<S> {
    // The owner of a row also compacts it, although this node has read it.
    fn write<'a>(
        &'a self,
        table: &'a Table,
        write: Write,
        permit: Option<&'a BytePermit>,
    ) -> StorageFuture<'a, WriteResult> {
        if !self.has_owners(table) {
            return self.inner.write(table, write, permit);
        }
        Box::pin(self.write_by_owners(table, write, permit))
    }

    fn close(&self) -> StorageFuture<'_, ()> {
        self.slots.stop();
        self.inner.close()
    }

    fn series(&self) -> &dyn SeriesReads {
        self.inner.series()
    }

    fn maintenance(&self) -> &dyn Maintenance {
        self
    }

    forward_storage!(inner: get, multi_get, scan, read_version, table_exists, flush);
}

impl<S: Storage + ?Sized> Maintenance for ForwardedWrites<S> {
    fn below(&self) -> Option<&dyn Maintenance> {
        Some(self.inner.maintenance())
    }

    fn health(&self) -> Vec<HealthProblem> {
        let draining = self.slots.is_draining().then_some("draining");
        let draining = draining.map(|reason| {
            HealthProblem::new(StoreComponent::Commit, HealthImpact::Unavailable, reason)
        });
        let unsettled = self.slots.unsettled().map(|reason| {
            HealthProblem::new(StoreComponent::Commit, HealthImpact::WritesRejected, reason)
        });
        self.inner.maintenance().health().into_iter().chain(draining).chain(unsettled).collect()
    }
}
