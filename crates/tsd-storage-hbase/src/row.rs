//! Rows of the client as rows of the store.

use bytes::Bytes;
use hbase_rs::{CellKind, Row};
use tsd_model::{Cell, Family, Row as ModelRow};

/// Copies a row out of the answer it came in, so that it does not keep the whole answer in memory.
/// Keys and values of one row share one buffer. `None` where no cell is of a family we know.
pub(crate) fn model_row(row: &Row) -> Option<ModelRow> {
    let key = row.key();
    let mut buffer = Vec::with_capacity(key.len() + row.encoded().len() / 2);
    buffer.extend_from_slice(key);
    let mut heads: Vec<Head> = Vec::with_capacity(row.len());
    for cell in row.cells() {
        let Some(family) = Family::from_name(cell.family).filter(|_| cell.kind == CellKind::Put)
        else {
            continue;
        };
        let head = Head {
            family,
            qualifier: cell.qualifier.len(),
            value: cell.value.len(),
            timestamp_ms: cell.timestamp as i64,
        };
        // Newest version first; older ones are of no interest.
        if let Some(last) = heads.last()
            && (last.family, last.qualifier) == (head.family, head.qualifier)
            && buffer.ends_with_column(last, cell.qualifier)
        {
            continue;
        }
        buffer.extend_from_slice(cell.qualifier);
        buffer.extend_from_slice(cell.value);
        heads.push(head);
    }
    if heads.is_empty() {
        return None;
    }
    let mut rest = Bytes::from(buffer);
    let key = rest.split_to(key.len());
    let cells = heads
        .into_iter()
        .map(|head| Cell {
            family: head.family,
            qualifier: rest.split_to(head.qualifier),
            value: rest.split_to(head.value),
            timestamp_ms: head.timestamp_ms,
        })
        .collect();
    Some(ModelRow::from_cells(key, cells))
}

/// What lies next in the buffer.
struct Head {
    family: Family,
    qualifier: usize,
    value: usize,
    timestamp_ms: i64,
}

/// Whether the cell that was added last is of this column.
trait EndsWithColumn {
    fn ends_with_column(&self, last: &Head, qualifier: &[u8]) -> bool;
}

impl EndsWithColumn for Vec<u8> {
    fn ends_with_column(&self, last: &Head, qualifier: &[u8]) -> bool {
        let start = self.len().saturating_sub(last.qualifier + last.value);
        self.get(start..start + last.qualifier) == Some(qualifier)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use bytes::BytesMut;
    use hbase_rs::{Cell as HBaseCell, protocol::CellBlock};

    use super::*;

    /// Family, qualifier, time, kind, value.
    type Plain<'a> = (&'a [u8], &'a [u8], u64, CellKind, &'a [u8]);

    fn row(cells: &[Plain<'_>]) -> Row {
        let mut block = BytesMut::new();
        for &(family, qualifier, timestamp, kind, value) in cells {
            HBaseCell { row: b"row", family, qualifier, timestamp, kind, value }
                .encode(&mut block)
                .unwrap();
        }
        CellBlock::new(block.freeze()).take(cells.len()).unwrap()
    }

    #[test]
    fn a_row_keeps_the_newest_version_of_the_columns_we_know() {
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
    fn a_row_without_cells_of_ours_is_none() {
        assert!(model_row(&Row::default()).is_none());
        assert!(model_row(&row(&[(b"f", b"a", 9, CellKind::Put, b"")])).is_none());
    }
}
