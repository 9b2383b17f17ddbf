//! What gnuplot's `smooth` computes of the points of a series.
//!
//! All but the curves are computed point by point. Curves are drawn through at most one average a column
//! of pixels, so that their memory does not grow with the number of points; what is denser than pixels has
//! no shape that could be seen.

mod bezier;
mod density;
mod sample;
mod spline;

pub(crate) use self::sample::Sample;
use crate::options::Smoothing;

/// Intervals of [`Smoothing::Bins`], as gnuplot's default.
const BINS: usize = 100;
/// Most samples of a Bezier curve, each of which is a sum over all points.
const MAX_BEZIER_SAMPLES: usize = 1_000;

/// Calls `emit` with each point of the result. `source` has the points in time order, without NaN. The graph is
/// `length` seconds and `columns` pixels wide.
pub(crate) fn smooth(
    source: &(impl Iterator<Item = Sample> + Clone),
    smoothing: Smoothing,
    (length, columns): (f64, u32),
    mut emit: impl FnMut(Sample),
) {
    match smoothing {
        Smoothing::Unique => by_second(source.clone(), |at, sum, count| emit((at, sum / count))),
        Smoothing::Frequency => by_second(source.clone(), |at, sum, _| emit((at, sum))),
        Smoothing::FNormal => {
            let total = sum(source);
            by_second(source.clone(), |at, sum, _| emit((at, divide(sum, total))));
        }
        Smoothing::Cumulative | Smoothing::CNormal => {
            let total = if smoothing == Smoothing::CNormal { sum(source) } else { 1.0 };
            let mut running = 0.0;
            by_second(source.clone(), |at, sum, _| {
                running += sum;
                emit((at, divide(running, total)));
            });
        }
        Smoothing::Bins => bins(source, length).into_iter().for_each(emit),
        Smoothing::Unwrap => {
            let mut last: Option<f64> = None;
            for (at, value) in source.clone() {
                let turn = std::f64::consts::TAU;
                let turned =
                    last.map_or(value, |last| value - turn * ((value - last) / turn).round());
                last = Some(turned);
                emit((at, turned));
            }
        }
        Smoothing::KDensity => {
            let sums =
                by_column(source, length, columns, |total, count| (total.0 / count, total.1));
            density::curve(source, &sums, (length, columns), emit);
        }
        Smoothing::CSplines
        | Smoothing::ACSplines
        | Smoothing::MCSplines
        | Smoothing::Bezier
        | Smoothing::SBezier => {
            let points = by_column(source, length, columns, |total, count| {
                (total.0 / count, total.1 / count)
            });
            curve(&points, smoothing, length, columns, emit);
        }
    }
}

fn curve(
    points: &[Sample],
    smoothing: Smoothing,
    length: f64,
    columns: u32,
    mut emit: impl FnMut(Sample),
) {
    let [first, .., last] = points else {
        // One point has no curve.
        return points.iter().copied().for_each(emit);
    };
    // A sample each half pixel.
    let part = ((last.0 - first.0) / length).clamp(0.0, 1.0);
    let samples = ((part * f64::from(columns) * 2.0).ceil() as usize).max(2);
    let times = |count: usize| {
        let step = (last.0 - first.0) / (count - 1) as f64;
        (0..count).map(move |n| (n as f64).mul_add(step, first.0))
    };
    match smoothing {
        Smoothing::Bezier | Smoothing::SBezier => {
            bezier::curve(points, samples.min(MAX_BEZIER_SAMPLES), emit);
        }
        Smoothing::ACSplines => {
            let near: Vec<Sample> = spline::approximate(points);
            spline::natural(&near, times(samples), &mut emit);
        }
        Smoothing::MCSplines => spline::monotonic(points, times(samples), &mut emit),
        _ => spline::natural(points, times(samples), &mut emit),
    }
}

