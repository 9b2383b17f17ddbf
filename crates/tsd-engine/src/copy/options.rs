//! What is copied and how, and what a copy tells its caller.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tsd_storage::Table;

use super::report::CopiedRows;

/// What is copied, and how.
#[expect(clippy::struct_excessive_bools, reason = "independent options")]
#[derive(Clone, Debug)]
pub struct CopyRun {
    /// What is copied.
    pub selection: CopySelection,
    /// Rebuild keys from names, although both stores have the same keys.
    pub by_name: bool,
    /// Only cells that were written at this time or later, epoch milliseconds.
    pub since_ms: Option<i64>,
    /// Leave cells alone that are newer in the target. For targets without other writers, where the last write
    /// wins; in HBase the newest cell does.
    pub keeps_newer: bool,
    /// Mappings of the target that are older than this, epoch milliseconds, are copies of the source's, which a
    /// rename may change; all others must be equal. `None`: nothing was copied before.
    pub copied_before_ms: Option<i64>,
    /// Parts that are copied at once.
    pub threads: usize,
    /// Most cells a second; `None`: no limit.
    pub max_cells_per_sec: Option<f64>,
    /// Most bytes a second; `None`: no limit.
    pub max_bytes_per_sec: Option<f64>,
    /// Read everything and write nothing.
    pub dry_run: bool,
    /// A comparison makes rows of the target that differ as those of the source. Nothing else may write to either.
    pub repairs: bool,
    /// How far parts were copied before, by their names.
    pub copied: BTreeMap<String, PartProgress>,
}

/// The rows to copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopySelection {
    /// Names of metrics, in which `*` and `?` stand for any characters; empty: all.
    pub metrics: Vec<String>,
    /// First and last second; whole rows are copied.
    pub seconds: Option<(u32, u32)>,
    /// Kinds of tables; empty: all.
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

/// How far a part was copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartProgress {
    /// The last row of the source that was copied; empty: none.
    pub row: Bytes,
    /// All of it was copied.
    pub is_complete: bool,
}

/// What a copy reports while it runs.
pub trait CopyObserver: Send + Sync {
    /// Something could not be copied as it is, or differs.
    fn found(&self, table: &Table, text: &str);

    /// A part was copied up to a row, or to its end. `copied` is what was copied since the last call, and
    /// `done` which share of the whole, from 0 to 1.
    fn advanced(&self, part: &CopiedPart<'_>, copied: &CopiedRows, done: f64);
}

/// A part of a table and its progress.
#[derive(Clone, Copy, Debug)]
pub struct CopiedPart<'a> {
    /// Name of the part.
    pub name: &'a str,
    /// Table of the source.
    pub table: &'a Table,
    /// How far it was copied.
    pub progress: &'a PartProgress,
}
