//! Cubic splines.

use super::sample::Sample;

/// A cubic polynomial from one point to the next.
#[derive(Clone, Copy, Debug, Default)]
struct SplinePiece {
    from: f64,
    /// Coefficients of the powers 0 to 3 of the distance from `from`.
    coefficients: [f64; 4],
}

impl SplinePiece {
    fn value(&self, at: f64) -> f64 {
        let distance = at - self.from;
        let [a, b, c, d] = self.coefficients;
        d.mul_add(distance, c).mul_add(distance, b).mul_add(distance, a)
    }
}

/// Natural cubic splines through the points, at increasing times.
pub(super) fn natural(
    points: &[Sample],
    times: impl Iterator<Item = f64>,
    emit: &mut impl FnMut(Sample),
) {
    let second = second_derivatives(points);
    let pieces = points.windows(2).zip(second.windows(2)).filter_map(|(points, second)| {
        let ([(x0, y0), (x1, y1)], [s0, s1]) = (points, second) else { return None };
        let h = x1 - x0;
        let slope = (y1 - y0) / h - h * (2.0 * s0 + s1) / 6.0;
        Some(SplinePiece { from: *x0, coefficients: [*y0, slope, s0 / 2.0, (s1 - s0) / (6.0 * h)] })
    });
    evaluate(&pieces.collect::<Vec<_>>(), times, emit);
}

/// Splines that are monotonic between points (Fritsch and Carlson).
pub(super) fn monotonic(
    points: &[Sample],
    times: impl Iterator<Item = f64>,
    emit: &mut impl FnMut(Sample),
) {
    let secants: Vec<f64> = points
        .windows(2)
        .filter_map(|pair| match pair {
            [(x0, y0), (x1, y1)] => Some((y1 - y0) / (x1 - x0)),
            _ => None,
        })
        .collect();
    let mut slopes = Vec::with_capacity(points.len());
    slopes.extend(secants.first());
    slopes.extend(secants.windows(2).map(|pair| match pair {
        [before, after] if before * after > 0.0 => 2.0 * before * after / (before + after),
        _ => 0.0,
    }));
    slopes.extend(secants.last());
    let pieces = points.windows(2).zip(slopes.windows(2)).zip(&secants);
    let pieces = pieces.filter_map(|((points, slopes), secant)| {
        let ([(x0, y0), (x1, _)], [m0, m1]) = (points, slopes) else { return None };
        let h = x1 - x0;
        let c = (3.0 * secant - 2.0 * m0 - m1) / h;
        let d = (m0 + m1 - 2.0 * secant) / (h * h);
        Some(SplinePiece { from: *x0, coefficients: [*y0, *m0, c, d] })
    });
    evaluate(&pieces.collect::<Vec<_>>(), times, emit);
}

fn evaluate(
    pieces: &[SplinePiece],
    times: impl Iterator<Item = f64>,
    emit: &mut impl FnMut(Sample),
) {
    let mut rest = pieces.iter().peekable();
    let Some(mut piece) = rest.next() else { return };
    for at in times {
        while let Some(next) = rest.next_if(|next| next.from <= at) {
            piece = next;
        }
        emit((at, piece.value(at)));
    }
}

/// Second derivatives of the natural spline at its points: a tridiagonal system.
fn second_derivatives(points: &[Sample]) -> Vec<f64> {
    let mut factors = Vec::with_capacity(points.len());
    let mut values = Vec::with_capacity(points.len());
    // The derivative at the first point is zero.
    factors.push(0.0);
    values.push(0.0);
    for triple in points.windows(3) {
        let [(x0, y0), (x1, y1), (x2, y2)] = triple else { continue };
        let (h0, h1) = (x1 - x0, x2 - x1);
        let right = 6.0 * ((y2 - y1) / h1 - (y1 - y0) / h0);
        let factor = factors.last().copied().unwrap_or_default();
        let value = values.last().copied().unwrap_or_default();
        let pivot = 2.0 * (h0 + h1) - h0 * factor;
        factors.push(h1 / pivot);
        values.push((right - h0 * value) / pivot);
    }
    let mut second = vec![0.0];
    for (factor, value) in factors.iter().zip(&values).skip(1).rev() {
        let after = second.last().copied().unwrap_or_default();
        second.push(value - factor * after);
    }
    second.push(0.0);
    second.reverse();
    second
}

