//! Smooths the points of a series, as gnuplot's `smooth`.
//!
//! Averages of seconds are computed point by point. Splines pass through at most one average per column of
//! pixels, so that their memory does not grow with the number of points. Details below a pixel are invisible
//! anyway.

mod sample;
mod spline;

pub(crate) use self::sample::Sample;
use crate::options::Smoothing;

/// Calls `emit` with each point of the result. `source` has the points in time order, without NaN. The graph is
/// `length` seconds and `columns` pixels wide.
pub(crate) fn smooth(
    source: impl Iterator<Item = Sample>,
    smoothing: Smoothing,
    (length, columns): (f64, u32),
    emit: impl FnMut(Sample),
) {
    match smoothing {
        Smoothing::Unique => by_second(source, emit),
        Smoothing::CSplines => splines(&by_column(source, length, columns), length, columns, emit),
    }
}

fn splines(points: &[Sample], length: f64, columns: u32, mut emit: impl FnMut(Sample)) {
    let [first, .., last] = points else {
        // A single point has no curve.
        return points.iter().copied().for_each(emit);
    };
    // A sample each half pixel.
    let part = ((last.0 - first.0) / length).clamp(0.0, 1.0);
    let samples = ((part * f64::from(columns) * 2.0).ceil() as usize).max(2);
    let step = (last.0 - first.0) / (samples - 1) as f64;
    let times = (0..samples).map(|n| (n as f64).mul_add(step, first.0));
    spline::natural(points, times, &mut emit);
}

/// Calls `emit` with each second that has points and their average.
fn by_second(source: impl Iterator<Item = Sample>, mut emit: impl FnMut(Sample)) {
    let mut open: Option<(i64, f64, f64)> = None;
    let mut close = |(second, sum, count): (i64, f64, f64)| emit((second as f64, sum / count));
    for (at, value) in source {
        let second = at.floor() as i64;
        match &mut open {
            Some((time, sum, count)) if *time == second => {
                *sum += value;
                *count += 1.0;
            }
            _ => {
                if let Some(ended) = open.replace((second, value, 1.0)) {
                    close(ended);
                }
            }
        }
    }
    if let Some(ended) = open {
        close(ended);
    }
}

/// The averages of the times and values of each column of pixels.
fn by_column(source: impl Iterator<Item = Sample>, length: f64, columns: u32) -> Vec<Sample> {
    let mut out: Vec<Sample> = Vec::new();
    let mut open: Option<(i64, Sample, f64)> = None;
    let close = |(_, sums, count): (i64, Sample, f64)| (sums.0 / count, sums.1 / count);
    for (at, value) in source {
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
    use proptest::prelude::*;

    use super::*;

    const ALL: [Smoothing; 2] = [Smoothing::Unique, Smoothing::CSplines];

    fn smoothed(points: &[Sample], smoothing: Smoothing) -> Vec<Sample> {
        let mut out = Vec::new();
        smooth(points.iter().copied(), smoothing, (100.0, 100), |sample| out.push(sample));
        out
    }

    #[test]
    fn averages_are_of_seconds() {
        let points = [(0.0, 1.0), (0.5, 3.0), (10.0, 4.0)];
        assert_eq!(smoothed(&points, Smoothing::Unique), [(0.0, 2.0), (10.0, 4.0)]);
    }

    #[test]
    fn splines_pass_through_their_points() {
        let points = [(0.0, 1.0), (20.0, 5.0), (50.0, 2.0), (100.0, 4.0)];
        let curve = smoothed(&points, Smoothing::CSplines);
        for (at, value) in points {
            let near = curve.iter().min_by(|a, b| (a.0 - at).abs().total_cmp(&(b.0 - at).abs()));
            let near = near.map(|sample| sample.1).unwrap_or_default();
            assert!((near - value).abs() < 0.15, "at {at}: {near}");
        }
    }

    #[test]
    fn no_points_and_one_point_are_no_curve() {
        for smoothing in ALL {
            assert!(smoothed(&[], smoothing).is_empty(), "{smoothing:?}");
            assert_eq!(smoothed(&[(5.0, 2.0)], smoothing).len(), 1, "{smoothing:?}");
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
