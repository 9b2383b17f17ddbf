//! The decorated store: sends writes to the owners, and all other calls to the store below.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::Instant;
use tsd_cluster::SlotRoute;
use tsd_storage::{
    CellBatch, Column, Delete, HealthImpact, HealthProblem, RowRewrite, Storage, StorageError,
    StorageFuture, StoreComponent, Table, forward_storage,
};

use super::{
    ForwardedWrites,
    metrics::ForwardMetrics,
    put_queue::FRAME_BYTES,
    route_table::BatchRoutes,
    send::SentWrite,
    slot_write::{SlotWrite, SlotWriteResult, divide},
    slots::SlotView,
};

impl<S: Storage + ?Sized> ForwardedWrites<S> {
    /// Executes a write whose slots this node takes by `view`.
    pub(super) async fn execute(
        &self,
        _in_use: &SlotView,
        table: &Table,
        write: SlotWrite,
    ) -> Result<SlotWriteResult, StorageError> {
        if !write.is_conditional() {
            return write.execute(&*self.inner, table).await;
        }
        // HBase may decide the write, and its rows have no fence. The proof makes sure that a fenced node
        // acknowledges nothing.
        self.prove().await?;
        let result = write.execute(&*self.inner, table).await?;
        self.prove().await?;
        Ok(result)
    }

    async fn prove(&self) -> Result<(), StorageError> {
        let proven = self.slots.membership().prove().await;
        proven.map_err(|error| StorageError::Unavailable(error.to_string().into()))
    }

    /// Executes a write on the owners of its slots.
    async fn write(
        &self,
        table: &Table,
        write: SlotWrite,
    ) -> Result<SlotWriteResult, StorageError> {
        let view = self.slots.view();
        if view.is_sole() {
            return self.execute(&view, table, write).await;
        }
        let Some(batch) = write.batch() else {
            drop(view);
            return Box::pin(self.write_row(table, write)).await;
        };
        let routes = view.routes().of_batch(batch, &self.config.layout);
        if routes.are_own() {
            return self.execute(&view, table, write).await;
        }
        Box::pin(self.write_batch(table, write, (view, routes))).await?;
        Ok(SlotWriteResult::Done)
    }

