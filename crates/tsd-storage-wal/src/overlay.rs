//! A row as it is: what the backend has of it, and over that what is held.

use std::cmp::Ordering;

use bytes::Bytes;
use tsd_model::{Cell, Family, PackablePoint, PackedRun, Row, RunEncoder};
use tsd_storage::StorageError;

use crate::memtable::{ColumnState, Op, Ops, RowState};

/// Logs of a row in one buffer, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowLogs {
    data: Bytes,
    /// End of each log, and the base of its timestamps.
    parts: Vec<(usize, i64)>,
    /// Whether the backend may have later cells than these, which others wrote.
    by_time: bool,
}

impl RowLogs {
    /// Takes logs, oldest first.
    pub(crate) fn new(mut logs: Vec<(Bytes, i64)>) -> Self {
        if logs.len() == 1
            && let Some((data, base_ms)) = logs.pop()
        {
            return Self { parts: vec![(data.len(), base_ms)], data, by_time: false };
        }
        let mut data = Vec::with_capacity(logs.iter().map(|(log, _)| log.len()).sum());
        let mut parts = Vec::with_capacity(logs.len());
        for (log, base_ms) in &logs {
            data.extend_from_slice(log);
            parts.push((data.len(), *base_ms));
        }
        Self { data: data.into(), parts, by_time: false }
    }

    /// Lets the later of two cells of a column win, instead of the held one, as HBase will once the
    /// held one is there.
    pub(crate) const fn by_time(mut self, by_time: bool) -> Self {
        self.by_time = by_time;
        self
    }

    /// Whether nothing is held of the row.
    pub(crate) const fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(crate) fn state(&self) -> RowState<'_> {
        RowState::follow(self.logs())
    }

    /// Each log and the base of its timestamps, oldest first.
    fn logs(&self) -> impl Iterator<Item = (&[u8], i64)> {
        let mut start = 0;
        self.parts.iter().filter_map(move |(end, base_ms)| {
            let log = self.data.get(start..*end)?;
            start = *end;
            Some((log, *base_ms))
        })
    }

    fn cell(&self, column: &ColumnState<'_>) -> Option<Cell> {
        let (value, timestamp_ms) = column.cell()?;
        Some(Cell {
            family: column.family,
            qualifier: self.data.slice_ref(column.qualifier),
            value: self.data.slice_ref(value),
            timestamp_ms,
        })
    }
}

/// Lays what is held over the backend's row. `wants` says which columns, and which cells, the reader
/// asked for; a held column hides the backend's even where its cell is not asked for.
///
/// Packed runs that no held column can be in stay packed.
pub(crate) fn overlay(
    key: Bytes,
    below: Option<Row>,
    logs: &RowLogs,
    wants: impl Fn(Family, &[u8], i64) -> bool,
) -> Result<Option<Row>, StorageError> {
    let state = logs.state();
    let (mut cells, runs) = match (below, state.delete_row) {
        (Some(row), None) => unpack_touched(row, &state)?,
        (Some(row), Some(deleted_ms)) if logs.by_time => {
            (later_cells(row, deleted_ms)?, Vec::new())
        }
        _ => (Vec::new(), Vec::new()),
    };
    if !state.columns.is_empty() {
        cells = merge(cells, &state, logs, wants);
    }
    Ok((!cells.is_empty() || !runs.is_empty()).then_some(Row { key, cells, runs }))
}

/// Makes one run of the points held of a row, for readers that want all of a row: a cell for each
/// would cost them more than everything else they do.
#[derive(Debug, Default)]
pub(crate) struct HeldPacker {
    encoder: RunEncoder,
}

/// Points from which on a run is less work than cells.
const WORTH_PACKING: usize = 4;

