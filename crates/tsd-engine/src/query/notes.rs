//! Notes on the series of a group.
//!
//! A group shows the notes of all its series, also of those that have nothing else; a group of such
//! series alone is shown without metric, tags and points, as OpenTSDB shows it.

use std::collections::BTreeMap;

use bytes::Bytes;
use hashbrown::HashMap;
use tsd_model::{Annotation, PointColumns, Timestamp};
use tsd_query::{Aggregator, GroupTags, OutputSeries, SubQuery, SubQueryPlan};

type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
type NotesBySeries = Map<Bytes, Vec<Annotation>>;

/// A group of an answer, aggregated; names still UIDs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GroupOutput {
    pub(crate) series: OutputSeries,
    /// What is appended to the name of the metric.
    pub(crate) metric_suffix: String,
    /// Whether there are notes and nothing else; then it has no name.
    pub(crate) is_noted_only: bool,
    /// `None` where no row held a note.
    pub(crate) annotations: Option<Vec<Annotation>>,
}

impl GroupOutput {
    /// A group without notes.
    pub(crate) const fn of(series: OutputSeries) -> Self {
        let metric_suffix = String::new();
        Self { series, metric_suffix, is_noted_only: false, annotations: None }
    }

    /// Joins the groups of two reads by `join`. Only the younger one, of raw data, has notes.
    pub(crate) fn join(
        older: Vec<Self>,
        younger: Vec<Self>,
        sub: &SubQuery,
        join: impl FnOnce(Vec<OutputSeries>, Vec<OutputSeries>) -> Vec<OutputSeries>,
    ) -> Vec<Self> {
        let alone = sub.aggregator == Aggregator::None;
        let identity = |series: &OutputSeries| {
            let tsuid = if alone { series.tsuids.first().cloned() } else { None };
            (series.group_key.clone(), tsuid)
        };
        let mut notes: Map<(Vec<u8>, Option<Bytes>), Vec<Annotation>> = Map::default();
        let (mut noted_only, mut raw) = (Vec::new(), Vec::new());
        for group in younger {
            if group.is_noted_only {
                noted_only.push(group);
                continue;
            }
            if let Some(annotations) = group.annotations {
                notes.insert(identity(&group.series), annotations);
            }
            raw.push(group.series);
        }
        let rolled_up = older.into_iter().map(|group| group.series).collect();
        let joined = join(rolled_up, raw).into_iter().map(|series| {
            let annotations = notes.remove(&identity(&series));
            Self { annotations, ..Self::of(series) }
        });
        let mut groups: Vec<Self> = joined.collect();
        for noted in noted_only {
            let same = |group: &&mut Self| group.series.group_key == noted.series.group_key;
            match groups.iter_mut().find(same).filter(|_| !alone) {
                Some(group) => {
                    let notes = group.annotations.get_or_insert_default();
                    notes.extend(noted.annotations.unwrap_or_default());
                    sort(notes);
                }
                None => groups.push(noted),
            }
        }
        groups.sort_by(|a, b| a.series.group_key.cmp(&b.series.group_key));
        groups
    }
}

/// Notes that wait for their groups.
pub(crate) struct GroupNotes {
    range_ms: (i64, i64),
    of_series: NotesBySeries,
    /// Notes of series without points, by group; without aggregation by TSUID.
    alone: BTreeMap<Vec<u8>, Vec<Annotation>>,
    aggregator: Aggregator,
}

impl GroupNotes {
    pub(crate) fn new(
        plan: &SubQueryPlan,
        aggregator: Aggregator,
        of_series: NotesBySeries,
        mut noted_only: Vec<(Bytes, Vec<Annotation>)>,
    ) -> Self {
        noted_only.sort_by(|a, b| a.0.cmp(&b.0));
        let mut alone: BTreeMap<Vec<u8>, Vec<Annotation>> = BTreeMap::new();
        for (tsuid, notes) in noted_only {
            let tags = tsuid.get(plan.schema.metric_width()..).unwrap_or_default();
            let key = match aggregator {
                Aggregator::None => Some(tsuid.to_vec()),
                _ => plan.group_key(tags),
            };
            if let Some(key) = key {
                alone.entry(key).or_default().extend(notes);
            }
        }
        Self { range_ms: (plan.window.start_ms, plan.window.end_ms), of_series, alone, aggregator }
    }

    /// Puts a group and its notes together.
    pub(crate) fn attach(&mut self, series: OutputSeries) -> GroupOutput {
        let mut found: Option<Vec<Annotation>> = None;
        if !self.of_series.is_empty() {
            for notes in series.tsuids.iter().filter_map(|tsuid| self.of_series.remove(tsuid)) {
                found.get_or_insert_default().extend(notes);
            }
        }
        if self.aggregator != Aggregator::None
            && let Some(notes) = self.alone.remove(&series.group_key)
        {
            found.get_or_insert_default().extend(notes);
        }
        let annotations = found.map(|notes| self.shown(notes));
        GroupOutput { annotations, ..GroupOutput::of(series) }
    }

    /// Adds the groups that have nothing but notes.
    pub(crate) fn finish(mut self, groups: &mut Vec<GroupOutput>) {
        if self.alone.is_empty() {
            return;
        }
        let is_none = self.aggregator == Aggregator::None;
        let place = |group: &GroupOutput| {
            if is_none {
                group.series.tsuids.first().map(|tsuid| tsuid.to_vec()).unwrap_or_default()
            } else {
                group.series.group_key.clone()
            }
        };
        let mut all: Vec<(Vec<u8>, GroupOutput)> =
            groups.drain(..).map(|group| (place(&group), group)).collect();
        for (key, notes) in std::mem::take(&mut self.alone) {
            let group = GroupOutput {
                series: OutputSeries {
                    group_tags: GroupTags::default(),
                    group_key: if is_none { Vec::new() } else { key.clone() },
                    tsuids: Vec::new(),
                    points: PointColumns::default(),
                },
                metric_suffix: String::new(),
                is_noted_only: true,
                annotations: Some(self.shown(notes)),
            };
            all.push((key, group));
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        groups.extend(all.into_iter().map(|(_, group)| group));
    }

    /// Notes inside the range of the answer, by start.
    fn shown(&self, mut notes: Vec<Annotation>) -> Vec<Annotation> {
        let (from_ms, to_ms) = self.range_ms;
        notes.retain(|note| (from_ms..=to_ms).contains(&start_ms(note)));
        sort(&mut notes);
        notes
    }
}

/// Puts notes in the order of their starts.
pub(crate) fn sort(notes: &mut [Annotation]) {
    notes.sort_by_key(start_ms);
}

/// When a note begins, in milliseconds whatever it was given in.
fn start_ms(note: &Annotation) -> i64 {
    if note.start_time > Timestamp::MAX_SECS {
        note.start_time
    } else {
        note.start_time.saturating_mul(1_000)
    }
}
