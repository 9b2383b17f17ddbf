//! Where a rolled-up point belongs, and why one is refused, in OpenTSDB's words.
//!
//! A point that was aggregated over series is told from others by a tag that names the aggregator. It
//! is added here, or checked where the client sent it; so a rolled-up point can have another series
//! than its text says.

use std::fmt::Write;

use tsd_model::{PointValue, RollupConfig, Timestamp};
use tsd_query::Aggregator;

use crate::{
    Latin1, PointFault, SeriesRules, TagPairs,
    java_map::{MapText, sort_tags_as_java_map},
};

/// Aggregators whose values cannot be aggregated again.
const DERIVED: [&[u8]; 2] = [b"avg", b"dev"];

/// What the configuration says about rolled-up points.
#[derive(Clone, Debug)]
pub struct RollupRules {
    /// Intervals and ids of aggregators.
    pub config: RollupConfig,
    /// Key of the tag that names the aggregator over series.
    pub aggregate_tag_key: String,
    /// Value of that tag for points of single series.
    pub raw_tag_value: String,
    /// Whether points of single series get that tag.
    pub tag_raw: bool,
    /// Whether averages and deviations are refused.
    pub block_derived: bool,
}

/// How a point was made, as its client says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RollupSpec<'a> {
    /// Interval, such as `1h`.
    pub interval: Option<&'a [u8]>,
    /// Aggregator over time.
    pub aggregator: &'a [u8],
    /// Aggregator over series.
    pub group_by: Option<&'a [u8]>,
}

/// Where a point belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollupPlacement {
    /// The interval, as the configuration counts them, and the id of the aggregator over time; absent
    /// for a point that is aggregated over series alone.
    pub slot: Option<(usize, u8)>,
    /// Whether the point is aggregated over series.
    pub pre_aggregate: bool,
    /// Value of the tag that names the aggregator over series, if the point is to have it.
    pub tag_value: Option<Vec<u8>>,
}

/// Why a rolled-up point cannot be stored, in OpenTSDB's words without the command and
/// `illegal argument: `, except where the text says otherwise.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RollupFault {
    /// An interval while rollups are off.
    #[error("No rollup or aggregations were configured")]
    Disabled,
    /// An interval that is not configured. Stands behind `No such rollup: `.
    #[error("No rollups configured for the interval: {0}")]
    UnknownInterval(String),
    /// An aggregator without an id.
    #[error("No ID found mapping to aggregator: {0}")]
    UnknownAggregator(String),
    /// A group-by aggregator that does not exist.
    #[error("Invalid group by aggregator {aggregator} with metric {metric} {tags}")]
    UnknownGroupBy {
        /// As written.
        aggregator: String,
        /// Metric of the point.
        metric: String,
        /// The tags as `{k=v}`.
        tags: String,
    },
    /// An average or deviation over time while those are blocked.
    #[error("Derived rollup aggregations are not allowed {aggregator} with metric {metric} {tags}")]
    DerivedRollup {
        /// In upper case.
        aggregator: String,
        /// Metric of the point.
        metric: String,
        /// The tags as `{k=v}`.
        tags: String,
    },
    /// An average or deviation over series while those are blocked.
    #[error(
        "Derived group by aggregations are not allowed {aggregator} with metric {metric} {tags}"
    )]
    DerivedGroupBy {
        /// In upper case.
        aggregator: String,
        /// Metric of the point.
        metric: String,
        /// The tags as `{k=v}`.
        tags: String,
    },
    /// The tag that names the aggregator names another one.
    #[error(
        "Given tag value for {key} of {value} did not match the group by aggregator of \
         {aggregator} for {metric} {tags}"
    )]
    OtherAggregatorTag {
        /// Key of that tag.
        key: String,
        /// Its value.
        value: String,
        /// The aggregator, or `null`.
        aggregator: String,
        /// Metric of the point.
        metric: String,
        /// The tags as `{k=v}`.
        tags: String,
    },
    /// A group-by aggregator while rollups are off, so that its tag has no key.
    #[error("Invalid tag name with value [{0}]: null")]
    NoAggregatorTag(String),
    /// What any point may be refused for.
    #[error(transparent)]
    Point(#[from] PointFault),
}

impl RollupFault {
    /// Writes the whole reply to a telnet line.
    pub fn render(&self, out: &mut String) {
        let class = match self {
            Self::UnknownInterval(_) => "No such rollup",
            _ => "illegal argument",
        };
        // Writing to memory cannot fail.
        let _ = writeln!(out, "rollup: {class}: {self}");
    }

