//! Attaches annotations of series to their groups.
//!
//! A group has the annotations of all its series, including series without points. As in OpenTSDB, a group that
//! consists only of such series has no metric, tags or points.

use std::collections::BTreeMap;

use bytes::Bytes;
use hashbrown::HashMap;
use tsd_model::{Annotation, PointColumns, millis_of};
use tsd_query::{Aggregator, GroupTags, OutputSeries, SubQuery, SubQueryPlan};

type AnnotationsBy<K> = HashMap<K, Vec<Annotation>, foldhash::fast::RandomState>;

/// An aggregated group, not yet named.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GroupOutput {
    pub(crate) series: OutputSeries,
    /// Suffix of the metric name.
    pub(crate) metric_suffix: String,
    /// True if the group has only annotations; it then has no name.
    pub(crate) is_annotation_only: bool,
    /// `None` if no row had an annotation.
    pub(crate) annotations: Option<Vec<Annotation>>,
}

impl GroupOutput {
    /// A group without annotations.
    pub(crate) const fn without_annotations(series: OutputSeries) -> Self {
        let metric_suffix = String::new();
        Self { series, metric_suffix, is_annotation_only: false, annotations: None }
    }

    /// Joins the groups of a rollup read and a raw read by `join`. Only the raw read has
    /// annotations.
    pub(crate) fn join(
        rollup: Vec<Self>,
        raw: Vec<Self>,
        sub: &SubQuery,
        join: impl FnOnce(Vec<OutputSeries>, Vec<OutputSeries>) -> Vec<OutputSeries>,
    ) -> Vec<Self> {
        let ungrouped = sub.aggregator == Aggregator::None;
        let identity = |series: &OutputSeries| {
            let tsuid = if ungrouped { series.tsuids.first().cloned() } else { None };
            (series.group_key.clone(), tsuid)
        };
        let mut annotations_by_group: AnnotationsBy<(Vec<u8>, Option<Bytes>)> =
            AnnotationsBy::default();
        let (mut annotation_only, mut raw_series) = (Vec::new(), Vec::new());
        for group in raw {
            if group.is_annotation_only {
                annotation_only.push(group);
                continue;
            }
            if let Some(annotations) = group.annotations {
                annotations_by_group.insert(identity(&group.series), annotations);
            }
            raw_series.push(group.series);
        }
        let rollup_series = rollup.into_iter().map(|group| group.series).collect();
        let joined = join(rollup_series, raw_series).into_iter().map(|series| {
            let annotations = annotations_by_group.remove(&identity(&series));
            Self { annotations, ..Self::without_annotations(series) }
        });
        let mut groups: Vec<Self> = joined.collect();
        for group in annotation_only {
            let same = |other: &&mut Self| other.series.group_key == group.series.group_key;
            match groups.iter_mut().find(same).filter(|_| !ungrouped) {
                Some(other) => {
                    let annotations = other.annotations.get_or_insert_default();
                    annotations.extend(group.annotations.unwrap_or_default());
                    sort_by_start(annotations);
                }
                None => groups.push(group),
            }
        }
        groups.sort_by(|a, b| a.series.group_key.cmp(&b.series.group_key));
        groups
    }
}

/// Annotations of a read, waiting to be attached to its groups.
pub(crate) struct GroupAnnotations {
    range_ms: (i64, i64),
    by_series: AnnotationsBy<Bytes>,
    /// Annotations of series without points, by group key; without aggregation, by TSUID.
    without_points: BTreeMap<Vec<u8>, Vec<Annotation>>,
    aggregator: Aggregator,
}

impl GroupAnnotations {
    pub(crate) fn new(
        plan: &SubQueryPlan,
        aggregator: Aggregator,
        by_series: AnnotationsBy<Bytes>,
        mut annotation_only: Vec<(Bytes, Vec<Annotation>)>,
    ) -> Self {
        annotation_only.sort_by(|a, b| a.0.cmp(&b.0));
        let mut without_points: BTreeMap<Vec<u8>, Vec<Annotation>> = BTreeMap::new();
        for (tsuid, annotations) in annotation_only {
            let tags = tsuid.get(plan.schema.metric_width()..).unwrap_or_default();
            let key = match aggregator {
                Aggregator::None => Some(tsuid.to_vec()),
                _ => plan.group_key(tags),
            };
            if let Some(key) = key {
                without_points.entry(key).or_default().extend(annotations);
            }
        }
        Self {
            range_ms: (plan.window.start_ms, plan.window.end_ms),
            by_series,
            without_points,
            aggregator,
        }
    }

    /// Attaches the annotations of a group.
    pub(crate) fn attach(&mut self, series: OutputSeries) -> GroupOutput {
        let mut annotations: Option<Vec<Annotation>> = None;
        if !self.by_series.is_empty() {
            for own in series.tsuids.iter().filter_map(|tsuid| self.by_series.remove(tsuid)) {
                annotations.get_or_insert_default().extend(own);
            }
        }
        if self.aggregator != Aggregator::None
            && let Some(more) = self.without_points.remove(&series.group_key)
        {
            annotations.get_or_insert_default().extend(more);
        }
        let annotations = annotations.map(|annotations| self.in_range(annotations));
        GroupOutput { annotations, ..GroupOutput::without_annotations(series) }
    }

    /// Adds the groups that have only annotations.
    pub(crate) fn finish(mut self, groups: &mut Vec<GroupOutput>) {
        if self.without_points.is_empty() {
            return;
        }
        let is_none = self.aggregator == Aggregator::None;
        let sort_key = |group: &GroupOutput| {
            if is_none {
                group.series.tsuids.first().map(|tsuid| tsuid.to_vec()).unwrap_or_default()
            } else {
                group.series.group_key.clone()
            }
        };
        let mut all: Vec<(Vec<u8>, GroupOutput)> =
            groups.drain(..).map(|group| (sort_key(&group), group)).collect();
        for (key, annotations) in std::mem::take(&mut self.without_points) {
            let group = GroupOutput {
                series: OutputSeries {
                    group_tags: GroupTags::default(),
                    group_key: if is_none { Vec::new() } else { key.clone() },
                    tsuids: Vec::new(),
                    points: PointColumns::default(),
                },
                metric_suffix: String::new(),
                is_annotation_only: true,
                annotations: Some(self.in_range(annotations)),
            };
            all.push((key, group));
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        groups.extend(all.into_iter().map(|(_, group)| group));
    }

    /// Annotations inside the query range, by start time.
    fn in_range(&self, mut annotations: Vec<Annotation>) -> Vec<Annotation> {
        let (from_ms, to_ms) = self.range_ms;
        annotations.retain(|annotation| (from_ms..=to_ms).contains(&start_ms(annotation)));
        sort_by_start(&mut annotations);
        annotations
    }
}

/// Sorts annotations by start time.
pub(crate) fn sort_by_start(annotations: &mut [Annotation]) {
    annotations.sort_by_key(start_ms);
}

/// Start of an annotation in milliseconds; it is stored in seconds or milliseconds.
fn start_ms(annotation: &Annotation) -> i64 {
    millis_of(annotation.start_time)
}
