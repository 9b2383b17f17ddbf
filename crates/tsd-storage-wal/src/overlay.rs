//! Merges a row of the backend with the operations in the memtables.

use std::cmp::Ordering;

use bytes::Bytes;
use tsd_model::{
    BaseTime, Cell, Family, PackablePoint, PackedRun, PointColumns, Row, RunEncoder, Value,
};
use tsd_storage::{HeldColumn, HeldRow, StorageError};

use crate::memtable::{
    CellPrecedence, ColumnState, RowOp, RowOpIter, RowState, append_rising, estimated_points,
};

/// Operations on a row from all memtables, in one buffer.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowOps {
    data: Bytes,
    /// Timestamp base of the operations of the newest memtable; `None` if no memtable has the row.
    base_ms: Option<i64>,
    /// For each older memtable, oldest first: end of its operations, and their timestamp base.
    older: Vec<(usize, i64)>,
    precedence: CellPrecedence,
}

impl RowOps {
    /// Takes the operations of each memtable and their timestamp base, oldest first.
    pub(crate) fn new(memtables: impl IntoIterator<Item = (Bytes, i64)>) -> Self {
        let mut all = Self::default();
        for (ops, base_ms) in memtables {
            all.add(ops, base_ms);
        }
        all
    }

    /// Adds the operations of a newer memtable and their timestamp base.
    pub(crate) fn add(&mut self, ops: Bytes, base_ms: i64) {
        match self.base_ms.replace(base_ms) {
            None => self.data = ops,
            Some(older_ms) => {
                self.older.push((self.data.len(), older_ms));
                self.data = [&*self.data, &*ops].concat().into();
            }
        }
    }

    /// Sets which cell of a column is visible. The default is [`CellPrecedence::LogOrder`].
    pub(crate) const fn precedence(mut self, precedence: CellPrecedence) -> Self {
        self.precedence = precedence;
        self
    }

    /// True if no memtable has the row.
    pub(crate) const fn is_empty(&self) -> bool {
        self.base_ms.is_none()
    }

    /// Size of the operations, bytes.
    pub(crate) fn byte_len(&self) -> usize {
        self.data.len()
    }

    /// Approximate number of points.
    pub(crate) fn estimated_points(&self) -> usize {
        estimated_points(&self.data)
    }

    /// Appends the points of the row in time order to columns. Appends nothing and returns false if the operations
    /// do more than put points with different instants, or if the row does not begin at a full hour.
    pub(crate) fn append_points(&self, base_secs: u32, columns: &mut PointColumns) -> bool {
        self.append_points_after(i64::MIN, base_secs, columns)
    }

    /// As [`Self::append_points`], but also returns false if a point is not later than `after_ms`.
    pub(crate) fn append_points_after(
        &self,
        after_ms: i64,
        base_secs: u32,
        columns: &mut PointColumns,
    ) -> bool {
        if !base_secs.is_multiple_of(BaseTime::SPAN_SECONDS) {
            return false;
        }
        let (row_ms, before) = (i64::from(base_secs) * 1_000, columns.len());
        let mut last_ms = after_ms;
        if self.parts().all(|(ops, _)| append_rising(ops, row_ms, &mut last_ms, columns)) {
            return true;
        }
        columns.truncate(before);
        let Some(points) = self.points(base_secs) else { return false };
        if points.first().is_some_and(|(time_ms, _)| *time_ms <= after_ms) {
            return false;
        }
        for (time_ms, value) in points {
            columns.push(time_ms, value);
        }
        true
    }

