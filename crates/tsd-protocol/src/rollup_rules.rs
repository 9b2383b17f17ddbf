//! Validates rolled-up points and selects their table. Errors are OpenTSDB's texts.
//!
//! A tag that names the aggregator marks a point aggregated over series. This module adds the tag, or
//! validates it if the client sent it, so the stored series may differ from the sent series.

use tsd_model::{PointValue, RollupConfig, Timestamp};
use tsd_query::Aggregator;

use crate::{
    Latin1, PointError, SeriesRules, TagPairs,
    java_map::{JavaMapText, sort_tags_as_java_map},
};

/// Aggregators whose values cannot be aggregated again.
const DERIVED: [&[u8]; 2] = [b"avg", b"dev"];

/// Aggregators over time that a configuration may give an id, but whose cells no query reads; see
/// `tsd_query::choose_reads`.
const UNREAD: [(&[u8], &str); 6] = [
    (b"avg", "averages are computed from sum and count; send sum and count"),
    (b"dev", "deviations cannot be computed from rollups"),
    (b"zimsum", "queries for zimsum read sum; send sum"),
    (b"mimmin", "queries for mimmin read min; send min"),
    (b"mimmax", "queries for mimmax read max; send max"),
    (b"none", "no downsampling has this function"),
];

/// Rules for rolled-up points.
#[derive(Clone, Debug)]
pub struct RollupRules {
    /// Intervals and ids of aggregators.
    pub config: RollupConfig,
    /// Key of the tag that names the aggregator over series.
    pub aggregate_tag_key: String,
    /// Value of that tag for points of single series.
    pub raw_tag_value: String,
    /// Adds that tag to points of single series.
    pub tag_raw: bool,
    /// Rejects averages and deviations.
    pub block_derived: bool,
}

/// Interval and aggregators of a rolled-up point, as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollupSpec<'a> {
    /// Interval, such as `1h`.
    pub interval: Option<&'a [u8]>,
    /// Aggregator over time.
    pub aggregator: &'a [u8],
    /// Aggregator over series.
    pub group_by: Option<&'a [u8]>,
}

/// A rolled-up point without its tags, as sent.
#[derive(Clone, Copy, Debug)]
pub struct RollupPoint<'a> {
    /// Interval and aggregators.
    pub spec: RollupSpec<'a>,
    /// Metric.
    pub metric: &'a [u8],
    /// Timestamp.
    pub timestamp: Timestamp,
    /// Value.
    pub value: PointValue,
}

/// Table, qualifier and tag of a rolled-up point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollupPlacement {
    /// Index of the interval in the configuration, and id of the aggregator over time; `None` for a
    /// point aggregated only over series.
    pub slot: Option<(usize, u8)>,
    /// True if the point is aggregated over series.
    pub pre_aggregate: bool,
    /// Value of the tag that names the aggregator over series, if it is added.
    pub tag_value: Option<Vec<u8>>,
}

