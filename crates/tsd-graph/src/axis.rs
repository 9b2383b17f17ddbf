//! Axes, which map values and times to positions and choose labels.

mod number_ticks;
mod time_ticks;
mod value_axis;

pub(crate) use self::{
    time_ticks::{default_time_format, time_ticks},
    value_axis::ValueAxis,
};

/// A mark of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AxisTick {
    /// Position of the mark: 0 is the begin of the axis, 1 its end.
    pub(crate) position: f64,
    /// Label of the mark; `None` between labels.
    pub(crate) label: Option<String>,
}
