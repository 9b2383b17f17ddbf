//! What the front ends hold of the engine.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use tsd_model::{Annotation, Tsuid, TsuidError, Uid, UidKind};
use tsd_query::{ExpQuery, ExpResult, GexpQuery, Query};
use tsd_storage::{Storage, StorageError};

use crate::{
    actor::ActorRef,
    annotations::{AnnotationEdit, AnnotationError, Annotations, EditOutcome},
    compaction::{CompactionMessage, CompactionStats, QueueTotals, RowCompactor},
    config::EngineConfig,
    engine::StopSignal,
    ingest::{IngestSession, IngestShared, NameText},
    meta_tracking::TrackerMessage,
    query::{
        ExplainedSubQuery, GexpResult, QueryContext, QueryControl, QueryEngine, QueryFailure,
        QueryGuard, QueryId, QueryList, QueryResult, QueryRunner,
    },
    stats::{self, Stat},
    uid::{AssignerStats, UidAdmin, UidError},
    writer::WriteMessage,
};

/// A running engine. Cheap to clone; its methods may be called from any thread and any runtime.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    inner: Arc<Inner>,
}

/// What the handles share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: EngineConfig,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) ingest: Arc<IngestShared>,
    pub(crate) uids: UidAdmin,
    pub(crate) annotations: Annotations,
    pub(crate) uid_stats: Arc<AssignerStats>,
    pub(crate) queries: QueryRunner,
    pub(crate) compactors: Vec<ActorRef<RowCompactor>>,
    pub(crate) compaction_stats: Arc<CompactionStats>,
    pub(crate) queue_totals: Arc<QueueTotals>,
    pub(crate) stop: StopSignal,
}

impl EngineHandle {
    pub(crate) fn new(inner: Inner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    pub(crate) const fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// The settings it was started with.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.inner.config
    }

