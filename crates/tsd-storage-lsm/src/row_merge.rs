//! Merges the entries of a row: of each column the newest cell.
//!
//! Flushes of a series follow each other in time, so their runs usually do not overlap and stay
//! packed. The runs are expanded into cells only if two entries may have the same column.

use bytes::Bytes;
use tsd_model::{Cell, Family, PackedRun, PackedRunError, RunShape};

use crate::entry;

/// Contents of a row or of one of its entries, each column once.
#[derive(Debug, Default)]
pub(crate) struct RowContents {
    /// Sorted by family, then qualifier.
    pub(crate) cells: Vec<Cell>,
    /// Sorted by time.
    pub(crate) runs: Vec<PackedRun>,
}

/// Merges the entries of a row, oldest first.
pub(crate) fn merge_entries<'a>(
    entries: impl DoubleEndedIterator<Item = &'a Bytes>,
) -> Result<RowContents, PackedRunError> {
    let mut newest_first = entries.rev();
    let Some(newest) = newest_first.next() else { return Ok(RowContents::default()) };
    let mut merged = RowContents::decode(newest)?;
    let Some(second) = newest_first.next() else {
        merged.sort();
        return Ok(merged);
    };

    let mut contents = vec![std::mem::take(&mut merged)];
    let mut overlap = false;
    for bytes in std::iter::once(second).chain(newest_first) {
        let mut older = RowContents::decode(bytes)?;
        // A row that was flushed again after a crash has identical runs.
        older.runs.retain(|run| {
            !contents.iter().flat_map(|c| &c.runs).any(|other| other.as_bytes() == run.as_bytes())
        });
        overlap = overlap || contents.iter().any(|newer| newer.may_overlap(&older));
        contents.push(older);
    }
    for mut entry in contents {
        if overlap {
            entry.expand()?;
        }
        merged.cells.append(&mut entry.cells);
        merged.runs.append(&mut entry.runs);
    }
    merged.sort();
    Ok(merged)
}

impl RowContents {
    fn decode(entry: &Bytes) -> Result<Self, PackedRunError> {
        let mut contents = Self::default();
        entry::decode(entry, &mut contents.cells, &mut contents.runs)
            .map_err(PackedRunError::Damaged)?;
        Ok(contents)
    }

    /// True if both may have the same column.
    fn may_overlap(&self, other: &Self) -> bool {
        let in_runs = |cells: &[Cell], runs: &[PackedRun]| {
            cells.iter().any(|c| {
                c.family == Family::T && runs.iter().any(|r| r.may_contain_column(&c.qualifier))
            })
        };
        let mut columns = self.cells.iter().map(|c| (c.family, &c.qualifier));
        self.runs.iter().any(|a| other.runs.iter().any(|b| runs_may_overlap(a, b)))
            || in_runs(&self.cells, &other.runs)
            || in_runs(&other.cells, &self.runs)
            || (!other.cells.is_empty()
                && columns.any(|c| other.cells.iter().any(|o| c == (o.family, &o.qualifier))))
    }

    /// Expands all runs into cells.
    pub(crate) fn expand(&mut self) -> Result<(), PackedRunError> {
        if self.runs.is_empty() {
            return Ok(());
        }
        for run in std::mem::take(&mut self.runs) {
            run.expand_into(&mut self.cells)?;
        }
        self.sort();
        Ok(())
    }

    /// Sorts cells and runs. Of duplicate columns the first is kept.
    fn sort(&mut self) {
        self.cells.sort_by(|a, b| (a.family, &a.qualifier).cmp(&(b.family, &b.qualifier)));
        self.cells.dedup_by(|b, a| a.family == b.family && a.qualifier == b.qualifier);
        self.runs.sort_by_key(PackedRun::offset_range_ms);
    }
}

/// True if two runs may have the same column.
fn runs_may_overlap(a: &PackedRun, b: &PackedRun) -> bool {
    let whole_column = |r: &PackedRun| r.shape() == RunShape::Compacted && r.point_count() > 1;
    let (a_range, b_range) = (a.offset_range_ms(), b.offset_range_ms());
    a.is_millis() == b.is_millis()
        && match (whole_column(a), whole_column(b)) {
            (false, false) => a_range.0 <= b_range.1 && b_range.0 <= a_range.1,
            (true, true) => a_range == b_range && a.point_count() == b.point_count(),
            _ => false,
        }
}
