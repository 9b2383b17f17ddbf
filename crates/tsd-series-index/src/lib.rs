//! An index of the series of a table, so that queries find series by tags without a scan. It has
//! the tags of each series and the days on which the series has rows.
//!
//! It is in memory and does no I/O; a store writes its changes with [`SeriesIndex::delta`] and
//! reads them back with [`SeriesIndex::load`]. Each series of a metric has a number, dense from 0.
//! Sets of series are bitmaps of these numbers: one for each tag key, for each pair of key and
//! value (a *posting*), and for each UTC day on which the series were active.
//!
//! The index is a superset: it has every series and day with an added row, and keeps them when rows
//! are deleted. Only a retention removes days. Rows that a query reads by the index must be checked
//! like the rows of a scan.
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
