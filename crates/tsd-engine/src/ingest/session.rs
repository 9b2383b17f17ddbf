//! One connection's or one request's points on their way to the write actors.

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

use super::{
    NameText,
    chunk::{Chunk, ShardBatch},
    commit_group::CommitGroup,
    extra_cell::{ExtraCell, RollupPlace, WriteTargets},
    pending::{Body, LogEntry, NewPoint, PointBody},
    validate::{NameRules, check_point},
};
use crate::{
    actor::{ActorRef, SendError},
    clock::Clock,
    compaction::latest_base,
    meta_tracking::MetaTracker,
    put_error::{CommitReport, PointFailure, PutError},
    series_cache::{CachedSeries, GROUP, NewSeries, SeriesCache},
    uid::Resolver,
    writer::{WriteMessage, WriteRequest, WriteShard},
};

/// Failures of a pipelined session that may wait to be read.
const FAILURES_WAITING: usize = 1_024;

/// What all sessions share.
#[derive(Debug)]
pub(crate) struct IngestShared {
    pub(crate) schema: TableSchema,
    pub(crate) names: NameRules,
    pub(crate) max_tags: usize,
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
    /// Compaction rounds of each shard.
    pub(crate) rounds: Vec<Arc<AtomicU32>>,
    /// Who is told of series that get points, if anyone is.
    pub(crate) tracker: Option<ActorRef<MetaTracker>>,
    pub(crate) tracking_lost: metrics::Counter,
    pub(crate) closed: AtomicBool,
    /// Spreads chunks that are kept together over the write actors.
    pub(crate) turn: AtomicUsize,
    /// Points taken in, of any fate.
    pub(crate) received: AtomicU64,
    pub(crate) received_total: metrics::Counter,
    pub(crate) cache_misses: metrics::Counter,
}

/// A point as a client sent it.
#[derive(Clone, Copy, Debug)]
pub struct PointInput<'a> {
    /// Metric as sent.
    pub metric: &'a [u8],
    /// Tags as sent. A point with the same metric and the same tags is of the same series.
    pub tags_raw: &'a [u8],
    /// Seconds, or milliseconds where the number does not fit 32 bits. Not checked yet.
    pub timestamp: i64,
    /// Value. Not checked yet.
    pub value: PointValue,
    /// Names the point in failures.
    pub tag: u32,
}

/// Points of one connection or request, gathered into chunks.
///
/// Points go through [`Self::put`]. A chunk ends with [`Self::commit`], which waits until it is durable, or
/// [`Self::send`], which waits until it is accepted. Points for one cell land in the order they
/// were put.
#[derive(Debug)]
pub struct IngestSession {
    shared: Arc<IngestShared>,
    text: NameText,
    chunk: Chunk,
    log: Vec<LogEntry>,
    points: usize,
    due_before: u32,
    in_flight: VecDeque<Arc<CommitGroup>>,
    sink: Option<mpsc::Sender<PointFailure>>,
}

