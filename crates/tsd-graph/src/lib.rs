//! Draws graphs of series: points and options in, PNG or terminal text out.
//!
//! Options have gnuplot's names and notations, since OpenTSDB hands them to gnuplot and its clients
//! send them. This crate runs no program: it parses each option to a value or rejects it, so a text
//! cannot become a command. It does no I/O and reads no clock. Long work is divided into pieces
//! that the caller schedules. Fonts are compiled in.

mod axis;
mod canvas;
mod options;
mod pace;
mod plot;
mod png_file;
mod point_values;
mod smooth;
mod strip;
mod terminal;

pub use options::{
    AxisOptions, AxisRange, Color, KeyPlacement, KeySide, NumberFormat, PlotOptionError,
    PlotOptionProblem, PlotOptions, PlotSize, PlotStyle, Smoothing, TimeFormat,
};
pub use plot::{DrawError, Plot, PlotNote, PlotSeries, YAxis};
pub use terminal::{TerminalSize, render_terminal};