/// Calls `emit` with each second that has points: its time, their sum and their number.
fn by_second(samples: impl Iterator<Item = Sample>, mut emit: impl FnMut(f64, f64, f64)) {
    let mut open: Option<(i64, f64, f64)> = None;
    for (at, value) in samples {
        let second = at.floor() as i64;
        match &mut open {
            Some((time, sum, count)) if *time == second => {
                *sum += value;
                *count += 1.0;
            }
            _ => {
                if let Some((time, sum, count)) = open.replace((second, value, 1.0)) {
                    emit(time as f64, sum, count);
                }
            }
        }
    }
    if let Some((time, sum, count)) = open {
        emit(time as f64, sum, count);
    }
}

fn sum(source: &(impl Iterator<Item = Sample> + Clone)) -> f64 {
    source.clone().map(|(_, value)| value).sum()
}

fn divide(value: f64, total: f64) -> f64 {
    if total == 0.0 { 0.0 } else { value / total }
}

/// The sum of the points of each interval, at its middle.
fn bins(source: &(impl Iterator<Item = Sample> + Clone), length: f64) -> Vec<Sample> {
    let mut sums = vec![0.0; BINS];
    let width = length / BINS as f64;
    for (at, value) in source.clone() {
        let bin = ((at / width) as usize).min(BINS - 1);
        if let Some(sum) = sums.get_mut(bin) {
            *sum += value;
        }
    }
    sums.into_iter().enumerate().map(|(bin, sum)| ((bin as f64 + 0.5) * width, sum)).collect()
}

