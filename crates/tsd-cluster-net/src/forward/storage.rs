//! The decorated store: sends writes to the owners, and all other calls to the store below.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::Instant;
use tsd_cluster::{MemberState, SlotRoute};
use tsd_storage::{
    BytePermit, CellBatch, Epoch, HealthImpact, HealthProblem, Maintenance, ReadVersion, Receipt,
    RowRewrite, SeriesReads, Storage, StorageError, StorageFuture, StoreComponent, Table, Write,
    WriteResult, forward_storage,
};

use super::{
    ForwardedWrites,
    batch_shares::divide,
    metrics::{ForwardMetrics, RefusedReason},
    put_queue::{FRAME_BYTES, Forwarding},
    route_table::BatchRoutes,
    send::SentWrite,
    slots::SlotView,
    wire::OwnerVersion,
};

/// How long a rewrite of rows waits for the flushes of other nodes.
const FLUSH_LIMIT: Duration = Duration::from_secs(30);

impl<S: Storage + ?Sized> ForwardedWrites<S> {
    /// Executes a write whose slots this node takes by `view`, unless it is outdated. The log checks that again.
    pub(super) async fn execute(
        &self,
        _in_use: &SlotView,
        table: &Table,
        write: Write,
        permit: Option<&BytePermit>,
    ) -> Result<WriteResult, StorageError> {
        if let Some(receipt) = permit.and_then(BytePermit::receipt) {
            receipt.check()?;
        }
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

    /// Executes a write of this node, as [`Self::execute`].
    async fn execute_own(
        &self,
        view: &SlotView,
        table: &Table,
        write: Write,
        permit: Option<&BytePermit>,
    ) -> Result<WriteResult, StorageError> {
        let Write::Rewrite(rewrite) = write else {
            return self.execute(view, table, write, permit).await;
        };
        let this = self.slots.membership().this();
        let version = self.sender.versions().known_at(this, table, rewrite.read);
        self.rewrite(view, table, (rewrite, version), permit).await
    }

    /// Executes a rewrite of a row whose slot this node takes by `view`, if the node still has the version from before
    /// the rewrite was planned.
    pub(super) async fn rewrite(
        &self,
        view: &SlotView,
        table: &Table,
        (rewrite, version): (RowRewrite, Option<OwnerVersion>),
        permit: Option<&BytePermit>,
    ) -> Result<WriteResult, StorageError> {
        let version = version.filter(|version| version.gains == view.gains());
        let Some(OwnerVersion { log, .. }) = version else { return Err(StorageError::Changed) };
        // HBase executes the rewrite. The log has no record of it that a fence would reject.
        let proven = self.slots.membership().prove().await;
        proven.map_err(|error| StorageError::Unavailable(error.to_string().into()))?;
        let write = Write::Rewrite(RowRewrite { read: ReadVersion(log), ..rewrite });
        self.execute(view, table, write, permit).await
    }

    /// Returns the version of the rows that this node holds.
    pub(super) fn own_version(&self, view: &SlotView, table: &Table) -> OwnerVersion {
        OwnerVersion { gains: view.gains(), log: self.inner.read_version(table).0 }
    }

    /// Returns the routes of the rows of a batch.
    pub(super) fn routes_of(&self, view: &SlotView, batch: &CellBatch) -> BatchRoutes {
        view.routes().of_batch(batch, &self.config.rule, self.slots.loads())
    }

    /// The end of the time that a write waits for owners.
    fn deadline(&self, permit: Option<&BytePermit>) -> Instant {
        let receipt = permit.and_then(BytePermit::receipt);
        Instant::now() + receipt.map_or(self.config.timeout, Receipt::left)
    }

    async fn prove(&self) -> Result<(), StorageError> {
        let proven = self.slots.membership().prove_by_append().await;
        proven.map_err(|error| StorageError::Unavailable(error.to_string().into()))
    }

    /// Executes a write on the owners of its slots, within a deadline that counts from its last byte.
    async fn write_by_owners(
        &self,
        table: &Table,
        write: Write,
        permit: Option<&BytePermit>,
    ) -> Result<WriteResult, StorageError> {
        let receipt = permit.and_then(BytePermit::receipt);
        // The caller keeps the bytes of its own permit.
        let limited =
            receipt.map(|receipt| BytePermit::exempt(Some(receipt.within(self.config.timeout))));
        let permit = limited.as_ref().or(permit);
        let view = self.slots.view();
        if view.is_sole() {
            return self.execute_own(&view, table, write, permit).await;
        }
        let Some(batch) = write.batch() else {
            drop(view);
            return Box::pin(self.write_row(table, write, permit)).await;
        };
        let routes = self.routes_of(&view, batch);
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
        let deadline = self.deadline(permit);
        let Some(slot) = write.row().map(|key| self.config.rule.slot_of(key)) else {
            return Ok(WriteResult::Done);
        };
        let mut reason = String::new();
        loop {
            let view = self.slots.view();
            let (route, generation) = (view.route(slot), view.generation());
            if route == SlotRoute::Own {
                return self.execute_own(&view, table, write, permit).await;
            }
            // A release waits for the view, so it is not kept during a request to another node.
            drop(view);
            if let SlotRoute::Peer(to) = route {
                let forwarding =
                    Forwarding { generation, table, epoch: epoch_of(permit), deadline };
                match self.sender.send(to, forwarding, &write).await {
                    SentWrite::Ended(result) => return result,
                    SentWrite::NotMade(text) => reason = text,
                }
            }
            self.wait(generation, &reason, permit, deadline).await?;
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
        let deadline = self.deadline(permit);
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
            let forwarding = Forwarding { generation, table, epoch: epoch_of(permit), deadline };
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
            self.wait(generation, &reason, permit, deadline).await?;
            view = self.slots.view();
            routes = self.routes_of(&view, &again);
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

    /// Waits for a change of the assignment. Fails at the deadline, and when nobody waits for the write any more: its
    /// sender may have sent it to another node, and corrected it since.
    async fn wait(
        &self,
        generation: u64,
        reason: &str,
        permit: Option<&BytePermit>,
        deadline: Instant,
    ) -> Result<(), StorageError> {
        if Instant::now() < deadline {
            self.slots.await_change(generation, deadline).await;
            if permit.and_then(BytePermit::receipt).is_none_or(Receipt::is_awaited) {
                return Ok(());
            }
            ForwardMetrics::of_process().refused(RefusedReason::Abandoned);
            let text =
                format!("the sender of the write is gone, and no node has made it: {reason}");
            return Err(StorageError::Unavailable(text.into()));
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

/// The epoch in which this node received a write.
fn epoch_of(permit: Option<&BytePermit>) -> Option<&Epoch> {
    permit.and_then(BytePermit::receipt).and_then(Receipt::epoch)
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

    fn flush(&self) -> StorageFuture<'_, ()> {
        self.inner.flush()
    }

    fn flush_all_nodes(&self) -> StorageFuture<'_, ()> {
        Box::pin(async {
            let others = self.sender.peers().flush_others(FLUSH_LIMIT);
            let (own, others) = tokio::join!(self.inner.flush(), others);
            own?;
            others.map_err(|error| StorageError::Unavailable(error.into()))
        })
    }

    fn may_be_held_elsewhere(&self) -> bool {
        let peers = self.sender.peers();
        let this = peers.membership().this();
        let others = peers.membership().members().into_iter();
        others
            .filter(|member| member.incarnation != this)
            .any(|member| member.state != MemberState::Left)
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

    fn read_version(&self, table: &Table) -> ReadVersion {
        if !self.has_owners(table) {
            return self.inner.read_version(table);
        }
        let this = self.slots.membership().this();
        let version = self.own_version(&self.slots.view(), table);
        self.sender.versions().learn(this, table, version, |of| self.sender.is_member(of))
    }

    forward_storage!(inner: get, multi_get, scan, table_exists);
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
            // The assignment is the same for all nodes.
            HealthProblem::new(StoreComponent::Commit, HealthImpact::WritesRejected, reason)
                .common_if(true)
        });
        self.inner.maintenance().health().into_iter().chain(draining).chain(unsettled).collect()
    }
}
