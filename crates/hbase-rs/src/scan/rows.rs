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
mod tests {
    use bytes::{Bytes, BytesMut};

    use super::*;
    use crate::{cell::CellKind, row::CellBlock};

    /// A result by row and qualifiers: `a:12` has the cells `1` and `2` of row `a`; `+` at the end says
    /// that more of the row follows.
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

    fn answer(results: &[&str]) -> ScanAnswer {
        ScanAnswer {
            results: results.iter().map(|text| result(text)).collect(),
            ..ScanAnswer::default()
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
        fn check(&mut self, answer: ScanAnswer, expected: &[&str], step: ScanStep) {
            let mut rows = Vec::new();
            assert_eq!(self.assembler.answer(answer, &self.region, &mut rows), Ok(step));
            assert_eq!(rows.iter().map(show).collect::<Vec<_>>(), expected);
        }

        fn start(&self) -> (String, bool) {
            let (row, include) = self.assembler.position().start();
            (String::from_utf8_lossy(row).into_owned(), include)
        }
    }

    #[test]
    fn whole_rows_are_handed_out_at_once() {
        let mut run = Run::new(&Scan::all());
        run.check(answer(&["a:12", "b:1"]), &["a:12", "b:1"], ScanStep::Next);
        assert_eq!(run.start(), ("b".to_owned(), false));
    }

    #[test]
    fn pieces_of_a_row_are_joined_over_answers() {
        let mut run = Run::new(&Scan::all());
        run.check(answer(&["a:1", "b:12+"]), &["a:1"], ScanStep::Next);
        run.check(answer(&["b:34+"]), &[], ScanStep::Next);
        run.check(answer(&["b:5", "c:1"]), &["b:12345", "c:1"], ScanStep::Next);
    }

    #[test]
    fn a_row_ends_where_another_begins() {
        let mut run = Run::new(&Scan::all());
        run.check(answer(&["b:12+"]), &[], ScanStep::Next);
        run.check(answer(&["c:1+"]), &["b:12"], ScanStep::Next);
        assert_eq!(run.start(), ("b".to_owned(), false));
    }

    #[test]
    fn a_row_ends_with_an_empty_answer_but_not_with_a_heartbeat() {
        let mut run = Run::new(&Scan::all());
        run.check(answer(&["b:12+"]), &[], ScanStep::Next);
        run.check(ScanAnswer { heartbeat: true, ..answer(&[]) }, &[], ScanStep::Next);
        run.check(answer(&[]), &["b:12"], ScanStep::Next);
    }

    #[test]
    fn a_row_ends_with_its_region() {
        let mut run = Run::new(&Scan::all());
        let last = ScanAnswer { region_over: true, ..answer(&["b:12+"]) };
        run.check(last, &["b:12"], ScanStep::NextRegion);
        assert_eq!(run.start(), ("m".to_owned(), true));
    }

    #[test]
    fn a_scan_ends_by_its_stop_row_its_limit_or_the_servers_word() {
        let end = || ScanAnswer { region_over: true, ..answer(&["b:1"]) };
        Run::new(&Scan::range("", "c")).check(end(), &["b:1"], ScanStep::Done);
        Run::new(&Scan::all().limit(1)).check(answer(&["a:1"]), &["a:1"], ScanStep::Done);
        Run::new(&Scan::all().limit(2)).check(answer(&["a:1"]), &["a:1"], ScanStep::Next);
        let over = ScanAnswer { scan_over: true, ..answer(&["a:1+"]) };
        Run::new(&Scan::all()).check(over, &["a:1"], ScanStep::Done);
        // A server that knows no limit sends too much.
        Run::new(&Scan::all().limit(1)).check(answer(&["a:1", "b:1"]), &["a:1"], ScanStep::Done);
    }

    #[test]
    fn after_a_fault_a_row_that_was_not_whole_is_read_again() {
        let mut run = Run::new(&Scan::all());
        run.check(answer(&["a:1", "b:12+"]), &["a:1"], ScanStep::Next);
        run.assembler.fault();
        assert_eq!(run.start(), ("a".to_owned(), false));
        run.check(answer(&["b:123", "c:1"]), &["b:123", "c:1"], ScanStep::Next);
    }

    #[test]
    fn a_row_longer_than_the_bound_is_an_error() {
        let mut run = Run::new(&Scan::all());
        run.check(answer(&["b:1234+"]), &[], ScanStep::Next);
        let more = run.assembler.answer(answer(&["b:5678+"]), &run.region, &mut Vec::new());
        assert_eq!(more, Err(RowTooLong { limit: 200 }));
    }

    #[test]
    fn asked_for_pieces_it_hands_them_out_as_they_come() {
        let mut run = Run::new(&Scan::all().batch(2));
        run.check(answer(&["a:1", "b:12+"]), &["a:1", "b:12+"], ScanStep::Next);
        run.check(answer(&["b:34+", "b:5", "c:12+"]), &["b:34+", "b:5", "c:12+"], ScanStep::Next);
        assert_eq!(run.start(), ("b".to_owned(), false));
    }

    #[test]
    fn inside_a_row_no_cell_is_lost_or_repeated_by_a_fault() {
        let mut run = Run::new(&Scan::all().batch(2).limit(9));
        run.check(answer(&["a:1", "b:24+"]), &["a:1", "b:24+"], ScanStep::Next);
        run.assembler.fault();
        assert_eq!(run.start(), ("b".to_owned(), true));
        // Cells came and went meanwhile; another fault, before anything new was handed out.
        run.check(answer(&["b:13+"]), &[], ScanStep::Next);
        run.assembler.fault();
        run.check(
            answer(&["b:13+", "b:45+", "b:6", "c:1"]),
            &["b:5+", "b:6", "c:1"],
            ScanStep::Next,
        );
        assert_eq!(run.start(), ("c".to_owned(), false));
        assert_eq!(run.assembler.position().limit(), Some(6));
    }

    #[test]
    fn a_row_may_be_gone_or_at_its_end_after_a_fault() {
        let mut run = Run::new(&Scan::all().batch(2));
        run.check(answer(&["b:12+"]), &["b:12+"], ScanStep::Next);
        run.assembler.fault();
        run.check(answer(&["c:1"]), &["c:1"], ScanStep::Next);
        let mut run = Run::new(&Scan::all().batch(2));
        run.check(answer(&["b:12+"]), &["b:12+"], ScanStep::Next);
        run.assembler.fault();
        run.check(answer(&["b:12"]), &[], ScanStep::Next);
        assert_eq!(run.start(), ("b".to_owned(), false));
    }

    #[test]
    fn a_limit_reached_by_a_row_that_ends_late_is_a_limit() {
        for scan in [Scan::all().limit(1), Scan::all().limit(1).batch(2)] {
            let mut run = Run::new(&scan);
            let first = if scan == Scan::all().limit(1) { vec![] } else { vec!["a:12+"] };
            run.check(answer(&["a:12+"]), &first, ScanStep::Next);
            let rest = if first.is_empty() { vec!["a:12"] } else { vec![] };
            run.check(answer(&["b:1", "c:1"]), &rest, ScanStep::Done);
        }
    }
}