/// Why a rolled-up point cannot be stored. `Display` is OpenTSDB's text without the command and the
/// error class.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RollupError {
    /// An interval while rollups are disabled.
    #[error("No rollup or aggregations were configured")]
    Disabled,
    /// An interval that is not configured. Its error class is `No such rollup`.
    #[error("No rollups configured for the interval: {0}")]
    UnknownInterval(String),
    /// An aggregator without an id.
    #[error("{}", unknown_aggregator(.0))]
    UnknownAggregator(String),
    /// An aggregator that does not exist or is blocked.
    #[error("{reason} {aggregator} with metric {metric} {tags}")]
    RejectedAggregator {
        /// OpenTSDB's text.
        reason: &'static str,
        /// As sent; in upper case for a blocked rollup.
        aggregator: String,
        /// Metric of the point.
        metric: String,
        /// The tags as `{k=v}`.
        tags: String,
    },
    /// The aggregator tag names another aggregator.
    #[error(
        "Given tag value for {key} of {value} did not match the group by aggregator of \
         {aggregator} for {metric} {tags}"
    )]
    OtherAggregatorTag {
        /// Key of that tag.
        key: String,
        /// Value of that tag.
        value: String,
        /// The aggregator, or `null`.
        aggregator: String,
        /// Metric of the point.
        metric: String,
        /// The tags as `{k=v}`.
        tags: String,
    },
    /// A group-by aggregator while rollups are disabled, so its tag has no key.
    #[error("Invalid tag name with value [{0}]: null")]
    NoAggregatorTag(String),
    /// An interval whose rollups no query reads.
    #[error("no query reads rollups of the interval {interval}: {reason}")]
    UnreadInterval {
        /// As sent.
        interval: String,
        /// The reason, and what to send instead.
        reason: String,
    },
    /// An aggregator over time whose rollups no query reads.
    #[error("no query reads rollups by {aggregator}: {reason}")]
    UnreadAggregator {
        /// As sent.
        aggregator: String,
        /// The reason, and what to send instead.
        reason: &'static str,
    },
    /// An error of any kind of point.
    #[error(transparent)]
    Point(#[from] PointError),
}

fn unknown_aggregator(name: &str) -> String {
    if name.is_empty() {
        return "Aggregator cannot be null or empty.".to_owned();
    }
    format!("No ID found mapping to aggregator: {name}")
}

impl RollupError {
    /// Returns the error class of the telnet reply.
    #[must_use]
    pub const fn class(&self) -> &'static str {
        match self {
            Self::UnknownInterval(_) => "No such rollup",
            _ => "illegal argument",
        }
    }

    /// Returns the error of a point while rollups are disabled.
    #[must_use]
    pub fn without_configuration(spec: &RollupSpec<'_>) -> Self {
        match spec.group_by {
            Some(aggregator) if spec.interval.is_none() => {
                Self::NoAggregatorTag(upper(Latin1(aggregator)))
            }
            _ => Self::Disabled,
        }
    }
}

impl RollupRules {
    /// Returns the placement of a point without an aggregator tag; `None` if it is rejected, with
    /// the error of [`Self::check`].
    #[must_use]
    pub fn placement(&self, spec: &RollupSpec<'_>) -> Option<RollupPlacement> {
        let group_by_passes = |group_by: &[u8]| {
            is_aggregator(group_by) && !(self.block_derived && is_derived(group_by))
        };
        if spec.group_by.is_some_and(|group_by| !group_by_passes(group_by)) {
            return None;
        }
        let slot = match spec.interval {
            None => {
                spec.group_by?;
                None
            }
            Some(_) if self.block_derived && is_derived(spec.aggregator) => return None,
            Some(interval) => {
                let interval = self.interval(interval)?;
                let id = self.aggregator_id(spec.aggregator)?;
                if self.unread(interval, spec).is_some() {
                    return None;
                }
                Some((interval, id))
            }
        };
        let pre_aggregate = spec.group_by.is_some();
        Some(RollupPlacement { slot, pre_aggregate, tag_value: self.tag_value(spec) })
    }

