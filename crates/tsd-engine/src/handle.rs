//! [`EngineHandle`]: the interface of the engine for front ends.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::join_all;
use tsd_files::{SnapshotError, SnapshotProgress, SnapshotReport, SnapshotRequest};
use tsd_meta::{Annotations, MetaObjects, Trees, UidError};
use tsd_model::{Tsuid, Uid, UidKind, encode_latin1_lossy};
use tsd_read::Reads;
use tsd_runtime::{LogOrigin, ThreadProbe};
use tsd_storage::{RetentionStatus, Storage, StorageError};

use crate::{
    client_stats::RegionClientStats,
    config::EngineConfig,
    engine_shared::EngineShared,
    health::{self, Problem, UidSpace},
    ingest::{IngestSession, NameText},
    retention::learn_metrics,
    stats::{self, EngineStats},
    uid::{Intent, UidAdmin},
    verification::{Verification, VerificationError},
    write_filter::WriteFilter,
    writer::WriteShard,
};

/// A running engine. Cheap to clone; its methods may be called from any thread and any runtime.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    shared: Arc<EngineShared>,
}

/// An [`EngineHandle`] that does not keep the engine running.
#[derive(Clone, Debug, Default)]
pub struct WeakEngineHandle(Weak<EngineShared>);

impl WeakEngineHandle {
    /// The handle; `None` after the engine has ended.
    #[must_use]
    pub fn upgrade(&self) -> Option<EngineHandle> {
        self.0.upgrade().map(|shared| EngineHandle { shared })
    }
}

impl EngineHandle {
    pub(crate) fn new(shared: EngineShared) -> Self {
        Self { shared: Arc::new(shared) }
    }

    pub(crate) const fn shared(&self) -> &Arc<EngineShared> {
        &self.shared
    }

    /// A handle that does not keep the engine running.
    #[must_use]
    pub fn downgrade(&self) -> WeakEngineHandle {
        WeakEngineHandle(Arc::downgrade(&self.shared))
    }

