//! Doubles that are short decimals, encoded as integers.
//!
//! Most measured values are parsed from decimals with few digits. `m / 10^k` with `m` below 2^53 and
//! `k` up to 22 is one correctly rounded division of two exact doubles, so the integer `m` determines
//! the same bits on every machine.

/// Largest power of ten that a double holds exactly.
pub(super) const MAX_EXPONENT: u8 = 22;

/// Numbers of decimal places that are tried.
const MAX_TRIED: u8 = 15;

const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

const POWERS: [f64; MAX_EXPONENT as usize + 1] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// `10^exponent`, if that is exact.
pub(super) fn power(exponent: u8) -> Option<f64> {
    POWERS.get(usize::from(exponent)).copied()
}

/// Integers `m` and one exponent `k` such that each value is exactly `m / 10^k`, if they exist. The
/// flag of a value means single precision: it is compared after rounding.
pub(super) fn scale(
    values: impl Iterator<Item = (f64, bool)> + Clone,
    mantissas: &mut Vec<i64>,
) -> Option<u8> {
    let mut exponent = 0;
    for (v, narrow) in values.clone() {
        while mantissa(v, exponent, narrow).is_none() {
            exponent += 1;
            if exponent > MAX_TRIED {
                return None;
            }
        }
    }
    mantissas.clear();
    for (v, narrow) in values {
        mantissas.push(mantissa(v, exponent, narrow)?);
    }
    Some(exponent)
}

fn mantissa(v: f64, exponent: u8, narrow: bool) -> Option<i64> {
    let power = power(exponent)?;
    let m = (v * power).round_ties_even();
    if m.is_nan() || m.abs() >= MAX_EXACT {
        return None;
    }
    let back = m / power;
    let same = if narrow {
        f64::from(back as f32).to_bits() == v.to_bits()
    } else {
        back.to_bits() == v.to_bits()
    };
    // Integers have no negative zero.
    (same && (m != 0.0 || v.to_bits() == 0)).then_some(m as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(values: &[f64], narrow: bool, expected: Option<(u8, &[i64])>) {
        let mut mantissas = Vec::new();
        let got = scale(values.iter().map(|&v| (v, narrow)), &mut mantissas);
        assert_eq!(got.map(|k| (k, mantissas.as_slice())), expected, "{values:?}");
    }

    #[test]
    fn exponent_is_the_smallest_for_all_values() {
        check(&[1.5, -2.25, 3.0], false, Some((2, &[150, -225, 300])));
        check(&[0.1, 0.2, 0.3], false, Some((1, &[1, 2, 3])));
        check(&[1e15, 0.5], false, None);
        check(&[0.1 + 0.2], false, None);
        check(&[0.0], false, Some((0, &[0])));
        check(&[-0.0], false, None);
        check(&[f64::NAN], false, None);
        check(&[f64::INFINITY], false, None);
        check(&[1e300], false, None);
        check(&[f64::from(42.1_f32)], false, None);
        check(&[f64::from(42.1_f32), f64::from(-0.25_f32)], true, Some((2, &[4_210, -25])));
        check(&[f64::from(-0.0_f32)], true, None);
    }
}
