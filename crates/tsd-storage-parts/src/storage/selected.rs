//! Builds the rows that reads return.

use bytes::Bytes;
use tsd_model::{Cell, ChunkPoint, PackedRun, Row, RunEncoder};
use tsd_storage::StorageError;

use crate::{resolve::ResolvedRow, series_encoder::column_cell};

/// The selected cells of a row, with packed points expanded; `None` if no cell is selected.
pub(crate) fn select_cells(
    row: Row,
    selects: impl Fn(&Cell) -> bool,
) -> Result<Option<Row>, StorageError> {
    let key = row.key.clone();
    let mut cells = row.into_cells()?;
    cells.retain(selects);
    Ok((!cells.is_empty()).then(|| Row::from_cells(key, cells)))
}

/// Builds rows with packed points.
#[derive(Debug, Default)]
pub(crate) struct RowBuilder {
    encoder: RunEncoder,
}

impl RowBuilder {
    /// The row with this key; `None` if it has no cell.
    pub(crate) fn build(&mut self, key: Vec<u8>, row: &ResolvedRow) -> Option<Row> {
        let mut built = Row::from_cells(key.into(), row.cells.clone());
        built.cells.extend(row.columns.iter().map(|points| column_cell(points)));
        for points in &row.singles {
            self.pack(points, &mut built);
        }
        built.cells.sort_by(|a, b| (a.family, &a.qualifier).cmp(&(b.family, &b.qualifier)));
        built.runs.sort_by_key(PackedRun::offset_range_ms);
        (!built.cells.is_empty() || !built.runs.is_empty()).then_some(built)
    }

    /// Adds points of one resolution as a run. A point whose instant the run has already becomes a cell.
    fn pack(&mut self, points: &[ChunkPoint], row: &mut Row) {
        let mut packed = Vec::with_capacity(points.len());
        self.encoder.clear();
        for p in points {
            match self.encoder.push(p.point, p.timestamp_ms) {
                Ok(()) => packed.push(p),
                Err(_) => row.cells.push(p.cell()),
            }
        }
        if packed.is_empty() {
            return;
        }
        let mut bytes = Vec::new();
        let run = self
            .encoder
            .finish_quickly(&mut bytes)
            .and_then(|()| PackedRun::open(Bytes::from(bytes)));
        match run {
            Ok(run) => row.runs.push(run),
            // Points that were pushed always pack. If they do not, they are stored as cells.
            Err(_) => row.cells.extend(packed.into_iter().map(ChunkPoint::cell)),
        }
    }
}