    /// The settings of the engine.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.shared.config
    }

    /// The storage.
    #[must_use]
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.shared.storage
    }

    /// Starts a session for the points of one connection or request.
    #[must_use]
    pub fn ingest_session(&self, text: NameText) -> IngestSession {
        IngestSession::new(Arc::clone(&self.shared.ingest), text)
    }

    /// Names and their UIDs.
    #[must_use]
    pub fn uids(&self) -> &UidAdmin {
        &self.shared.names.uids
    }

    /// Stored annotations.
    #[must_use]
    pub fn annotations(&self) -> &Annotations {
        &self.shared.objects.annotations
    }

    /// Stored TSMeta and UIDMeta.
    #[must_use]
    pub fn meta_objects(&self) -> &MetaObjects {
        &self.shared.objects.meta
    }

    /// Trees of series.
    #[must_use]
    pub fn trees(&self) -> &Trees {
        &self.shared.objects.trees
    }

    /// Queries and other reads.
    #[must_use]
    pub fn reads(&self) -> &Reads {
        &self.shared.reads
    }

    /// Places a series whose TSMeta was just created in the trees, if trees are built. Does not wait for it.
    pub fn series_created(&self, tsuid: &Tsuid) {
        if let Some(trees) = &self.shared.tracking.trees {
            trees.created(vec![Bytes::copy_from_slice(tsuid.as_bytes())]);
        }
    }

    /// Renames a UID. When it returns, all nodes of a cluster have forgotten the old name. Other daemons use the old
    /// name until their caches are dropped. Dropping the future does not stop the rename.
    ///
    /// # Errors
    ///
    /// [`UidError::NotForgotten`] if the UID was renamed, but a node has not answered.
    pub async fn rename_uid(&self, kind: UidKind, old: &str, new: &str) -> Result<(), UidError> {
        let (engine, old, new) = (self.clone(), old.to_owned(), new.to_owned());
        let renaming = async move { engine.rename_now(kind, &old, &new).await };
        tokio::spawn(LogOrigin::current().scope(renaming)).await.unwrap_or(Err(UidError::Lost))
    }

    async fn rename_now(&self, kind: UidKind, old: &str, new: &str) -> Result<(), UidError> {
        self.shared.names.uids.rename(kind, old, new, &self.shared.ingest.series).await?;
        if let (UidKind::Metric, Some(retention)) = (kind, &self.shared.config.retention) {
            // Another rule of the retention may apply to the new name.
            let uid = self.shared.names.uids.uid_of(kind, new).await?;
            retention.learn(uid.as_bytes(), &encode_latin1_lossy(new));
        }
        Ok(())
    }

    /// Deletes a name with its UIDMeta, and returns its UID. Its points stay, without a name. As with
    /// [`Self::rename_uid`], the nodes of a cluster have then forgotten the name, and dropping the future does not
    /// stop the delete.
    ///
    /// # Errors
    ///
    /// [`UidError::NotForgotten`] if the name was deleted, but a node has not answered.
    pub async fn delete_uid(&self, kind: UidKind, name: &str) -> Result<Uid, UidError> {
        let (engine, name) = (self.clone(), name.to_owned());
        let deleting = async move {
            let EngineShared { names, ingest, .. } = &*engine.shared;
            names.uids.delete(kind, &name, &ingest.series).await
        };
        tokio::spawn(LogOrigin::current().scope(deleting)).await.unwrap_or(Err(UidError::Lost))
    }

    /// Finishes interrupted changes of names, of this daemon and of others. Returns the changes that it finished.
    ///
    /// # Errors
    ///
    /// An error of the storage; [`UidError::NotForgotten`] if a node has not answered.
    pub async fn finish_name_changes(&self) -> Result<Vec<Intent>, UidError> {
        self.shared.names.uids.finish_changes(&self.shared.ingest.series).await
    }

    /// Removes names and UIDs from all caches, because another node has changed them in the store.
    pub fn forget_names(&self, kind: UidKind, names: &[Bytes], uids: &[Uid]) {
        self.shared.names.uids.resolver.caches.invalidate(kind, names, uids);
        self.shared.ingest.series.clear();
    }

    /// UIDs of names for another node, which has decided that they may be created. This node assigns UIDs to new
    /// names, whichever node owns them. `None` for a name that gets no UID.
    pub async fn assign_for_peer(&self, kind: UidKind, names: Vec<Bytes>) -> Vec<Option<Uid>> {
        self.shared.names.uids.resolver.assign_for_peer(kind, names).await
    }

    /// Tells the names of all metrics to the retention, if there is one. Until then metrics have the longest
    /// retention.
    ///
    /// # Errors
    ///
    /// An error of the storage.
    pub async fn learn_metrics(&self) -> Result<(), StorageError> {
        match &self.shared.config.retention {
            Some(retention) => learn_metrics(&self.shared, retention).await,
            None => Ok(()),
        }
    }

    /// Sets the filter for the points of all sessions. It applies to points that are put later.
    pub fn set_write_filter(&self, filter: Option<Arc<dyn WriteFilter>>) {
        self.shared.ingest.write_filter.set(filter);
        // The former filter allowed the cached series.
        self.shared.ingest.series.clear();
    }

    /// Clears the UID caches, the series cache and the query cache.
    pub fn drop_caches(&self) {
        self.shared.reads.drop_cache();
        self.shared.names.uids.resolver.caches.clear();
        self.shared.ingest.series.clear();
    }

    /// Statistics under OpenTSDB's names. Reads the numbers of UIDs in use from the storage.
    pub async fn stats(&self) -> EngineStats {
        stats::collect(&self.shared).await
    }

    /// Calls to each server of the storage; empty for a storage without servers.
    #[must_use]
    pub fn region_clients(&self) -> Vec<RegionClientStats> {
        stats::region_clients(&self.shared)
    }

    /// Gives each thread of the engine a task, to see which threads run their tasks.
    #[must_use]
    pub fn probe_threads(&self) -> Vec<ThreadProbe> {
        let actors = self.shared.threads.iter().map(|(name, thread)| thread.probe(name));
        actors.chain([self.shared.reads.probe_threads()]).collect()
    }

    /// Current problems of the store and the engine, as met by their own work. Reads nothing.
    #[must_use]
    pub fn health(&self) -> Vec<Problem> {
        health::problems(&self.shared)
    }

    /// State of the retention of the store; `None` if the store keeps everything.
    #[must_use]
    pub fn retention(&self) -> Option<RetentionStatus> {
        self.shared.config.retention.as_ref()?.status()
    }

    /// The UIDs of each kind of name, as last seen; empty before they are first read.
    #[must_use]
    pub fn uid_space(&self) -> Vec<UidSpace> {
        health::uid_space(&self.shared)
    }

    /// Reads the counters of UIDs, which other daemons advance too.
    pub async fn refresh_uid_space(&self) -> Result<(), StorageError> {
        for kind in UidKind::ALL {
            let used = self.shared.names.uids.table.used(kind).await?;
            self.shared.names.stats.saw(kind, used);
        }
        Ok(())
    }

    /// Takes a snapshot of the store, with every point that was acknowledged before the call. Points are accepted
    /// meanwhile. Dropping the future cancels it. `program` is the version of the program.
    ///
    /// # Errors
    ///
    /// Errors of [`SnapshotTarget`](tsd_files::SnapshotTarget) and of the store; [`SnapshotError::InProgress`] if
    /// another snapshot is in progress.
    pub async fn snapshot(
        &self,
        request: SnapshotRequest,
        program: &str,
    ) -> Result<SnapshotReport, SnapshotError> {
        let EngineShared { whole_store, storage, config, .. } = &*self.shared;
        whole_store.snapshot.snapshot(&**storage, config.schema, request, program).await
    }

    /// Progress of the present snapshot; `None` at other times.
    #[must_use]
    pub fn snapshot_progress(&self) -> Option<Arc<SnapshotProgress>> {
        self.shared.whole_store.snapshot.progress()
    }

    /// Starts a verification of the store, unless one is in progress. With `repairs`, it repairs all findings at its
    /// end. It leaves most of the processor and the disk to queries and writes.
    ///
    /// # Errors
    ///
    /// See [`VerificationError`].
    pub fn start_verification(&self, repairs: bool) -> Result<(), VerificationError> {
        let engine = Arc::downgrade(&self.shared);
        // Names may be lost.
        let repaired = move || {
            if let Some(shared) = engine.upgrade() {
                Self { shared }.drop_caches();
            }
        };
        self.shared.whole_store.verification.start_verification(
            &*self.shared.storage,
            repairs,
            repaired,
        )
    }

    /// The last verification; `None` before the first.
    #[must_use]
    pub fn verification(&self) -> Option<Arc<Verification>> {
        self.shared.whole_store.verification.last()
    }

    /// Stops the verification in progress, if there is one.
    pub async fn stop_verification(&self) {
        self.shared.whole_store.verification.stop().await;
    }

    /// Sets the gauges of queues, caches and the storage. Call it before a scrape.
    pub fn set_gauges(&self) {
        stats::set_gauges(&self.shared);
    }

    /// Waits until every fragmented row reported by a query, or taken by a round, is compacted.
    pub async fn compactions_idle(&self) {
        self.shared.compactors.idle().await;
    }

    /// Compacts every due row in the queues and waits for it.
    pub async fn flush_compactions(&self) {
        self.shared.compactors.flush().await;
    }

    /// Waits until all points accepted before are stored or have failed.
    pub async fn drain_writes(&self) {
        join_all(self.shared.ingest.shards.iter().map(WriteShard::drain)).await;
    }

    /// Waits until the meta data of all stored points is written and their series are placed in trees, or until either
    /// has failed.
    pub async fn drain_tracking(&self) {
        self.shared.tracking.drain().await;
    }

    /// Ends the retries of held points: points that the store does not accept fail. Called when the shutdown of a
    /// server starts, so that connections can end.
    pub fn end_holds(&self) {
        self.shared.ingest.hold.end();
    }

    /// Points that are held because the store does not accept them now.
    #[must_use]
    pub fn held_points(&self) -> u64 {
        self.shared.ingest.hold.held_points()
    }

    /// Rejects further points, stores the accepted ones, flushes the storage and stops the actors.
    /// Returns false if that failed or took longer than `limit`; the actors stop in any case.
    pub async fn shutdown(&self, limit: Duration) -> bool {
        self.shared.ingest.closed.store(true, Ordering::Release);
        self.stop_verification().await;
        self.end_holds();
        self.shared.ingest.admission.close();
        let work = async {
            self.drain_writes().await;
            self.drain_tracking().await;
            if self.shared.config.flush_on_shutdown {
                self.shared.storage.flush().await?;
            }
            Ok::<(), StorageError>(())
        };
        let done = match tokio::time::timeout(limit, work).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::error!(%error, "storage flush failed on shutdown");
                false
            }
            Err(_) => {
                tracing::error!("shutdown timed out while points were being written");
                false
            }
        };
        let given_up = self.shared.ingest.hold.given_up();
        if given_up > 0 {
            tracing::error!(points = given_up, "held points were not stored before the shutdown");
        }
        // A full channel means that the signal is set already.
        let _ = self.shared.stop.0.try_send(());
        done
    }
}
