use bytes::BytesMut;

use super::*;
use crate::{
    cell::{Cell, CellKind},
    recorded,
    row::CellBlock,
};

const ID: u64 = 1_700_000_000_000;

fn table() -> TableName {
    "tsdb".parse().unwrap()
}

/// A meta row with these columns.
fn raw(key: &[u8], columns: &[(&str, &[u8])]) -> Row {
    let mut block = BytesMut::new();
    for (qualifier, value) in columns {
        let (family, qualifier) = (FAMILY, qualifier.as_bytes());
        Cell { row: key, family, qualifier, timestamp: 1, kind: CellKind::Put, value }
            .encode(&mut block)
            .unwrap();
    }
    CellBlock::new(block.freeze()).take(columns.len()).unwrap()
}

fn row(info: &pb::RegionInfo, server: &str, state: &str) -> Row {
    let value = [MAGIC, &info.encode_to_vec()].concat();
    let name = Region::from_message(info).unwrap();
    let columns = [
        ("regioninfo", &value[..]),
        ("seqnumDuringOpen", &9_u64.to_be_bytes()),
        ("server", server.as_bytes()),
        ("serverstartcode", &7_u64.to_be_bytes()),
        ("state", state.as_bytes()),
    ];
    raw(name.name(), &columns)
}

fn info(start: &str, end: &str) -> pb::RegionInfo {
    Region::new(table(), start.to_owned().into(), end.to_owned().into(), ID).to_message()
}

fn parent(start: &str, end: &str) -> pb::RegionInfo {
    pb::RegionInfo { offline: Some(true), split: Some(true), ..info(start, end) }
}

#[track_caller]
fn check(locate: &Locate, rows: &[Row], expected: &str) {
    let (lookup, _) = read_lookup(&table(), locate, rows);
    let seen = match lookup {
        Lookup::Found(location) => {
            format!("{}@{}", location.region.start_key().escape_ascii(), location.server)
        }
        Lookup::NoTable => "no table".to_owned(),
        Lookup::InTransition(why, _) => format!("later: {why}"),
    };
    assert!(seen.starts_with(expected), "{seen}");
}

fn holding(row: &str) -> Locate {
    Locate::Holding(row.to_owned().into())
}

#[test]
fn the_stored_values_are_understood() {
    let vector = recorded::vector;
    let columns = [
        ("regioninfo", &vector("regioninfo-value")[..]),
        ("server", &vector("meta-server-value")),
        ("serverstartcode", &vector("meta-startcode-value")),
        ("state", &vector("meta-state-value")),
    ];
    let read = MetaRow::decode(&raw(b"tsdb,,1.", &columns)).unwrap();
    assert_eq!(read.server, Some(ServerName::new("rs1.example.org", 16020, 1_700_000_000_001)));
    assert_eq!(read.state.as_deref(), Some("OPEN"));
    assert_eq!(read.seq_num, -1);
    assert!(read.location().is_some());
}

#[test]
fn the_first_row_holds_the_region() {
    let rows = [row(&info("b", "d"), "s:1", "OPEN"), row(&info("", "b"), "s:2", "OPEN")];
    check(&holding("c"), &rows, "b@s,1,7");
    let (_, others) = read_lookup(&table(), &holding("c"), &rows);
    assert_eq!(others.len(), 2);
    assert_eq!(others[0].seq_num, 9);
    check(&Locate::Before("d".into()), &rows, "b@s,1,7");
    check(&Locate::Before(Bytes::new()), &[row(&info("b", ""), "s:1", "OPEN")], "b@s,1,7");
}

#[test]
fn no_row_or_another_tables_row_means_no_table() {
    check(&holding("c"), &[], "no table");
    let other = Region::new("other".parse().unwrap(), Bytes::new(), Bytes::new(), ID).to_message();
    check(&holding("c"), &[row(&other, "s:1", "OPEN")], "no table");
}

#[test]
fn a_split_parent_is_passed_over() {
    let rows = [row(&info("c", "d"), "s:1", "OPEN"), row(&parent("b", "d"), "s:2", "CLOSED")];
    check(&holding("c"), &rows, "c@s,1,7");
    // Daughters not yet there: only the parent and the region before it.
    let early = [row(&parent("b", "d"), "s:2", "SPLIT"), row(&info("", "b"), "s:1", "OPEN")];
    check(&holding("c"), &early, "later: tsdb,b,1700000000000.");
    check(&holding("c"), &early[..1], "later: tsdb,b,1700000000000.");
}

#[test]
fn a_region_that_is_not_open_is_not_cached() {
    for state in ["OPENING", "CLOSED", "CLOSING"] {
        let rows = [row(&info("b", "d"), "s:1", state)];
        check(&holding("c"), &rows, "later: tsdb,b,1700000000000.");
        assert!(read_lookup(&table(), &holding("c"), &rows).1.is_empty());
    }
    check(&holding("c"), &[row(&info("b", "d"), "", "OPEN")], "later: ");
}

#[test]
fn a_hole_is_looked_at_again_later() {
    check(&holding("x"), &[row(&info("b", "d"), "s:1", "OPEN")], "later: no region where tsdb,b,");
}

#[test]
fn a_damaged_row_is_looked_at_again_later() {
    for columns in
        [&[("server", &b"s:1"[..])][..], &[("regioninfo", b"junk")], &[("regioninfo", b"PBUF\xff")]]
    {
        check(&holding("c"), &[raw(b"tsdb,b,1.", columns)], "later: damaged meta row tsdb,b,1.");
    }
}
