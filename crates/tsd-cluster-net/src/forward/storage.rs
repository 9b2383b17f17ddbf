//! The decorated store: writes to the owners, all else to the store below.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::Instant;
use tsd_cluster::SlotRoute;
use tsd_storage::{
    CellBatch, Column, Delete, HealthImpact, HealthProblem, RowRewrite, Storage, StorageError,
    StorageFuture, StorePart, Table, forward_storage,
};

use super::{
    FRAME_BYTES, ForwardedWrites,
    metrics::ForwardMetrics,
    send::SentWrite,
    slot_write::{SlotWrite, SlotWriteResult, divide},
    slots::SlotView,
};

impl<S: Storage + ?Sized> ForwardedWrites<S> {
    /// Makes a write here, whose slots this node takes by `view`.
    pub(super) async fn execute(
        &self,
        _in_use: &SlotView,
        table: &Table,
        write: SlotWrite,
    ) -> Result<SlotWriteResult, StorageError> {
        if !write.is_conditional() {
            return write.execute(&*self.inner, table).await;
        }
        // HBase may decide it, whose rows have no fence: so a node that was fenced meanwhile acknowledges nothing.
        self.prove().await?;
        let result = write.execute(&*self.inner, table).await?;
        self.prove().await?;
        Ok(result)
    }

    async fn prove(&self) -> Result<(), StorageError> {
        let proven = self.slots.membership().prove().await;
        proven.map_err(|error| StorageError::Unavailable(error.to_string().into()))
    }

    /// Makes a write, wherever its slots are.
    async fn write(
        &self,
        table: &Table,
        write: SlotWrite,
    ) -> Result<SlotWriteResult, StorageError> {
        let view = self.slots.view();
        if view.is_sole() || view.accepts(&write.slots(&self.config.layout)) {
            return self.execute(&view, table, write).await;
        }
        drop(view);
        let deadline = Instant::now() + self.config.timeout;
        if write.batch().is_some() {
            Box::pin(self.write_batch(table, write, deadline)).await?;
            Ok(SlotWriteResult::Done)
        } else {
            Box::pin(self.write_row(table, write, deadline)).await
        }
    }

    /// Makes a write of one row.
    async fn write_row(
        &self,
        table: &Table,
        write: SlotWrite,
        deadline: Instant,
    ) -> Result<SlotWriteResult, StorageError> {
        let Some(slot) = write.slots(&self.config.layout).iter().next() else {
            return Ok(SlotWriteResult::Done);
        };
        let mut reason = String::new();
        loop {
            let view = self.slots.view();
            let (route, generation) = (view.route(slot), view.generation());
            if route == SlotRoute::Own {
                return self.execute(&view, table, write).await;
            }
            // Not kept while another node is asked: a release waits for it.
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

    /// Makes a write of many rows: parts for several owners at once.
    async fn write_batch(
        &self,
        table: &Table,
        write: SlotWrite,
        deadline: Instant,
    ) -> Result<(), StorageError> {
        let is_admitted = write.batch().is_some_and(CellBatch::is_admitted);
        let kind = write.with_batch(CellBatch::new());
        let mut left = write;
        let mut reason = String::new();
        loop {
            let view = self.slots.view();
            let generation = view.generation();
            let Some(batch) = left.batch() else { return Ok(()) };
            let routes = |slot| RoutePart::of(view.route(slot));
            let mut parts = divide(batch, &self.config.layout, FRAME_BYTES, routes)?;
            let own = parts.remove(&RoutePart::Own).unwrap_or_default();
            let mut again = CellBatch::new();
            for batch in parts.remove(&RoutePart::Unsettled).into_iter().flatten() {
                again.extend(&batch);
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
            let send = |(route, batches)| async move {
                let RoutePart::Peer(to) = route else { return Ok(NotMadePart::default()) };
                self.send_batches(to, generation, table, kind, batches, deadline).await
            };
            let sent = join_all(parts.into_iter().map(send));
            let (written, sent) = tokio::join!(written_here, sent);
            written?;
            for part in sent {
                let NotMadePart { batch, reason: text } = part?;
                if !batch.is_empty() {
                    again.extend(&batch);
                    reason = text;
                }
            }
            if again.is_empty() {
                return Ok(());
            }
            left = kind.with_batch(again);
            self.wait(generation, &reason, deadline).await?;
        }
    }

    /// Sends batches to one owner, in their order. Returns what it did not write.
    async fn send_batches(
        &self,
        to: u64,
        generation: u64,
        table: &Table,
        kind: &SlotWrite,
        mut batches: VecDeque<CellBatch>,
        deadline: Instant,
    ) -> Result<NotMadePart, StorageError> {
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
                    return Ok(NotMadePart { batch, reason });
                }
            }
        }
        Ok(NotMadePart::default())
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

/// Where a part of a batch goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RoutePart {
    Own,
    Unsettled,
    Peer(u64),
}

impl RoutePart {
    const fn of(route: SlotRoute) -> Self {
        match route {
            SlotRoute::Own => Self::Own,
            SlotRoute::Unsettled => Self::Unsettled,
            SlotRoute::Peer(to) => Self::Peer(to),
        }
    }
}

/// Cells of a part that were not written, and why.
#[derive(Default)]
struct NotMadePart {
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
        // Also a row that this node has read: its owner compacts it.
        Box::pin(async move { self.write(table, SlotWrite::Rewrite(rewrite)).await.map(|_| ()) })
    }

    fn close(&self) -> StorageFuture<'_, ()> {
        self.slots.stop();
        self.inner.close()
    }

    fn health(&self) -> Vec<HealthProblem> {
        let draining = self.slots.is_draining().then_some("draining");
        let draining = draining
            .map(|reason| HealthProblem::new(StorePart::Commit, HealthImpact::Unavailable, reason));
        let unsettled = self.slots.unsettled().map(|reason| {
            HealthProblem::new(StorePart::Commit, HealthImpact::WritesRejected, reason)
        });
        self.inner.health().into_iter().chain(draining).chain(unsettled).collect()
    }

    forward_storage!(
        inner: get, multi_get, scan, read_series, series_version, series_splits, read_version,
        table_exists, flush, quarantine, verifier, pin_files, series_index, refresh_series_index,
        compacts_rows, gauges,
    );
}
