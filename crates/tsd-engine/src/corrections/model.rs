//! The last acknowledged value of each instant.

use std::collections::BTreeMap;

use tsd_model::Value;

use super::{
    Mode,
    history::{Point, ShortStep},
};

#[derive(Debug, Default)]
pub(crate) struct Model {
    /// By series and offset: the last acknowledged value, and how many there were.
    points: BTreeMap<(u8, u32), (Value, u32)>,
}

impl Model {
    /// Applies an acknowledged step.
    pub(crate) fn apply(&mut self, step: &ShortStep) {
        match step {
            ShortStep::Put(points) => points.iter().for_each(|point| self.put(point)),
            ShortStep::Delete(series) => self.points.retain(|(of, _), _| of != series),
            ShortStep::Flush => {}
        }
    }

    fn put(&mut self, point: &Point) {
        let known = self.points.entry((point.series, point.offset_ms));
        let known = known.or_insert((point.value(), 0));
        *known = (point.value(), known.1 + 1);
    }

    /// True if an instant of the series got several values.
    pub(crate) fn has_corrections(&self, series: u8) -> bool {
        self.points.iter().any(|((of, _), (_, count))| *of == series && *count > 1)
    }

    /// Compares what was read of a series; the error says what differs.
    pub(crate) fn compare(
        &self,
        series: u8,
        mode: Mode,
        read: &BTreeMap<u32, Value>,
    ) -> Result<(), String> {
        let of_series = self.points.iter().filter(|((of, _), _)| *of == series);
        let expected: BTreeMap<u32, Value> =
            of_series.map(|((_, offset), (value, _))| (*offset, *value)).collect();
        let is_right = expected.len() == read.len()
            && expected.iter().all(|(offset, expected)| {
                read.get(offset).is_some_and(|found| match mode {
                    // No smaller value may hide the last one.
                    Mode::Largest => number(*found) >= number(*expected),
                    Mode::Smallest => number(*found) <= number(*expected),
                    _ => found == expected,
                })
            });
        if is_right { Ok(()) } else { Err(format!("series {series}: {read:?}, not {expected:?}")) }
    }
}

fn number(value: Value) -> f64 {
    match value {
        Value::Integer(value) => value as f64,
        Value::Float(value) => value,
    }
}
