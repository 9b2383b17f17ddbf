//! Names of the directories of a store.

/// The directory of a store below a data directory, as snapshots have it.
pub(crate) const STORE: &str = "store";
/// Directories of the two kinds of tables.
pub(crate) const POINTS: &str = "points";
pub(crate) const CELLS: &str = "cells";
/// File with how far the tables were when the log recorded its mark, beside the mark.
pub(crate) const PROGRESS: &str = "PROGRESS";
/// File that lists the tables of points.
pub(crate) const POINTS_LIST: &str = "POINTS";