    /// The points of the row in time order. `None` if the operations do more than put points with different
    /// instants, or if the row does not begin at a full hour.
    pub(crate) fn points(&self, base_secs: u32) -> Option<Vec<(i64, Value)>> {
        if !base_secs.is_multiple_of(BaseTime::SPAN_SECONDS) {
            return None;
        }
        let base_point_ms = i64::from(base_secs) * 1_000;
        // Most rows have points of about eight bytes.
        let mut points = Vec::with_capacity(self.data.len() / 8);
        for (part, base_ms) in self.parts() {
            for op in RowOpIter::new(part, base_ms) {
                let RowOp::Put { family: Family::T, qualifier, value, .. } = op else {
                    return None;
                };
                let point = PackablePoint::try_from_cell(qualifier, value)?;
                points.push((base_point_ms + i64::from(point.offset_ms()), point.value()));
            }
        }
        let is_rising = |points: &[(i64, Value)]| points.is_sorted_by(|a, b| a.0 < b.0);
        if !is_rising(&points) {
            points.sort_by_key(|(time_ms, _)| *time_ms);
            if !is_rising(&points) {
                return None;
            }
        }
        Some(points)
    }

    pub(crate) fn state(&self) -> RowState<'_> {
        RowState::from_ops(self.parts())
    }

    /// Operations of each memtable and their timestamp base, oldest first.
    fn parts(&self) -> impl Iterator<Item = (&[u8], i64)> {
        let newest = self.base_ms.map(|base_ms| (self.data.len(), base_ms));
        let mut start = 0;
        self.older.iter().copied().chain(newest).filter_map(move |(end, base_ms)| {
            let ops = self.data.get(start..end)?;
            start = end;
            Some((ops, base_ms))
        })
    }

    /// The row with its deletes, for readers in other processes.
    pub(crate) fn held_row(&self, key: Bytes) -> HeldRow {
        let state = RowState::held(self.parts());
        let column = |column: &ColumnState<'_>| HeldColumn {
            family: column.family,
            qualifier: self.data.slice_ref(column.qualifier),
            value: column.value.map(|value| self.data.slice_ref(value)),
            timestamp_ms: column.timestamp_ms,
        };
        let columns = state.columns.iter().map(column).collect();
        HeldRow { key, delete_row_ms: state.delete_row, columns }
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

/// Merges the backend's row with the operations of the memtables. `is_requested` selects columns and cells. A
/// column of a memtable hides that of the backend, even if its cell is not requested.
///
/// Packed runs that cannot contain a column of the memtables stay packed.
pub(crate) fn overlay(
    key: Bytes,
    stored: Option<Row>,
    ops: &RowOps,
    is_requested: impl Fn(Family, &[u8], i64) -> bool,
) -> Result<Option<Row>, StorageError> {
    let state = ops.state();
    let (mut cells, runs) = match (stored, state.delete_row) {
        (Some(row), None) => unpack_touched(row, &state)?,
        (Some(row), Some(deleted_ms)) if ops.precedence == CellPrecedence::CommitTime => {
            let mut cells = row.into_cells()?;
            cells.retain(|cell| cell.timestamp_ms > deleted_ms);
            (cells, Vec::new())
        }
        _ => (Vec::new(), Vec::new()),
    };
    if !state.columns.is_empty() {
        cells = merge(cells, &state, ops, is_requested);
    }
    Ok((!cells.is_empty() || !runs.is_empty()).then_some(Row { key, cells, runs }))
}

/// Packs the memtable points of a row into one run, for readers of whole rows. A cell per point would dominate
/// the cost of their scan.
#[derive(Debug, Default)]
pub(crate) struct RunPacker {
    encoder: RunEncoder,
}

/// Minimum number of points in a run. Fewer points are cheaper as cells.
const MIN_PACKED_POINTS: usize = 4;

impl RunPacker {
    /// Adds the points of the memtables to the backend's row as a run. They must be in time order and not overlap
    /// a run of the row; otherwise, returns the row as an error.
    pub(crate) fn pack(
        &mut self,
        key: &Bytes,
        stored: Option<Row>,
        ops: &RowOps,
    ) -> Result<Row, Option<Row>> {
        self.encoder.clear();
        if stored.as_ref().is_some_and(|row| !row.cells.is_empty()) {
            return Err(stored);
        }
        let Some(run) = self.run(ops) else { return Err(stored) };
        let Some(mut row) = stored else {
            return Ok(Row { key: key.clone(), cells: Vec::new(), runs: vec![run] });
        };
        let (first, last) = run.offset_range_ms();
        let is_disjoint = |other: &PackedRun| {
            let (other_first, other_last) = other.offset_range_ms();
            last < other_first || other_last < first
        };
        if !row.runs.iter().all(is_disjoint) {
            return Err(Some(row));
        }
        row.runs.push(run);
        row.runs.sort_by_key(PackedRun::offset_range_ms);
        Ok(row)
    }

