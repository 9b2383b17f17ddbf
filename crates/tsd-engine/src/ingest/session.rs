//! An ingest session: the points of one connection or request, collected into chunks and submitted
//! to the write shards.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::mpsc, time::Instant};
use tsd_model::{PointValue, TableSchema, Timestamp};
use tsd_storage::Retention;

use super::{
    NameText,
    chunk::{Chunk, ShardBatch},
    chunk_log::{EntryBody, LogEntry, NameList, PointBody, UnresolvedPoint},
    commit_group::CommitGroup,
    extra_cell::{ExtraCell, RollupPlace, WriteTargets},
    validate::{NameRules, check_point},
};
use crate::{
    actor::ActorRef,
    clock::Clock,
    compaction::latest_base,
    meta_tracking::{MetaTracker, TrackerMessage},
    put_error::{CommitReport, PointFailure, PutError},
    series_cache::{CachedSeries, GROUP, NewSeries, SeriesCache},
    uid::{Resolver, UidError},
    write_hold::WriteHold,
    writer::{WriteRequest, WriteShard},
};

/// State shared by all sessions.
#[derive(Debug)]
pub(crate) struct IngestShared {
    pub(crate) schema: TableSchema,
    pub(crate) names: NameRules,
    pub(crate) max_tags: usize,
    pub(crate) retention: Option<Arc<Retention>>,
    pub(crate) appends: bool,
    pub(crate) use_otsdb_timestamp: bool,
    pub(crate) compaction: bool,
    pub(crate) queue_deadline: Duration,
    pub(crate) chunks_in_flight: usize,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) series: SeriesCache,
    pub(crate) resolver: Resolver,
    pub(crate) targets: WriteTargets,
    pub(crate) shards: Vec<WriteShard>,
    pub(crate) hold: Arc<WriteHold>,
    /// Current compaction round of each shard.
    pub(crate) rounds: Vec<Arc<AtomicU32>>,
    /// Set if series are tracked in the meta table.
    pub(crate) tracker: Option<ActorRef<TrackerMessage>>,
    pub(crate) tracking_dropped: metrics::Counter,
    pub(crate) closed: AtomicBool,
    /// Shard of the next session that uses a single shard, round robin.
    pub(crate) next_shard: AtomicUsize,
    /// Points received, stored or not.
    pub(crate) received: AtomicU64,
    pub(crate) received_total: metrics::Counter,
    pub(crate) cache_misses: metrics::Counter,
}

/// A point as a client sent it.
#[derive(Clone, Copy, Debug)]
pub struct PointInput<'a> {
    /// Metric as sent.
    pub metric: &'a [u8],
    /// Tags as sent. Points with equal metric and tag bytes belong to one series.
    pub tags_raw: &'a [u8],
    /// Unchecked epoch seconds, or milliseconds if the number does not fit 32 bits.
    pub timestamp: i64,
    /// Unchecked value.
    pub value: PointValue,
    /// Identifies the point in failures.
    pub tag: u32,
}

/// Points of one connection or request, collected into chunks.
///
/// [`Self::put`] adds points. [`Self::commit`] ends a chunk and waits until it is durable;
/// [`Self::send`] ends it and waits until it is accepted. Points of one cell are stored in the
/// order they were put.
#[derive(Debug)]
pub struct IngestSession {
    shared: Arc<IngestShared>,
    text: NameText,
    chunk: Chunk,
    log: Vec<LogEntry>,
    points: usize,
    due_before: u32,
    in_flight: VecDeque<Arc<CommitGroup>>,
    failures: Option<mpsc::UnboundedSender<PointFailure>>,
    holds: bool,
    stored: u64,
}

impl IngestSession {
    /// Points per look-up in the series cache.
    pub const GROUP: usize = GROUP;

    pub(crate) fn new(shared: Arc<IngestShared>, text: NameText) -> Self {
        let due_before = due_before(&shared);
        Self {
            shared,
            text,
            chunk: Chunk::default(),
            log: Vec::new(),
            points: 0,
            due_before,
            in_flight: VecDeque::new(),
            failures: None,
            holds: false,
            stored: 0,
        }
    }

    /// Sends each chunk to a single write shard instead of one shard per bucket. For small chunks
    /// that end with [`Self::commit`]: twenty messages of two points cost more than the points.
    ///
    /// Writes of other sessions to the same cells may then use other shards. A client that needs an
    /// order between sessions waits for the first response, as with any two requests. Has no effect
    /// after the first point.
    pub fn use_single_shard(&mut self) {
        if self.chunk.is_unused() {
            let next = self.shared.next_shard.fetch_add(1, Ordering::Relaxed);
            self.chunk.use_single_shard(next % self.shared.shards.len().max(1));
        }
    }

