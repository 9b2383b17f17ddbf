//! Whole rows out of the pieces that answers bring.
//!
//! A long row comes in several results, over several answers. That a result is the last of its row
//! cannot be told by its flag alone: the row may end exactly where an answer was cut. So a pending
//! row is whole when the next result has another row, when an answer comes without results that is
//! no heartbeat, or when the region ends.
//!
//! A scan that is asked for pieces hands them out as they come, and after a fault goes on inside a
//! row: cells up to the last one handed out are dropped by their order, not by their number, since
//! the row may have changed in between.

use std::cmp::Ordering;

use super::{calls::ScanAnswer, position::ScanPosition};
use crate::{cell::Cell, region::info::Region, request::scan::Scan, row::Row};

/// A row, or a piece of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanRow {
    /// Its cells.
    pub row: Row,
    /// Whether more cells of the row follow in the next one.
    pub partial: bool,
}

/// Where the scan goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStep {
    /// The same scanner has more.
    Next,
    /// The region is done; another one follows.
    NextRegion,
    /// All is read.
    Done,
}

/// A row of more bytes than are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row of more than {limit} bytes; read it in pieces")]
pub struct RowTooLong {
    /// Bytes that are allowed.
    pub limit: usize,
}

/// Gathers rows, and keeps track of what was handed out.
#[derive(Debug)]
pub struct RowAssembler {
    position: ScanPosition,
    in_pieces: bool,
    max_row_bytes: usize,
    /// Pieces of a row that is not whole yet.
    pending: Vec<Row>,
    pending_bytes: usize,
    /// Last piece handed out, if its row may have more.
    handed_out: Option<Row>,
    /// Cells to drop, up to this one, after a fault inside a row.
    resume_after: Option<Row>,
}

impl RowAssembler {
    /// Begins the scan; a whole row may have at most so many bytes.
    #[must_use]
    pub fn new(scan: &Scan, max_row_bytes: usize) -> Self {
        Self {
            position: ScanPosition::of(scan),
            in_pieces: scan.in_pieces(),
            max_row_bytes,
            pending: Vec::new(),
            pending_bytes: 0,
            handed_out: None,
            resume_after: None,
        }
    }

    /// What is left to read.
    #[must_use]
    pub const fn position(&self) -> &ScanPosition {
        &self.position
    }

    /// Takes in an answer of the scanner on `region`; rows that are whole are added to `rows`.
    ///
    /// # Errors
    ///
    /// When a row that is to be whole passes the bound.
    pub fn answer(
        &mut self,
        answer: ScanAnswer,
        region: &Region,
        rows: &mut Vec<ScanRow>,
    ) -> Result<ScanStep, RowTooLong> {
        let empty = answer.results.is_empty();
        let before = rows.len();
        if !self.in_pieces {
            rows.reserve(answer.results.len());
        }
        for (row, partial) in answer.results {
            // Servers before 1.4 do not count.
            if self.position.limit_reached() {
                break;
            }
            if self.in_pieces {
                self.piece(row, partial, rows);
            } else {
                self.whole(row, partial, rows)?;
            }
        }
        // Of the rows that were whole at once only the last counts.
        if !self.in_pieces
            && rows.len() > before
            && let Some(last) = rows.last()
        {
            self.position.behind(last.row.key_bytes());
        }
        let over = answer.scan_over || answer.region_over;
        if over || empty && !answer.heartbeat {
            self.row_ends(rows);
        }
        Ok(if answer.scan_over || self.position.limit_reached() {
            ScanStep::Done
        } else if !answer.region_over {
            ScanStep::Next
        } else if self.position.region_done(region) {
            ScanStep::Done
        } else {
            ScanStep::NextRegion
        })
    }

    /// The scanner is lost: what is not whole is read again.
    pub fn fault(&mut self) {
        self.pending.clear();
        self.pending_bytes = 0;
        if let Some(last) = self.handed_out.clone() {
            self.position.inside_row(last.key_bytes());
            self.resume_after = Some(last);
        }
    }

    fn whole(
        &mut self,
        row: Row,
        partial: bool,
        rows: &mut Vec<ScanRow>,
    ) -> Result<(), RowTooLong> {
        if row.is_empty() {
            return Ok(());
        }
        if self.pending.first().is_some_and(|first| first.key() != row.key()) {
            self.row_ends(rows);
            if self.position.limit_reached() {
                return Ok(());
            }
        }
        self.pending_bytes += row.encoded().len();
        if self.pending_bytes > self.max_row_bytes {
            return Err(RowTooLong { limit: self.max_row_bytes });
        }
        if self.pending.is_empty() && !partial {
            self.pending_bytes = 0;
            self.position.row_counted();
            rows.push(ScanRow { row, partial });
            return Ok(());
        }
        self.pending.push(row);
        if !partial {
            self.row_ends(rows);
        }
        Ok(())
    }

    fn piece(&mut self, row: Row, partial: bool, rows: &mut Vec<ScanRow>) {
        let row = match &self.resume_after {
            Some(last) if last.key() == row.key() => {
                let Some(bound) = last.cells().last() else { return };
                row.skip_while(|cell| column_order(cell, &bound) != Ordering::Greater)
            }
            _ => {
                self.resume_after = None;
                row
            }
        };
        let another = |last: &Row| !row.is_empty() && last.key() != row.key();
        if self.handed_out.as_ref().is_some_and(another) {
            self.row_ends(rows);
            if self.position.limit_reached() {
                return;
            }
        }
        if row.is_empty() {
            if !partial {
                self.row_ends(rows);
            }
            return;
        }
        rows.push(ScanRow { row: row.clone(), partial });
        self.handed_out = Some(row);
        if !partial {
            self.row_ends(rows);
        }
    }

    /// No more cells of the current row will come.
    fn row_ends(&mut self, rows: &mut Vec<ScanRow>) {
        self.resume_after = None;
        if let Some(last) = self.handed_out.take() {
            self.position.row_done(last.key_bytes());
        }
        if !self.pending.is_empty() {
            let row = Row::join(&self.pending);
            self.pending.clear();
            self.pending_bytes = 0;
            self.position.row_done(row.key_bytes());
            rows.push(ScanRow { row, partial: false });
        }
    }
}

/// Order of cells inside a row: family, qualifier, newest first.
fn column_order(a: &Cell<'_>, b: &Cell<'_>) -> Ordering {
    let kind = |cell: &Cell<'_>| cell.kind as u8;
    (a.family, a.qualifier)
        .cmp(&(b.family, b.qualifier))
        .then_with(|| b.timestamp.cmp(&a.timestamp))
        .then_with(|| kind(b).cmp(&kind(a)))
}

#[cfg(test)]
mod tests;
