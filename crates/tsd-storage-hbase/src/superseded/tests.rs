#![expect(clippy::unwrap_used, reason = "tests")]

use tsd_model::{from_hex, to_hex};

use super::*;

fn hex(text: &str) -> Bytes {
    from_hex(text.as_bytes()).unwrap().into()
}

/// `qualifier=value@time`.
fn cell(text: &str) -> Cell {
    let (column, time) = text.split_once('@').unwrap();
    let (qualifier, value) = column.split_once('=').unwrap();
    let (qualifier, value) = (hex(qualifier), hex(value));
    Cell { family: Family::T, qualifier, value, timestamp_ms: time.parse().unwrap() }
}

/// Checks the cells that are restored for `qualifier=value@written` or
/// `qualifier=value@written/column` points of a row.
#[track_caller]
fn check_of(origin: ColumnOrigin, written: &[&str], row: &[&str], expected: &[&str]) {
    let point = |text: &&str| {
        let (text, column) = text.split_once('/').unwrap_or((text, ""));
        let mut point = written_points(&cell(text)).next().unwrap();
        point.column_ms = column.parse().unwrap_or(point.written_ms);
        point
    };
    let written: Vec<_> = written.iter().map(point).collect();
    let row: Vec<_> = row.iter().map(|text| cell(text)).collect();
    let evidence = Evidence {
        origin: &|_| origin,
        written_ms: &|cell| cell.timestamp_ms,
        history: &RowHistory::default(),
    };
    assert_eq!(restored(&written, &row, &evidence), expected);
}

fn restored(written: &[WrittenPoint], row: &[Cell], evidence: &Evidence<'_>) -> Vec<String> {
    cells_to_restore(written, row, evidence)
        .iter()
        .map(|RestoredPoint { cell: c, .. }| {
            format!("{}={}@{}", to_hex(&c.qualifier), to_hex(&c.value), c.timestamp_ms)
        })
        .collect()
}

#[track_caller]
fn check(written: &[&str], row: &[&str], expected: &[&str]) {
    check_of(ColumnOrigin::Compaction, written, row, expected);
}

#[test]
fn visible_correction_is_left_alone() {
    check(&["0000=07@15"], &["0000=07@15", "00000010=050600@14"], &[]);
    check(&["0000=07@15"], &["00000010=070600@90"], &[]);
    check(&["0000=07@15"], &["0000=07@15", "00000010=050600@15"], &[]);
}

#[test]
fn correction_below_a_compaction_is_put_above_it() {
    check(&["0000=07@15"], &["0000=07@15", "00000010=050600@20"], &["0000=07@21"]);
    check(&["0000=07@15"], &["0000=07@15", "00000010=050600@200"], &["0000=07@201"]);
    // Another width, and seconds together with milliseconds.
    check(&["0001=0107@15"], &["0001=0107@15", "00000010=050600@20"], &["0001=0107@21"]);
    check(&["F0000000=07@15"], &["F0000000=07@15", "00000010=050600@20"], &["F0000000=07@21"]);
}

#[test]
fn later_flush_of_another_daemon_stays() {
    let row = ["0000=07@15", "00000010=050600@20"];
    check_of(ColumnOrigin::Write, &["0000=07@15"], &row, &[]);
    check_of(ColumnOrigin::Write, &["0000=07@15/3"], &row, &[]);
}

#[test]
fn correction_hidden_by_a_delete_marker_of_a_compaction_is_put_again() {
    check(&["0000=07@15"], &["00000010=050600@20"], &["0000=07@21"]);
    check(&["0000=07@15"], &["00000010=050600@14"], &["0000=07@16"]);
    check_of(ColumnOrigin::Write, &["0000=07@15"], &["00000010=050600@20"], &[]);
}