    /// The store below.
    #[must_use]
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.inner.storage
    }

    /// A session for the points of one connection or one request.
    #[must_use]
    pub fn ingest_session(&self, text: NameText) -> IngestSession {
        IngestSession::new(Arc::clone(&self.inner.ingest), text)
    }

    /// UID of a name.
    pub async fn uid_of(&self, kind: UidKind, name: &str) -> Result<Uid, UidError> {
        self.inner.uids.uid_of(kind, name).await
    }

    /// UIDs of names, in one read where the caches lack them.
    pub async fn uids_of(
        &self,
        kind: UidKind,
        names: &[String],
    ) -> Vec<Result<Option<Uid>, UidError>> {
        self.inner.uids.uids_of(kind, names).await
    }

    /// Name of a UID.
    pub async fn name_of(&self, kind: UidKind, uid: Uid) -> Result<String, UidError> {
        self.inner.uids.name_of(kind, uid).await
    }

    /// Names of UIDs, in one read where the caches lack them.
    pub async fn names_of(
        &self,
        kind: UidKind,
        uids: &[Uid],
    ) -> Result<Vec<Option<String>>, UidError> {
        self.inner.uids.names_of(kind, uids).await
    }

    /// Names that begin with `prefix`, in byte order, at most `max`.
    pub async fn suggest(
        &self,
        kind: UidKind,
        prefix: &str,
        max: usize,
    ) -> Result<Vec<String>, UidError> {
        self.inner.uids.suggest(kind, prefix, max).await
    }

    /// Gives a new name a UID, whether points may create such names or not. A name that has one is
    /// [`UidError::NameTaken`].
    pub async fn assign(&self, kind: UidKind, name: &str) -> Result<Uid, UidError> {
        self.inner.uids.assign(kind, name).await
    }

    /// Gives a UID another name. Other daemons keep the old one until their caches are dropped.
    pub async fn rename_uid(&self, kind: UidKind, old: &str, new: &str) -> Result<(), UidError> {
        self.inner.uids.rename(kind, old, new, &self.inner.ingest.series).await
    }

    /// Takes a name out of the UID table. Rows of its series stay.
    pub async fn delete_uid(&self, kind: UidKind, name: &str) -> Result<(), UidError> {
        self.inner.uids.delete(kind, name, &self.inner.ingest.series).await
    }

    /// Reads the hexadecimal text of a series' identity.
    pub fn parse_tsuid(&self, text: &str) -> Result<Tsuid, TsuidError> {
        Tsuid::parse_hex(&self.inner.config.schema, text)
    }

    /// A note of a series, or a global one, by its start time.
    pub async fn annotation(
        &self,
        tsuid: Option<&Tsuid>,
        start_time: i64,
    ) -> Result<Option<Annotation>, AnnotationError> {
        self.inner.annotations.get(tsuid, start_time).await
    }

    /// Writes a note: merges the fields that are set into the stored one, or with `replace` drops
    /// all others.
    pub async fn edit_annotation(
        &self,
        edit: AnnotationEdit,
        replace: bool,
    ) -> Result<EditOutcome, AnnotationError> {
        self.inner.annotations.edit(edit, replace).await
    }

    /// Deletes a note. That there is none is no error.
    pub async fn delete_annotation(
        &self,
        tsuid: Option<&Tsuid>,
        start_time: i64,
    ) -> Result<(), AnnotationError> {
        self.inner.annotations.delete(tsuid, start_time).await
    }

    /// Global notes that begin in a range of epoch milliseconds, both ends included, and do not end
    /// after it.
    pub async fn global_annotations(
        &self,
        range_ms: (i64, i64),
    ) -> Result<Vec<Annotation>, StorageError> {
        self.inner.annotations.global(range_ms).await
    }

    /// Deletes the notes of some series, and global ones, in a range of epoch milliseconds, both ends
    /// included. Returns how many there were.
    pub async fn delete_annotations(
        &self,
        tsuids: &[Tsuid],
        global: bool,
        range_ms: (i64, i64),
    ) -> Result<u64, AnnotationError> {
        self.inner.annotations.delete_range(tsuids, global, range_ms).await
    }

    /// Answers a query. Dropping the future ends it and closes its scans.
    ///
    /// The answer is complete or there is none.
    pub async fn query(
        &self,
        query: Query,
        control: QueryControl,
    ) -> Result<QueryResult, QueryFailure> {
        let queries = &self.inner.queries;
        queries.check_size(&query)?;
        let ignore_limits = (query.override_byte_limit, query.override_data_point_limit);
        let work = |engine: Arc<QueryEngine>, context: Arc<QueryContext>| async move {
            engine.execute(&query, &context).await
        };
        let (mut result, guard) = queries.run(control, ignore_limits, work).await?;
        result.id = guard.id();
        result.stats = guard.stats();
        result.guard = guard;
        Ok(result)
    }

    /// Answers a request of expressions over metrics, as `/api/query/exp` has them.
    ///
    /// The guard is to be kept until the answer was written; it knows the stages too.
    pub async fn query_exp(
        &self,
        query: ExpQuery,
        control: QueryControl,
    ) -> Result<(ExpResult, QueryGuard), QueryFailure> {
        let queries = &self.inner.queries;
        queries.check_size(&query.query)?;
        let work = |engine: Arc<QueryEngine>, context: Arc<QueryContext>| async move {
            engine.execute_exp(query, &context).await
        };
        queries.run(control, (false, false), work).await
    }

    /// Answers a request of functions over series, as `/api/query/gexp` has them.
    pub async fn query_gexp(
        &self,
        query: GexpQuery,
        control: QueryControl,
    ) -> Result<GexpResult, QueryFailure> {
        let queries = &self.inner.queries;
        queries.check_size(&query.query)?;
        let ignore_limits =
            (query.query.override_byte_limit, query.query.override_data_point_limit);
        let work = |engine: Arc<QueryEngine>, context: Arc<QueryContext>| async move {
            engine.execute_gexp(query, &context).await
        };
        let (series, guard) = queries.run(control, ignore_limits, work).await?;
        Ok(GexpResult { series, stats: guard.stats(), guard })
    }

    /// What a query would read. Looks its names up and reads nothing else.
    pub async fn explain(&self, query: &Query) -> Result<Vec<ExplainedSubQuery>, QueryFailure> {
        self.inner.queries.check_size(query)?;
        self.inner.queries.engine().explain(query).await
    }

    /// Queries that run, and the last ones that ended.
    #[must_use]
    pub fn queries(&self) -> QueryList {
        self.inner.queries.registry.list()
    }

    /// Cancels a query by its number. Says whether it was running.
    #[must_use]
    pub fn cancel_query(&self, id: QueryId) -> bool {
        self.inner.queries.registry.cancel(id)
    }

    /// Forgets every cached name and series.
    pub fn drop_caches(&self) {
        self.inner.uids.resolver.caches.clear();
        self.inner.ingest.series.clear();
    }

    /// What the engine counts, under OpenTSDB's names. Asks the store for the UIDs in use.
    pub async fn stats(&self) -> Vec<Stat> {
        stats::collect(&self.inner).await
    }

    /// Sets the gauges of queues, caches and the store, for whoever is about to read them.
    pub fn set_gauges(&self) {
        stats::set_gauges(&self.inner);
    }

    /// Waits until every row that a query found in pieces, or a round took, is compacted.
    pub async fn compactions_idle(&self) {
        // An actor that cannot answer has nothing under way.
        join_all(self.inner.compactors.iter().map(|c| c.ask(CompactionMessage::Idle))).await;
    }

    /// Compacts every queued row that is old enough, and waits for it.
    pub async fn flush_compactions(&self) {
        join_all(self.inner.compactors.iter().map(|c| c.ask(CompactionMessage::Flush))).await;
    }

    /// Waits until all points taken before are stored or have failed.
    pub async fn drain_writes(&self) {
        join_all(
            self.inner.ingest.shards.iter().map(|shard| shard.writer.ask(WriteMessage::Drain)),
        )
        .await;
    }

    /// Takes no further points, stores those it has, flushes the store and ends the actors. Says
    /// whether all of that was done within `limit`; the actors end in any case.
    pub async fn shutdown(&self, limit: Duration) -> bool {
        self.inner.ingest.closed.store(true, Ordering::Release);
        for shard in &self.inner.ingest.shards {
            shard.budget.close();
        }
        let work = async {
            self.drain_writes().await;
            if let Some(tracker) = &self.inner.ingest.tracker {
                // An actor that cannot answer has nothing that could be waited for.
                let _ = tracker.ask(TrackerMessage::Drain).await;
            }
            if self.inner.config.flush_at_end {
                self.inner.storage.flush().await?;
            }
            Ok::<(), StorageError>(())
        };
        let done = match tokio::time::timeout(limit, work).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::error!(%error, "the store could not be flushed");
                false
            }
            Err(_) => {
                tracing::error!("points were still being written when time was up");
                false
            }
        };
        // Full means that it was told already.
        let _ = self.inner.stop.0.try_send(());
        done
    }

    #[cfg(test)]
    pub(crate) fn query_memory(&self) -> u64 {
        self.inner.queries.memory.reserved()
    }

    #[cfg(test)]
    pub(crate) fn uid_admin(&self) -> &UidAdmin {
        &self.inner.uids
    }

    #[cfg(test)]
    pub(crate) fn tracker(&self) -> Option<&ActorRef<crate::meta_tracking::MetaTracker>> {
        self.inner.ingest.tracker.as_ref()
    }

    #[cfg(test)]
    pub(crate) fn shards(&self) -> &[crate::writer::WriteShard] {
        &self.inner.ingest.shards
    }
}
