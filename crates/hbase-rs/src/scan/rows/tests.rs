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
    let qualifiers: String = row.row.cells().map(|cell| char::from(cell.qualifier[0])).collect();
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
    run.check(answer(&["b:13+", "b:45+", "b:6", "c:1"]), &["b:5+", "b:6", "c:1"], ScanStep::Next);
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
