//! An index of the series of a table: which series a metric has, with which tags, and on which days
//! each of them has rows.
//!
//! It is in memory and does no I/O; a store writes what is new of it with [`SeriesIndex::delta`] and
//! reads that back with [`SeriesIndex::load`]. Each series of a metric has a number, dense from 0.
//! Sets of series are bitmaps of these numbers: one for each tag key, for each pair of key and value
//! (a *posting*), and for each UTC day on which the series were active.
//!
//! The index is a superset: it has every series and day of which a row was added, and keeps them when
//! rows are deleted, but for days that a retention has discarded. What is read by it has to be checked as a
//! scan's rows are.
//!
//! Readers and writers lock one metric at a time, for one batch of rows or one set operation. Lists of
//! tags are copied in batches, so a writer never waits for a reader that lists a million series.

mod check;
mod delta;
mod metric_series;
mod posting;
mod reclaim;
mod registration;
mod selection;
mod series_index;

pub use delta::{Delta, LoadError};
pub use reclaim::LiveSeries;
pub use selection::{DayRows, MetricIndex, RowCounts, SeriesSet, TagCondition};
pub use series_index::{IndexSize, SeriesIndex};

#[cfg(test)]
mod tests;
