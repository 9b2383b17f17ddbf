//! Passes rolled-up points and histograms of both protocols to an ingest session.

use tsd_engine::{EngineConfig, IngestSession, PutError, RollupTarget, Sample, SampleContent};
use tsd_protocol::{RollupError, RollupPlacement, RollupPoint, RollupRules, SeriesRules, TagPairs};

/// Returns the rules for rolled-up points; `None` if rollups are not configured.
#[must_use]
pub fn rollup_rules(config: &EngineConfig) -> Option<RollupRules> {
    config.rollups.as_ref().map(|rollups| RollupRules {
        config: rollups.config.clone(),
        aggregate_tag_key: rollups.aggregate_tag_key.clone(),
        raw_tag_value: rollups.raw_tag_value.clone(),
        tag_raw: rollups.tag_raw,
        block_derived: rollups.block_derived,
    })
}

/// Converts a placement to the engine's type.
const fn rollup_place(placement: &RollupPlacement) -> RollupTarget {
    match placement.slot {
        None => RollupTarget::PreAggregate,
        Some((interval, aggregator_id)) => {
            RollupTarget::Slot { interval, aggregator_id, pre_aggregate: placement.pre_aggregate }
        }
    }
}

/// A rolled-up point as its protocol parsed it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RollupInput<'a> {
    pub(crate) point: RollupPoint<'a>,
    pub(crate) tags_raw: &'a [u8],
    /// Bytes that precede a tag and a value in `tags_raw`.
    pub(crate) separators: (u8, u8),
    /// Identifies the point in failures.
    pub(crate) tag: u32,
}

/// Passes rolled-up points to a session.
#[derive(Debug)]
pub(crate) struct RollupWriter<'w> {
    pub(crate) session: &'w mut IngestSession,
    pub(crate) rules: &'w RollupRules,
    pub(crate) series: &'w SeriesRules,
    /// Scratch space.
    pub(crate) tag_buffer: &'w mut Vec<u8>,
}

impl RollupWriter<'_> {
    /// Passes a point. `parse_tags` parses [`RollupInput::tags_raw`], if the series is not cached or the tags may
    /// name an aggregator.
    pub(crate) fn put<'a, E>(
        self,
        input: &RollupInput<'a>,
        parse_tags: impl Fn(&'a [u8]) -> Result<TagPairs<'a>, E>,
    ) -> Result<(), E>
    where
        E: From<PutError> + From<RollupError>,
    {
        let Self { session, rules, series, tag_buffer } = self;
        let RollupInput { point, tags_raw, separators, tag } = *input;
        let RollupPoint { spec, metric, timestamp, value } = point;
        let check = |tags: &TagPairs<'_>| rules.check(&point, tags, series);
        // Fast path: most points are valid and have no aggregator tag. Other points are checked in OpenTSDB's order.
        let plain = if rules.may_name_aggregator(tags_raw) || timestamp.is_millis() {
            None
        } else {
            rules.placement(&spec)
        };
        let (placement, is_checked) = match plain {
            Some(placement) => (placement, false),
            None => (check(&parse_tags(tags_raw)?)?, true),
        };
        rules.write_cache_key(tags_raw, &placement, separators, tag_buffer);
        let content = SampleContent::Rollup { place: rollup_place(&placement), value };
        let timestamp = timestamp.as_given();
        let sample = Sample { metric, tags_raw: tag_buffer, timestamp, content, tag };
        put_one(session, &sample, || {
            let tags = parse_tags(tags_raw)?;
            if !is_checked {
                check(&tags)?;
            }
            Ok(rules.tags(&tags, &placement))
        })
    }
}

/// Passes one sample to the session. `tags` parses its tags if its series is not cached.
pub(crate) fn put_one<'a, E: From<PutError>>(
    session: &mut IngestSession,
    sample: &'a Sample<'a>,
    tags: impl Fn() -> Result<TagPairs<'a>, E>,
) -> Result<(), E> {
    let rejected = session.put(std::slice::from_ref(sample), |sample| *sample, |_| tags());
    rejected.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
}
