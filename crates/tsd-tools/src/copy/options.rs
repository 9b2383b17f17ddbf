//! Options of a copy, and the interface through which it reports.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tsd_storage::Table;

use super::report::CopiedRows;

/// Options of one run of a copy.
#[expect(clippy::struct_excessive_bools, reason = "independent options")]
#[derive(Clone, Debug)]
pub struct CopyRun {
    /// The rows to copy.
    pub selection: CopySelection,
    /// Rebuild keys from names even if both stores have the same keys.
    pub by_name: bool,
    /// Copy only cells that were written at this time (epoch milliseconds) or later.
    pub since_ms: Option<i64>,
    /// Keep cells that are newer in the target. For targets without other writers, where the last write wins; in HBase
    /// the newest cell wins anyway.
    pub keeps_newer: bool,
    /// Mappings of the target older than this (epoch milliseconds) are copies of the source's, which a rename may
    /// change; all others must be equal. `None` if nothing was copied before.
    pub copied_before_ms: Option<i64>,
    /// Ranges that are copied concurrently.
    pub threads: usize,
    /// Most cells per second; `None` means no limit.
    pub max_cells_per_sec: Option<f64>,
    /// Most bytes per second; `None` means no limit.
    pub max_bytes_per_sec: Option<f64>,
    /// Read everything and write nothing.
    pub dry_run: bool,
    /// A comparison makes differing rows of the target equal to those of the source. Nothing else may write to either
    /// store.
    pub repairs: bool,
    /// Progress of earlier runs, by the names of the ranges.
    pub copied: BTreeMap<String, RangeProgress>,
}

/// The rows to copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopySelection {
    /// Names of metrics, in which `*` and `?` stand for any characters; an empty list selects all.
    pub metrics: Vec<String>,
    /// First and last second; whole rows are copied.
    pub seconds: Option<(u32, u32)>,
    /// Kinds of tables; an empty set selects all.
    pub kinds: BTreeSet<CopiedKind>,
}

/// Kind of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CopiedKind {
    /// Names and UIDs.
    Uid,
    /// Points.
    Data,
    /// Rollups or pre-aggregates.
    Rollup,
    /// Meta objects and counters of series.
    Meta,
    /// Trees.
    Tree,
}

impl CopiedKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Uid, Self::Data, Self::Rollup, Self::Meta, Self::Tree];

    /// True if its rows have the keys of points.
    #[must_use]
    pub(crate) const fn has_row_keys(self) -> bool {
        matches!(self, Self::Data | Self::Rollup)
    }
}

/// Progress of a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeProgress {
    /// The last row of the source that was copied; empty if no row was.
    pub row: Bytes,
    /// True if the whole range was copied.
    pub is_complete: bool,
}

/// Receives the reports of a running copy.
pub trait CopyObserver: Send + Sync {
    /// A finding: data that could not be copied as it is, or that differs.
    fn found(&self, table: &Table, text: &str);

    /// A range was copied up to a row, or to its end. `copied` counts since the last call. `done` is the share of the
    /// whole copy that is done, from 0 to 1.
    fn advanced(&self, range: &CopiedRange<'_>, copied: &CopiedRows, done: f64);
}

/// A range of a table and its progress.
#[derive(Clone, Copy, Debug)]
pub struct CopiedRange<'a> {
    /// Name of the range.
    pub name: &'a str,
    /// Table of the source.
    pub table: &'a Table,
    /// Its progress.
    pub progress: &'a RangeProgress,
}