    /// Validates a point in OpenTSDB's order of checks and returns its placement.
    pub fn check(
        &self,
        RollupPoint { spec, metric, timestamp, value }: &RollupPoint<'_>,
        tags: &TagPairs<'_>,
        series: &SeriesRules,
    ) -> Result<RollupPlacement, RollupError> {
        if timestamp.is_millis() {
            let time = timestamp.as_given();
            return Err(PointError::bad_timestamp(time, *value, metric, tags).into());
        }
        let key = self.aggregate_tag_key.as_bytes();
        let tag_value = self.tag_value(spec);
        let sent = tags.iter().find(|(k, _)| *k == key).map(|(_, value)| *value);
        if let Some(sent) = sent
            && !spec.group_by.is_some_and(|aggregator| aggregator.eq_ignore_ascii_case(sent))
        {
            return Err(RollupError::OtherAggregatorTag {
                key: self.aggregate_tag_key.clone(),
                value: Latin1(sent).to_string(),
                aggregator: spec.group_by.map_or("null".to_owned(), |a| Latin1(a).to_string()),
                metric: Latin1(metric).to_string(),
                tags: JavaMapText(tags).to_string(),
            });
        }
        let tags = with_tag(tags, key, tag_value.as_deref());
        let rejected = |reason, aggregator| RollupError::RejectedAggregator {
            reason,
            aggregator,
            metric: Latin1(metric).to_string(),
            tags: JavaMapText(&tags).to_string(),
        };
        if let Some(group_by) = spec.group_by {
            if !is_aggregator(group_by) {
                let aggregator = Latin1(group_by).to_string();
                return Err(rejected("Invalid group by aggregator", aggregator));
            }
            if self.block_derived && is_derived(group_by) {
                let reason = "Derived group by aggregations are not allowed";
                return Err(rejected(reason, Latin1(group_by).to_string()));
            }
        }
        series.check(metric, &tags)?;
        let slot = match spec.interval {
            None if spec.group_by.is_none() => return Err(RollupError::Disabled),
            None => None,
            Some(interval) => {
                let interval = self
                    .interval(interval)
                    .ok_or_else(|| RollupError::UnknownInterval(Latin1(interval).to_string()))?;
                let id = self.aggregator_id(spec.aggregator).ok_or_else(|| {
                    RollupError::UnknownAggregator(Latin1(spec.aggregator).to_string())
                })?;
                Some((interval, id))
            }
        };
        if self.block_derived && is_derived(spec.aggregator) {
            let reason = "Derived rollup aggregations are not allowed";
            return Err(rejected(reason, upper(Latin1(spec.aggregator))));
        }
        if let Some(error) = slot.and_then(|(interval, _)| self.unread(interval, spec)) {
            return Err(error);
        }
        let pre_aggregate = spec.group_by.is_some();
        Ok(RollupPlacement { slot, pre_aggregate, tag_value: self.tag_value(spec) })
    }

    /// Returns true if the raw tags may contain the aggregator tag.
    #[must_use]
    pub fn may_name_aggregator(&self, tags_raw: &[u8]) -> bool {
        memchr::memmem::find(tags_raw, self.aggregate_tag_key.as_bytes()).is_some()
    }

    /// Returns the tags of a point with the aggregator tag.
    #[must_use]
    pub fn tags<'a>(
        &'a self,
        tags: &[(&'a [u8], &'a [u8])],
        placement: &'a RollupPlacement,
    ) -> TagPairs<'a> {
        with_tag(tags, self.aggregate_tag_key.as_bytes(), placement.tag_value.as_deref())
    }

    /// Writes raw tags with the aggregator tag appended as a client would send it: the key of the
    /// series cache. The separators precede tags and values.
    pub fn write_cache_key(
        &self,
        tags_raw: &[u8],
        placement: &RollupPlacement,
        (before, between): (u8, u8),
        out: &mut Vec<u8>,
    ) {
        out.clear();
        out.extend_from_slice(tags_raw);
        if let Some(value) = &placement.tag_value {
            out.push(before);
            out.extend_from_slice(self.aggregate_tag_key.as_bytes());
            out.push(between);
            out.extend_from_slice(value);
        }
    }

    fn tag_value(&self, spec: &RollupSpec<'_>) -> Option<Vec<u8>> {
        match spec.group_by {
            Some(aggregator) => Some(aggregator.to_ascii_uppercase()),
            None => self.tag_raw.then(|| self.raw_tag_value.clone().into_bytes()),
        }
    }

    fn interval(&self, text: &[u8]) -> Option<usize> {
        self.config.intervals().iter().position(|interval| interval.interval.as_bytes() == text)
    }

    /// Returns why no query would read a point of an interval. OpenTSDB stores such points.
    fn unread(&self, at: usize, spec: &RollupSpec<'_>) -> Option<RollupError> {
        let intervals = self.config.intervals();
        let interval = intervals.get(at)?;
        let reason = if interval.is_default {
            let instead = if spec.group_by.is_some() {
                "send its pre-aggregates without an interval"
            } else {
                "send its points by put"
            };
            Some(format!("it is the default interval; {instead}"))
        } else {
            let mut before = intervals.iter().take(at);
            let chosen = before.find(|other| other.seconds == interval.seconds);
            chosen.map(|other| {
                format!(
                    "{} has the same length and precedes it in tsd.rollups.config",
                    other.interval
                )
            })
        };
        if let Some(reason) = reason {
            return Some(RollupError::UnreadInterval {
                interval: interval.interval.clone(),
                reason,
            });
        }
        let unread = UNREAD.iter().find(|(name, _)| name.eq_ignore_ascii_case(spec.aggregator));
        unread.map(|&(_, reason)| RollupError::UnreadAggregator {
            aggregator: Latin1(spec.aggregator).to_string(),
            reason,
        })
    }

    fn aggregator_id(&self, name: &[u8]) -> Option<u8> {
        self.config.aggregator_id(std::str::from_utf8(name).ok()?)
    }
}