/// Values near the points such that the sum of the squared distances and the integral of the squared
/// second derivative of their natural spline is least (Reinsch), with weights of 1 and times in seconds.
pub(super) fn approximate(points: &[Sample]) -> Vec<Sample> {
    // The unknowns are the second derivatives at the inner points: a symmetric system of five diagonals,
    // QᵗQ + R, where a column of Q has the weights of three neighbours.
    let columns: Vec<([f64; 3], f64, f64, f64)> = points
        .windows(3)
        .filter_map(|triple| {
            let [(x0, y0), (x1, y1), (x2, y2)] = triple else { return None };
            let (h0, h1) = (x1 - x0, x2 - x1);
            let right = (y2 - y1) / h1 - (y1 - y0) / h0;
            Some(([1.0 / h0, -1.0 / h0 - 1.0 / h1, 1.0 / h1], h0, h1, right))
        })
        .collect();
    // LDLᵗ, two columns back.
    let (mut d1, mut d2) = (0.0, 0.0);
    let (mut l1, mut e1, mut e2) = (0.0, 0.0, 0.0);
    let (mut z1, mut z2) = (0.0, 0.0);
    let mut solved: Vec<[f64; 3]> = Vec::with_capacity(columns.len());
    for (at, (q, h0, h1, right)) in columns.iter().enumerate() {
        let next = columns.get(at + 1).map(|next| next.0);
        let after = columns.get(at + 2).map(|after| after.0);
        let diagonal = q.iter().map(|q| q * q).sum::<f64>() + (h0 + h1) / 3.0;
        let beside = next.map_or(0.0, |next| q[1] * next[0] + q[2] * next[1] + h1 / 6.0);
        let outer = after.map_or(0.0, |after| q[2] * after[0]);
        let pivot = diagonal - d1 * l1 * l1 - d2 * e2 * e2;
        let value = right - l1 * z1 - e2 * z2;
        let lower = (beside - d1 * l1 * e1) / pivot;
        let far = outer / pivot;
        solved.push([value / pivot, lower, far]);
        (d2, d1) = (d1, pivot);
        (z2, z1) = (z1, value);
        (e2, e1) = (e1, far);
        l1 = lower;
    }
    let mut second = vec![0.0; points.len() + 2];
    for (at, [value, lower, far]) in solved.iter().enumerate().rev() {
        let beside = second.get(at + 2).copied().unwrap_or_default();
        let outer = second.get(at + 3).copied().unwrap_or_default();
        if let Some(slot) = second.get_mut(at + 1) {
            *slot = value - lower * beside - far * outer;
        }
    }
    let mut near = points.to_vec();
    for (at, (q, ..)) in columns.iter().enumerate() {
        let derivative = second.get(at + 1).copied().unwrap_or_default();
        for (point, q) in near.iter_mut().skip(at).zip(q) {
            point.1 -= q * derivative;
        }
    }
    near
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "tests")]

    use super::*;

    #[test]
    fn lines_stay_lines() {
        let points: Vec<Sample> =
            (0..9).map(|n| (f64::from(n) * 10.0, f64::from(n) * 3.0)).collect();
        let near = approximate(&points);
        for ((_, a), (_, b)) in near.iter().zip(&points) {
            assert!((a - b).abs() < 1e-9, "{near:?}");
        }
        let mut values = Vec::new();
        natural(&points, [5.0, 25.0, 75.0].into_iter(), &mut |(_, value)| values.push(value));
        for (value, expected) in values.iter().zip([1.5, 7.5, 22.5]) {
            assert!((value - expected).abs() < 1e-9, "{values:?}");
        }
    }

    #[test]
    fn close_points_are_smoothed_and_their_sum_is_kept() {
        let points: Vec<Sample> = (0..20).map(|n| (f64::from(n) * 0.5, f64::from(n % 2))).collect();
        let near = approximate(&points);
        let roughness = |points: &[Sample]| {
            points.windows(2).map(|pair| (pair[1].1 - pair[0].1).abs()).sum::<f64>()
        };
        assert!(roughness(&near) < roughness(&points) / 4.0, "{near:?}");
        let sum = |points: &[Sample]| points.iter().map(|(_, value)| value).sum::<f64>();
        assert!((sum(&near) - sum(&points)).abs() < 1e-9);
    }
}
