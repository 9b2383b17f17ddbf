//! Converts rows of the client to rows of the store.

use bytes::Bytes;
use hbase_rs::{CellKind, Row};
use tsd_model::{Cell, Family, Row as ModelRow};

/// Copies a row out of the response, so that it does not keep the whole response in memory. Key and
/// cells of the row share one buffer. `None` if no cell has a known family.
pub(crate) fn model_row(row: &Row) -> Option<ModelRow> {
    let key = row.key();
    let mut buffer = Vec::with_capacity(key.len() + row.encoded().len() / 2);
    buffer.extend_from_slice(key);
    let mut lengths: Vec<CellLengths> = Vec::with_capacity(row.len());
    for cell in row.cells() {
        let Some(family) = Family::from_name(cell.family).filter(|_| cell.kind == CellKind::Put)
        else {
            continue;
        };
        let cell_lengths = CellLengths {
            family,
            qualifier: cell.qualifier.len(),
            value: cell.value.len(),
            timestamp_ms: cell.timestamp as i64,
        };
        // The newest version of a column is first; older ones are skipped.
        if let Some(last) = lengths.last()
            && (last.family, last.qualifier) == (cell_lengths.family, cell_lengths.qualifier)
            && ends_with_column(&buffer, last, cell.qualifier)
        {
            continue;
        }
        buffer.extend_from_slice(cell.qualifier);
        buffer.extend_from_slice(cell.value);
        lengths.push(cell_lengths);
    }
    if lengths.is_empty() {
        return None;
    }
    let mut rest = Bytes::from(buffer);
    let key = rest.split_to(key.len());
    let cells = lengths
        .into_iter()
        .map(|cell| Cell {
            family: cell.family,
            qualifier: rest.split_to(cell.qualifier),
            value: rest.split_to(cell.value),
            timestamp_ms: cell.timestamp_ms,
        })
        .collect();
    Some(ModelRow::from_cells(key, cells))
}

/// A cell whose qualifier and value are in the buffer, by their lengths.
struct CellLengths {
    family: Family,
    qualifier: usize,
    value: usize,
    timestamp_ms: i64,
}

/// True if `last`, the cell at the end of the buffer, has this qualifier.
fn ends_with_column(buffer: &[u8], last: &CellLengths, qualifier: &[u8]) -> bool {
    let start = buffer.len().saturating_sub(last.qualifier + last.value);
    buffer.get(start..start + last.qualifier) == Some(qualifier)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use bytes::BytesMut;
    use hbase_rs::{Cell as HBaseCell, protocol::CellBlock};

    use super::*;

    /// Family, qualifier, time, kind, value.
    type PlainCell<'a> = (&'a [u8], &'a [u8], u64, CellKind, &'a [u8]);

    fn row(cells: &[PlainCell<'_>]) -> Row {
        let mut block = BytesMut::new();
        for &(family, qualifier, timestamp, kind, value) in cells {
            HBaseCell { row: b"row", family, qualifier, timestamp, kind, value }
                .encode(&mut block)
                .unwrap();
        }
        CellBlock::new(block.freeze()).take(cells.len()).unwrap()
    }

    #[test]
    fn row_has_the_newest_version_of_known_columns() {
        let put = CellKind::Put;
        let read = model_row(&row(&[
            (b"id", b"a", 9, put, b"new"),
            (b"id", b"a", 8, put, b"old"),
            (b"id", b"b", 8, put, b"old"),
            (b"other", b"a", 7, put, b"x"),
            (b"t", b"", 6, put, b""),
            (b"t", b"a", 5, CellKind::DeleteColumn, b""),
            (b"t", b"b", 5, put, b"value"),
        ]));
        let read = read.unwrap();
        assert_eq!(read.key, b"row"[..]);
        let cells: Vec<_> = read
            .cells
            .iter()
            .map(|c| (c.family, c.qualifier.as_ref(), c.value.as_ref(), c.timestamp_ms))
            .collect();
        assert_eq!(
            cells,
            [
                (Family::Id, &b"a"[..], &b"new"[..], 9),
                (Family::Id, b"b", b"old", 8),
                (Family::T, b"", b"", 6),
                (Family::T, b"b", b"value", 5),
            ]
        );
    }

    #[test]
    fn row_without_known_families_is_none() {
        assert!(model_row(&Row::default()).is_none());
        assert!(model_row(&row(&[(b"f", b"a", 9, CellKind::Put, b"")])).is_none());
    }
}
