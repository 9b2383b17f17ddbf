//! Assembly of rows from partial results.
//!
//! A long row arrives in several results over several responses. The partial flag does not identify the
//! last result of a row, which may end exactly at the limit of a response. A pending row is therefore
//! complete in three cases: the next result has another row, a response other than a heartbeat has no
//! results, or the region ends.
//!
//! A selective scan requests the row that the server has reached (the cursor), and resumes there: the
//! rows that do not match are not read again.
//!
//! A scan that returns partial rows resumes inside a row after a failure: cells up to the last returned
//! one are dropped by their order, not by their number, since the row may have changed.

use std::cmp::Ordering;

use super::{calls::ScanResponse, position::ScanPosition};
use crate::{cell::Cell, region::info::Region, request::scan::Scan, row::Row};

/// A row or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanRow {
    /// Cells of the row.
    pub row: Row,
    /// True if more cells of the row follow in the next item.
    pub partial: bool,
}

/// Next step of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStep {
    /// Continue with the same scanner.
    Next,
    /// Continue with the next region.
    NextRegion,
    /// The scan is complete.
    Done,
}

/// A row exceeds the maximum length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row exceeds the limit of {limit} bytes; scan it in batches")]
pub struct RowTooLong {
    /// Maximum length in bytes.
    pub limit: usize,
}

/// Assembles rows and tracks the position of a scan.
#[derive(Debug)]
pub struct RowAssembler {
    position: ScanPosition,
    returns_partials: bool,
    max_row_bytes: usize,
    /// Parts of an incomplete row.
    pending: Vec<Row>,
    pending_bytes: usize,
    /// Last returned part of a row that may have more cells.
    last_part: Option<Row>,
    /// Last part returned before a failure. Cells up to its last one are dropped.
    resume_after: Option<Row>,
}

impl RowAssembler {
    /// Starts a scan. A row that is assembled may have at most `max_row_bytes`.
    #[must_use]
    pub fn new(scan: &Scan, max_row_bytes: usize) -> Self {
        Self {
            position: ScanPosition::of(scan),
            returns_partials: scan.returns_partials(),
            max_row_bytes,
            pending: Vec::new(),
            pending_bytes: 0,
            last_part: None,
            resume_after: None,
        }
    }

    /// Returns the remaining range.
    #[must_use]
    pub const fn position(&self) -> &ScanPosition {
        &self.position
    }

    /// Processes a response of the scanner on `region` and appends complete rows to `rows`.
    ///
    /// # Errors
    ///
    /// When a row exceeds the maximum length.
    pub fn add_response(
        &mut self,
        response: ScanResponse,
        region: &Region,
        rows: &mut Vec<ScanRow>,
    ) -> Result<ScanStep, RowTooLong> {
        let empty = response.results.is_empty();
        let before = rows.len();
        if !self.returns_partials {
            rows.reserve(response.results.len());
        }
        for (row, partial) in response.results {
            // Servers before 1.4 ignore the limit.
            if self.position.limit_reached() {
                break;
            }
            if self.returns_partials {
                self.add_part(row, partial, rows);
            } else {
                self.add_result(row, partial, rows)?;
            }
        }
        // For rows that arrived in one result, only the last one sets the position.
        if !self.returns_partials
            && rows.len() > before
            && let Some(last) = rows.last()
        {
            self.position.move_after(last.row.key_bytes());
        }
        // Rows before the cursor do not match. A row that is incomplete is read again as a whole.
        if let Some(cursor) = response.cursor
            && self.pending.is_empty()
            && self.last_part.is_none()
            && self.resume_after.is_none()
        {
            self.position.advance_to(cursor);
        }
        let complete = response.scan_complete || response.region_complete;
        if complete || empty && !response.heartbeat {
            self.finish_row(rows);
        }
        Ok(if response.scan_complete || self.position.limit_reached() {
            ScanStep::Done
        } else if !response.region_complete {
            ScanStep::Next
        } else if self.position.region_done(region) {
            ScanStep::Done
        } else {
            ScanStep::NextRegion
        })
    }

