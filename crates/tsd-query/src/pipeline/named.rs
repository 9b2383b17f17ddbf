//! A series of a result with names instead of UIDs.

use bytes::Bytes;
use tsd_model::{Annotation, PointColumns, TagkUid, TagvUid};

use super::{evaluate::OutputSeries, group::GroupTags};

/// One series of a result, with names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedSeries {
    /// Name of the metric, or an alias.
    pub metric: String,
    /// Tags that all series of the group have in common, ordered by the UID of the key.
    pub tags: Vec<(String, String)>,
    /// Tag keys whose values differ, ordered by UID.
    pub aggregate_tags: Vec<String>,
    /// The tags as UIDs; expressions join by them.
    pub group_tags: GroupTags,
    /// TSUIDs of the series in the group, ascending.
    pub tsuids: Vec<Bytes>,
    /// Points in time order.
    pub points: PointColumns,
    /// Annotations of the series; `None` if the query returns no annotations for it.
    pub annotations: Option<Vec<Annotation>>,
}

impl NamedSeries {
    /// Names a series. `tagk_name` and `tagv_name` return the names of UIDs.
    pub fn new(
        metric: String,
        series: OutputSeries,
        mut tagk_name: impl FnMut(TagkUid) -> String,
        mut tagv_name: impl FnMut(TagvUid) -> String,
    ) -> Self {
        let OutputSeries { group_tags, tsuids, points, .. } = series;
        let mut tags = Vec::with_capacity(group_tags.tags.len());
        for (tagk, tagv) in &group_tags.tags {
            tags.push((tagk_name(*tagk), tagv_name(*tagv)));
        }
        let aggregate_tags =
            group_tags.aggregate_tags.iter().map(|tagk| tagk_name(*tagk)).collect();
        Self { metric, tags, aggregate_tags, group_tags, tsuids, points, annotations: None }
    }

    /// Approximate memory in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let texts = self.tags.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
            + self.aggregate_tags.iter().map(String::len).sum::<usize>();
        let annotations = self
            .annotations
            .iter()
            .flatten()
            .map(|it| size_of::<Annotation>() + it.description.len() + it.notes.len());
        size_of::<Self>()
            + self.metric.len()
            + 2 * texts
            + self.points.memory_bytes()
            + annotations.sum::<usize>()
    }

    /// Drops points before `from_ms` and after `to_ms`.
    pub fn cut(&mut self, from_ms: i64, to_ms: i64) {
        let from = self.points.times_ms.partition_point(|time| *time < from_ms);
        let to = self.points.times_ms.partition_point(|time| *time <= to_ms);
        self.points.keep(from, to);
    }
}
