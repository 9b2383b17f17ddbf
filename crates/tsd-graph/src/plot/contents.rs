//! Contents of a graph.

use jiff::tz::TimeZone;
use tsd_model::PointColumns;

use crate::options::PlotOptions;

/// Contents of a graph.
#[derive(Clone, Debug)]
pub struct Plot {
    /// First and last millisecond of the x axis; the last is later.
    pub range_ms: (i64, i64),
    /// Time zone of the x axis.
    pub zone: TimeZone,
    /// Options of the drawing.
    pub options: PlotOptions,
    /// The series, in the order of their colors.
    pub series: Vec<PlotSeries>,
    /// Texts at times.
    pub notes: Vec<PlotNote>,
}

/// A series of a graph.
#[derive(Clone, Debug, Default)]
pub struct PlotSeries {
    /// Text in the key.
    pub label: String,
    /// The axis of its values.
    pub axis: YAxis,
    /// Points in time order. NaN is a gap; infinities are not drawn.
    pub points: PointColumns,
}

/// The axis of the values of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum YAxis {
    /// The left axis.
    #[default]
    Left,
    /// The right axis.
    Right,
}

/// A text at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlotNote {
    /// The time.
    pub time_ms: i64,
    /// The text.
    pub text: String,
}
