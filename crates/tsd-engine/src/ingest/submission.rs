//! The end of a chunk: its log becomes cells, and each write shard gets its batch.

use std::sync::{Arc, atomic::Ordering};

use smallvec::SmallVec;
use tokio::time::timeout;

use super::{
    chunk::{CellSeries, ShardBatch},
    chunk_log::LogEntry,
    commit_group::CommitGroup,
    name_list::NameList,
    session::IngestSession,
    shared::IngestShared,
};
use tsd_meta::UidError;
use tsd_runtime::LogOrigin;

use crate::{
    meta_tracking::MetaTracker,
    point_plugins::PointRecord,
    put_error::{PointFailure, PutError},
    series_cache::NewSeries,
    uid::{CreatableNames, NewSeriesCheck, ResolvedSeries},
    writer::WriteRequest,
};

impl IngestSession {
    /// Turns the log into cells and sends each write shard its batch.
    pub(super) async fn submit(&mut self, group: &Arc<CommitGroup>) {
        self.shared.received.fetch_add(self.points as u64, Ordering::Relaxed);
        self.shared.received_total.increment(self.points as u64);
        if self.shared.closed.load(Ordering::Acquire) {
            group.fail(self.tags().map(|tag| PointFailure::new(tag, PutError::Closed)));
            self.refuse_rest(&PutError::Closed);
            self.discard_chunk();
        }
        if !self.log.is_empty() {
            self.resolve_log(group).await;
        }
        self.send_batches(group).await;
        group.close_one();
        if let Some(tracker) = &self.shared.tracker {
            let seen = self.chunk.take_tracked();
            if !seen.is_empty() {
                MetaTracker::series_seen(tracker, &self.shared.tracking_dropped, seen);
            }
        }
        self.points = 0;
        self.due_before = self.shared.due_before();
    }

    /// Sends each write shard its batch, after the store's budget admits all batches.
    async fn send_batches(&mut self, group: &Arc<CommitGroup>) {
        let shared = Arc::clone(&self.shared);
        let may_wait = group.is_pipelined() && self.sends_to_one;
        let (batches, bytes) = self.chunk.size();
        if batches == 0 {
            return;
        }
        let acquired = async {
            if shared.plugins.are_on() {
                tokio::select! {
                    () = shared.plugins.room() => {}
                    // A shutdown does not wait for a plug-in.
                    () = shared.hold.ended() => {}
                }
            }
            shared.admission.acquire(batches, bytes, group.is_pipelined()).await
        };
        let acquired = if group.holds() {
            // Held points wait as long as necessary.
            Ok(acquired.await)
        } else {
            timeout(shared.queue_deadline, acquired).await
        };
        let refused = match acquired {
            Ok(Some(mut permit)) => {
                permit.receipt_mut().clone_from(&self.receipt);
                for (target, shard, batch) in self.chunk.take_batches() {
                    let permit = permit.split(batch.byte_len());
                    let ShardBatch { cells, tags, touched, records, .. } = batch;
                    let completion = group.completion(tags).with_records(&shared.plugins, records);
                    let origin = LogOrigin::current();
                    let request = WriteRequest {
                        target,
                        cells,
                        completion,
                        touched,
                        permit,
                        may_wait,
                        origin,
                    };
                    if let Some(shard) = shared.shards.get(shard) {
                        shard.submit(request);
                    }
                }
                return;
            }
            Ok(None) => PutError::Closed,
            Err(_) => PutError::Throttled("the queue of points is full"),
        };
        group.fail(self.chunk.tags().map(|tag| PointFailure::new(tag, refused.clone())));
        shared.plugins.written(self.chunk.take_records(), Err(&refused));
        self.chunk.clear();
    }

    /// Passes the points put since the last chunk ended to the spool, because they are not stored.
    pub(super) fn refuse_rest(&mut self, error: &PutError) {
        if !self.shared.plugins.are_on() {
            return;
        }
        let mut records = self.chunk.take_records();
        records.extend(self.log.iter().filter_map(|entry| match entry {
            LogEntry::Cached { names, body, .. } => {
                let names = names.as_ref()?;
                Some(PointRecord::new(names, SmallVec::new(), body.view()))
            }
            LogEntry::New(point) => Some(point.record()),
        }));
        self.shared.plugins.written(records, Err(error));
    }

    /// Tags of the points put since the last chunk ended.
    fn tags(&self) -> impl Iterator<Item = u32> {
        self.chunk.tags().chain(self.log.iter().map(|entry| match entry {
            LogEntry::Cached { body, .. } => body.tag(),
            LogEntry::New(point) => point.body.tag(),
        }))
    }