impl IngestSession {
    /// Points that are looked up together.
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
            sink: None,
        }
    }

    /// Gives each chunk to one write actor instead of one of each bucket. For small chunks that end with
    /// [`Self::commit`]: twenty messages of two points cost more than the points.
    ///
    /// Points of other sessions for the same cells then go other ways; who wants an order between
    /// sessions waits for the first one's answer, as with any two requests. Call it before the
    /// first point.
    pub fn keep_together(&mut self) {
        if self.chunk.is_unused() {
            let turn = self.shared.turn.fetch_add(1, Ordering::Relaxed);
            self.chunk.keep_together(turn % self.shared.shards.len().max(1));
        }
    }

    /// Takes points, in order; best [`Self::GROUP`] of them at once. Returns what was refused, in order:
    /// its place in `points`, and why.
    ///
    /// `sent` says what a point is, in the caller's terms. `tags` parses the tags of a point whose series
    /// is not known, each key once; its point then waits for UIDs. The numbers and names of such a
    /// point are checked here, in OpenTSDB's order; whether its names have UIDs shows when the chunk
    /// ends.
    #[inline]
    pub fn put<'p, P, T, E>(
        &mut self,
        points: &'p [P],
        sent: impl Fn(&'p P) -> PointInput<'p>,
        mut tags: impl FnMut(&'p P) -> Result<T, E>,
    ) -> Vec<(usize, E)>
    where
        T: AsRef<[(&'p [u8], &'p [u8])]>,
        E: From<PutError>,
    {
        let shared = Arc::clone(&self.shared);
        let mut refused = Vec::new();
        for (nth, group) in points.chunks(GROUP).enumerate() {
            let cache = shared.series.read();
            let names = group.iter().map(|point| {
                let PointInput { metric, tags_raw, .. } = sent(point);
                (metric, tags_raw)
            });
            let series = cache.find_group(self.text, names);
            for (at, (point, series)) in group.iter().zip(series).enumerate() {
                let put = match series {
                    Some(series) => self.put_known(series, &sent(point)).map_err(E::from),
                    None => {
                        tags(point).and_then(|tags| Ok(self.put_new(&sent(point), tags.as_ref())?))
                    }
                };
                if let Err(error) = put {
                    refused.push((nth * GROUP + at, error));
                }
            }
        }
        refused
    }

    /// Whether the series of these bytes, as sent, is known: its points need no UIDs.
    #[must_use]
    pub fn knows(&self, metric: &[u8], tags_raw: &[u8]) -> bool {
        self.shared.series.read().find(self.text, metric, tags_raw).is_some()
    }

    /// Takes a point of a known series.
    #[inline]
    fn put_known(
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
        let touched = shared.compaction
            && series.last_notified().advance(|last| last.next(base, *due_before, round));
        let body = PointBody { timestamp, value: point.value, tag: point.tag };
        if log.is_empty() {
            chunk.point(shared, series.template(), shard, touched, body)?;
        } else {
            let template = series.template().into();
            log.push(LogEntry::Known { template, shard, touched, body: Body::Point(body) });
        }
        self.points += 1;
        Ok(())
    }

    /// Takes a point of a series that is not known and queues it for its UIDs.
    fn put_new(&mut self, point: &PointInput<'_>, tags: &[(&[u8], &[u8])]) -> Result<(), PutError> {
        let timestamp = check_numbers(point.timestamp, point.value)?;
        let body = PointBody { timestamp, value: point.value, tag: point.tag };
        self.log_new(point.metric, point.tags_raw, tags, Body::Point(body))
    }

    /// Queues something of a series that the cache did not have for its UIDs.
    fn log_new(
        &mut self,
        metric: &[u8],
        tags_raw: &[u8],
        tags: &[(&[u8], &[u8])],
        body: Body,
    ) -> Result<(), PutError> {
        let shared = &*self.shared;
        let names = check_point(&shared.names, shared.max_tags, self.text, metric, tags)?;
        shared.cache_misses.increment(1);
        let (metric, tags) = (metric.into(), tags_raw.into());
        self.log.push(LogEntry::New(Box::new(NewPoint { metric, tags, names, body })));
        self.points += 1;
        Ok(())
    }

    /// The cell of a rolled-up value or a pre-aggregate, whose time must be in seconds.
    pub fn rollup_cell(
        &self,
        place: RollupPlace,
        timestamp: i64,
        value: PointValue,
    ) -> Result<ExtraCell, PutError> {
        let timestamp = check_numbers(timestamp, value)?;
        self.shared.targets.rollup(place, timestamp, value)
    }

    /// The cell of a histogram, given as it is stored: id of its codec, then what that makes of it.
    pub fn histogram_cell(&self, timestamp: i64, value: &[u8]) -> Result<ExtraCell, PutError> {
        let timestamp =
            Timestamp::try_new(timestamp).map_err(|_| PutError::BadTimestamp(timestamp))?;
        Ok(self.shared.targets.histogram(timestamp, value))
    }

    /// Takes another cell of a known series: `None` means that the series is not known and the cell is
    /// to be given to [`Self::put_cell_new`]. The rest is as with [`Self::put`].
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
            let body = Body::Cell(Box::new(cell.clone()), tag);
            log.push(LogEntry::Known { template: template.into(), shard, touched: false, body });
            Ok(())
        };
        if put.is_ok() {
            self.points += 1;
        }
        Some(put)
    }

    /// Takes another cell of any series and queues it for its UIDs. The rest is as with
    /// [`Self::put`].
    pub fn put_cell_new(
        &mut self,
        metric: &[u8],
        tags_raw: &[u8],
        tags: &[(&[u8], &[u8])],
        cell: ExtraCell,
        tag: u32,
    ) -> Result<(), PutError> {
        self.log_new(metric, tags_raw, tags, Body::Cell(Box::new(cell), tag))
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

    /// As [`Self::commit`], but gives up waiting after `limit`: what is open then may still be
    /// stored, and is counted in [`CommitReport::timed_out`].
    pub async fn commit_within(&mut self, limit: Option<Duration>) -> CommitReport {
        let points = self.points;
        let group = CommitGroup::new(None);
        let work = async {
            self.hand_over(&group).await;
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
            self.forget_chunk();
            report.timed_out =
                points.saturating_sub(report.stored).saturating_sub(report.failures.len());
        }
        report
    }

    /// Ends the chunk and waits until the write actors took it, which is what slows a sender down
    /// that is faster than the store. Failures come out of [`Self::failures`].
    pub async fn send(&mut self) {
        if self.points == 0 {
            return;
        }
        self.in_flight.retain(|group| !group.is_done());
        while self.in_flight.len() >= self.shared.chunks_in_flight.max(1) {
            if let Some(group) = self.in_flight.pop_front() {
                group.wait().await;
            }
        }
        if self.sink.is_none() {
            self.failures();
        }
        let group = CommitGroup::new(self.sink.clone());
        self.hand_over(&group).await;
        self.in_flight.push_back(group);
    }

    /// Failures of points that were given to [`Self::send`], as they happen; at most a thousand wait,
    /// more are only counted. A second call closes the first one's channel.
    pub fn failures(&mut self) -> mpsc::Receiver<PointFailure> {
        let (sink, failures) = mpsc::channel(FAILURES_WAITING);
        self.sink = Some(sink);
        failures
    }

    /// Waits until every chunk that was sent is durable or has failed.
    pub async fn drain(&mut self) {
        while let Some(group) = self.in_flight.front() {
            group.wait().await;
            self.in_flight.pop_front();
        }
    }

    /// Drops the points put since the last chunk ended.
    pub fn forget_chunk(&mut self) {
        self.log.clear();
        self.points = 0;
        self.chunk.clear();
    }

    /// Turns the log into cells and gives each write actor its part.
    async fn hand_over(&mut self, group: &Arc<CommitGroup>) {
        self.shared.received.fetch_add(self.points as u64, Ordering::Relaxed);
        self.shared.received_total.increment(self.points as u64);
        if self.shared.closed.load(Ordering::Acquire) {
            group.fail(self.tags().map(|tag| PointFailure { tag, error: PutError::Closed }));
            self.forget_chunk();
        }
        if !self.log.is_empty() {
            self.resolve_log(group).await;
        }
        let deadline = Instant::now() + self.shared.queue_deadline;
        let shared = Arc::clone(&self.shared);
        for (target, shard, part) in self.chunk.take_parts() {
            if let Some(shard) = shared.shards.get(shard) {
                send_part(part, target, shard, group, deadline).await;
            }
        }
        group.all_submitted();
        if let Some(tracker) = &shared.tracker {
            let seen = self.chunk.take_tracked();
            if !seen.is_empty() {
                MetaTracker::series_seen(tracker, &shared.tracking_lost, seen);
            }
        }
        self.points = 0;
        self.due_before = due_before(&self.shared);
    }

    /// Tags of the points put since the last chunk ended.
    fn tags(&self) -> impl Iterator<Item = u32> {
        self.chunk.tags().chain(self.log.iter().map(|entry| match entry {
            LogEntry::Known { body, .. } => body.tag(),
            LogEntry::New(point) => point.body.tag(),
        }))
    }

    async fn resolve_log(&mut self, group: &Arc<CommitGroup>) {
        let shared = Arc::clone(&self.shared);
        let generation = shared.series.generation();
        let names: Vec<_> = self
            .log
            .iter()
            .filter_map(|entry| match entry {
                LogEntry::New(point) => Some(&point.names),
                LogEntry::Known { .. } => None,
            })
            .collect();
        let mut series = shared.resolver.resolve(&names).await.into_iter();
        let Self { chunk, log, due_before, text, .. } = self;
        let (mut failures, mut learned) = (Vec::new(), Vec::new());
        for entry in log.drain(..) {
            let (tag, put) = match entry {
                LogEntry::Known { template, shard, touched, body } => {
                    (body.tag(), chunk.body(&shared, &template, shard, touched, &body))
                }
                LogEntry::New(point) => {
                    let tag = point.body.tag();
                    let put = match series.next() {
                        Some(Ok(series)) => chunk
                            .first_of_series(&shared, &point, &series, *due_before)
                            .map(|last_notified| learned.push((point, series, last_notified))),
                        Some(Err(error)) => Err(error.into()),
                        None => Err(PutError::Lost),
                    };
                    (tag, put)
                }
            };
            if let Err(error) = put {
                failures.push(PointFailure { tag, error });
            }
        }
        let learned = learned.iter().map(|(point, series, last_notified)| NewSeries {
            metric: &point.metric,
            tags: &point.tags,
            template: &series.template,
            write_shard: series.shard,
            last_notified: *last_notified,
        });
        shared.series.insert(generation, *text, learned);
        group.fail(failures);
    }
}

