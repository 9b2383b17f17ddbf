//! Model of the contents that the store must have.
//!
//! Each series has the value of every instant whose last write was acknowledged, and all possible
//! values of an instant with writes in doubt. A read may also show concurrent writes.

use parking_lot::Mutex;
use std::{collections::BTreeMap, ops::RangeInclusive};

use tsd_testkit::SplitMix64;

/// A value; `None` if it was never written, or was deleted.
pub(crate) type Content = Option<f64>;

/// The points of one series, by milliseconds.
#[derive(Debug)]
pub(crate) struct SeriesModel {
    pub(crate) metric: String,
    pub(crate) host: String,
    points: Mutex<Points>,
}

#[derive(Debug, Default)]
struct Points {
    certain: BTreeMap<i64, f64>,
    doubt: BTreeMap<i64, Vec<Content>>,
    /// Range of all instants that were ever written.
    ever: Option<RangeInclusive<i64>>,
    /// Written while a read runs.
    attempts: Vec<(i64, Content)>,
    reads: u32,
}

/// Expected result of a read that starts now.
#[derive(Debug)]
pub(crate) struct Expected {
    pub(crate) range: RangeInclusive<i64>,
    certain: Vec<(i64, f64)>,
    doubt: BTreeMap<i64, Vec<Content>>,
    attempts: usize,
}

impl SeriesModel {
    pub(crate) fn new(metric: &str, host: &str) -> Self {
        Self { metric: metric.into(), host: host.into(), points: Mutex::default() }
    }

    /// Records writes before they are sent: each instant may have its new content from now on.
    pub(crate) fn attempt(&self, writes: impl IntoIterator<Item = (i64, Content)>) {
        let points = &mut *self.points.lock();
        for (at, content) in writes {
            points.ever = Some(match points.ever.take() {
                Some(ever) => at.min(*ever.start())..=at.max(*ever.end()),
                None => at..=at,
            });
            let certain = points.certain.remove(&at);
            points.doubt.entry(at).or_insert_with(|| vec![certain]).push(content);
            if points.reads > 0 {
                points.attempts.push((at, content));
            }
        }
    }

    /// After an acknowledgement: each instant has the last content given for it.
    pub(crate) fn acknowledge(&self, writes: impl IntoIterator<Item = (i64, Content)>) {
        let points = &mut *self.points.lock();
        for (at, content) in writes {
            points.doubt.remove(&at);
            match content {
                Some(value) => points.certain.insert(at, value),
                None => points.certain.remove(&at),
            };
        }
    }

    /// Number of instants with a value.
    pub(crate) fn len(&self) -> usize {
        self.points.lock().certain.len()
    }

    /// All instants that have or may have a value.
    pub(crate) fn span(&self) -> Option<RangeInclusive<i64>> {
        let points = self.points.lock();
        let first = points.certain.keys().next().into_iter().chain(points.doubt.keys().next());
        let last =
            points.certain.keys().next_back().into_iter().chain(points.doubt.keys().next_back());
        Some(*first.min()?..=*last.max()?)
    }

    /// All instants that were ever written. The loss of a file may bring back points that it
    /// deleted.
    pub(crate) fn span_ever(&self) -> Option<RangeInclusive<i64>> {
        self.points.lock().ever.clone()
    }

    /// Up to `most` successive instants with a value, from a random one on.
    pub(crate) fn instants(&self, random: &mut SplitMix64, most: usize) -> Vec<i64> {
        let points = self.points.lock();
        let (Some((&first, _)), Some((&last, _))) =
            (points.certain.first_key_value(), points.certain.last_key_value())
        else {
            return Vec::new();
        };
        let from = first + random.below((last - first) as u64 + 1) as i64;
        points.certain.range(from..).take(most).map(|(&at, _)| at).collect()
    }

    /// Instants with a value in a range; `None` if one in the range is in doubt.
    pub(crate) fn certain_instants(&self, range: RangeInclusive<i64>) -> Option<Vec<i64>> {
        let points = self.points.lock();
        if points.doubt.range(range.clone()).next().is_some() {
            return None;
        }
        Some(points.certain.range(range).map(|(&at, _)| at).collect())
    }

    /// Before a read. [`Self::check`] or [`Self::abandon`] must follow.
    pub(crate) fn expect(&self, range: RangeInclusive<i64>) -> Expected {
        let points = &mut *self.points.lock();
        points.reads += 1;
        Expected {
            certain: points.certain.range(range.clone()).map(|(&at, &value)| (at, value)).collect(),
            doubt: points.doubt.range(range.clone()).map(|(&at, all)| (at, all.clone())).collect(),
            attempts: points.attempts.len(),
            range,
        }
    }

    /// After a read that failed.
    pub(crate) fn abandon(&self, _: &Expected) {
        self.points.lock().end_read();
    }

    /// Checks a read: the number of acknowledged points that it had to return, or the problem.
    pub(crate) fn check(&self, expected: &Expected, found: &[(i64, f64)]) -> Result<u64, String> {
        let mut attempts: BTreeMap<i64, Vec<Content>> = BTreeMap::new();
        {
            let points = &mut *self.points.lock();
            for (at, content) in points.attempts.iter().skip(expected.attempts) {
                attempts.entry(*at).or_default().push(*content);
            }
            points.end_read();
        }
        let found: BTreeMap<i64, f64> = found.iter().copied().collect();
        let mut wrong = Vec::new();
        let mut checked = 0;
        let mut is_possible = |at: i64, before: &[Content]| {
            let content = found.get(&at).copied();
            let written = attempts.get(&at).map_or(&[][..], Vec::as_slice);
            if !before.iter().chain(written).any(|possible| same(*possible, content)) {
                wrong.push(format!("{at} is {content:?}, not {before:?} nor {written:?}"));
            }
        };
        for (at, value) in &expected.certain {
            is_possible(*at, &[Some(*value)]);
            checked += 1;
        }
        for (at, before) in &expected.doubt {
            is_possible(*at, before);
        }
        for at in found.keys() {
            let is_certain = expected.certain.binary_search_by_key(at, |(at, _)| *at).is_ok();
            if !is_certain && !expected.doubt.contains_key(at) {
                is_possible(*at, &[None]);
            }
        }
        if wrong.is_empty() {
            return Ok(checked);
        }
        let shown: Vec<_> = wrong.iter().take(5).cloned().collect();
        Err(format!(
            "{}{{host={}}}: {} of {checked} points are wrong: {}",
            self.metric,
            self.host,
            wrong.len(),
            shown.join("; ")
        ))
    }

    /// Makes the found values certain. Nothing may be written meanwhile. Returns the number of
    /// acknowledged values that were not found.
    pub(crate) fn replace(&self, range: RangeInclusive<i64>, found: &[(i64, f64)]) -> u64 {
        let points = &mut *self.points.lock();
        let found: BTreeMap<i64, f64> = found.iter().copied().collect();
        let before: Vec<_> =
            points.certain.range(range.clone()).map(|(&at, &value)| (at, value)).collect();
        let mut lost = 0;
        for (at, value) in before {
            lost += u64::from(!same(Some(value), found.get(&at).copied()));
            points.certain.remove(&at);
        }
        points.doubt.retain(|at, _| !range.contains(at));
        points.certain.extend(found);
        lost
    }
}

impl Points {
    fn end_read(&mut self) {
        self.reads -= 1;
        if self.reads == 0 {
            self.attempts.clear();
        }
    }
}

fn same(a: Content, b: Content) -> bool {
    a.map(f64::to_bits) == b.map(f64::to_bits)
}
