//! An ingest session: the samples of one connection or request, collected into chunks and submitted
//! to the write shards.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::sync::mpsc;
use tsd_model::decode_latin1;
use tsd_read::{MetricAct, MetricRights};
use tsd_runtime::Receipt;

use super::{
    NameText,
    chunk::{CellSeries, Chunk},
    chunk_log::{EntryBody, LogEntry, PointBody, UnresolvedPoint},
    commit_group::CommitGroup,
    extra_cell::ExtraCell,
    name_list::NameList,
    sample::{Sample, SampleContent},
    shared::IngestShared,
    validate::check_point,
};
use crate::{
    put_error::{CommitReport, PointFailure, PutError},
    series_cache::{CachedSeries, GROUP, SeriesOrder},
    uid::{CreatableNames, SeriesAllowance},
};

/// After a chunk smaller than this, the session sends to a single write shard.
const FEW_POINTS: usize = 64;
/// After a chunk of at least this many points, the session sends to all write shards again.
const MANY_POINTS: usize = 512;

/// Collects the samples of one connection or request into chunks.
///
/// [`Self::put`] adds samples of all kinds. [`Self::commit`] ends a chunk and waits until it is durable;
/// [`Self::send`] ends it and waits until it is accepted. Points of one cell are stored in the order in which they
/// were put.
#[derive(Debug)]
pub struct IngestSession {
    pub(super) shared: Arc<IngestShared>,
    pub(super) text: NameText,
    pub(super) chunk: Chunk,
    pub(super) log: Vec<LogEntry>,
    pub(super) points: usize,
    pub(super) due_before: u32,
    pub(super) in_flight: VecDeque<Arc<CommitGroup>>,
    /// True if sent chunks go to one write shard.
    pub(super) sends_to_one: bool,
    /// True if the last sent chunk was smaller than [`FEW_POINTS`].
    sent_few: bool,
    pub(super) failures: Option<mpsc::UnboundedSender<PointFailure>>,
    pub(super) holds: bool,
    pub(super) stored: u64,
    pub(super) creatable: CreatableNames,
    /// The metrics that the sender may write.
    rights: MetricRights,
    /// Decides about new series; `None` if the sender may add any.
    pub(super) new_series: Option<Arc<dyn SeriesAllowance>>,
    /// When the daemon received the points of the chunk, if they have a deadline.
    pub(super) receipt: Option<Receipt>,
    /// Predicts where the cache has the series of the next point.
    pub(super) order: SeriesOrder,
}

impl IngestSession {
    /// Points per look-up in the series cache.
    pub const GROUP: usize = GROUP;

    pub(crate) fn new(shared: Arc<IngestShared>, text: NameText) -> Self {
        let due_before = shared.due_before();
        Self {
            shared,
            text,
            chunk: Chunk::default(),
            log: Vec::new(),
            points: 0,
            due_before,
            in_flight: VecDeque::new(),
            sends_to_one: false,
            sent_few: false,
            failures: None,
            holds: false,
            stored: 0,
            creatable: CreatableNames::default(),
            rights: MetricRights::default(),
            new_series: None,
            receipt: None,
            order: SeriesOrder::default(),
        }
    }

    /// Sends each chunk to a single write shard instead of one shard per bucket, and reserves memory for this many
    /// points. Meant for small chunks that end with [`Self::commit`]: twenty calls of two points cost more than the
    /// points.
    ///
    /// Other sessions may write the same cells through other shards. A client that needs an order between sessions
    /// must wait for the first response, as with any two requests. Has no effect after the first point.
    pub fn use_single_shard(&mut self, points: usize) {
        if self.chunk.is_unused() {
            self.use_next_shard(points);
        }
    }

    /// Sends later cells to one write shard, chosen round robin among sessions.
    fn use_next_shard(&mut self, points: usize) {
        let next = self.shared.next_shard.fetch_add(1, Ordering::Relaxed);
        self.chunk.use_single_shard(next % self.shared.shards.len().max(1), points);
    }