#[test]
fn point_of_a_column_with_an_earlier_time_is_put_with_its_own() {
    let ours = "000000100020=01020300@3";
    check_of(ColumnOrigin::Write, &["0010=02@5/3"], &[ours], &[]);
    // Another daemon's value from before, and one from after.
    check_of(ColumnOrigin::Write, &["0010=02@5/3"], &[ours, "0010=09@4"], &["0010=02@5"]);
    check_of(ColumnOrigin::Write, &["0010=02@5/3"], &[ours, "00100030=090900@4"], &["0010=02@5"]);
    check_of(ColumnOrigin::Write, &["0010=02@5/3"], &[ours, "0010=02@4"], &["0010=02@5"]);
    check_of(ColumnOrigin::Write, &["0010=02@5/3"], &[ours, "0010=09@6"], &[]);
    check_of(ColumnOrigin::Write, &["0010=02@5/3"], &[ours, "0011=0009@2"], &[]);
    // Another daemon's column with the same time: either value may be read.
    for column in ["00100030=090900@3", "00000010=090900@3"] {
        check_of(ColumnOrigin::Write, &["0010=02@5/3"], &[ours, column], &["0010=02@5"]);
        check_of(ColumnOrigin::Write, &["0010=02@5/3"], &[column, ours], &["0010=02@5"]);
        // The write times tie too.
        check_of(ColumnOrigin::Write, &["0010=02@3"], &[ours, column], &[]);
    }
    check_of(ColumnOrigin::Write, &["0010=02@5/3"], &[ours, "00100030=020900@3"], &[]);
    // A delete marker hides the column.
    check_of(ColumnOrigin::Write, &["0010=02@5/3"], &["0020=02@9"], &["0010=02@5"]);
    check_of(ColumnOrigin::Write, &["0010=02@5/3"], &[], &["0010=02@5"]);
}

#[test]
fn later_correction_of_another_writer_wins() {
    check(&["0000=07@15"], &["0000=08@18"], &[]);
    check(&["0000=07@15"], &["0000=08@18", "00000010=050600@17"], &[]);
    // A compaction that read neither write.
    check(&["0000=05@10"], &["0000=08@18", "00000010=040600@20"], &["0000=08@21"]);
}

#[test]
fn deleted_instant_stays_deleted() {
    check(&["0000=07@15"], &["0010=06@20"], &[]);
    check(&["0000=07@15"], &[], &[]);
}

/// The history of a row that is compactible since 10: its cells, the deleted cells, and markers
/// `qualifier=@until`.
fn history(row: &[&str], writes: &[&str], deleted: &[&str]) -> RowHistory {
    let cells = |texts: &[&str]| texts.iter().map(|text| cell(text)).collect::<Vec<_>>();
    let deleted = cells(deleted).into_iter().map(|c| (c.qualifier, c.timestamp_ms)).collect();
    let writes = cells(&[row, writes].concat());
    RowHistory { writes, deleted, compactible_since_ms: 10, ..RowHistory::default() }
}

/// A history in which daemons have put the columns by flushes.
fn with_flushes(mut history: RowHistory, columns: &[&str]) -> RowHistory {
    let mark = |text: &&str| {
        let column = cell(text);
        flush_mark(&column.qualifier, column.timestamp_ms, history.compactible_since_ms).unwrap()
    };
    history.marks.extend(columns.iter().map(mark));
    history
}

/// Checks with the history of the row.
#[track_caller]
fn check_history(written: &str, row: &[&str], writes: &[&str], deleted: &[&str], then: &[&str]) {
    check_row(written, row, &history(row, writes, deleted), then);
}

#[track_caller]
fn check_row(written: &str, row: &[&str], history: &RowHistory, then: &[&str]) {
    let written = written_points(&cell(written)).next().unwrap();
    let row: Vec<_> = row.iter().map(|text| cell(text)).collect();
    let evidence = Evidence {
        origin: &|column| history.origin(column),
        // The value 9 was written at 5, and put again.
        written_ms: &|cell| if cell.value[..] == [9] { 5 } else { cell.timestamp_ms },
        history,
    };
    assert_eq!(restored(&[written], &row, &evidence), then);
}