    /// Holds points that end with [`Self::send`] while the store does not accept them, instead of
    /// failing them: they are written again, in order, until they are stored, fail permanently, or
    /// [`EngineHandle::end_holds`](crate::EngineHandle::end_holds) is called.
    pub fn hold_points(&mut self) {
        self.holds = true;
    }

    /// Adds points, in order; best [`Self::GROUP`] per call. Returns the rejected points, in order:
    /// index in `points` and error.
    ///
    /// `input` converts a caller's point. `tags` parses the tags of a point whose series is not
    /// cached, with distinct keys; such a point is logged until its UIDs are resolved. Its numbers
    /// and names are checked here, in OpenTSDB's order; missing UIDs are reported when the chunk
    /// ends.
    #[inline]
    pub fn put<'p, P, T, E>(
        &mut self,
        points: &'p [P],
        input: impl Fn(&'p P) -> PointInput<'p>,
        mut tags: impl FnMut(&'p P) -> Result<T, E>,
    ) -> Vec<(usize, E)>
    where
        T: AsRef<[(&'p [u8], &'p [u8])]>,
        E: From<PutError>,
    {
        let shared = Arc::clone(&self.shared);
        let mut rejected = Vec::new();
        for (nth, group) in points.chunks(GROUP).enumerate() {
            let cache = shared.series.read();
            let names = group.iter().map(|point| {
                let PointInput { metric, tags_raw, .. } = input(point);
                (metric, tags_raw)
            });
            let series = cache.find_group(self.text, names);
            for (at, (point, series)) in group.iter().zip(series).enumerate() {
                let put = match series {
                    Some(series) => self.put_cached(series, &input(point)).map_err(E::from),
                    None => {
                        tags(point).and_then(|tags| Ok(self.put_new(&input(point), tags.as_ref())?))
                    }
                };
                if let Err(error) = put {
                    rejected.push((nth * GROUP + at, error));
                }
            }
        }
        rejected
    }

    /// True if the series of these bytes, as sent, is cached: its points need no UID look-ups.
    #[must_use]
    pub fn is_cached(&self, metric: &[u8], tags_raw: &[u8]) -> bool {
        self.shared.series.read().find(self.text, metric, tags_raw).is_some()
    }

    /// Adds a point of a cached series.
    #[inline]
    fn put_cached(
        &mut self,
        series: CachedSeries<'_>,
        point: &PointInput<'_>,
    ) -> Result<(), PutError> {
        let Self { shared, chunk, log, due_before, .. } = self;
        let shared = &**shared;
        let timestamp = check_numbers(point.timestamp, point.value)?;
        let base = timestamp.base_time().as_secs();
        let shard = series.write_shard();
        let round = || shared.round(shard);
        let notify = shared.compaction
            && series.last_notified().advance(|last| last.next(base, *due_before, round));
        let body = PointBody { timestamp, value: point.value, tag: point.tag };
        if log.is_empty() {
            chunk.point(shared, series.template(), shard, notify, body)?;
        } else {
            let template = series.template().into();
            log.push(LogEntry::Cached { template, shard, notify, body: EntryBody::Point(body) });
        }
        self.points += 1;
        Ok(())
    }

    /// Logs a point of a series that is not cached.
    fn put_new(&mut self, point: &PointInput<'_>, tags: &[(&[u8], &[u8])]) -> Result<(), PutError> {
        let timestamp = check_numbers(point.timestamp, point.value)?;
        let body = PointBody { timestamp, value: point.value, tag: point.tag };
        self.log_new(point.metric, point.tags_raw, tags, EntryBody::Point(body))
    }

    /// Logs an entry of a series that is not cached, until its UIDs are resolved.
    fn log_new(
        &mut self,
        metric: &[u8],
        tags_raw: &[u8],
        tags: &[(&[u8], &[u8])],
        body: EntryBody,
    ) -> Result<(), PutError> {
        let shared = &*self.shared;
        let names = check_point(&shared.names, shared.max_tags, self.text, metric, tags)?;
        if let (Some(retention), Some(name)) = (&shared.retention, names.get(0)) {
            // Before the names get UIDs.
            let time_secs = body.time_secs();
            retention
                .check_named_put(name, time_secs)
                .map_err(|cutoff_secs| PutError::Expired { time_secs, cutoff_secs })?;
        }
        shared.cache_misses.increment(1);
        let (metric, tags) = (metric.into(), tags_raw.into());
        self.log.push(LogEntry::New(Box::new(UnresolvedPoint { metric, tags, names, body })));
        self.points += 1;
        Ok(())
    }

    /// Encodes a rolled-up value or a pre-aggregate, whose time must be in seconds.
    pub fn rollup_cell(
        &self,
        place: RollupPlace,
        timestamp: i64,
        value: PointValue,
    ) -> Result<ExtraCell, PutError> {
        let timestamp = check_numbers(timestamp, value)?;
        self.shared.targets.rollup(place, timestamp, value)
    }

    /// Encodes a histogram, given as stored: codec id, then the encoded histogram.
    pub fn histogram_cell(&self, timestamp: i64, value: &[u8]) -> Result<ExtraCell, PutError> {
        let timestamp =
            Timestamp::try_new(timestamp).map_err(|_| PutError::BadTimestamp(timestamp))?;
        Ok(self.shared.targets.histogram(timestamp, value))
    }

    /// Adds a cell of a cached series. `None`: the series is not cached; use
    /// [`Self::put_cell_new`]. Otherwise as [`Self::put`].
    pub fn put_cell_cached(
        &mut self,
        metric: &[u8],
        tags_raw: &[u8],
        cell: &ExtraCell,
        tag: u32,
    ) -> Option<Result<(), PutError>> {
        let Self { shared, chunk, log, .. } = self;
        let shared = &**shared;
        let cache = shared.series.read();
        let series = cache.find(self.text, metric, tags_raw)?;
        let (template, shard) = (series.template(), series.write_shard());
        let put = if log.is_empty() {
            chunk.cell(shared, template, shard, cell, tag)
        } else {
            let body = EntryBody::Cell(Box::new(cell.clone()), tag);
            log.push(LogEntry::Cached { template: template.into(), shard, notify: false, body });
            Ok(())
        };
        if put.is_ok() {
            self.points += 1;
        }
        Some(put)
    }

    /// Logs a cell of any series until its UIDs are resolved. Otherwise as [`Self::put`].
    pub fn put_cell_new(
        &mut self,
        metric: &[u8],
        tags_raw: &[u8],
        tags: &[(&[u8], &[u8])],
        cell: ExtraCell,
        tag: u32,
    ) -> Result<(), PutError> {
        self.log_new(metric, tags_raw, tags, EntryBody::Cell(Box::new(cell), tag))
    }

    /// Points put since the last chunk ended.
    #[must_use]
    pub const fn pending(&self) -> usize {
        self.points
    }

    /// Ends the chunk and waits until each point is durable or has failed.
    pub async fn commit(&mut self) -> CommitReport {
        self.commit_within(None).await
    }

    /// As [`Self::commit`], but waits at most `limit`. Points without a result by then may still be
    /// stored, and are counted in [`CommitReport::timed_out`].
    pub async fn commit_within(&mut self, limit: Option<Duration>) -> CommitReport {
        let points = self.points;
        let group = CommitGroup::new(None, false);
        let work = async {
            self.submit(&group).await;
            group.wait().await;
        };
        let in_time = if let Some(limit) = limit {
            tokio::time::timeout(limit, work).await.is_ok()
        } else {
            work.await;
            true
        };
        let mut report = group.take_report();
        if !in_time {
            self.discard_chunk();
            report.timed_out =
                points.saturating_sub(report.stored).saturating_sub(report.failures.len());
        }
        report
    }

    /// Ends the chunk and waits until the write shards accept it, which limits a sender to the rate
    /// of the storage. Failures are sent to [`Self::failures`].
    pub async fn send(&mut self) {
        if self.points == 0 {
            return;
        }
        let Self { in_flight, stored, .. } = self;
        in_flight.retain(|group| {
            let done = group.is_done();
            if done {
                *stored += group.take_report().stored as u64;
            }
            !done
        });
        while self.in_flight.len() >= self.shared.chunks_in_flight.max(1) {
            if let Some(group) = self.in_flight.pop_front() {
                group.wait().await;
                self.stored += group.take_report().stored as u64;
            }
        }
        if self.failures.is_none() {
            self.failures();
        }
        let group = CommitGroup::new(self.failures.clone(), self.holds);
        self.submit(&group).await;
        self.in_flight.push_back(group);
    }

    /// Returns the channel of failures of chunks ended by [`Self::send`]. The chunks in flight are
    /// its bound. A second call replaces the channel.
    pub fn failures(&mut self) -> mpsc::UnboundedReceiver<PointFailure> {
        let (sender, failures) = mpsc::unbounded_channel();
        self.failures = Some(sender);
        failures
    }

    /// Waits until every sent chunk is durable or has failed.
    pub async fn drain(&mut self) {
        while let Some(group) = self.in_flight.front() {
            group.wait().await;
            self.stored += group.take_report().stored as u64;
            self.in_flight.pop_front();
        }
    }

    /// Points of chunks ended by [`Self::send`] that are durable. Exact after [`Self::drain`];
    /// until then a lower bound.
    #[must_use]
    pub const fn stored(&self) -> u64 {
        self.stored
    }

    /// Drops the points put since the last chunk ended.
    pub fn discard_chunk(&mut self) {
        self.log.clear();
        self.points = 0;
        self.chunk.clear();
    }

    /// Turns the log into cells and sends each write shard its batch.
    async fn submit(&mut self, group: &Arc<CommitGroup>) {
        self.shared.received.fetch_add(self.points as u64, Ordering::Relaxed);
        self.shared.received_total.increment(self.points as u64);
        if self.shared.closed.load(Ordering::Acquire) {
            group.fail(self.tags().map(|tag| PointFailure::new(tag, PutError::Closed)));
            self.discard_chunk();
        }
        if !self.log.is_empty() {
            self.resolve_log(group).await;
        }
        // Held points wait as long as it takes.
        let deadline = (!group.holds()).then(|| Instant::now() + self.shared.queue_deadline);
        let shared = Arc::clone(&self.shared);
        for (target, shard, batch) in self.chunk.take_batches() {
            if let Some(shard) = shared.shards.get(shard) {
                send_batch(batch, target, shard, group, deadline).await;
            }
        }
        group.close_one();
        if let Some(tracker) = &shared.tracker {
            let seen = self.chunk.take_tracked();
            if !seen.is_empty() {
                MetaTracker::series_seen(tracker, &shared.tracking_dropped, seen);
            }
        }
        self.points = 0;
        self.due_before = due_before(&self.shared);
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
        let mut resolved_names = shared.resolver.resolve(&names).await;
        if group.holds() {
            hold_names(&shared, &names, &mut resolved_names).await;
        }
        let mut series = resolved_names.into_iter();
        let Self { chunk, log, due_before, text, .. } = self;
        let (mut failures, mut resolved) = (Vec::new(), Vec::new());
        let patterns = shared.retention.as_ref().filter(|retention| retention.asks_for_names());
        for entry in log.drain(..) {
            match entry {
                LogEntry::Cached { template, shard, notify, body } => {
                    if let Err(error) = chunk.body(&shared, &template, shard, notify, &body) {
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

/// A resolved series.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedSeries {
    /// Row key with zeros for the base time.
    pub(crate) template: Vec<u8>,
    /// Write shard of its salt bucket.
    pub(crate) shard: usize,
}

impl IngestShared {
    /// Refuses a point of the series of a template that is too old to be kept.
    #[inline]
    pub(super) fn check_age(&self, template: &[u8], time_secs: u32) -> Result<(), PutError> {
        let Some(retention) = &self.retention else { return Ok(()) };
        retention
            .check_put(template, time_secs)
            .map_err(|cutoff_secs| PutError::Expired { time_secs, cutoff_secs })
    }

    /// Current compaction round of a shard.
    pub(super) fn round(&self, shard: usize) -> u32 {
        self.rounds.get(shard).map_or(0, |round| round.load(Ordering::Relaxed))
    }
}

/// Sends a write shard its batch of a chunk once the shard's budget admits it.
async fn send_batch(
    batch: ShardBatch,
    target: usize,
    shard: &WriteShard,
    group: &Arc<CommitGroup>,
    deadline: Option<Instant>,
) {
    let completion = group.completion(batch.tags);
    let acquired = shard.budget.acquire(batch.cells.byte_len(), group.is_pipelined());
    let acquired = match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, acquired).await,
        None => Ok(acquired.await),
    };
    let permit = match acquired {
        Ok(Some(permit)) => permit,
        Ok(None) => return completion.complete(Err(PutError::Closed)),
        Err(_) => return completion.complete(Err(PutError::Throttled)),
    };
    let ShardBatch { cells, touched, .. } = batch;
    shard.submit(WriteRequest { target, cells, completion, touched, permit });
}

/// Resolves names again while the store does not accept them.
async fn hold_names(
    shared: &IngestShared,
    names: &[&NameList],
    results: &mut [Result<ResolvedSeries, UidError>],
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
        for (i, result) in open.into_iter().zip(shared.resolver.resolve(&again).await) {
            if let Some(slot) = results.get_mut(i) {
                *slot = result;
            }
        }
    }
}

/// Checks value, then time, as OpenTSDB does.
#[inline]
fn check_numbers(timestamp: i64, value: PointValue) -> Result<Timestamp, PutError> {
    let finite = match value {
        PointValue::Integer(_) => true,
        PointValue::Single(v) => v.is_finite(),
        PointValue::Double(v) => v.is_finite(),
    };
    if !finite {
        return Err(PutError::NotFinite);
    }
    Timestamp::try_new(timestamp).map_err(|_| PutError::BadTimestamp(timestamp))
}

/// Largest base time whose rows may have been compacted already.
fn due_before(shared: &IngestShared) -> u32 {
    u32::try_from(latest_base(shared.clock.now_secs()).max(0)).unwrap_or(u32::MAX)
}