impl HeldPacker {
    /// Lays what is held beside the backend's row, if it is points in time order and later or earlier
    /// than each run there; gives the backend's row back otherwise.
    pub(crate) fn pack(
        &mut self,
        key: &Bytes,
        below: Option<Row>,
        logs: &RowLogs,
    ) -> Result<Row, Option<Row>> {
        self.encoder.clear();
        if below.as_ref().is_some_and(|row| !row.cells.is_empty()) {
            return Err(below);
        }
        let Some(run) = self.run(logs) else { return Err(below) };
        let Some(mut row) = below else {
            return Ok(Row { key: key.clone(), cells: Vec::new(), runs: vec![run] });
        };
        let (first, last) = run.offset_range_ms();
        let apart = |other: &PackedRun| {
            let (other_first, other_last) = other.offset_range_ms();
            last < other_first || other_last < first
        };
        if !row.runs.iter().all(apart) {
            return Err(Some(row));
        }
        row.runs.push(run);
        row.runs.sort_by_key(PackedRun::offset_range_ms);
        Ok(row)
    }

    fn run(&mut self, logs: &RowLogs) -> Option<PackedRun> {
        for (log, base_ms) in logs.logs() {
            for op in Ops::new(log, base_ms) {
                let Op::Put { family: Family::T, qualifier, value, timestamp_ms } = op else {
                    return None;
                };
                let point = PackablePoint::try_from_cell(qualifier, value)?;
                self.encoder.push(point, timestamp_ms).ok()?;
            }
        }
        if self.encoder.point_count() < WORTH_PACKING {
            return None;
        }
        let mut bytes = Vec::with_capacity(self.encoder.point_count() * 12 + 32);
        self.encoder.finish_quickly(&mut bytes).ok()?;
        PackedRun::open(bytes.into()).ok()
    }
}

/// Cells of a row that are later than its deletion.
fn later_cells(row: Row, deleted_ms: i64) -> Result<Vec<Cell>, StorageError> {
    let cells =
        row.into_cells().map_err(|error| StorageError::Damaged(error.to_string().into()))?;
    Ok(cells.into_iter().filter(|cell| cell.timestamp_ms > deleted_ms).collect())
}

type CellsAndRuns = (Vec<Cell>, Vec<PackedRun>);

fn unpack_touched(row: Row, state: &RowState<'_>) -> Result<CellsAndRuns, StorageError> {
    let Row { mut cells, runs, .. } = row;
    let (touched, kept): (Vec<_>, Vec<_>) = runs.into_iter().partition(|run| {
        let points = state.columns.iter().filter(|column| column.family == Family::T);
        points.into_iter().any(|column| run.may_contain_column(column.qualifier))
    });
    if !touched.is_empty() {
        for run in &touched {
            run.expand_into(&mut cells)
                .map_err(|error| StorageError::Damaged(error.to_string().into()))?;
        }
        cells.sort_by(|a, b| (a.family, &a.qualifier).cmp(&(b.family, &b.qualifier)));
    }
    Ok((cells, kept))
}