#[test]
fn column_without_a_mark_is_a_compaction() {
    let (row, old) = (["00000010=050600@20"], ["0000=05@3", "0010=06@4"]);
    check_history("0000=07@15", &row, &old, &["0000=@21"], &["0000=07@22"]);
    check_history("0000=07@15", &row, &old, &["0010=@21"], &["0000=07@21"]);
    // Its sources are not deleted yet, or HBase has forgotten them.
    check_history("0000=07@15", &row, &old, &[], &["0000=07@21"]);
    check_history("0000=07@15", &row, &[], &[], &["0000=07@21"]);
    check_history("0000=07@15", &row, &[], &["0000=@21", "0010=@21"], &["0000=07@22"]);
    // A later write that the compaction has absorbed, and one that it has missed.
    let writes = ["0000=08@18", old[1]];
    check_history("0000=07@15", &["00000010=080600@20"], &writes, &["0000=@21"], &[]);
    let writes = ["0001=0008@18", old[0], old[1]];
    check_history("0000=07@15", &row, &writes, &["0000=@21"], &["0001=0008@21"]);
}

/// OpenTSDB reads a value. A correction replaces it in its column, HBase flushes the region and forgets the
/// replaced version, and OpenTSDB puts the value that it has read.
#[test]
fn compacted_value_that_hbase_has_forgotten_is_no_later_write() {
    let row = ["00000010=050600@20"];
    check_history("0000=07@15", &row, &["0000=07@15"], &["0000=@21"], &["0000=07@22"]);
    // Overlapping compactions have emptied the instant.
    let (row, columns) = (["0020=01@9"], ["00000010=050600@20", "0000=07@15"]);
    let markers = ["00000010=@24", "0000=@21"];
    check_history("0000=07@15", &row, &columns, &markers, &["0000=07@22"]);
}

#[test]
fn flush_is_known_by_its_mark() {
    let (row, old) = (["00000010=050600@20"], ["0000=05@3", "0010=06@4"]);
    // Also one of values that the row had, of which a compaction has deleted the sources.
    for deleted in [&[][..], &["0000=@21", "0010=@21"]] {
        let of = || with_flushes(history(&row, &old, deleted), &row);
        check_row("0000=07@15", &row, &of(), &[]);
        check_row("0000=07@25", &["0000=07@25", row[0]], &of(), &[]);
    }
    let other = with_flushes(history(&row, &old, &[]), &["00000010=050600@19"]);
    check_row("0000=07@15", &row, &other, &["0000=07@21"]);
    // Before OpenTSDB may compact the row it is a flush without a mark.
    check_history("0000=07@5", &["00000010=050600@9"], &[], &[], &[]);
    check_history("0000=07@5", &["00000010=050600@10"], &[], &[], &["0000=07@11"]);
}

/// A major compaction of HBase has removed all marks: a column without one may be a later flush.
#[test]
fn column_without_a_mark_and_without_deletes_may_be_a_flush_whose_mark_is_forgotten() {
    let row = ["00000010=050600@20"];
    let check = |deleted: &[&str], then: &[&str]| {
        let history = RowHistory { needs_deletes: true, ..history(&row, &[], deleted) };
        check_row("0000=07@15", &row, &history, then);
    };
    check(&[], &[]);
    // Deletes from before, and of other instants.
    check(&["0000=@19", "0020=@21"], &[]);
    // A compaction of OpenTSDB deletes the columns that it has read.
    check(&["0000=@21"], &["0000=07@22"]);
    check(&["0010=@20"], &["0000=07@21"]);
    check(&["00100020=@25"], &["0000=07@21"]);
    // A daemon's compaction is identified by its mark alone.
    let mut history = RowHistory { needs_deletes: true, ..history(&row, &[], &[]) };
    history.marks.extend(compaction_mark(&hex("00000010"), 20));
    check_row("0000=07@15", &row, &history, &["0000=07@21"]);
}

