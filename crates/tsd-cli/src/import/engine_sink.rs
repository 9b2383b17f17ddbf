//! Stores imported points with the engine of this process.

use tokio::sync::mpsc;
use tsd_engine::{
    EngineHandle, HistogramCodecs, IngestSession, NameText, PointFailure, Sample, SampleContent,
};
use tsd_protocol::{RollupRules, TagPairs};
use tsd_server::rollup_rules;

use super::{
    importer::{PointSink, Refusal, SinkFailure},
    json_line::JsonLine,
    line::ImportLine,
};

/// A session of the engine. The importer reads its failures after each block.
pub(super) struct EngineSink {
    session: IngestSession,
    failures: mpsc::UnboundedReceiver<PointFailure>,
    settle_new_series: bool,
    /// Points that were committed alone.
    settled: u64,
    rollups: Option<RollupRules>,
    histograms: Option<HistogramCodecs>,
}

impl EngineSink {
    pub(super) fn new(engine: &EngineHandle, settle_new_series: bool) -> Self {
        let mut session = engine.ingest_session(NameText::Utf8);
        let failures = session.failures();
        let config = engine.config();
        let (rollups, histograms) = (rollup_rules(config), config.histograms.clone());
        Self { session, failures, settle_new_series, settled: 0, rollups, histograms }
    }

    /// Puts a sample. `tags` parses its tags if the series is not cached.
    async fn put_sample<'s>(
        &mut self,
        sample: Sample<'s>,
        tags: impl Fn() -> Result<TagPairs<'s>, Refusal>,
        is_new: &mut bool,
    ) -> Result<(), Refusal> {
        if !self.settle_new_series || self.session.is_cached(sample.metric, sample.tags_raw) {
            return self.add(sample, tags, is_new);
        }
        // Committed alone, because the result decides about the next line.
        self.session.send().await;
        self.add(sample, tags, is_new)?;
        let mut report = self.session.commit().await;
        self.settled += report.stored as u64;
        report.failures.pop().map_or(Ok(()), |failure| Err(failure.error.into()))
    }

    /// Adds a sample to the session.
    fn add<'s>(
        &mut self,
        sample: Sample<'s>,
        tags: impl Fn() -> Result<TagPairs<'s>, Refusal>,
        is_new: &mut bool,
    ) -> Result<(), Refusal> {
        let refused = self.session.put(
            &[()],
            |()| sample,
            |()| {
                *is_new = true;
                tags()
            },
        );
        let refused = refused.into_iter().next();
        refused.map_or(Ok(()), |(_, refusal)| Err(refusal))
    }
}

impl PointSink for EngineSink {
    async fn put(
        &mut self,
        point: &ImportLine<'_>,
        number: u32,
        is_new: &mut bool,
    ) -> Result<(), Refusal> {
        let sample = Sample {
            metric: point.metric,
            tags_raw: point.tags_raw,
            timestamp: point.timestamp,
            content: SampleContent::Point(point.value),
            tag: number,
        };
        self.put_sample(sample, || Ok(point.tags()?), is_new).await
    }

    async fn put_json(
        &mut self,
        json: JsonLine,
        number: u32,
        is_new: &mut bool,
    ) -> Result<(), Refusal> {
        let content = json.content(self.rollups.as_ref(), self.histograms.as_ref())?;
        let sample = Sample {
            metric: json.metric.as_bytes(),
            tags_raw: content.tags_raw(),
            timestamp: json.timestamp,
            content: content.sample(),
            tag: number,
        };
        self.put_sample(sample, || Ok(content.tags()), is_new).await
    }

    async fn send(&mut self) {
        self.session.send().await;
    }

    async fn drain(&mut self) {
        self.session.send().await;
        self.session.drain().await;
    }

    fn take_failures(&mut self) -> Vec<SinkFailure> {
        let mut failures = Vec::new();
        while let Ok(PointFailure { tag, error, .. }) = self.failures.try_recv() {
            failures.push(SinkFailure { line: u64::from(tag), refusal: error.into() });
        }
        failures
    }

    fn stored(&self) -> u64 {
        self.session.stored() + self.settled
    }
}
