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

impl Function {
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "scale" => Self::Scale,
            "absolute" => Self::Absolute,
            "alias" => Self::Alias,
            "firstDiff" => Self::FirstDiff,
            "movingAverage" => Self::MovingAverage,
            "highestMax" => Self::HighestMax,
            "highestCurrent" => Self::HighestCurrent,
            "shift" | "timeShift" => Self::Shift,
            "sumSeries" | "sum" => Self::Sum,
            "diffSeries" | "difference" => Self::Difference,
            "multiplySeries" | "multiply" => Self::Multiply,
            "divideSeries" | "divide" => Self::Divide,
            _ => return None,
        })
    }
}