    /// Resets to the last returned cell after the scanner was lost.
    pub fn reset(&mut self) {
        self.pending.clear();
        self.pending_bytes = 0;
        if let Some(last) = self.last_part.clone() {
            self.position.inside_row(last.key_bytes());
            self.resume_after = Some(last);
        }
    }

    fn add_result(
        &mut self,
        row: Row,
        partial: bool,
        rows: &mut Vec<ScanRow>,
    ) -> Result<(), RowTooLong> {
        if row.is_empty() {
            return Ok(());
        }
        if self.pending.first().is_some_and(|first| first.key() != row.key()) {
            self.finish_row(rows);
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
            self.position.count_row();
            rows.push(ScanRow { row, partial });
            return Ok(());
        }
        self.pending.push(row);
        if !partial {
            self.finish_row(rows);
        }
        Ok(())
    }

    fn add_part(&mut self, row: Row, partial: bool, rows: &mut Vec<ScanRow>) {
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
        let is_another_row = |last: &Row| !row.is_empty() && last.key() != row.key();
        if self.last_part.as_ref().is_some_and(is_another_row) {
            self.finish_row(rows);
            if self.position.limit_reached() {
                return;
            }
        }
        if row.is_empty() {
            if !partial {
                self.finish_row(rows);
            }
            return;
        }
        rows.push(ScanRow { row: row.clone(), partial });
        self.last_part = Some(row);
        if !partial {
            self.finish_row(rows);
        }
    }