/// A series as its points need it.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedSeries {
    /// Row key with zeros for the base time.
    pub(crate) template: Vec<u8>,
    /// Write actor.
    pub(crate) shard: usize,
}

impl IngestShared {
    /// The shard's compaction round.
    pub(super) fn round(&self, shard: usize) -> u32 {
        self.rounds.get(shard).map_or(0, |round| round.load(Ordering::Relaxed))
    }
}

/// Sends a write shard its part of a chunk once the shard's budget admits it.
async fn send_part(
    part: ShardBatch,
    target: usize,
    shard: &WriteShard,
    group: &Arc<CommitGroup>,
    deadline: Instant,
) {
    let completion = group.completion(part.tags);
    let acquired = shard.budget.acquire(part.cells.byte_len());
    let permit = match tokio::time::timeout_at(deadline, acquired).await {
        Ok(Some(permit)) => permit,
        Ok(None) => return completion.complete(Err(PutError::Closed)),
        Err(_) => return completion.complete(Err(PutError::Throttled)),
    };
    let ShardBatch { cells, touched, .. } = part;
    let request = WriteRequest { target, cells, completion, touched, permit };
    // The budget admits no more requests than the mailbox holds, so a full mailbox is not expected.
    // A closed one drops the request, which completes it as lost.
    if let Err(SendError::Full(WriteMessage::Write(rejected))) =
        shard.writer.try_send(WriteMessage::Write(request))
    {
        rejected.completion.complete(Err(PutError::Throttled));
    }
}

/// Checks what needs no names: the value first, then the time.
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

/// Rows with this base time or an older one may have been compacted already.
fn due_before(shared: &IngestShared) -> u32 {
    u32::try_from(latest_base(shared.clock.now_secs()).max(0)).unwrap_or(u32::MAX)
}
