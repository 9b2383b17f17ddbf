//! A y axis.

use super::{
    AxisTick,
    number_ticks::{linear_step, linear_values, log_values},
};
use crate::options::{AxisOptions, GREATEST_END, NumberFormat};

/// Greatest distance of a value from an axis, in lengths of the axis. Farther values are outside
/// anyway.
const MOST_LENGTHS: f64 = 1e4;
/// Share of its size by which a single value is widened to a range, as in gnuplot.
const WIDENING: f64 = 0.01;
/// Least length of a range, as a share of its greatest end. Doubles cannot resolve ticks in a
/// shorter range.
const LEAST_LENGTH: f64 = 1e-13;

/// A y axis with its ends and ticks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ValueAxis {
    from: f64,
    to: f64,
    is_log: bool,
    pub(crate) ticks: Vec<AxisTick>,
}

impl ValueAxis {
    /// The axis of values within `extent`, with about `most_labels` labels.
    pub(crate) fn new(
        options: &AxisOptions,
        extent: Option<(f64, f64)>,
        most_labels: usize,
    ) -> Self {
        let is_log = options.is_log;
        let (mut from, mut to) = ends(options, extent);
        let most_labels = most_labels.clamp(2, 50);
        // Ends that the request leaves open are moved to the next tick.
        let (fixed_from, fixed_to) = (options.range.from.is_some(), options.range.to.is_some());
        if is_log {
            if !fixed_from {
                from = 10_f64.powf(from.log10().floor()).max(f64::MIN_POSITIVE);
            }
            if !fixed_to {
                to = 10_f64.powf(to.log10().ceil()).min(GREATEST_END);
            }
            if from >= to && !(fixed_from && fixed_to) {
                to = (from * 10.0).min(GREATEST_END);
            }
        } else {
            let step = linear_step((to - from).abs(), most_labels);
            if !fixed_from {
                from = ((from / step + 1e-9).floor() * step).clamp(-GREATEST_END, GREATEST_END);
            }
            if !fixed_to {
                to = ((to / step - 1e-9).ceil() * step).clamp(-GREATEST_END, GREATEST_END);
            }
        }
        let mut axis = Self { from, to, is_log, ticks: Vec::new() };
        axis.ticks = axis.make_ticks(&options.format, most_labels);
        axis
    }

    /// Position of a value: 0 is the begin of the axis, 1 its end. `None` for a value without a
    /// position, such as NaN.
    pub(crate) fn position(&self, value: f64) -> Option<f64> {
        let at = if self.is_log {
            if value <= 0.0 {
                return None;
            }
            (value.log10() - self.from.log10()) / (self.to.log10() - self.from.log10())
        } else {
            (value - self.from) / (self.to - self.from)
        };
        (!at.is_nan()).then(|| at.clamp(-MOST_LENGTHS, MOST_LENGTHS))
    }

    fn make_ticks(&self, format: &NumberFormat, most_labels: usize) -> Vec<AxisTick> {
        let (least, greatest) = (self.from.min(self.to), self.from.max(self.to));
        let (labelled, between) = if self.is_log {
            log_values(least, greatest, most_labels)
        } else {
            (linear_values(least, greatest, most_labels), Vec::new())
        };
        let step = match labelled.as_slice() {
            [first, second, ..] => (second - first).abs(),
            _ => greatest - least,
        };
        // Neighbours must differ in the shown digits.
        let digits = if self.is_log { 6 } else { digits_of(greatest.abs().max(least.abs()), step) };
        let tick = |value: f64, label: Option<String>| {
            Some(AxisTick { position: self.position(value)?, label })
        };
        let labels = labelled.iter().filter_map(|v| tick(*v, Some(format.render(*v, digits))));
        let marks = between.iter().filter_map(|value| tick(*value, None));
        labels.chain(marks).collect()
    }
}

/// Ends of an axis, from its range and, where that is open, the extent of the values.
fn ends(options: &AxisOptions, extent: Option<(f64, f64)>) -> (f64, f64) {
    let default = if options.is_log { (1.0, 10.0) } else { (0.0, 10.0) };
    let (least, greatest) = extent.unwrap_or(default);
    let bound = |value: f64| value.clamp(-GREATEST_END, GREATEST_END);
    let (mut least, mut greatest) = (bound(least), bound(greatest));
    match (options.range.from, options.range.to) {
        (Some(from), Some(to)) => return (from, to),
        (Some(from), None) => {
            least = from;
            if greatest <= from {
                greatest = bound(from + widening(from));
            }
        }
        (None, Some(to)) => {
            greatest = to;
            if least >= to {
                least = if options.is_log { to / 10.0 } else { bound(to - widening(to)) };
            }
        }
        (None, None) => {}
    }
    if !options.is_log && greatest - least <= greatest.abs().max(least.abs()) * LEAST_LENGTH {
        // All values are equal.
        let part = widening(greatest.abs().max(least.abs()));
        if options.range.from.is_none() {
            least = bound(least - part);
        }
        if options.range.to.is_none() {
            greatest = bound(greatest + part);
        }
    }
    (least, greatest)
}

