use proptest::{collection::vec, prelude::*};

use super::*;
use crate::recorded;

const ROW: &[u8] = &[0, 0, 1, 0x65, 0x52, 0, 0, 0, 0, 1, 0, 0, 2];
const VALUE: &[u8] = &[0, 0, 0, 0x2a];

fn sample() -> Cell<'static> {
    Cell {
        row: ROW,
        family: b"t",
        qualifier: &[0, 0xf3],
        timestamp: 1_700_000_000_123,
        kind: CellKind::Put,
        value: VALUE,
    }
}

#[track_caller]
fn check(vector: &str, cells: &[Cell<'_>]) {
    let bytes = recorded::vector(vector);
    let read: Result<Vec<_>, _> = Cells::new(&bytes).collect();
    assert_eq!(read.unwrap(), cells);
    let mut out = BytesMut::new();
    for cell in cells {
        cell.encode(&mut out).unwrap();
    }
    assert_eq!(out, bytes);
    assert_eq!(out.len(), cells.iter().map(Cell::encoded_len).sum::<usize>());
}

#[test]
fn a_put_is_written_as_the_codec_writes_it() {
    check("cell-put", &[sample()]);
    check("cell-put-server-time", &[Cell { timestamp: SERVER_TIME, value: b"", ..sample() }]);
}

#[test]
fn deletes_carry_kind_and_no_value() {
    let column = Cell { kind: CellKind::Delete, value: b"", ..sample() };
    check("cell-delete-one-version", &[column]);
    let whole = Cell { kind: CellKind::DeleteColumn, timestamp: SERVER_TIME, ..column };
    check("cell-delete-column", &[whole]);
    let family = Cell { kind: CellKind::DeleteFamily, qualifier: b"", ..whole };
    check("cell-delete-family", &[family]);
    let version = Cell { kind: CellKind::DeleteFamilyVersion, qualifier: b"", ..column };
    check("cell-delete-family-version", &[version]);
}

#[test]
fn cells_follow_each_other_without_a_gap() {
    let second = Cell { qualifier: &[1, 3], timestamp: 1_700_000_000_124, value: &[7], ..sample() };
    check("cell-block-two", &[sample(), second]);
}

#[test]
fn a_block_cut_anywhere_is_an_error() {
    let bytes = recorded::vector("cell-put");
    for end in 1..bytes.len() {
        assert_eq!(Cell::decode(&mut &bytes[..end]), Err(CellError::Truncated), "{end}");
    }
}

#[test]
fn lengths_that_leave_the_cell_are_an_error() {
    let bytes = recorded::vector("cell-put");
    // High bytes of key length, value length and row length.
    for at in [4, 8, 12] {
        let mut bent = bytes.to_vec();
        bent[at] = 0xff;
        assert_eq!(Cell::decode(&mut &bent[..]), Err(CellError::Lengths), "{at}");
    }
}

#[test]
fn cells_hbase_would_refuse_are_not_written() {
    let mut out = BytesMut::new();
    let long = vec![b'r'; MAX_ROW_LENGTH + 1];
    let row = Cell { row: &long, ..sample() };
    assert_eq!(row.encode(&mut out), Err(CellError::Row(MAX_ROW_LENGTH + 1)));
    let family = Cell { family: &long[..128], ..sample() };
    assert_eq!(family.encode(&mut out), Err(CellError::Family(128)));
    let timestamp = Cell { timestamp: u64::MAX, ..sample() };
    assert_eq!(timestamp.encode(&mut out), Err(CellError::Timestamp(u64::MAX)));
    assert!(out.is_empty());
}

#[test]
fn search_markers_are_no_cells() {
    for kind in [0, 255, 5] {
        let mut bytes = recorded::vector("cell-put").to_vec();
        let at = bytes.len() - VALUE.len() - 1;
        bytes[at] = kind;
        assert_eq!(Cell::decode(&mut &bytes[..]), Err(CellError::Kind(kind)));
    }
}

proptest! {
    #[test]
    fn decode_undoes_encode(
        row in vec(any::<u8>(), 0..40), family in vec(any::<u8>(), 0..9), qualifier in vec(any::<u8>(), 0..20),
        timestamp in 0..=SERVER_TIME, kind in prop::sample::select(vec![4_u8, 8, 10, 12, 14]),
        value in vec(any::<u8>(), 0..60),
    ) {
        let kind = CellKind::from_byte(kind).unwrap();
        let cell = Cell { row: &row, family: &family, qualifier: &qualifier, timestamp, kind, value: &value };
        let mut out = BytesMut::new();
        cell.encode(&mut out).unwrap();
        let mut block = &out[..];
        prop_assert_eq!(Cell::decode(&mut block).unwrap(), cell);
        prop_assert!(block.is_empty());
    }

    #[test]
    fn any_bytes_decode_or_err(bytes in vec(any::<u8>(), 0..80)) {
        let mut block = &bytes[..];
        if Cell::decode(&mut block).is_err() {
            prop_assert_eq!(block, &bytes[..]);
        }
    }
}
