//! The trait of reads of whole series.

use std::sync::Arc;

use bytes::Bytes;
use tsd_series_index::SeriesIndex;

use crate::{SeriesRead, SeriesScanner, SeriesVersion, SplitGoal, StorageFuture, Table};

/// Reads of whole series, for stores that keep the points of a series together or index the series.
///
/// Every method has a default: the answer of the store [below](Self::below), or else of a store that supports neither.
pub trait SeriesReads: Send + Sync {
    /// The reads of the store that this store decorates.
    fn below(&self) -> Option<&dyn SeriesReads> {
        None
    }

    /// Opens a read of the points of series. `None` if the store does not keep the points of a series together:
    /// the caller then scans rows, which have the same points. Each row is at least as new as the start of the
    /// read.
    fn read_series(&self, table: &Table, read: &SeriesRead) -> Option<Box<dyn SeriesScanner>> {
        self.below()?.read_series(table, read)
    }

    /// The version of the result of a read of series. `None` if the store has no versions, or has rows of the read
    /// that change without a new version, such as rows in memory. Equal reads return the same if the version is
    /// the same before the first read begins and after the last read ends.
    fn series_version(&self, table: &Table, read: &SeriesRead) -> Option<SeriesVersion> {
        self.below()?.series_version(table, read)
    }

    /// Tags that divide a read of a range of series into ranges of similar size: the begin of each range except
    /// the first, in order. Empty if the store does not know, or has too little data.
    fn series_splits<'a>(
        &'a self,
        table: &'a Table,
        read: &'a SeriesRead,
        goal: SplitGoal,
    ) -> StorageFuture<'a, Vec<Bytes>> {
        match self.below() {
            Some(below) => below.series_splits(table, read, goal),
            None => Box::pin(async { Ok(Vec::new()) }),
        }
    }

    /// The series index of a table, which may not be complete yet. Without an index (`None`), queries scan. Layers
    /// in front that hold rows of the table add their series before they acknowledge them.
    fn series_index(&self, table: &Table) -> Option<Arc<SeriesIndex>> {
        self.below()?.series_index(table)
    }

    /// True if other nodes may hold acknowledged rows of series that they have not registered yet. Then no read relies
    /// on the series index.
    fn has_unregistered_series(&self, table: &Table) -> bool {
        self.below().is_some_and(|below| below.has_unregistered_series(table))
    }

    /// Adds the series that other writers have registered until now to the series index. If the index is complete
    /// afterwards, it has every series whose first point was acknowledged before this call, unless
    /// [`Self::has_unregistered_series`]. Does nothing in a store
    /// without other writers, whose index is always current.
    fn refresh_series_index<'a>(&'a self, table: &'a Table) -> StorageFuture<'a, ()> {
        match self.below() {
            Some(below) => below.refresh_series_index(table),
            None => Box::pin(async { Ok(()) }),
        }
    }
}

/// A store that keeps rows only.
impl SeriesReads for () {}