#[test]
fn deleted_point_whose_delete_marker_is_forgotten_stays_deleted() {
    let mut point = written_points(&cell("0010=02@15")).next().unwrap();
    point.column_ms = 13;
    let check = |row: &[&str], deleted: &[&str], deleted_rows: &[i64], then: &[&str]| {
        let deleted_rows = deleted_rows.to_vec();
        let history =
            RowHistory { needs_deletes: true, deleted_rows, ..history(row, &[], deleted) };
        let evidence = Evidence {
            origin: &|column| history.origin(column),
            written_ms: &|cell| cell.timestamp_ms,
            history: &history,
        };
        let row: Vec<_> = row.iter().map(|text| cell(text)).collect();
        assert_eq!(restored(&[point], &row, &evidence), then);
    };
    check(&[], &[], &[], &[]);
    check(&["0020=05@40"], &[], &[], &[]);
    // A delete between the first point of its column and this one.
    check(&[], &[], &[14], &["0010=02@15"]);
    check(&["0020=05@40"], &["00000010=@14"], &[], &["0010=02@15"]);
}

#[test]
fn marks_tell_the_columns_of_a_row_apart() {
    let mark = |qualifier: &str, at| flush_mark(&hex(qualifier), at, 10);
    assert_eq!(mark("00000010", 9), None);
    assert_eq!(mark("0000", 20), None, "one point");
    assert_eq!(mark("00000010", 20), Some((hex("0000001000000010"), 20)));
    assert_eq!(mark("000000100020F0001000", 20), Some((hex("F000100000000010"), 20)));
    assert_eq!(compaction_mark(&hex("00000010"), 20), Some((hex("00000010"), 19)));
    assert_eq!(compaction_mark(&hex("00000010"), 0), None);
    assert_eq!(compaction_mark(&hex("0000"), 20), None);
}

#[test]
fn row_compaction_is_known_by_its_mark() {
    // With the time of its newest source, from before the row was compactible.
    let row = ["00000010=050600@8"];
    let marked = |qualifier: &str, at| {
        let mut history = history(&row, &[], &[]);
        history.marks.insert((hex(qualifier), at));
        history
    };
    check_row("0000=07@5", &row, &marked("00000010", 7), &["0000=07@9"]);
    // Marks of other columns, and of an earlier one.
    check_row("0000=07@5", &row, &marked("00000020", 7), &[]);
    check_row("0000=07@5", &row, &marked("00000010", 6), &[]);
}

#[test]
fn later_write_may_be_in_a_flushed_column() {
    // Its value is in the compaction; the single point is older.
    let row = ["00000010=080600@20"];
    let flush = "00000020=080500@18";
    let writes = ["0001=0009@17", flush, "0010=06@4"];
    let sources = ["0001=@21", "00000020=@21"];
    let of = |writes, sources| with_flushes(history(&row, writes, sources), &[flush]);
    check_row("0000=07@15", &row, &of(&writes, &sources), &[]);
    // An earlier compaction that missed the single point.
    let writes = [&writes[..], &["0000=08@3", "0020=05@3"]].concat();
    let sources = ["0000=@19", "0001=@21", "00000020=@21"];
    check_history("0000=07@15", &row, &writes, &sources, &["0001=0009@22"]);
}

#[test]
fn column_that_an_overlapping_compaction_deletes_is_no_write() {
    // Two compactions read the first two columns. The second one also read the column of the first, and
    // deleted that before, or with, its sources.
    let old = ["0000=05@3", "0010=06@4"];
    for sources in ["0000=@25", "0000=@24"] {
        let row = ["000000100020=05060400@30"];
        let writes = ["00000010=050600@20", "0020=04@22", old[0], old[1]];
        let markers = ["00000010=@24", sources, "0020=@31"];
        check_history("0001=0007@15", &row, &writes, &markers, &["0001=0007@31"]);
    }
    // Both put the same column, of which the second one replaced the first.
    let (row, writes) = (["00000010=050600@23"], ["00000010=050600@20", old[0], old[1]]);
    check_history("0001=0007@15", &row, &writes, &["0000=@24"], &["0001=0007@24"]);
}