    fn run(&mut self, ops: &RowOps) -> Option<PackedRun> {
        for (part, base_ms) in ops.parts() {
            for op in RowOpIter::new(part, base_ms) {
                let RowOp::Put { family: Family::T, qualifier, value, timestamp_ms, .. } = op
                else {
                    return None;
                };
                let point = PackablePoint::try_from_cell(qualifier, value)?;
                self.encoder.push(point, timestamp_ms).ok()?;
            }
        }
        if self.encoder.point_count() < MIN_PACKED_POINTS {
            return None;
        }
        let mut bytes = Vec::with_capacity(self.encoder.point_count() * 12 + 32);
        self.encoder.finish_quickly(&mut bytes).ok()?;
        PackedRun::open(bytes.into()).ok()
    }
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
            run.expand_into(&mut cells)?;
        }
        cells.sort_by(|a, b| (a.family, &a.qualifier).cmp(&(b.family, &b.qualifier)));
    }
    Ok((cells, kept))
}

/// Merges two sorted lists of columns. The column of a memtable wins, unless the commit time decides and the
/// backend's cell is later.
fn merge(
    stored: Vec<Cell>,
    state: &RowState<'_>,
    ops: &RowOps,
    is_requested: impl Fn(Family, &[u8], i64) -> bool,
) -> Vec<Cell> {
    let mut merged = Vec::with_capacity(stored.len() + state.columns.len());
    let mut stored = stored.into_iter().peekable();
    for column in &state.columns {
        let before =
            |cell: &Cell| column.cmp_column(cell.family, &cell.qualifier) == Ordering::Greater;
        while let Some(cell) = stored.next_if(before) {
            merged.push(cell);
        }
        let same = stored
            .next_if(|cell| column.cmp_column(cell.family, &cell.qualifier) == Ordering::Equal);
        if let Some(cell) = same
            && ops.precedence == CellPrecedence::CommitTime
            && cell.timestamp_ms > column.timestamp_ms
        {
            merged.push(cell);
            continue;
        }
        let is_requested =
            column.cell().is_some_and(|(_, ts)| is_requested(column.family, column.qualifier, ts));
        if is_requested {
            merged.extend(ops.cell(column));
        }
    }
    merged.extend(stored);
    merged
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

    use proptest::prelude::*;
    use tsd_model::RunShape;

    use super::*;
    use crate::memtable::encode_op;

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

    fn stored() -> Row {
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
        let mut ops = Vec::new();
        let (qualifier, value) = (&qualifier(second)[..], &[value][..]);
        let (family, timestamp_ms, is_given) = (Family::T, 5, false);
        let op = RowOp::Put { family, qualifier, value, timestamp_ms, is_given };
        encode_op(op, 0, &mut ops);
        ops
    }

    fn delete(second: u16) -> Vec<u8> {
        let mut ops = Vec::new();
        let op = RowOp::DeleteColumn {
            family: Family::T,
            qualifier: &qualifier(second),
            timestamp_ms: 5,
        };
        encode_op(op, 0, &mut ops);
        ops
    }

    /// Checks the number of runs that stay packed, and the seconds and values of all cells.
    fn check(ops: Vec<Vec<u8>>, packed: usize, expected: &[(u16, u8)]) {
        let ops = RowOps::new(ops.into_iter().map(|part| (part.into(), 0)));
        let row = overlay(KEY, Some(stored()), &ops, |_, _, _| true).unwrap().unwrap();
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
    fn untouched_runs_stay_packed() {
        let before = [(0, 7), (10, 7), (20, 7), (100, 7), (110, 7)];
        check(vec![put(200, 8)], 2, &[&before[..], &[(200, 8)]].concat());
        check(vec![put(50, 8)], 2, &[(0, 7), (10, 7), (20, 7), (50, 8), (100, 7), (110, 7)]);
    }

    #[test]
    fn points_in_time_order_are_packed_into_a_run() {
        let mut packer = RunPacker::default();
        let mut pack = |stored: Option<Row>, ops: Vec<Vec<u8>>| {
            let ops = RowOps::new(ops.into_iter().map(|part| (part.into(), 0)));
            let row = packer.pack(&KEY, stored.clone(), &ops);
            let plain = overlay(KEY, stored, &ops, |_, _, _| true).unwrap();
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
        let runs = Row { cells: Vec::new(), ..stored() };
        assert_eq!(pack(None, vec![points(&[1, 2, 3, 4])]), Some(1));
        assert_eq!(pack(None, vec![points(&[1, 2]), points(&[3, 4])]), Some(1));
        assert_eq!(pack(Some(runs.clone()), vec![points(&[30, 40, 50, 60])]), Some(3));
        assert_eq!(pack(Some(runs.clone()), vec![points(&[200, 240, 250, 260])]), Some(3));
        // Overlapping a run; out of order; a duplicate; too few; a delete; cells in the backend.
        assert_eq!(pack(Some(runs), vec![points(&[30, 40, 50, 105])]), None);
        assert_eq!(pack(None, vec![points(&[1, 2, 4, 3])]), None);
        assert_eq!(pack(None, vec![points(&[1, 2, 3, 4]), points(&[4])]), None);
        assert_eq!(pack(None, vec![points(&[1, 2])]), None);
        assert_eq!(pack(None, vec![points(&[1, 2, 3, 4]), delete(2)]), None);
        assert_eq!(pack(Some(stored()), vec![points(&[30, 40, 50, 60])]), None);
    }

    /// Encoded operations of one memtable: most are points in order, some are anything.
    fn some_ops() -> impl Strategy<Value = Vec<u8>> {
        let op = (0..400_u16, 1..40_u16, any::<i64>(), 0..64_u32, any::<f64>());
        prop::collection::vec(op, 0..60).prop_map(|ops| {
            let (mut out, mut second) = (Vec::new(), 0_u16);
            for (odd, step, integer, shift, float) in ops {
                second = if odd == 0 { second.saturating_sub(step) } else { second + step };
                let integer = integer >> shift;
                let (flags, value) = match integer {
                    _ if odd % 3 == 0 => (0xF, float.to_be_bytes().to_vec()),
                    -128..=127 => (0, (integer as i8).to_be_bytes().to_vec()),
                    -32_768..=32_767 => (1, (integer as i16).to_be_bytes().to_vec()),
                    -2_147_483_648..=2_147_483_647 => (3, (integer as i32).to_be_bytes().to_vec()),
                    _ => (7, integer.to_be_bytes().to_vec()),
                };
                let qualifier = if odd == 1 {
                    let millis = u32::from(second) * 1_000 + 1;
                    (0xF000_0000 | millis << 6 | flags).to_be_bytes().to_vec()
                } else {
                    (second << 4 | flags as u16).to_be_bytes().to_vec()
                };
                let family = if odd == 2 { Family::Id } else { Family::T };
                let (qualifier, value, timestamp_ms) = (&qualifier[..], &value[..], 5);
                let op = match odd {
                    4 => RowOp::DeleteColumn { family, qualifier, timestamp_ms },
                    5 => RowOp::DeleteRow { timestamp_ms },
                    _ => RowOp::Put { family, qualifier, value, timestamp_ms, is_given: false },
                };
                encode_op(op, 0, &mut out);
            }
            out
        })
    }

    proptest! {
        #[test]
        fn appended_points_are_those_of_single_operations(
            memtables in prop::collection::vec(some_ops(), 1..4),
            before in prop::collection::vec(any::<bool>(), 0..4),
            late in any::<bool>(),
        ) {
            let ops = RowOps::new(memtables.into_iter().map(|ops| (ops.into(), 0)));
            let mut columns = PointColumns::default();
            for (time_ms, is_integer) in (0..).zip(before) {
                let value = if is_integer { Value::Integer(time_ms) } else { Value::Float(0.5) };
                columns.push(time_ms, value);
            }
            let base = if late { 3_601 } else { 3_600 };
            let mut expected = columns.clone();
            let points = ops.points(base);
            for (time_ms, value) in points.iter().flatten() {
                expected.push(*time_ms, *value);
            }
            prop_assert_eq!(ops.append_points(base, &mut columns), points.is_some());
            let all = |columns: &PointColumns| -> Vec<_> {
                let bits = columns.times_ms.iter().zip(&columns.bits).enumerate();
                bits.map(|(i, (time, bits))| (*time, *bits, columns.is_integer(i))).collect()
            };
            prop_assert_eq!(all(&columns), all(&expected));
        }
    }

    #[test]
    fn memtable_point_replaces_the_one_in_a_run() {
        let expected = [(0, 7), (10, 9), (20, 7), (100, 7), (110, 7)];
        check(vec![put(10, 8), put(10, 9)], 1, &expected);
    }

    #[test]
    fn memtable_delete_removes_a_point_from_a_run() {
        check(vec![put(110, 8), delete(110)], 1, &[(0, 7), (10, 7), (20, 7), (100, 7)]);
    }

    #[test]
    fn deleted_row_hides_its_runs() {
        let mut ops = Vec::new();
        encode_op(RowOp::DeleteRow { timestamp_ms: 4 }, 0, &mut ops);
        let row_ops = RowOps::new(vec![(ops.clone().into(), 0)]);
        assert!(overlay(KEY, Some(stored()), &row_ops, |_, _, _| true).unwrap().is_none());
        ops.extend(put(3, 4));
        let ops = RowOps::new(vec![(ops.into(), 0)]);
        let row = overlay(KEY, Some(stored()), &ops, |_, _, _| true).unwrap().unwrap();
        assert_eq!((row.runs.len(), row.cells.len()), (0, 1));
    }

    #[test]
    fn later_cell_wins_by_commit_time() {
        let stored = |timestamp_ms: i64| {
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
        encode_op(RowOp::DeleteRow { timestamp_ms: 5 }, 0, &mut deleted);
        for (ops, stored_ms, expected) in [
            (put(10, 8), 4, vec![(10, 8), (20, 7)]),
            (put(10, 8), 5, vec![(10, 8), (20, 7)]),
            (put(10, 8), 6, vec![(10, 7), (20, 7)]),
            (delete(10), 5, vec![(20, 7)]),
            (delete(10), 6, vec![(10, 7), (20, 7)]),
            (deleted.clone(), 5, vec![]),
            (deleted.clone(), 6, vec![(10, 7), (20, 7)]),
            ([deleted, put(30, 9)].concat(), 6, vec![(10, 7), (20, 7), (30, 9)]),
        ] {
            let ops = RowOps::new(vec![(ops.into(), 0)]).precedence(CellPrecedence::CommitTime);
            let row = overlay(KEY, stored(stored_ms), &ops, |_, _, _| true).unwrap();
            let cells = row.map_or_else(Vec::new, |row| row.cells);
            let points: Vec<(u16, u8)> = cells
                .iter()
                .map(|c| (u16::from_be_bytes([c.qualifier[0], c.qualifier[1]]) >> 4, c.value[0]))
                .collect();
            assert_eq!(points, expected);
        }
    }

    #[test]
    fn memtable_cell_hides_the_backends_even_if_not_requested() {
        let ops = RowOps::new(vec![(put(10, 8).into(), 0)]);
        let row =
            overlay(KEY, Some(stored()), &ops, |_, _, timestamp_ms| timestamp_ms < 5).unwrap();
        let cells = row.unwrap().into_cells().unwrap();
        assert!(cells.iter().all(|cell| cell.qualifier != qualifier(10)[..]));
        assert_eq!(cells.len(), 5);
    }
}
