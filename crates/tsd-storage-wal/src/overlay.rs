//! A row as it is: what the backend has of it, and over that what is held.

use std::cmp::Ordering;

use bytes::Bytes;
use tsd_model::{Cell, Family, Row};
use tsd_storage::StorageError;

use crate::memtable::{ColumnState, RowState};

/// Logs of a row in one buffer, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowLogs {
    data: Bytes,
    /// End of each log, and the base of its timestamps.
    parts: Vec<(usize, i64)>,
}

impl RowLogs {
    /// Takes logs, oldest first.
    pub(crate) fn new(mut logs: Vec<(Bytes, i64)>) -> Self {
        if logs.len() == 1
            && let Some((data, base_ms)) = logs.pop()
        {
            return Self { parts: vec![(data.len(), base_ms)], data };
        }
        let mut data = Vec::with_capacity(logs.iter().map(|(log, _)| log.len()).sum());
        let mut parts = Vec::with_capacity(logs.len());
        for (log, base_ms) in &logs {
            data.extend_from_slice(log);
            parts.push((data.len(), *base_ms));
        }
        Self { data: data.into(), parts }
    }

    /// Whether nothing is held of the row.
    pub(crate) const fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(crate) fn state(&self) -> RowState<'_> {
        let mut start = 0;
        RowState::follow(self.parts.iter().filter_map(|(end, base_ms)| {
            let log = self.data.get(start..*end)?;
            start = *end;
            Some((log, *base_ms))
        }))
    }

    fn cell(&self, column: &ColumnState<'_>) -> Option<Cell> {
        let (value, timestamp_ms) = column.cell?;
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
    let below = below.filter(|_| !state.delete_row);
    let (mut cells, runs) = match below {
        Some(row) => unpack_touched(row, &state)?,
        None => (Vec::new(), Vec::new()),
    };
    if !state.columns.is_empty() {
        cells = merge(cells, &state, logs, wants);
    }
    Ok((!cells.is_empty() || !runs.is_empty()).then_some(Row { key, cells, runs }))
}

type CellsAndRuns = (Vec<Cell>, Vec<tsd_model::PackedRun>);

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
        below.next_if(|cell| column.cmp_column(cell.family, &cell.qualifier) == Ordering::Equal);
        let wanted = column.cell.is_some_and(|(_, ts)| wants(column.family, column.qualifier, ts));
        if wanted {
            merged.extend(logs.cell(column));
        }
    }
    merged.extend(below);
    merged
}