    /// Executes a write of one row.
    async fn write_row(
        &self,
        table: &Table,
        write: SlotWrite,
    ) -> Result<SlotWriteResult, StorageError> {
        let deadline = Instant::now() + self.config.timeout;
        let Some(slot) = write.row().map(|key| self.config.layout.slot_of(key)) else {
            return Ok(SlotWriteResult::Done);
        };
        let mut reason = String::new();
        loop {
            let view = self.slots.view();
            let (route, generation) = (view.route(slot), view.generation());
            if route == SlotRoute::Own {
                return self.execute(&view, table, write).await;
            }
            // A release waits for the view, so it is not kept during a request to another node.
            drop(view);
            if let SlotRoute::Peer(to) = route {
                match self.sender.send(to, generation, table, &write, deadline).await {
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
        write: SlotWrite,
        (mut view, mut routes): (Arc<SlotView>, BatchRoutes),
    ) -> Result<(), StorageError> {
        let deadline = Instant::now() + self.config.timeout;
        let is_admitted = write.batch().is_some_and(CellBatch::is_admitted);
        let kind = write.with_batch(CellBatch::new());
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
            let kind = &kind;
            let written_here = async move {
                for mut batch in own {
                    if is_admitted {
                        batch.set_admitted();
                    }
                    self.execute(&view, table, kind.with_batch(batch)).await?;
                }
                Ok::<_, StorageError>(())
            };
            let send =
                |(to, batches)| self.send_batches(to, generation, table, kind, batches, deadline);
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
            left = kind.with_batch(again);
        }
    }

    /// Sends batches to one owner, in their order. Returns the batches that were not written.
    async fn send_batches(
        &self,
        to: u64,
        generation: u64,
        table: &Table,
        kind: &SlotWrite,
        mut batches: VecDeque<CellBatch>,
        deadline: Instant,
    ) -> Result<UnwrittenShare, StorageError> {
        while let Some(batch) = batches.pop_front() {
            let write = kind.with_batch(batch);
            match self.sender.send(to, generation, table, &write, deadline).await {
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
    fn put<'a>(&'a self, table: &'a Table, batch: CellBatch) -> StorageFuture<'a, ()> {
        if !self.has_owners(table) {
            return self.inner.put(table, batch);
        }
        Box::pin(async move { self.write(table, SlotWrite::Put(batch)).await.map(|_| ()) })
    }

    fn append<'a>(&'a self, table: &'a Table, batch: CellBatch) -> StorageFuture<'a, ()> {
        if !self.has_owners(table) {
            return self.inner.append(table, batch);
        }
        Box::pin(async move { self.write(table, SlotWrite::Append(batch)).await.map(|_| ()) })
    }

    fn increment<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        amount: i64,
    ) -> StorageFuture<'a, i64> {
        if !self.has_owners(table) {
            return self.inner.increment(table, column, amount);
        }
        Box::pin(async move {
            let write = SlotWrite::Increment { column, amount };
            Ok(self.write(table, write).await?.sum())
        })
    }

    fn compare_and_set<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Option<Bytes>,
        value: Bytes,
    ) -> StorageFuture<'a, bool> {
        if !self.has_owners(table) {
            return self.inner.compare_and_set(table, column, expected, value);
        }
        Box::pin(async move {
            let new = Some(value);
            let write = SlotWrite::Swap { column, expected, new, timestamp_ms: None };
            Ok(self.write(table, write).await?.swapped())
        })
    }

    fn compare_and_set_at<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Option<Bytes>,
        value: Bytes,
        timestamp_ms: i64,
    ) -> StorageFuture<'a, bool> {
        if !self.has_owners(table) {
            return self.inner.compare_and_set_at(table, column, expected, value, timestamp_ms);
        }
        Box::pin(async move {
            let (new, timestamp_ms) = (Some(value), Some(timestamp_ms));
            let write = SlotWrite::Swap { column, expected, new, timestamp_ms };
            Ok(self.write(table, write).await?.swapped())
        })
    }

    fn compare_and_delete<'a>(
        &'a self,
        table: &'a Table,
        column: Column,
        expected: Bytes,
    ) -> StorageFuture<'a, bool> {
        if !self.has_owners(table) {
            return self.inner.compare_and_delete(table, column, expected);
        }
        Box::pin(async move {
            let expected = Some(expected);
            let write = SlotWrite::Swap { column, expected, new: None, timestamp_ms: None };
            Ok(self.write(table, write).await?.swapped())
        })
    }

    fn delete<'a>(&'a self, table: &'a Table, delete: Delete) -> StorageFuture<'a, ()> {
        if !self.has_owners(table) {
            return self.inner.delete(table, delete);
        }
        Box::pin(async move { self.write(table, SlotWrite::Delete(delete)).await.map(|_| ()) })
    }

    fn rewrite_row<'a>(&'a self, table: &'a Table, rewrite: RowRewrite) -> StorageFuture<'a, ()> {
        if !self.has_owners(table) {
            return self.inner.rewrite_row(table, rewrite);
        }
        // The owner of the row compacts it, although this node has read it.
        Box::pin(async move { self.write(table, SlotWrite::Rewrite(rewrite)).await.map(|_| ()) })
    }

    fn close(&self) -> StorageFuture<'_, ()> {
        self.slots.stop();
        self.inner.close()
    }

    fn health(&self) -> Vec<HealthProblem> {
        let draining = self.slots.is_draining().then_some("draining");
        let draining = draining.map(|reason| {
            HealthProblem::new(StoreComponent::Commit, HealthImpact::Unavailable, reason)
        });
        let unsettled = self.slots.unsettled().map(|reason| {
            HealthProblem::new(StoreComponent::Commit, HealthImpact::WritesRejected, reason)
        });
        self.inner.health().into_iter().chain(draining).chain(unsettled).collect()
    }

    forward_storage!(
        inner: get, multi_get, scan, read_series, series_version, series_splits, read_version,
        table_exists, flush, quarantine, verifier, pin_files, series_index, refresh_series_index,
        compacts_rows, gauges,
    );
}
