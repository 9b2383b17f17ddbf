//! The density of points in time: a sum of normal distributions, one at each point, weighted by its value.

use std::f64::consts::TAU;

use super::sample::Sample;

/// Standard deviations from which on a distribution counts as zero.
const REACH: f64 = 6.0;
/// Most samples of the curve, each of which is a sum over the points nearby.
const MAX_SAMPLES: u32 = 1_000;

/// Calls `emit` with the density over the whole graph, which is `length` seconds and `columns` pixels wide.
/// `sums` are the points, those of a column of pixels added up.
///
/// The deviation is that of the normal distribution: with it the sum over points that are distributed so comes
/// closest to them. Points at one time have no deviation, and no density.
pub(super) fn curve(
    source: &(impl Iterator<Item = Sample> + Clone),
    sums: &[Sample],
    (length, columns): (f64, u32),
    mut emit: impl FnMut(Sample),
) {
    let Some(deviation) = deviation(source) else { return };
    let samples = (columns / 2).clamp(2, MAX_SAMPLES);
    let mut first = 0;
    for n in 0..samples {
        let at = length * f64::from(n) / f64::from(samples - 1);
        let near = |time: f64| (time - at) / deviation;
        first += sums.iter().skip(first).take_while(|(time, _)| near(*time) < -REACH).count();
        let reached = sums.iter().skip(first).take_while(|(time, _)| near(*time) <= REACH);
        let sum: f64 =
            reached.map(|(time, value)| value * (-0.5 * near(*time).powi(2)).exp()).sum();
        emit((at, sum / (TAU.sqrt() * deviation)));
    }
}

/// The deviation of the distribution of a point: that of the times, less the more points there are.
fn deviation(source: &(impl Iterator<Item = Sample> + Clone)) -> Option<f64> {
    let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
    for (at, _) in source.clone() {
        // As of Welford: differences of large sums lose digits.
        count += 1.0;
        let distance = at - mean;
        mean += distance / count;
        squares += distance * (at - mean);
    }
    let of_times = (squares / count).sqrt();
    (of_times > 0.0).then(|| of_times * (4.0_f64 / (3.0 * count)).powf(0.2))
}
