//! What a graph shows.

use jiff::tz::TimeZone;
use tsd_model::PointColumns;

use crate::options::PlotOptions;

/// What a graph shows.
#[derive(Clone, Debug)]
pub struct Plot {
    /// First and last millisecond of the x axis; the last one is later.
    pub range_ms: (i64, i64),
    /// Time zone of the x axis.
    pub zone: TimeZone,
    /// How it is drawn.
    pub options: PlotOptions,
    /// The series, in the order of their colors.
    pub series: Vec<PlotSeries>,
    /// Texts at times.
    pub notes: Vec<PlotNote>,
}

/// A series of a graph.
#[derive(Clone, Debug, Default)]
pub struct PlotSeries {
    /// Its text in the key.
    pub label: String,
    /// The axis of its values.
    pub axis: YAxis,
    /// Its points, in time order. NaN is a gap; infinities are not drawn.
    pub points: PointColumns,
}

/// The axis of the values of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum YAxis {
    /// The left one.
    #[default]
    Left,
    /// The right one.
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