fn is_aggregator(name: &[u8]) -> bool {
    std::str::from_utf8(name)
        .is_ok_and(|name| Aggregator::from_name(&name.to_ascii_lowercase()).is_some())
}

fn is_derived(aggregator: &[u8]) -> bool {
    DERIVED.iter().any(|derived| derived.eq_ignore_ascii_case(aggregator))
}

fn upper(text: Latin1<'_>) -> String {
    text.to_string().to_uppercase()
}

/// Adds a tag, or replaces its value.
fn with_tag<'a>(
    tags: &[(&'a [u8], &'a [u8])],
    key: &'a [u8],
    value: Option<&'a [u8]>,
) -> TagPairs<'a> {
    let mut tags = TagPairs::from_slice(tags);
    let Some(value) = value else { return tags };
    if let Some((_, sent)) = tags.iter_mut().find(|(k, _)| *k == key) {
        *sent = value;
    } else {
        tags.push((key, value));
        sort_tags_as_java_map(&mut tags);
    }
    tags
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    const CONFIG: &str = r#"{"aggregationIds":{"sum":0,"count":1,"avg":42},"intervals":[
    {"table":"tsdb","preAggregationTable":"agg","interval":"1m","rowSpan":"1h","defaultInterval":true},
    {"table":"r1h","preAggregationTable":"a1h","interval":"1h","rowSpan":"1n"}]}"#;

    fn rules() -> RollupRules {
        RollupRules {
            config: RollupConfig::from_json(CONFIG.as_bytes(), |_| true).unwrap(),
            aggregate_tag_key: "_aggregate".into(),
            raw_tag_value: "RAW".into(),
            tag_raw: false,
            block_derived: true,
        }
    }

    fn spec<'a>(interval: &'a str, aggregator: &'a str, group_by: &'a str) -> RollupSpec<'a> {
        let sent = |text: &'a str| Some(text.as_bytes()).filter(|text| !text.is_empty());
        RollupSpec {
            interval: sent(interval),
            aggregator: aggregator.as_bytes(),
            group_by: sent(group_by),
        }
    }

    fn point<'a>(spec: &RollupSpec<'a>, timestamp: Timestamp) -> RollupPoint<'a> {
        RollupPoint { spec: *spec, metric: b"m", timestamp, value: PointValue::Integer(42) }
    }

    fn check(
        rules: &RollupRules,
        spec: &RollupSpec<'_>,
        time: i64,
        tags: &[(&str, &str)],
    ) -> Result<RollupPlacement, String> {
        let pairs: TagPairs<'_> = tags.iter().map(|(k, v)| (k.as_bytes(), v.as_bytes())).collect();
        let time = Timestamp::try_new(time).unwrap();
        let checked = rules.check(&point(spec, time), &pairs, &SeriesRules::default());
        let names_none = tags.iter().all(|(key, _)| *key != "_aggregate");
        if names_none && !time.is_millis() && !pairs.is_empty() {
            assert_eq!(rules.placement(spec), checked.as_ref().ok().cloned(), "{spec:?}");
        }
        checked.map_err(|error| error.to_string())
    }

    const HOST: [(&str, &str); 1] = [("host", "a")];

    #[test]
    fn points_belong_to_intervals_and_groups() {
        let placement_of = |interval, aggregator, group_by| {
            check(&rules(), &spec(interval, aggregator, group_by), 1, &HOST).unwrap()
        };
        let placement = |slot, tag: Option<&str>| RollupPlacement {
            slot,
            pre_aggregate: tag.is_some(),
            tag_value: tag.map(|tag| tag.as_bytes().to_vec()),
        };
        assert_eq!(placement_of("1h", "sum", ""), placement(Some((1, 0)), None));
        assert_eq!(placement_of("1h", "Count", "max"), placement(Some((1, 1)), Some("MAX")));
        assert_eq!(placement_of("", "sum", "sum"), placement(None, Some("SUM")));
    }

    /// Issue 37, C11.
    #[test]
    fn rollups_that_no_query_reads_are_refused() {
        let mut rules = rules();
        rules.block_derived = false;
        let error = |interval, aggregator, group_by| {
            check(&rules, &spec(interval, aggregator, group_by), 1, &HOST).unwrap_err()
        };
        let texts = [error("1m", "sum", ""), error("1m", "Sum", "max"), error("1h", "AVG", "sum")];
        insta::assert_snapshot!(texts.join("\n"), @r"
        no query reads rollups of the interval 1m: it is the default interval; send its points by put
        no query reads rollups of the interval 1m: it is the default interval; send its pre-aggregates without an interval
        no query reads rollups by AVG: averages are computed from sum and count; send sum and count
        ");
    }

    #[test]
    fn errors_have_opentsdbs_order_and_texts() {
        let rules = rules();
        let error = |interval, aggregator, group_by, time, tags: &[(&str, &str)]| {
            check(&rules, &spec(interval, aggregator, group_by), time, tags).unwrap_err()
        };
        let with_tag = [("host", "a"), ("_aggregate", "max")];
        let bad_name = [("host", "a!")];
        let texts = [
            error("5m", "sum", "nope", 1_370_532_925_123, &with_tag),
            error("5m", "nope", "sum", 1, &with_tag),
            error("1h", "sum", "", 1, &with_tag),
            error("5m", "nope", "nope", 1, &bad_name),
            error("5m", "nope", "avg", 1, &bad_name),
            error("5m", "nope", "", 1, &bad_name),
            error("5m", "nope", "", 1, &[]),
            error("5m", "nope", "", 1, &HOST),
            error("1h", "nope", "", 1, &HOST),
            error("1h", "dev", "", 1, &HOST),
            error("1h", "avg", "", 1, &HOST),
        ];
        insta::assert_snapshot!(texts.join("\n"), @r#"
    bad timestamp=1370532925123 when trying to add value=[42]/0 to metric=m, tags={host=a, _aggregate=max}
    Given tag value for _aggregate of max did not match the group by aggregator of sum for m {host=a, _aggregate=max}
    Given tag value for _aggregate of max did not match the group by aggregator of null for m {host=a, _aggregate=max}
    Invalid group by aggregator nope with metric m {_aggregate=NOPE, host=a!}
    Derived group by aggregations are not allowed avg with metric m {_aggregate=AVG, host=a!}
    Invalid tag value with key [host] ("a!"): illegal character: !
    Need at least one tag (metric=m, tags={})
    No rollups configured for the interval: 5m
    No ID found mapping to aggregator: nope
    No ID found mapping to aggregator: dev
    Derived rollup aggregations are not allowed AVG with metric m {host=a}
    "#);
    }

    #[test]
    fn unknown_intervals_have_their_own_error_class() {
        let errors = [
            RollupError::UnknownInterval("5m".into()),
            RollupError::UnknownAggregator("last".into()),
            RollupError::UnknownAggregator(String::new()),
            RollupError::without_configuration(&spec("", "sum", "sum")),
            RollupError::without_configuration(&spec("1h", "sum", "sum")),
        ];
        let text = errors.map(|error| format!("rollup: {}: {error}\n", error.class()));
        insta::assert_snapshot!(text.concat(), @r"
    rollup: No such rollup: No rollups configured for the interval: 5m
    rollup: illegal argument: No ID found mapping to aggregator: last
    rollup: illegal argument: Aggregator cannot be null or empty.
    rollup: illegal argument: Invalid tag name with value [SUM]: null
    rollup: illegal argument: No rollup or aggregations were configured
    ");
    }

    #[test]
    fn the_tag_of_the_aggregator_is_forced_to_upper_case() {
        let rules = rules();
        let tags: TagPairs<'_> =
            [(&b"_aggregate"[..], &b"sum"[..]), (b"host", b"a")].into_iter().collect();
        let point = point(&spec("", "sum", "Sum"), Timestamp::try_new(1).unwrap());
        let placement_of = rules.check(&point, &tags, &SeriesRules::default()).unwrap();
        let expected: [(&[u8], &[u8]); 2] = [(b"_aggregate", b"SUM"), (b"host", b"a")];
        assert_eq!(rules.tags(&tags, &placement_of).as_slice(), expected);
        assert!(rules.may_name_aggregator(b"host=a _aggregate=sum"));
        assert!(!rules.may_name_aggregator(b"host=a"));
    }

    #[test]
    fn derived_aggregators_and_raw_tags_are_settings() {
        let open = RollupRules { block_derived: false, tag_raw: true, ..rules() };
        let grouped = check(&open, &spec("1h", "sum", "avg"), 1, &HOST).unwrap();
        assert_eq!(grouped.tag_value.as_deref(), Some(&b"AVG"[..]));
        let placement_of = check(&open, &spec("1h", "SUM", ""), 1, &HOST).unwrap();
        assert_eq!(placement_of.slot, Some((1, 0)));
        assert_eq!(placement_of.tag_value.as_deref(), Some(&b"RAW"[..]));
        let mut cache_key = Vec::new();
        open.write_cache_key(b"host=a", &placement_of, (b' ', b'='), &mut cache_key);
        assert_eq!(cache_key, b"host=a _aggregate=RAW");
        open.write_cache_key(b"host\na", &placement_of, (b'\n', b'\n'), &mut cache_key);
        assert_eq!(cache_key, b"host\na\n_aggregate\nRAW");
    }

    #[test]
    fn the_tag_of_the_aggregator_counts_towards_the_limit() {
        let rules = rules();
        let keys: Vec<String> = (0..8).map(|n| format!("k{n}")).collect();
        let tags: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "v")).collect();
        assert!(check(&rules, &spec("1h", "sum", ""), 1, &tags).is_ok());
        let pairs: TagPairs<'_> = tags.iter().map(|(k, v)| (k.as_bytes(), v.as_bytes())).collect();
        let point = point(&spec("1h", "sum", "sum"), Timestamp::try_new(1).unwrap());
        let error = rules.check(&point, &pairs, &SeriesRules::default());
        assert!(error.unwrap_err().to_string().starts_with("Too many tags: 9 maximum allowed: 8"));
    }

    proptest! {
        #[test]
        fn arbitrary_specs_never_panic(
            interval in prop::option::of(prop::collection::vec(any::<u8>(), 0..4)),
            aggregator in prop::collection::vec(any::<u8>(), 0..4),
            group_by in prop::option::of(prop::collection::vec(any::<u8>(), 0..4)),
        ) {
            let spec = RollupSpec {
                interval: interval.as_deref(),
                aggregator: &aggregator,
                group_by: group_by.as_deref(),
            };
            prop_assert!(rules().placement(&spec).is_none());
        }
    }
}
