//! Aggregators, which combine several values into one.
//!
//! An aggregator has two forms. The integer form is used if every contributing value is an integer;
//! it wraps like Java's `long` and truncates. The floating-point form treats NaN as a missing
//! value. Values are aggregated in the given order, since floating-point sums depend on it.

mod floats;
mod integers;
mod percentile;

pub(crate) use floats::aggregate_floats;
pub(crate) use integers::aggregate_integers;
pub use percentile::{Estimation, percentile};

/// Value that a series contributes at a time without a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Interpolation {
    /// Linear interpolation between the neighbouring points.
    Linear,
    /// Zero.
    Zero,
    /// The greatest value of the type.
    Max,
    /// The smallest value of the type.
    Min,
    /// The previous value.
    Previous,
}

/// A registered aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aggregator {
    /// Sum, linear interpolation.
    Sum,
    /// Sum; a missing value is the previous one.
    Pfsum,
    /// Sum; a missing value is zero.
    Zimsum,
    /// Minimum, linear interpolation.
    Min,
    /// Minimum; missing values are ignored.
    Mimmin,
    /// Maximum, linear interpolation.
    Max,
    /// Maximum; missing values are ignored.
    Mimmax,
    /// Mean.
    Avg,
    /// Upper median.
    Median,
    /// Product.
    Mult,
    /// Population standard deviation.
    Dev,
    /// Last minus first.
    Diff,
    /// Number of values.
    Count,
    /// First value.
    First,
    /// Last value.
    Last,
    /// Sum of squares.
    SquareSum,
    /// No aggregation: every series on its own.
    None,
    /// Estimated percentile.
    Percentile(Percentile),
}

/// A percentile and its estimation method for integers (doubles always use the legacy method).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Percentile {
    per_mille: u16,
    estimation: Estimation,
}

impl Percentile {
    /// The quantile, 0 to 1.
    #[must_use]
    pub fn quantile(self) -> f64 {
        f64::from(self.per_mille) / 10.0 / 100.0
    }

    /// Estimation method for integers.
    #[must_use]
    pub(crate) const fn estimation(self) -> Estimation {
        self.estimation
    }
}

const fn pct(per_mille: u16, estimation: Estimation) -> Aggregator {
    Aggregator::Percentile(Percentile { per_mille, estimation })
}

/// Every registered name.
const REGISTERED: &[(&str, Aggregator)] = &[
    ("mult", Aggregator::Mult),
    ("p90", pct(900, Estimation::Legacy)),
    ("zimsum", Aggregator::Zimsum),
    ("mimmax", Aggregator::Mimmax),
    ("sum", Aggregator::Sum),
    ("p50", pct(500, Estimation::Legacy)),
    ("none", Aggregator::None),
    ("p95", pct(950, Estimation::Legacy)),
    ("ep99r7", pct(990, Estimation::R7)),
    ("p75", pct(750, Estimation::Legacy)),
    ("p99", pct(990, Estimation::Legacy)),
    ("ep99r3", pct(990, Estimation::R3)),
    ("ep95r7", pct(950, Estimation::R7)),
    ("min", Aggregator::Min),
    ("avg", Aggregator::Avg),
    ("ep75r7", pct(750, Estimation::R7)),
    ("dev", Aggregator::Dev),
    ("ep95r3", pct(950, Estimation::R3)),
    ("ep75r3", pct(750, Estimation::R3)),
    ("ep50r7", pct(500, Estimation::R7)),
    ("ep90r7", pct(900, Estimation::R7)),
    ("mimmin", Aggregator::Mimmin),
    ("p999", pct(999, Estimation::Legacy)),
    ("ep50r3", pct(500, Estimation::R3)),
    ("ep90r3", pct(900, Estimation::R3)),
    ("ep999r7", pct(999, Estimation::R7)),
    ("last", Aggregator::Last),
    ("max", Aggregator::Max),
    ("count", Aggregator::Count),
    ("ep999r3", pct(999, Estimation::R3)),
    ("first", Aggregator::First),
    ("pfsum", Aggregator::Pfsum),
    ("squareSum", Aggregator::SquareSum),
    ("diff", Aggregator::Diff),
    ("median", Aggregator::Median),
];

impl Aggregator {
    /// Every registered name, for `/api/aggregators`.
    pub fn names() -> impl Iterator<Item = &'static str> + Clone {
        REGISTERED.iter().map(|(name, _)| *name)
    }

    /// The aggregator of that name; names are case-sensitive.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        REGISTERED.iter().find(|(n, _)| *n == name).map(|(_, aggregator)| *aggregator)
    }

    /// Registered name.
    #[must_use]
    pub fn name(self) -> &'static str {
        REGISTERED.iter().find(|(_, a)| *a == self).map_or("none", |(name, _)| *name)
    }

    /// Value that a series contributes at a time without a point.
    #[must_use]
    pub(crate) const fn interpolation(self) -> Interpolation {
        match self {
            Self::Zimsum
            | Self::Count
            | Self::First
            | Self::Last
            | Self::SquareSum
            | Self::None => Interpolation::Zero,
            Self::Pfsum => Interpolation::Previous,
            Self::Mimmin => Interpolation::Max,
            Self::Mimmax => Interpolation::Min,
            Self::Sum
            | Self::Min
            | Self::Max
            | Self::Avg
            | Self::Median
            | Self::Mult
            | Self::Dev
            | Self::Diff
            | Self::Percentile(_) => Interpolation::Linear,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for (name, aggregator) in REGISTERED {
            assert_eq!(aggregator.name(), *name);
            assert_eq!(Aggregator::from_name(name), Some(*aggregator));
        }
        assert_eq!(Aggregator::names().count(), 35);
        assert_eq!(Aggregator::from_name("SUM"), None);
        assert_eq!(Aggregator::from_name("movingAverage"), None);
    }
}