fn widening(value: f64) -> f64 {
    if value == 0.0 { 1.0 } else { (value.abs() * WIDENING).max(f64::MIN_POSITIVE) }
}

/// Digits that distinguish multiples of `step` up to `greatest`; at least as many as gnuplot shows.
fn digits_of(greatest: f64, step: f64) -> usize {
    if step <= 0.0 || greatest <= 0.0 {
        return 6;
    }
    let digits = (greatest.log10().floor() - step.log10().floor()) as i64 + 2;
    usize::try_from(digits).unwrap_or(6).clamp(6, 16)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::options::AxisRange;

    fn options(from: Option<f64>, to: Option<f64>, is_log: bool) -> AxisOptions {
        AxisOptions { range: AxisRange { from, to }, is_log, ..AxisOptions::default() }
    }

    #[track_caller]
    fn check(options: &AxisOptions, extent: Option<(f64, f64)>, expected: &[&str]) {
        let axis = ValueAxis::new(options, extent, 6);
        let labels: Vec<&str> = axis.ticks.iter().filter_map(|t| t.label.as_deref()).collect();
        assert_eq!(labels, expected);
    }

    #[test]
    fn free_ends_are_ticks() {
        let free = options(None, None, false);
        check(&free, Some((0.3, 4.7)), &["0", "1", "2", "3", "4", "5"]);
        check(&free, Some((-1.0, 1.0)), &["-1", "-0.5", "0", "0.5", "1"]);
        check(&free, None, &["0", "2", "4", "6", "8", "10"]);
        check(
            &free,
            Some((1e6, 1e6 + 4.0)),
            &["1000000", "1000001", "1000002", "1000003", "1000004"],
        );
        let bounded = options(Some(0.0), None, false);
        check(&bounded, Some((35.0, 71.0)), &["0", "20", "40", "60", "80"]);
    }

    #[test]
    fn single_values_are_widened() {
        let free = options(None, None, false);
        let axis = ValueAxis::new(&free, Some((5.0, 5.0)), 6);
        assert!(axis.from < 5.0 && axis.to > 5.0, "{axis:?}");
        let axis = ValueAxis::new(&free, Some((0.0, 0.0)), 6);
        assert_eq!((axis.from, axis.to), (-1.0, 1.0));
    }

    #[test]
    fn reversed_ranges_reverse_the_axis() {
        let axis = ValueAxis::new(&options(Some(10.0), Some(0.0), false), None, 6);
        assert_eq!(axis.position(10.0), Some(0.0));
        assert_eq!(axis.position(0.0), Some(1.0));
    }

    #[test]
    fn logarithmic_axes_have_decades() {
        let log = options(None, None, true);
        check(&log, Some((3.0, 4_000.0)), &["1", "10", "100", "1000", "10000"]);
        let axis = ValueAxis::new(&log, Some((3.0, 4_000.0)), 6);
        assert_eq!(axis.position(100.0), Some(0.5));
        assert_eq!(axis.position(0.0), None);
        assert_eq!(axis.position(-1.0), None);
    }

    proptest! {
        #[test]
        fn any_extent_has_an_axis(
            a in proptest::num::f64::NORMAL, b in proptest::num::f64::NORMAL,
            from in proptest::option::of(-1e300..1e300_f64), is_log: bool, labels in 0..200_usize,
        ) {
            let (a, b) = if is_log { (a.abs(), b.abs()) } else { (a, b) };
            let from = if is_log { from.map(|from| from.abs() + 1e-300) } else { from };
            let axis = ValueAxis::new(&options(from, None, is_log), Some((a.min(b), a.max(b))), labels);
            prop_assert!(axis.from < axis.to, "{axis:?}");
            prop_assert!(axis.ticks.len() < 1_000);
            prop_assert!(axis.ticks.iter().all(|tick| (-0.01..=1.01).contains(&tick.position)), "{axis:?}");
            prop_assert!(axis.position(a).is_some_and(f64::is_finite));
        }
    }
}