/// The points of each column of pixels as one, which `unite` makes of their sums and their number.
fn by_column(
    source: &(impl Iterator<Item = Sample> + Clone),
    length: f64,
    columns: u32,
    unite: impl Fn(Sample, f64) -> Sample,
) -> Vec<Sample> {
    let mut out: Vec<Sample> = Vec::new();
    let mut open: Option<(i64, Sample, f64)> = None;
    let close = |(_, sums, count): (i64, Sample, f64)| unite(sums, count);
    for (at, value) in source.clone() {
        let column = (at / length * f64::from(columns)) as i64;
        match &mut open {
            Some((number, sums, count)) if *number == column => {
                *sums = (sums.0 + at, sums.1 + value);
                *count += 1.0;
            }
            _ => out.extend(open.replace((column, (at, value), 1.0)).map(close)),
        }
    }
    out.extend(open.map(close));
    out
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    const ALL: [Smoothing; 13] = [
        Smoothing::Unique,
        Smoothing::Frequency,
        Smoothing::FNormal,
        Smoothing::Cumulative,
        Smoothing::CNormal,
        Smoothing::Bins,
        Smoothing::CSplines,
        Smoothing::ACSplines,
        Smoothing::MCSplines,
        Smoothing::Bezier,
        Smoothing::SBezier,
        Smoothing::KDensity,
        Smoothing::Unwrap,
    ];

    fn smoothed(points: &[Sample], smoothing: Smoothing) -> Vec<Sample> {
        let mut out = Vec::new();
        smooth(&points.iter().copied(), smoothing, (100.0, 100), |sample| out.push(sample));
        out
    }

    #[track_caller]
    fn check(smoothing: Smoothing, expected: &[Sample]) {
        let points = [(0.0, 1.0), (0.5, 3.0), (10.0, 4.0)];
        assert_eq!(smoothed(&points, smoothing), expected);
    }

    #[test]
    fn sums_and_averages_are_of_seconds() {
        check(Smoothing::Unique, &[(0.0, 2.0), (10.0, 4.0)]);
        check(Smoothing::Frequency, &[(0.0, 4.0), (10.0, 4.0)]);
        check(Smoothing::FNormal, &[(0.0, 0.5), (10.0, 0.5)]);
        check(Smoothing::Cumulative, &[(0.0, 4.0), (10.0, 8.0)]);
        check(Smoothing::CNormal, &[(0.0, 0.5), (10.0, 1.0)]);
        let bins = smoothed(&[(0.5, 1.0), (0.7, 2.0), (99.9, 4.0)], Smoothing::Bins);
        assert_eq!(
            (bins.len(), bins.first(), bins.last()),
            (100, Some(&(0.5, 3.0)), Some(&(99.5, 4.0)))
        );
    }

    #[test]
    fn angles_go_on_after_a_turn() {
        let unwrapped = smoothed(&[(0.0, 3.0), (1.0, -3.0), (2.0, -2.9)], Smoothing::Unwrap);
        assert!((unwrapped[1].1 - 3.283).abs() < 1e-3, "{unwrapped:?}");
        assert!((unwrapped[2].1 - 3.383).abs() < 1e-3, "{unwrapped:?}");
    }

    #[test]
    fn splines_pass_through_their_points() {
        let points = [(0.0, 1.0), (20.0, 5.0), (50.0, 2.0), (100.0, 4.0)];
        for smoothing in [Smoothing::CSplines, Smoothing::MCSplines] {
            let curve = smoothed(&points, smoothing);
            for (at, value) in points {
                let near =
                    curve.iter().min_by(|a, b| (a.0 - at).abs().total_cmp(&(b.0 - at).abs()));
                let near = near.map(|sample| sample.1).unwrap_or_default();
                assert!((near - value).abs() < 0.15, "{smoothing:?} at {at}: {near}");
            }
        }
        // Between 1 and 5 nothing is below 1 or above 5 if the spline is monotonic.
        let curve = smoothed(&points, Smoothing::MCSplines);
        assert!(curve.iter().all(|(_, value)| (0.999..=5.001).contains(value)), "{curve:?}");
    }

    #[test]
    fn bezier_curves_begin_and_end_at_their_points() {
        let points = [(0.0, 1.0), (20.0, 9.0), (100.0, 4.0)];
        let curve = smoothed(&points, Smoothing::Bezier);
        let close = |a: Option<&Sample>, b: Sample| {
            a.is_some_and(|a| (a.0 - b.0).abs() < 1e-6 && (a.1 - b.1).abs() < 1e-6)
        };
        assert!(close(curve.first(), points[0]) && close(curve.last(), points[2]), "{curve:?}");
        let highest = curve.iter().map(|(_, value)| *value).fold(0.0, f64::max);
        assert!(highest < 9.0 && highest > 4.0, "{highest}");
    }

    #[test]
    fn the_density_is_where_the_points_are_and_its_area_is_their_sum() {
        let points: Vec<Sample> = (0..50).map(|n| (40.0 + f64::from(n) / 5.0, 2.0)).collect();
        let curve = smoothed(&points, Smoothing::KDensity);
        let highest = curve.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|sample| sample.0);
        assert!(highest.is_some_and(|at| (43.0..47.0).contains(&at)), "{curve:?}");
        assert!(curve.iter().filter(|(at, _)| *at < 25.0).all(|(_, value)| *value < 0.01));
        let area: f64 = curve.windows(2).map(|pair| (pair[1].0 - pair[0].0) * pair[0].1).sum();
        assert!((area - 100.0).abs() < 1.0, "{area}");
        assert!(smoothed(&[(5.0, 2.0)], Smoothing::KDensity).is_empty());
    }

    #[test]
    fn no_points_and_one_point_are_no_curve() {
        for smoothing in ALL {
            if !matches!(smoothing, Smoothing::Bins | Smoothing::KDensity) {
                assert!(smoothed(&[], smoothing).is_empty(), "{smoothing:?}");
                assert_eq!(smoothed(&[(5.0, 2.0)], smoothing).len(), 1, "{smoothing:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_points_have_bounded_results(
            values in proptest::collection::vec(-1e6..1e6_f64, 0..300), spacing in 0.001..1.0_f64,
        ) {
            let points: Vec<Sample> =
                values.iter().enumerate().map(|(n, value)| ((n as f64 * spacing).min(100.0), *value)).collect();
            for smoothing in ALL {
                let result = smoothed(&points, smoothing);
                prop_assert!(result.len() <= 400);
                prop_assert!(result.iter().all(|(at, value)| at.is_finite() && value.is_finite()), "{smoothing:?}");
            }
        }
    }
}
