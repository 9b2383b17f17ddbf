//! A series of an answer with names in place of UIDs.

use bytes::Bytes;
use tsd_model::{Annotation, PointColumns, UidKind};

use super::{evaluate::OutputSeries, group::GroupTags};

/// One series of an answer, as it is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedSeries {
    /// Name of the metric, or an alias.
    pub metric: String,
    /// Tags on which the series of the group agree, by the UID of the key.
    pub tags: Vec<(String, String)>,
    /// Tag keys on which they do not, by UID.
    pub aggregate_tags: Vec<String>,
    /// Both as UIDs; what expressions join by.
    pub group_tags: GroupTags,
    /// TSUIDs of the series in the group, ascending.
    pub tsuids: Vec<Bytes>,
    /// Points in time order.
    pub points: PointColumns,
    /// Notes on the series; `None` where there are none to tell.
    pub annotations: Option<Vec<Annotation>>,
}

impl NamedSeries {
    /// Names a series. `name_of` names a UID.
    pub fn new(
        metric: String,
        series: OutputSeries,
        mut name_of: impl FnMut(UidKind, &[u8]) -> String,
    ) -> Self {
        let OutputSeries { group_tags, tsuids, points, .. } = series;
        let mut tags = Vec::with_capacity(group_tags.tags.len());
        for (tagk, tagv) in &group_tags.tags {
            tags.push((name_of(UidKind::Tagk, tagk), name_of(UidKind::Tagv, tagv)));
        }
        let aggregate_tags =
            group_tags.aggregate_tags.iter().map(|tagk| name_of(UidKind::Tagk, tagk)).collect();
        Self { metric, tags, aggregate_tags, group_tags, tsuids, points, annotations: None }
    }

    /// Bytes it holds, about.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let texts = self.tags.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
            + self.aggregate_tags.iter().map(String::len).sum::<usize>();
        let notes = self
            .annotations
            .iter()
            .flatten()
            .map(|note| size_of::<Annotation>() + note.description.len() + note.notes.len());
        size_of::<Self>()
            + self.metric.len()
            + 2 * texts
            + self.points.memory_bytes()
            + notes.sum::<usize>()
    }

    /// Leaves out points before `from_ms` and after `to_ms`.
    pub fn cut(&mut self, from_ms: i64, to_ms: i64) {
        let from = self.points.times_ms.partition_point(|time| *time < from_ms);
        let to = self.points.times_ms.partition_point(|time| *time <= to_ms);
        self.points.keep(from, to);
    }
}
