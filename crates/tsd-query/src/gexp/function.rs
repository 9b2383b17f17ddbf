//! The names of the functions of `/api/query/gexp`.

/// A function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Scale,
    Absolute,
    Alias,
    FirstDiff,
    MovingAverage,
    HighestMax,
    HighestCurrent,
    Shift,
    Sum,
    Difference,
    Multiply,
    Divide,
}

/// Every name.
const NAMES: &[(&str, Function)] = &[
    ("absolute", Function::Absolute),
    ("alias", Function::Alias),
    ("diffSeries", Function::Difference),
    ("difference", Function::Difference),
    ("divide", Function::Divide),
    ("divideSeries", Function::Divide),
    ("firstDiff", Function::FirstDiff),
    ("highestCurrent", Function::HighestCurrent),
    ("highestMax", Function::HighestMax),
    ("movingAverage", Function::MovingAverage),
    ("multiply", Function::Multiply),
    ("multiplySeries", Function::Multiply),
    ("scale", Function::Scale),
    ("shift", Function::Shift),
    ("sum", Function::Sum),
    ("sumSeries", Function::Sum),
    ("timeShift", Function::Shift),
];

impl Function {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, function)| *function)
    }

    pub(super) fn names() -> impl Iterator<Item = &'static str> + Clone {
        NAMES.iter().map(|(name, _)| *name)
    }
}
