//! A Bezier curve whose control points are the points of a series.

use super::sample::Sample;

/// Calls `emit` with `samples` positions of the curve.
///
/// A position is an average of all points, weighted by the binomial distribution. Its weights are computed
/// from the most probable one outwards, until they are nothing: logarithms of factorials of thousands lose
/// too many digits, and most weights are zero.
pub(super) fn curve(points: &[Sample], samples: usize, mut emit: impl FnMut(Sample)) {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
    let degree = points.len() - 1;
    for n in 0..samples {
        if n == 0 {
            emit(*first);
        } else if n + 1 == samples {
            emit(*last);
        } else {
            emit(position(points, degree, n as f64 / (samples - 1) as f64));
        }
    }
}

fn position(points: &[Sample], degree: usize, t: f64) -> Sample {
    /// Weights below this part of the greatest one are left out.
    const LEAST_WEIGHT: f64 = 1e-12;
    let middle = ((degree as f64 * t).round() as usize).min(degree);
    let ratio = t / (1.0 - t);
    let (mut total, mut x, mut y) = (0.0, 0.0, 0.0);
    let mut add = |at: usize, weight: f64| {
        if let Some((time, value)) = points.get(at) {
            total += weight;
            x += weight * time;
            y += weight * value;
        }
    };
    add(middle, 1.0);
    let mut weight = 1.0;
    for at in middle + 1..=degree {
        weight *= (degree - at + 1) as f64 / at as f64 * ratio;
        if weight < LEAST_WEIGHT {
            break;
        }
        add(at, weight);
    }
    let mut weight = 1.0;
    for at in (0..middle).rev() {
        weight *= (at + 1) as f64 / (degree - at) as f64 / ratio;
        if weight < LEAST_WEIGHT {
            break;
        }
        add(at, weight);
    }
    (x / total, y / total)
}
