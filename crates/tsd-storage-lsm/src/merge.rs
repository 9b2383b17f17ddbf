//! The entries of a row as the row a reader sees: each column once, the newest.
//!
//! Flushes of an ordinary series follow each other in time, so their runs do not touch and stay
//! packed. Only where two entries may hold the same column is the row taken apart into cells.

use bytes::Bytes;
use tsd_model::{Cell, Family, PackedRun, PackedRunError, RunShape};

use crate::entry;

/// What is in a row or in an entry of it, each column once.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Sorted by family, then qualifier.
    pub(crate) cells: Vec<Cell>,
    /// Sorted by time.
    pub(crate) runs: Vec<PackedRun>,
}

/// Joins the entries of a row, oldest first.
pub(crate) fn merge<'a>(
    entries: impl DoubleEndedIterator<Item = &'a Bytes>,
) -> Result<Parts, PackedRunError> {
    let mut newest_first = entries.rev();
    let Some(newest) = newest_first.next() else { return Ok(Parts::default()) };
    let mut merged = Parts::decode(newest)?;
    let Some(second) = newest_first.next() else {
        merged.sort();
        return Ok(merged);
    };

    let mut parts = vec![std::mem::take(&mut merged)];
    let mut clash = false;
    for bytes in std::iter::once(second).chain(newest_first) {
        let mut older = Parts::decode(bytes)?;
        // A row that was ingested again after a crash repeats its runs byte for byte.
        older.runs.retain(|run| {
            !parts.iter().flat_map(|p| &p.runs).any(|known| known.as_bytes() == run.as_bytes())
        });
        clash = clash || parts.iter().any(|newer| newer.clashes(&older));
        parts.push(older);
    }
    for mut part in parts {
        if clash {
            part.expand()?;
        }
        merged.cells.append(&mut part.cells);
        merged.runs.append(&mut part.runs);
    }
    merged.sort();
    Ok(merged)
}

impl Parts {
    fn decode(entry: &Bytes) -> Result<Self, PackedRunError> {
        let mut parts = Self::default();
        entry::decode(entry, &mut parts.cells, &mut parts.runs).map_err(PackedRunError::Damaged)?;
        Ok(parts)
    }

    /// Whether a column may be in both.
    fn clashes(&self, other: &Self) -> bool {
        let in_runs = |cells: &[Cell], runs: &[PackedRun]| {
            cells.iter().any(|c| {
                c.family == Family::T && runs.iter().any(|r| r.may_contain_column(&c.qualifier))
            })
        };
        let mut columns = self.cells.iter().map(|c| (c.family, &c.qualifier));
        self.runs.iter().any(|a| other.runs.iter().any(|b| runs_clash(a, b)))
            || in_runs(&self.cells, &other.runs)
            || in_runs(&other.cells, &self.runs)
            || (!other.cells.is_empty()
                && columns.any(|c| other.cells.iter().any(|o| c == (o.family, &o.qualifier))))
    }

    /// Takes all runs apart.
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

    /// Puts cells and runs in order. Of a column that is there twice the first stays.
    fn sort(&mut self) {
        self.cells.sort_by(|a, b| (a.family, &a.qualifier).cmp(&(b.family, &b.qualifier)));
        self.cells.dedup_by(|b, a| a.family == b.family && a.qualifier == b.qualifier);
        self.runs.sort_by_key(PackedRun::offset_range_ms);
    }
}

/// Whether two runs may hold the same column.
fn runs_clash(a: &PackedRun, b: &PackedRun) -> bool {
    let whole_column = |r: &PackedRun| r.shape() == RunShape::Compacted && r.point_count() > 1;
    let (a_range, b_range) = (a.offset_range_ms(), b.offset_range_ms());
    a.is_millis() == b.is_millis()
        && match (whole_column(a), whole_column(b)) {
            (false, false) => a_range.0 <= b_range.1 && b_range.0 <= a_range.1,
            (true, true) => a_range == b_range && a.point_count() == b.point_count(),
            _ => false,
        }
}