#[test]
fn columns_of_one_time_must_agree() {
    // Overlapping compactions, one of which has read the correction.
    let (row, old) = (["00000010=070600@20", "00000020=050400@20"], ["0000=05@3", "0010=06@4"]);
    let markers = ["0000=@21", "0010=@21", "0020=@21"];
    for row in [row, [row[1], row[0]]] {
        let writes = ["0000=07@15", "0020=04@4", old[0], old[1]];
        check_history("0000=07@15", &row, &writes, &markers, &["0000=07@22"]);
    }
}

#[test]
fn point_of_a_deleted_row_is_not_put_again() {
    let row = ["00000010=050600@20"];
    let mut history = history(&row, &["0000=05@3", "0010=06@4"], &["0000=@21"]);
    history.deleted_rows = vec![14];
    check_row("0000=07@15", &row, &history, &["0000=07@22"]);
    history.deleted_rows = vec![15];
    check_row("0000=07@15", &row, &history, &[]);
}

#[test]
fn point_is_put_again_while_the_row_has_what_was_read_instead() {
    let basis = |written: &str, row: &[&str], deleted: &[&str]| {
        let written = written_points(&cell(written)).next().unwrap();
        let columns = ["00000010=070600@20", "0000=07@15", "0000=05@3", "0010=06@4"];
        let history = history(row, &columns, deleted);
        let row: Vec<_> = row.iter().map(|text| cell(text)).collect();
        let evidence = Evidence {
            origin: &|column| history.origin(column),
            written_ms: &|cell| cell.timestamp_ms,
            history: &history,
        };
        let mut restored = cells_to_restore(&[written], &row, &evidence);
        assert_eq!(restored.len(), 1);
        restored.remove(0).basis
    };
    let read = ["0020=01@9", "00000010=050600@20"];
    assert_eq!(basis("0000=07@15", &read, &["0000=@21"]), Basis::Cell(cell(read[1])));
    // Overlapping compactions have deleted the instant.
    let deleted = ["00000010=@21", "0000=@15"];
    assert_eq!(basis("0000=07@15", &read[..1], &deleted), Basis::Cell(cell(read[0])));
    assert_eq!(basis("0000=07@15", &[], &deleted), Basis::EmptyRow);
}

#[test]
fn hidden_correction_beside_a_single_point_is_put_again() {
    let row = ["0001=0006@12"];
    check_history("0000=07@15", &row, &[], &["0000=@21"], &["0000=07@22"]);
    check_history("0000=07@15", &row, &[], &["0000=@14"], &[]);
    check_history("0000=07@15", &["0001=0006@16"], &[], &["0000=@21"], &[]);
}

#[test]
fn instant_that_overlapping_compactions_have_deleted_is_put_again() {
    let (row, columns) = (["0020=01@9"], ["00000010=070600@20", "0000=07@15"]);
    check_history("0000=07@15", &row, &columns, &["00000010=@21"], &["0000=07@16"]);
    // Deletes by a daemon, and before the write; no compaction.
    check_history("0000=07@15", &row, &columns, &["00000010=@20", "0000=@15"], &[]);
    check_history("0000=07@15", &row, &columns, &["00000010=@14"], &[]);
    check_history("0000=07@15", &row, &columns[1..], &["0000=@21"], &[]);
    check_history("0000=07@15", &row, &columns, &["0010=@21"], &[]);
    // A flush of the region forgot the columns; their markers are left.
    check_history("0000=07@15", &row, &[], &["00000010=@21", "0000=@17"], &["0000=07@18"]);
    check_history("0000=07@15", &row, &[], &["00000010=@14"], &[]);
}

#[test]
fn older_value_that_was_put_again_is_no_later_write() {
    check_history("0001=0007@15", &["0000=09@20"], &[], &[], &["0001=0007@21"]);
    check_history("0001=0007@4", &["0000=09@20"], &[], &[], &[]);
}

#[test]
fn compaction_may_have_a_value_that_hbase_has_not() {
    // Two daemons have written the third point in one millisecond, and one value was read before the other.
    let row = ["000000100020=05060800@20"];
    let old = ["0000=05@3", "0010=06@4", "0020=09@5"];
    check_history("0000=07@15", &row, &old, &["0000=@21"], &["0000=07@22"]);
}