    /// The fault of a point while rollups are off.
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
    /// Where a point belongs whose tags do not name an aggregator; `None` if it is refused, for a
    /// reason that [`Self::check`] tells.
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
                Some((interval, self.aggregator_id(spec.aggregator)?))
            }
        };
        let pre_aggregate = spec.group_by.is_some();
        Some(RollupPlacement { slot, pre_aggregate, tag_value: self.tag_value(spec) })
    }

    /// Checks a point as OpenTSDB does and in its order, and says where it belongs.
    pub fn check(
        &self,
        spec: &RollupSpec<'_>,
        metric: &[u8],
        timestamp: Timestamp,
        value: PointValue,
        tags: &TagPairs<'_>,
        series: &SeriesRules,
    ) -> Result<RollupPlacement, RollupFault> {
        if timestamp.is_millis() {
            let time = timestamp.as_given();
            return Err(PointFault::bad_timestamp(time, value, metric, tags).into());
        }
        let key = self.aggregate_tag_key.as_bytes();
        let tag_value = self.tag_value(spec);
        let given = tags.iter().find(|(k, _)| *k == key).map(|(_, value)| *value);
        let metric_text = Latin1(metric).to_string();
        if let Some(given) = given
            && !spec.group_by.is_some_and(|aggregator| aggregator.eq_ignore_ascii_case(given))
        {
            return Err(RollupFault::OtherAggregatorTag {
                key: self.aggregate_tag_key.clone(),
                value: Latin1(given).to_string(),
                aggregator: spec.group_by.map_or("null".to_owned(), |a| Latin1(a).to_string()),
                metric: metric_text,
                tags: MapText(tags).to_string(),
            });
        }
        let tags = with_tag(tags, key, tag_value.as_deref());
        let tags_text = || MapText(&tags).to_string();
        if let Some(group_by) = spec.group_by {
            if !is_aggregator(group_by) {
                return Err(RollupFault::UnknownGroupBy {
                    aggregator: Latin1(group_by).to_string(),
                    metric: metric_text,
                    tags: tags_text(),
                });
            }
            if self.block_derived && is_derived(group_by) {
                return Err(RollupFault::DerivedGroupBy {
                    aggregator: upper(Latin1(group_by)),
                    metric: metric_text,
                    tags: tags_text(),
                });
            }
        }
        series.check(metric, &tags)?;
        let slot = match spec.interval {
            None if spec.group_by.is_none() => return Err(RollupFault::Disabled),
            None => None,
            Some(interval) => {
                let interval = self
                    .interval(interval)
                    .ok_or_else(|| RollupFault::UnknownInterval(Latin1(interval).to_string()))?;
                let id = self.aggregator_id(spec.aggregator).ok_or_else(|| {
                    RollupFault::UnknownAggregator(Latin1(spec.aggregator).to_string())
                })?;
                Some((interval, id))
            }
        };
        if self.block_derived && is_derived(spec.aggregator) {
            return Err(RollupFault::DerivedRollup {
                aggregator: upper(Latin1(spec.aggregator)),
                metric: metric_text,
                tags: tags_text(),
            });
        }
        let pre_aggregate = spec.group_by.is_some();
        Ok(RollupPlacement { slot, pre_aggregate, tag_value: self.tag_value(spec) })
    }

    /// Whether the text of tags may name an aggregator.
    #[must_use]
    pub fn may_name_aggregator(&self, tags_raw: &[u8]) -> bool {
        memchr::memmem::find(tags_raw, self.aggregate_tag_key.as_bytes()).is_some()
    }

    /// A point's tags with the one that names the aggregator.
    #[must_use]
    pub fn tags<'a>(
        &'a self,
        tags: &[(&'a [u8], &'a [u8])],
        placement: &'a RollupPlacement,
    ) -> TagPairs<'a> {
        with_tag(tags, self.aggregate_tag_key.as_bytes(), placement.tag_value.as_deref())
    }

    /// The text of tags that do not name the aggregator, with that tag as its client would have added it:
    /// the key of a series cache. `before` stands in front of tags, `between` in front of values.
    pub fn spell(
        &self,
        tags_raw: &[u8],
        placement: &RollupPlacement,
        before: u8,
        between: u8,
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

/// Tags with one more, or with another value of it.
fn with_tag<'a>(
    tags: &[(&'a [u8], &'a [u8])],
    key: &'a [u8],
    value: Option<&'a [u8]>,
) -> TagPairs<'a> {
    let mut tags = TagPairs::from_slice(tags);
    let Some(value) = value else { return tags };
    if let Some((_, given)) = tags.iter_mut().find(|(k, _)| *k == key) {
        *given = value;
    } else {
        tags.push((key, value));
        sort_tags_as_java_map(&mut tags);
    }
    tags
}

#[cfg(test)]
mod tests;
