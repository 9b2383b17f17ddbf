//! Queries and the answers that the model expects.

use tsd_model::PointColumns;

use crate::load::{DAY, HOUR, Load, START};

/// Series and time range of a query, inclusive seconds.
pub(crate) struct Query {
    pub(crate) name: &'static str,
    pub(crate) series: Option<Vec<u32>>,
    pub(crate) range: (u32, u32),
    /// The tree with today's key order cannot do it in reasonable time otherwise.
    pub(crate) repeats: u32,
}

/// Points and the sum of their hundredths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) points: u64,
    pub(crate) sum: i64,
}

impl Answer {
    pub(crate) fn add(&mut self, columns: &PointColumns) {
        self.points += columns.len() as u64;
        let sum: f64 = columns.bits.iter().map(|b| f64::from_bits(*b) * 100.0).sum();
        self.sum += sum.round() as i64;
    }
}

pub(crate) fn expected(load: &Load, query: &Query) -> Answer {
    let mut answer = Answer::default();
    let all: Vec<u32> = query.series.clone().unwrap_or_else(|| (0..load.series).collect());
    for series in all {
        for step in 0..load.steps {
            let time = load.time(step);
            if (query.range.0..=query.range.1).contains(&time) {
                answer.points += 1;
                let corrected = Load::is_corrected(series, step);
                answer.sum += Load::hundredths(series, step, corrected);
            }
        }
    }
    answer
}

pub(crate) fn queries(load: &Load, wide: bool) -> Vec<Query> {
    let end = load.time(load.steps - 1);
    let all = (START, end);
    let last = |secs: u32| (end.saturating_sub(secs).max(START), end);
    let every = |count: u32| {
        let step = (load.series / count).max(1);
        Some((0..load.series).step_by(step as usize).take(count as usize).collect::<Vec<_>>())
    };
    let query = |name, series, range, repeats| Query { name, series, range, repeats };
    if wide {
        vec![
            query("one series", Some(vec![777 % load.series]), all, 9),
            query("4 neighbours (one host)", Some((400..404).collect()), all, 9),
            query("1111 series", every(1_111), all, 3),
            query("all series", None, all, 3),
        ]
    } else {
        vec![
            query("one series, all time", Some(vec![7]), all, 5),
            query("one series, 60 days", Some(vec![7]), last(60 * DAY), 5),
            query("one series, last day", Some(vec![7]), last(DAY), 9),
            query("all series, last 30 days", None, last(30 * DAY), 3),
            query("all series, last 6 hours", None, last(6 * HOUR), 5),
            query("all series, all time", None, all, 3),
        ]
    }
}