/// Merges two sorted lists of columns; what is held wins.
fn merge(
    below: Vec<Cell>,
    state: &RowState<'_>,
    logs: &RowLogs,
    wants: impl Fn(Family, &[u8], i64) -> bool,
) -> Vec<Cell> {
    let mut merged = Vec::with_capacity(below.len() + state.columns.len());
    let mut below = below.into_iter().peekable();
    for column in &state.columns {
        let before =
            |cell: &Cell| column.cmp_column(cell.family, &cell.qualifier) == Ordering::Greater;
        while let Some(cell) = below.next_if(before) {
            merged.push(cell);
        }
        let hidden = below
            .next_if(|cell| column.cmp_column(cell.family, &cell.qualifier) == Ordering::Equal);
        if let Some(cell) = hidden
            && logs.by_time
            && cell.timestamp_ms > column.timestamp_ms
        {
            merged.push(cell);
            continue;
        }
        let wanted =
            column.cell().is_some_and(|(_, ts)| wants(column.family, column.qualifier, ts));
        if wanted {
            merged.extend(logs.cell(column));
        }
    }
    merged.extend(below);
    merged
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use tsd_model::RunShape;

    use super::*;
    use crate::memtable::encode;

    const KEY: Bytes = Bytes::from_static(b"row");

    fn qualifier(second: u16) -> [u8; 2] {
        (second << 4).to_be_bytes()
    }

    /// A run of one-byte integers at these seconds.
    fn run(seconds: &[u16]) -> PackedRun {
        let mut encoder = RunEncoder::new();
        for second in seconds {
            let point = PackablePoint::try_from_cell(&qualifier(*second), &[7]).unwrap();
            encoder.push(point, 1).unwrap();
        }
        let mut bytes = Vec::new();
        encoder.finish(RunShape::Singles, &mut bytes).unwrap();
        PackedRun::open(bytes.into()).unwrap()
    }

    fn below() -> Row {
        let cell = Cell {
            family: Family::Id,
            qualifier: Bytes::from_static(b"x"),
            value: Bytes::new(),
            timestamp_ms: 1,
        };
        let runs = vec![run(&[0, 10, 20]), run(&[100, 110])];
        Row { key: KEY, cells: vec![cell], runs }
    }

    fn put(second: u16, value: u8) -> Vec<u8> {
        let mut log = Vec::new();
        let (qualifier, value) = (&qualifier(second)[..], &[value][..]);
        let op = Op::Put { family: Family::T, qualifier, value, timestamp_ms: 5 };
        encode(op, 0, &mut log);
        log
    }

    fn delete(second: u16) -> Vec<u8> {
        let mut log = Vec::new();
        let op =
            Op::DeleteColumn { family: Family::T, qualifier: &qualifier(second), timestamp_ms: 5 };
        encode(op, 0, &mut log);
        log
    }

    /// Runs that stay packed, and seconds and values of the cells of all.
    fn check(logs: Vec<Vec<u8>>, packed: usize, expected: &[(u16, u8)]) {
        let logs = RowLogs::new(logs.into_iter().map(|log| (log.into(), 0)).collect());
        let row = overlay(KEY, Some(below()), &logs, |_, _, _| true).unwrap().unwrap();
        assert_eq!(row.runs.len(), packed);
        let cells = row.into_cells().unwrap();
        assert_eq!(cells.first().unwrap().family, Family::Id);
        let points: Vec<(u16, u8)> = cells
            .iter()
            .filter(|cell| cell.family == Family::T)
            .map(|c| {
                (u16::from_be_bytes(c.qualifier.as_ref().try_into().unwrap()) >> 4, c.value[0])
            })
            .collect();
        assert_eq!(points, expected);
    }

    #[test]
    fn runs_that_nothing_touches_stay_packed() {
        let before = [(0, 7), (10, 7), (20, 7), (100, 7), (110, 7)];
        check(vec![put(200, 8)], 2, &[&before[..], &[(200, 8)]].concat());
        check(vec![put(50, 8)], 2, &[(0, 7), (10, 7), (20, 7), (50, 8), (100, 7), (110, 7)]);
    }

    #[test]
    fn points_held_in_time_order_are_a_run_beside_those_below() {
        let mut packer = HeldPacker::default();
        let mut pack = |below: Option<Row>, logs: Vec<Vec<u8>>| {
            let logs = RowLogs::new(logs.into_iter().map(|log| (log.into(), 0)).collect());
            let row = packer.pack(&KEY, below.clone(), &logs);
            let plain = overlay(KEY, below, &logs, |_, _, _| true).unwrap();
            match row {
                Ok(row) => {
                    let runs = row.runs.len();
                    assert!(row.runs.is_sorted_by_key(PackedRun::offset_range_ms));
                    assert_eq!(row.into_cells().unwrap(), plain.unwrap().into_cells().unwrap());
                    Some(runs)
                }
                Err(_) => None,
            }
        };
        let points = |seconds: &[u16]| seconds.iter().flat_map(|s| put(*s, 9)).collect::<Vec<_>>();
        let runs = Row { cells: Vec::new(), ..below() };
        assert_eq!(pack(None, vec![points(&[1, 2, 3, 4])]), Some(1));
        assert_eq!(pack(None, vec![points(&[1, 2]), points(&[3, 4])]), Some(1));
        assert_eq!(pack(Some(runs.clone()), vec![points(&[30, 40, 50, 60])]), Some(3));
        assert_eq!(pack(Some(runs.clone()), vec![points(&[200, 240, 250, 260])]), Some(3));
        // Over a run, out of order, twice, few, a delete, cells below.
        assert_eq!(pack(Some(runs), vec![points(&[30, 40, 50, 105])]), None);
        assert_eq!(pack(None, vec![points(&[1, 2, 4, 3])]), None);
        assert_eq!(pack(None, vec![points(&[1, 2, 3, 4]), points(&[4])]), None);
        assert_eq!(pack(None, vec![points(&[1, 2])]), None);
        assert_eq!(pack(None, vec![points(&[1, 2, 3, 4]), delete(2)]), None);
        assert_eq!(pack(Some(below()), vec![points(&[30, 40, 50, 60])]), None);
    }

    #[test]
    fn a_held_point_replaces_the_one_in_a_run() {
        let expected = [(0, 7), (10, 9), (20, 7), (100, 7), (110, 7)];
        check(vec![put(10, 8), put(10, 9)], 1, &expected);
    }

    #[test]
    fn a_held_delete_takes_a_point_out_of_a_run() {
        check(vec![put(110, 8), delete(110)], 1, &[(0, 7), (10, 7), (20, 7), (100, 7)]);
    }

    #[test]
    fn a_deleted_row_hides_its_runs() {
        let mut log = Vec::new();
        encode(Op::DeleteRow { timestamp_ms: 4 }, 0, &mut log);
        let logs = RowLogs::new(vec![(log.clone().into(), 0)]);
        assert!(overlay(KEY, Some(below()), &logs, |_, _, _| true).unwrap().is_none());
        log.extend(put(3, 4));
        let logs = RowLogs::new(vec![(log.into(), 0)]);
        let row = overlay(KEY, Some(below()), &logs, |_, _, _| true).unwrap().unwrap();
        assert_eq!((row.runs.len(), row.cells.len()), (0, 1));
    }

    #[test]
    fn over_a_shared_backend_the_later_cell_wins() {
        let below = |timestamp_ms: i64| {
            let cell = |qualifier: &[u8; 2]| Cell {
                family: Family::T,
                qualifier: Bytes::copy_from_slice(qualifier),
                value: Bytes::from_static(&[7]),
                timestamp_ms,
            };
            let cells = vec![cell(&qualifier(10)), cell(&qualifier(20))];
            Some(Row { key: KEY, cells, runs: Vec::new() })
        };
        let mut deleted = Vec::new();
        encode(Op::DeleteRow { timestamp_ms: 5 }, 0, &mut deleted);
        for (log, below_ms, expected) in [
            (put(10, 8), 4, vec![(10, 8), (20, 7)]),
            (put(10, 8), 5, vec![(10, 8), (20, 7)]),
            (put(10, 8), 6, vec![(10, 7), (20, 7)]),
            (delete(10), 5, vec![(20, 7)]),
            (delete(10), 6, vec![(10, 7), (20, 7)]),
            (deleted.clone(), 5, vec![]),
            (deleted.clone(), 6, vec![(10, 7), (20, 7)]),
            ([deleted, put(30, 9)].concat(), 6, vec![(10, 7), (20, 7), (30, 9)]),
        ] {
            let logs = RowLogs::new(vec![(log.into(), 0)]).by_time(true);
            let row = overlay(KEY, below(below_ms), &logs, |_, _, _| true).unwrap();
            let cells = row.map_or_else(Vec::new, |row| row.cells);
            let points: Vec<(u16, u8)> = cells
                .iter()
                .map(|c| (u16::from_be_bytes([c.qualifier[0], c.qualifier[1]]) >> 4, c.value[0]))
                .collect();
            assert_eq!(points, expected);
        }
    }

    #[test]
    fn a_held_cell_hides_the_backends_even_where_it_is_not_wanted() {
        let logs = RowLogs::new(vec![(put(10, 8).into(), 0)]);
        let row =
            overlay(KEY, Some(below()), &logs, |_, _, timestamp_ms| timestamp_ms < 5).unwrap();
        let cells = row.unwrap().into_cells().unwrap();
        assert!(cells.iter().all(|cell| cell.qualifier != qualifier(10)[..]));
        assert_eq!(cells.len(), 5);
    }
}
