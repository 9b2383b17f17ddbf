//! Cubic splines.

use super::sample::Sample;

/// A cubic polynomial from one point to the next.
#[derive(Clone, Copy, Debug, Default)]
struct CubicSegment {
    from: f64,
    /// Coefficients of the powers 0 to 3 of the distance from `from`.
    coefficients: [f64; 4],
}

impl CubicSegment {
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
    let segments = points.windows(2).zip(second.windows(2)).filter_map(|(points, second)| {
        let ([(x0, y0), (x1, y1)], [s0, s1]) = (points, second) else { return None };
        let h = x1 - x0;
        let slope = (y1 - y0) / h - h * (2.0 * s0 + s1) / 6.0;
        Some(CubicSegment {
            from: *x0,
            coefficients: [*y0, slope, s0 / 2.0, (s1 - s0) / (6.0 * h)],
        })
    });
    evaluate(&segments.collect::<Vec<_>>(), times, emit);
}

fn evaluate(
    segments: &[CubicSegment],
    times: impl Iterator<Item = f64>,
    emit: &mut impl FnMut(Sample),
) {
    let mut rest = segments.iter().peekable();
    let Some(mut segment) = rest.next() else { return };
    for at in times {
        while let Some(next) = rest.next_if(|next| next.from <= at) {
            segment = next;
        }
        emit((at, segment.value(at)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_lines() {
        let points: Vec<Sample> =
            (0..9).map(|n| (f64::from(n) * 10.0, f64::from(n) * 3.0)).collect();
        let mut values = Vec::new();
        natural(&points, [5.0, 25.0, 75.0].into_iter(), &mut |(_, value)| values.push(value));
        for (value, expected) in values.iter().zip([1.5, 7.5, 22.5]) {
            assert!((value - expected).abs() < 1e-9, "{values:?}");
        }
    }
}
