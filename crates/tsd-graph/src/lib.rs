//! Draws graphs of series: points and options in, PNG or terminal text out.
//!
//! Options have gnuplot's names and notations, because OpenTSDB hands them to gnuplot and its clients
//! send them. Nothing is handed to a program here: an option is parsed to a value or refused, so a
//! text can be no command. No I/O and no clock; long work is divided into pieces that the caller schedules.
//! Fonts are compiled in.

mod axis;
mod canvas;
mod options;
mod pace;
mod plot;
mod png_file;
mod point_values;
mod sixel;
mod smooth;
mod strip;
mod terminal;

pub use options::{
    AxisOptions, AxisRange, Color, KeyPlacement, KeySide, NumberFormat, PlotOptionError,
    PlotOptionProblem, PlotOptions, PlotSize, PlotStyle, Smoothing, TimeFormat,
};
pub use plot::{DrawError, Plot, PlotNote, PlotSeries, YAxis};
pub use terminal::{TerminalSize, render_terminal};
