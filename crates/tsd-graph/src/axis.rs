//! Axes: where a value or time is, and which of them have a label.

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
    /// Where it is: 0 is the begin of the axis, 1 its end.
    pub(crate) position: f64,
    /// Its label; `None` for a mark between labels.
    pub(crate) label: Option<String>,
}
