//! Names of the directories of a store.

/// Directory of the store below a data directory and in a snapshot.
pub(crate) const STORE: &str = "store";
/// Directories of the two kinds of tables.
pub(crate) const POINTS: &str = "points";
pub(crate) const CELLS: &str = "cells";
/// File in the directory of the log's mark that records the progress of all tables at that mark.
pub(crate) const PROGRESS: &str = "PROGRESS";
/// File that lists the tables of points.
pub(crate) const POINTS_LIST: &str = "POINTS";