    async fn resolve_log(&mut self, group: &Arc<CommitGroup>) {
        let shared = Arc::clone(&self.shared);
        let epoch = shared.series.epoch();
        let names: Vec<_> = self
            .log
            .iter()
            .filter_map(|entry| match entry {
                LogEntry::New(point) => Some(&point.names),
                LogEntry::Cached { .. } => None,
            })
            .collect();
        let allowance = self.new_series.clone();
        let is_cell = |entry: &LogEntry| matches!(entry, LogEntry::New(point) if point.is_cell());
        let uses_index = allowance.is_some() && !self.log.iter().any(is_cell);
        let mut new = allowance.as_deref().map(|all| NewSeriesCheck::new(all, uses_index));
        let mut resolved_names =
            shared.resolver.resolve(&names, self.creatable, new.as_mut()).await;
        if group.holds() {
            hold_names(
                &shared,
                &names,
                self.creatable,
                (resolved_names.as_mut_slice(), new.as_mut()),
            )
            .await;
        }
        drop(new);
        let mut series = resolved_names.into_iter();
        let Self { chunk, log, due_before, text, .. } = self;
        let (mut failures, mut resolved) = (Vec::new(), Vec::new());
        let patterns = shared.retention.as_ref().filter(|retention| retention.asks_for_names());
        for entry in log.drain(..) {
            match entry {
                LogEntry::Cached { template, shard, notify, body, names } => {
                    let names = names.as_deref();
                    let series = CellSeries { template: &template, shard, names };
                    if let Err(error) = chunk.body(&shared, series, notify, &body) {
                        failures.push(PointFailure::new(body.tag(), error));
                    }
                }
                LogEntry::New(point) => {
                    let tag = point.body.tag();
                    let series = series.next();
                    if let (Some(retention), Some(Ok(series)), Some(name)) =
                        (patterns, &series, point.names.get(0))
                    {
                        retention.learn(retention.metric_of(&series.template), name);
                    }
                    let put = match series {
                        Some(Ok(series)) => chunk
                            .first_of_series(&shared, &point, &series, *due_before)
                            .map(|last_notified| (series, last_notified)),
                        Some(Err(error)) => Err(error.into()),
                        None => Err(PutError::Lost),
                    };
                    match put {
                        Ok((series, last_notified)) => {
                            resolved.push((point, series, last_notified));
                        }
                        Err(error) => {
                            if shared.plugins.are_on() {
                                shared.plugins.written(vec![point.record()], Err(&error));
                            }
                            let series = Some(point.series().into());
                            failures.push(PointFailure { tag, error, series });
                        }
                    }
                }
            }
        }
        let resolved = resolved.iter().map(|(point, series, last_notified)| NewSeries {
            metric: &point.metric,
            tags: &point.tags,
            template: &series.template,
            write_shard: series.shard,
            last_notified: *last_notified,
        });
        shared.series.insert(epoch, *text, resolved);
        group.fail(failures);
    }
}

/// Resolves names again while the store does not accept them.
async fn hold_names<'n>(
    shared: &IngestShared,
    names: &[&'n NameList],
    creatable: CreatableNames,
    (results, mut new): (&mut [Result<ResolvedSeries, UidError>], Option<&mut NewSeriesCheck<'n>>),
) {
    let may_pass = |result: &Result<ResolvedSeries, UidError>| match result {
        Err(UidError::Storage(error)) => error.is_transient(),
        Err(UidError::Throttled) => true,
        _ => false,
    };
    let mut held = None;
    for n in 0.. {
        let open: Vec<usize> =
            (0..results.len()).filter(|i| results.get(*i).is_some_and(may_pass)).collect();
        let Some(first) = open.first().and_then(|i| results.get(*i)) else { return };
        if shared.hold.is_ended() {
            return shared.hold.give_up(open.len());
        }
        if let Err(UidError::Storage(error)) = first {
            shared.hold.log_failure(error, open.len(), true);
        }
        held = Some(shared.hold.hold(open.len())).or(held);
        shared.hold.pause(n).await;
        let again: Vec<&NameList> = open.iter().filter_map(|i| names.get(*i).copied()).collect();
        let resolved = shared.resolver.resolve(&again, creatable, new.as_deref_mut()).await;
        for (i, result) in open.into_iter().zip(resolved) {
            if let Some(slot) = results.get_mut(i) {
                *slot = result;
            }
        }
    }
}