    /// Limits the names that the points may create, and the metrics that they may have. Other points fail.
    pub fn restrict(&mut self, creatable: CreatableNames, rights: MetricRights) {
        self.creatable = creatable;
        self.rights = rights;
    }

    /// Limits the new series that the points may add. Points of other new series fail, and their names get no UIDs.
    pub fn limit_new_series(&mut self, allowance: Option<Arc<dyn SeriesAllowance>>) {
        self.new_series = allowance;
    }

    /// Sets when the daemon received the points of the chunks that end from now on. Points that were received before the
    /// daemon stood still fail.
    pub fn set_receipt(&mut self, receipt: Option<Receipt>) {
        self.receipt = receipt;
    }

    /// Holds points that end with [`Self::send`] while the store does not accept them, instead of failing them. Held
    /// points are written again, in order, until they are stored, fail permanently, or
    /// [`EngineHandle::end_holds`](crate::EngineHandle::end_holds) is called.
    pub fn hold_points(&mut self) {
        self.holds = true;
    }

    /// Adds samples, in order; best [`Self::GROUP`] per call. Returns the rejected samples, in order: index in
    /// `inputs` and error. Every kind of value enters a chunk here.
    ///
    /// `sample` converts a caller's input. `tags` parses the tags of a sample whose series is not cached, and must
    /// return distinct keys; such a sample is logged until its UIDs are resolved. Numbers and names are checked here,
    /// in OpenTSDB's order; missing UIDs are reported when the chunk ends.
    #[inline]
    pub fn put<'p, P, T, E>(
        &mut self,
        inputs: &'p [P],
        sample: impl Fn(&'p P) -> Sample<'p>,
        mut tags: impl FnMut(&'p P) -> Result<T, E>,
    ) -> Vec<(usize, E)>
    where
        T: AsRef<[(&'p [u8], &'p [u8])]>,
        E: From<PutError>,
    {
        if self.sent_few {
            self.send_few_to_one();
        }
        let shared = Arc::clone(&self.shared);
        let mut rejected = Vec::new();
        for (nth, group) in inputs.chunks(GROUP).enumerate() {
            let cache = shared.series.read();
            if let [input] = group {
                let Sample { metric, tags_raw, .. } = sample(input);
                let series = cache.find(self.text, metric, tags_raw);
                if let Err(error) = self.put_one(series, input, &sample, &mut tags) {
                    rejected.push((nth * GROUP, error));
                }
                continue;
            }
            let names = group.iter().map(|input| {
                let Sample { metric, tags_raw, .. } = sample(input);
                (metric, tags_raw)
            });
            let series = cache.find_group(self.text, names, &mut self.order);
            for (at, (input, series)) in group.iter().zip(series).enumerate() {
                if let Err(error) = self.put_one(series, input, &sample, &mut tags) {
                    rejected.push((nth * GROUP + at, error));
                }
            }
        }
        rejected
    }

    /// True if the series of these bytes, as the client sent them, is cached, so its points need no UID look-ups.
    #[must_use]
    pub fn is_cached(&self, metric: &[u8], tags_raw: &[u8]) -> bool {
        self.shared.series.read().find(self.text, metric, tags_raw).is_some()
    }

    #[inline]
    fn put_one<'p, P, T, E>(
        &mut self,
        series: Option<CachedSeries<'_>>,
        input: &'p P,
        sample: &impl Fn(&'p P) -> Sample<'p>,
        tags: &mut impl FnMut(&'p P) -> Result<T, E>,
    ) -> Result<(), E>
    where
        T: AsRef<[(&'p [u8], &'p [u8])]>,
        E: From<PutError>,
    {
        if !self.rights.are_all() {
            self.check_rights(sample(input).metric)?;
        }
        match series {
            Some(series) => {
                let names = if self.shared.plugins.are_on() {
                    Some(self.names_of(&sample(input), tags(input)?.as_ref())?)
                } else {
                    None
                };
                // Take the fields of a point apart at once. A sample in memory is written in pieces and read as a
                // whole, and such a read waits for all the writes.
                Ok(match sample(input) {
                    Sample { content: SampleContent::Point(value), timestamp, tag, .. } => {
                        PointBody::try_new(timestamp, value, tag)
                            .and_then(|body| self.put_cached_point(series, body, names))
                    }
                    other => self.put_cached(series, &other, names),
                }?)
            }
            None => tags(input).and_then(|tags| Ok(self.put_new(&sample(input), tags.as_ref())?)),
        }
    }

    /// Fails unless the sender may write a metric.
    #[inline(never)]
    fn check_rights(&self, metric: &[u8]) -> Result<(), PutError> {
        if self.text == NameText::Latin1 && self.rights.allows_stored(MetricAct::Write, metric) {
            return Ok(());
        }
        Ok(match self.text {
            NameText::Latin1 => self.rights.check(MetricAct::Write, &decode_latin1(metric)),
            NameText::Utf8 => self.rights.check(MetricAct::Write, &String::from_utf8_lossy(metric)),
        }?)
    }

    /// The names of a sample, for plug-ins.
    #[inline(never)]
    fn names_of(&self, sample: &Sample<'_>, tags: &[(&[u8], &[u8])]) -> Result<NameList, PutError> {
        let shared = &*self.shared;
        check_point(&shared.names, shared.max_tags, self.text, sample.metric, tags)
    }

    /// Adds a sample of a cached series. `names` are set if a plug-in gets it.
    #[inline(never)]
    fn put_cached(
        &mut self,
        series: CachedSeries<'_>,
        sample: &Sample<'_>,
        names: Option<NameList>,
    ) -> Result<(), PutError> {
        let targets = &self.shared.targets;
        match sample.content {
            SampleContent::Point(value) => {
                let body = PointBody::try_new(sample.timestamp, value, sample.tag)?;
                self.put_cached_point(series, body, names)
            }
            SampleContent::Rollup { place, value } => {
                let cell = targets.rollup(place, sample.timestamp, value)?;
                self.put_cached_cell(series, cell, sample.tag, names)
            }
            SampleContent::Histogram(value) => {
                let cell = targets.histogram(sample.timestamp, value)?;
                self.put_cached_cell(series, cell, sample.tag, names)
            }
        }
    }

    #[inline]
    fn put_cached_point(
        &mut self,
        series: CachedSeries<'_>,
        body: PointBody,
        names: Option<NameList>,
    ) -> Result<(), PutError> {
        let Self { shared, chunk, log, due_before, .. } = self;
        let shared = &**shared;
        let base = body.timestamp.base_time().as_secs();
        let shard = series.write_shard();
        let round = || shared.round(shard);
        let notify = shared.compaction
            && series.last_notified().advance(|last| last.next(base, *due_before, round));
        if log.is_empty() {
            let template = series.template();
            let series = CellSeries { template, shard, names: names.as_ref() };
            chunk.point(shared, series, notify, body)?;
        } else {
            let template = series.template().into();
            let (body, names) = (EntryBody::Point(body), names.map(Box::new));
            log.push(LogEntry::Cached { template, shard, notify, body, names });
        }
        self.points += 1;
        Ok(())
    }

    // Not inlined, because it would crowd the loop over points.
    #[inline(never)]
    fn put_cached_cell(
        &mut self,
        series: CachedSeries<'_>,
        cell: ExtraCell<'_>,
        tag: u32,
        names: Option<NameList>,
    ) -> Result<(), PutError> {
        let Self { shared, chunk, log, .. } = self;
        let (template, shard) = (series.template(), series.write_shard());
        if log.is_empty() {
            let series = CellSeries { template, shard, names: names.as_ref() };
            chunk.cell(shared, series, &cell, tag)?;
        } else {
            let body = EntryBody::Cell(Box::new(cell.into_owned()), tag);
            let (template, names) = (template.into(), names.map(Box::new));
            log.push(LogEntry::Cached { template, shard, notify: false, body, names });
        }
        self.points += 1;
        Ok(())
    }

    /// Logs a sample of a series that is not cached, until its UIDs are resolved.
    fn put_new(&mut self, sample: &Sample<'_>, tags: &[(&[u8], &[u8])]) -> Result<(), PutError> {
        let shared = &*self.shared;
        let Sample { timestamp, tag, .. } = *sample;
        let body = match sample.content {
            SampleContent::Point(value) => {
                EntryBody::Point(PointBody::try_new(timestamp, value, tag)?)
            }
            SampleContent::Rollup { place, value } => {
                EntryBody::Cell(Box::new(shared.targets.rollup(place, timestamp, value)?), tag)
            }
            SampleContent::Histogram(value) => {
                let cell = shared.targets.histogram(timestamp, value)?.into_owned();
                EntryBody::Cell(Box::new(cell), tag)
            }
        };
        let names = check_point(&shared.names, shared.max_tags, self.text, sample.metric, tags)?;
        // Checked before the names get UIDs.
        shared.write_filter.check(&names, &sample.content)?;
        if let (Some(retention), Some(name)) = (&shared.retention, names.get(0)) {
            let time_secs = body.time_secs();
            retention
                .check_named_put(name, time_secs)
                .map_err(|cutoff_secs| PutError::Expired { time_secs, cutoff_secs })?;
        }
        shared.cache_misses.increment(1);
        let (metric, tags) = (sample.metric.into(), sample.tags_raw.into());
        self.log.push(LogEntry::New(Box::new(UnresolvedPoint { metric, tags, names, body })));
        self.points += 1;
        Ok(())
    }

    /// Number of points since the last chunk ended whose series was not cached, and of the points behind them.
    #[must_use]
    pub const fn unresolved(&self) -> usize {
        self.log.len()
    }

    /// Number of points put since the last chunk ended.
    #[must_use]
    pub const fn pending(&self) -> usize {
        self.points
    }

    /// Ends the chunk and waits until each point is durable or has failed.
    pub async fn commit(&mut self) -> CommitReport {
        self.commit_within(None).await
    }

    /// Like [`Self::commit`], but waits at most `limit`. Points without a result by then may still be stored, and are
    /// counted in [`CommitReport::timed_out`].
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
            self.refuse_rest(&PutError::Throttled("not stored in time"));
            self.discard_chunk();
            report.timed_out =
                points.saturating_sub(report.stored).saturating_sub(report.failures.len());
        }
        report
    }

    /// Ends the chunk and waits until the write shards accept it, which limits a sender to the rate of the storage.
    /// Failures go to [`Self::failures`].
    pub async fn send(&mut self) {
        if self.points == 0 {
            return;
        }
        let points = self.points;
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
        self.sent_few = points < FEW_POINTS;
        if self.sends_to_one && points >= MANY_POINTS {
            // Drain first, because the order of one cell's points is not kept across shards.
            self.drain().await;
            self.sends_to_one = false;
            self.chunk.use_all_shards();
        }
    }

    /// Switches to one write shard after all points in flight are stored, if chunks are small. Twenty messages and
    /// calls of the store for two points each cost more than the points.
    fn send_few_to_one(&mut self) {
        if self.points == 0
            && !self.sends_to_one
            && self.in_flight.iter().all(|sent| sent.is_done())
        {
            self.sends_to_one = true;
            self.use_next_shard(0);
        }
    }

    /// Returns the channel with the failures of chunks ended by [`Self::send`]. The chunks in flight bound its length.
    /// A second call replaces the channel.
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

    /// Number of durable points of chunks ended by [`Self::send`]. Exact after [`Self::drain`], and a lower bound
    /// before.
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
}