    /// Completes the current row.
    fn finish_row(&mut self, rows: &mut Vec<ScanRow>) {
        self.resume_after = None;
        if let Some(last) = self.last_part.take() {
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

/// Compares cells of a row: family, qualifier, descending timestamp, descending kind.
fn column_order(a: &Cell<'_>, b: &Cell<'_>) -> Ordering {
    let kind = |cell: &Cell<'_>| cell.kind as u8;
    (a.family, a.qualifier)
        .cmp(&(b.family, b.qualifier))
        .then_with(|| b.timestamp.cmp(&a.timestamp))
        .then_with(|| kind(b).cmp(&kind(a)))
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};

    use super::*;
    use crate::{cell::CellKind, row::CellBlock};

    /// Parses a result of row and qualifiers: `a:12` has the cells `1` and `2` of row `a`; a trailing `+`
    /// marks it as partial.
    fn result(text: &str) -> (Row, bool) {
        let (text, partial) = text.strip_suffix('+').map_or((text, false), |text| (text, true));
        let (key, qualifiers) = text.split_once(':').unwrap();
        let mut block = BytesMut::new();
        for qualifier in qualifiers.as_bytes().chunks(1) {
            let cell = Cell {
                row: key.as_bytes(),
                family: b"f",
                qualifier,
                timestamp: 1,
                kind: CellKind::Put,
                value: b"v",
            };
            cell.encode(&mut block).unwrap();
        }
        (CellBlock::new(block.freeze()).take(qualifiers.len()).unwrap(), partial)
    }

    fn response(results: &[&str]) -> ScanResponse {
        ScanResponse {
            results: results.iter().map(|text| result(text)).collect(),
            ..ScanResponse::default()
        }
    }

    fn show(row: &ScanRow) -> String {
        let key = String::from_utf8_lossy(row.row.key()).into_owned();
        let qualifiers: String =
            row.row.cells().map(|cell| char::from(cell.qualifier[0])).collect();
        format!("{key}:{qualifiers}{}", if row.partial { "+" } else { "" })
    }

    struct Run {
        assembler: RowAssembler,
        region: Region,
    }

    impl Run {
        fn new(scan: &Scan) -> Self {
            let region = Region::new("t".parse().unwrap(), Bytes::new(), "m".into(), 1);
            Self { assembler: RowAssembler::new(scan, 200), region }
        }

        #[track_caller]
        fn check(&mut self, response: ScanResponse, expected: &[&str], step: ScanStep) {
            let mut rows = Vec::new();
            assert_eq!(self.assembler.add_response(response, &self.region, &mut rows), Ok(step));
            assert_eq!(rows.iter().map(show).collect::<Vec<_>>(), expected);
        }

        fn start(&self) -> (String, bool) {
            let (row, include) = self.assembler.position().start();
            (String::from_utf8_lossy(row).into_owned(), include)
        }
    }

    #[test]
    fn complete_rows_are_returned_immediately() {
        let mut run = Run::new(&Scan::all());
        run.check(response(&["a:12", "b:1"]), &["a:12", "b:1"], ScanStep::Next);
        assert_eq!(run.start(), ("b".to_owned(), false));
    }

    #[test]
    fn partial_results_are_joined_over_responses() {
        let mut run = Run::new(&Scan::all());
        run.check(response(&["a:1", "b:12+"]), &["a:1"], ScanStep::Next);
        run.check(response(&["b:34+"]), &[], ScanStep::Next);
        run.check(response(&["b:5", "c:1"]), &["b:12345", "c:1"], ScanStep::Next);
    }

    #[test]
    fn row_ends_where_another_starts() {
        let mut run = Run::new(&Scan::all());
        run.check(response(&["b:12+"]), &[], ScanStep::Next);
        run.check(response(&["c:1+"]), &["b:12"], ScanStep::Next);
        assert_eq!(run.start(), ("b".to_owned(), false));
    }

    #[test]
    fn row_ends_with_an_empty_response_but_not_with_a_heartbeat() {
        let mut run = Run::new(&Scan::all());
        run.check(response(&["b:12+"]), &[], ScanStep::Next);
        run.check(ScanResponse { heartbeat: true, ..response(&[]) }, &[], ScanStep::Next);
        run.check(response(&[]), &["b:12"], ScanStep::Next);
    }

    #[test]
    fn row_ends_with_its_region() {
        let mut run = Run::new(&Scan::all());
        let last = ScanResponse { region_complete: true, ..response(&["b:12+"]) };
        run.check(last, &["b:12"], ScanStep::NextRegion);
        assert_eq!(run.start(), ("m".to_owned(), true));
    }

    #[test]
    fn scan_ends_at_its_stop_row_its_limit_or_by_the_server() {
        let end = || ScanResponse { region_complete: true, ..response(&["b:1"]) };
        Run::new(&Scan::range("", "c")).check(end(), &["b:1"], ScanStep::Done);
        Run::new(&Scan::all().limit(1)).check(response(&["a:1"]), &["a:1"], ScanStep::Done);
        Run::new(&Scan::all().limit(2)).check(response(&["a:1"]), &["a:1"], ScanStep::Next);
        let over = ScanResponse { scan_complete: true, ..response(&["a:1+"]) };
        Run::new(&Scan::all()).check(over, &["a:1"], ScanStep::Done);
        // A server that ignores the limit sends too many rows.
        Run::new(&Scan::all().limit(1)).check(response(&["a:1", "b:1"]), &["a:1"], ScanStep::Done);
    }

    #[test]
    fn incomplete_row_is_read_again_after_a_failure() {
        let mut run = Run::new(&Scan::all());
        run.check(response(&["a:1", "b:12+"]), &["a:1"], ScanStep::Next);
        run.assembler.reset();
        assert_eq!(run.start(), ("a".to_owned(), false));
        run.check(response(&["b:123", "c:1"]), &["b:123", "c:1"], ScanStep::Next);
    }

    #[test]
    fn row_over_the_maximum_length_is_an_error() {
        let mut run = Run::new(&Scan::all());
        run.check(response(&["b:1234+"]), &[], ScanStep::Next);
        let more = run.assembler.add_response(response(&["b:5678+"]), &run.region, &mut Vec::new());
        assert_eq!(more, Err(RowTooLong { limit: 200 }));
    }

    #[test]
    fn partial_rows_are_returned_as_they_arrive() {
        let mut run = Run::new(&Scan::all().batch(2));
        run.check(response(&["a:1", "b:12+"]), &["a:1", "b:12+"], ScanStep::Next);
        run.check(response(&["b:34+", "b:5", "c:12+"]), &["b:34+", "b:5", "c:12+"], ScanStep::Next);
        assert_eq!(run.start(), ("b".to_owned(), false));
    }

    #[test]
    fn no_cell_is_lost_or_repeated_by_a_failure_inside_a_row() {
        let mut run = Run::new(&Scan::all().batch(2).limit(9));
        run.check(response(&["a:1", "b:24+"]), &["a:1", "b:24+"], ScanStep::Next);
        run.assembler.reset();
        assert_eq!(run.start(), ("b".to_owned(), true));
        // Cells were added and deleted meanwhile; another failure before any new cell.
        run.check(response(&["b:13+"]), &[], ScanStep::Next);
        run.assembler.reset();
        run.check(
            response(&["b:13+", "b:45+", "b:6", "c:1"]),
            &["b:5+", "b:6", "c:1"],
            ScanStep::Next,
        );
        assert_eq!(run.start(), ("c".to_owned(), false));
        assert_eq!(run.assembler.position().limit(), Some(6));
    }

    #[test]
    fn row_may_be_deleted_or_complete_after_a_failure() {
        let mut run = Run::new(&Scan::all().batch(2));
        run.check(response(&["b:12+"]), &["b:12+"], ScanStep::Next);
        run.assembler.reset();
        run.check(response(&["c:1"]), &["c:1"], ScanStep::Next);
        let mut run = Run::new(&Scan::all().batch(2));
        run.check(response(&["b:12+"]), &["b:12+"], ScanStep::Next);
        run.assembler.reset();
        run.check(response(&["b:12"]), &[], ScanStep::Next);
        assert_eq!(run.start(), ("b".to_owned(), false));
    }

    #[test]
    fn limit_is_reached_by_a_row_that_completes_late() {
        for scan in [Scan::all().limit(1), Scan::all().limit(1).batch(2)] {
            let mut run = Run::new(&scan);
            let first = if scan == Scan::all().limit(1) { vec![] } else { vec!["a:12+"] };
            run.check(response(&["a:12+"]), &first, ScanStep::Next);
            let rest = if first.is_empty() { vec!["a:12"] } else { vec![] };
            run.check(response(&["b:1", "c:1"]), &rest, ScanStep::Done);
        }
    }

    #[test]
    fn scan_resumes_at_the_cursor_unless_a_row_is_incomplete() {
        let heartbeat = |results: &[&str], cursor: &'static str| ScanResponse {
            heartbeat: true,
            cursor: Some(cursor.into()),
            ..response(results)
        };
        let mut run = Run::new(&Scan::all());
        run.check(heartbeat(&[], "c"), &[], ScanStep::Next);
        assert_eq!(run.start(), ("c".to_owned(), true));
        run.check(heartbeat(&["d:12"], "f"), &["d:12"], ScanStep::Next);
        assert_eq!(run.start(), ("f".to_owned(), true));
        // A cursor behind the start is ignored.
        run.check(heartbeat(&[], "b"), &[], ScanStep::Next);
        assert_eq!(run.start(), ("f".to_owned(), true));
        run.check(heartbeat(&["g:1+"], "g"), &[], ScanStep::Next);
        run.check(heartbeat(&[], "h"), &[], ScanStep::Next);
        assert_eq!(run.start(), ("f".to_owned(), true));
        run.assembler.reset();
        run.check(response(&["g:123", "h:1"]), &["g:123", "h:1"], ScanStep::Next);
        let mut run = Run::new(&Scan::all().reversed());
        run.check(heartbeat(&[], "k"), &[], ScanStep::Next);
        run.check(heartbeat(&[], "l"), &[], ScanStep::Next);
        assert_eq!(run.start(), ("k".to_owned(), true));
    }
}
