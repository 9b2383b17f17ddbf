//! Numbers at which an axis has ticks.

/// Most ticks of an axis, with and without labels.
const MOST_TICKS: usize = 400;
/// Most decades whose multiples also have ticks.
const MOST_DECADES_WITH_MULTIPLES: f64 = 8.0;

/// A round step: 1, 2 or 5 times a power of ten, so that `length` has at most about `most` steps.
pub(super) fn linear_step(length: f64, most: usize) -> f64 {
    let raw = (length / most.max(1) as f64).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(raw.log10().floor()).max(f64::MIN_POSITIVE);
    let factor = raw / power;
    // Doubles are not exact: a factor that is a rounding error above 2 is 2.
    let round = [1.0, 2.0, 5.0].into_iter().find(|round| factor <= round + 1e-9).unwrap_or(10.0);
    power * round
}

/// Multiples of a round step from `least` to `greatest`, at most about `most` of them.
pub(super) fn linear_values(least: f64, greatest: f64, most: usize) -> Vec<f64> {
    let step = linear_step(greatest - least, most);
    let first = (least / step - 1e-9).ceil();
    let slack = step * 1e-9;
    (0..MOST_TICKS)
        .map(|at| (first + at as f64) * step)
        .take_while(|value| *value <= greatest + slack)
        // Drops the sign of zero.
        .map(|value| if value.abs() < slack { 0.0 } else { value })
        .collect()
}

/// Powers of ten from `least` to `greatest`, both positive, and the ticks between them. A range
/// with fewer than two powers has linear ticks.
pub(super) fn log_values(least: f64, greatest: f64, most: usize) -> (Vec<f64>, Vec<f64>) {
    let (first, last) = ((least.log10() - 1e-9).ceil(), (greatest.log10() + 1e-9).floor());
    if last - first < 1.0 {
        return (linear_values(least, greatest, most), Vec::new());
    }
    let decades = last - first + 1.0;
    let step = (decades / most.max(1) as f64).ceil().max(1.0);
    let powers = |step: f64| {
        (0..MOST_TICKS)
            .map(move |at| (at as f64).mul_add(step, first))
            .take_while(move |power| *power <= last)
    };
    let labelled = powers(step).map(|power| 10_f64.powf(power)).collect();
    let mut between = Vec::new();
    if decades <= MOST_DECADES_WITH_MULTIPLES {
        for power in std::iter::once(first - 1.0).chain(powers(1.0)) {
            let multiples = (2..10).map(|factor| f64::from(factor) * 10_f64.powf(power));
            between.extend(multiples.filter(|value| (least..=greatest).contains(value)));
        }
    }
    (labelled, between)
}
