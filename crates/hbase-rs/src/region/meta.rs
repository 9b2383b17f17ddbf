//! Rows of hbase:meta: region, server and state.
//!
//! `info:server` remains when a region is closed or split, its table is disabled or its server
//! crashes, so the state is checked too.

use std::sync::Arc;

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use prost::Message;

use super::{
    info::{Region, RegionLocation},
    name::{search_key, search_key_before},
};
use crate::{row::Row, server_name::ServerName, table_name::TableName};

/// Family of all columns that are read.
pub(crate) const FAMILY: &[u8] = b"info";

/// Prefix of stored messages.
const MAGIC: &[u8] = b"PBUF";

/// One row of hbase:meta that describes a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaRow {
    /// The region.
    pub region: Region,
    /// Server that opened it last.
    pub server: Option<ServerName>,
    /// Sequence number when it was opened; -1 if absent.
    pub seq_num: i64,
    /// `OPEN`, `OPENING`, `CLOSED`, `SPLIT` and so on; absent in tables older than 2.0.
    pub state: Option<String>,
}

impl MetaRow {
    /// Decodes a row; `None` if it describes no region or is damaged.
    #[must_use]
    pub fn decode(row: &Row) -> Option<Self> {
        let info = row.value(FAMILY, b"regioninfo")?.strip_prefix(MAGIC)?;
        let region = Region::from_message(&pb::RegionInfo::decode(info).ok()?)?;
        let number = |qualifier| {
            let bytes = row.value(FAMILY, qualifier)?;
            <[u8; 8]>::try_from(bytes).ok().map(u64::from_be_bytes)
        };
        let server = || {
            let text = std::str::from_utf8(row.value(FAMILY, b"server")?).ok()?;
            let (host, port) = text.rsplit_once(':')?;
            let start_code = number(&b"serverstartcode"[..])?;
            Some(ServerName::new(host, port.parse().ok()?, start_code)).filter(|_| !host.is_empty())
        };
        let state = row.value(FAMILY, b"state");
        Some(Self {
            region,
            server: server(),
            seq_num: number(b"seqnumDuringOpen").map_or(-1, |number| number as i64),
            state: state.map(|state| String::from_utf8_lossy(state).into_owned()),
        })
    }

    /// Returns the location of the region if it is open.
    #[must_use]
    pub fn location(&self) -> Option<RegionLocation> {
        let open = self.state.as_deref().is_none_or(|state| state == "OPEN");
        let server = self.server.clone().filter(|_| open && !self.region.is_split_parent())?;
        Some(RegionLocation {
            region: Arc::new(self.region.clone()),
            server,
            seq_num: self.seq_num,
        })
    }
}

/// The region to locate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionTarget {
    /// The region that holds the row.
    Holding(Bytes),
    /// The last region that starts before the row; the last of the table if the row is empty.
    Before(Bytes),
}

impl RegionTarget {
    /// Returns the row at which a reversed scan of hbase:meta for it starts.
    #[must_use]
    pub fn search_key(&self, table: &TableName) -> Bytes {
        match self {
            Self::Holding(row) => search_key(table, row),
            Self::Before(row) => search_key_before(table, row),
        }
    }

    /// True if this region is the one, provided that it still exists.
    #[must_use]
    pub fn is_met_by(&self, region: &Region) -> bool {
        match self {
            Self::Holding(row) => region.contains(row),
            Self::Before(row) if row.is_empty() => region.end_key().is_empty(),
            Self::Before(row) => {
                region.start_key() < row && (region.end_key().is_empty() || region.end_key() >= row)
            }
        }
    }
}

/// Result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The region.
    Found(RegionLocation),
    /// The table has no region for the row; the table probably does not exist.
    NoTable,
    /// The region is opening, closing, splitting or disabled, or its row is damaged: a text with the
    /// reason, and the region if its row was decoded.
    InTransition(String, Option<Region>),
}

/// Decodes the rows of a lookup, in the order of the reversed scan. Returns its result and the
/// locations of all open regions of the table among the rows.
#[must_use]
pub fn read_lookup(
    table: &TableName,
    locate: &RegionTarget,
    rows: &[Row],
) -> (Lookup, Vec<RegionLocation>) {
    let decoded: Vec<_> = rows.iter().map(|row| (row, MetaRow::decode(row))).collect();
    let others = decoded
        .iter()
        .filter_map(|(_, row)| row.as_ref().filter(|row| row.region.table() == table)?.location())
        .collect();
    (find(table, locate, &decoded), others)
}

fn find(table: &TableName, locate: &RegionTarget, rows: &[(&Row, Option<MetaRow>)]) -> Lookup {
    let mut parent = None;
    for (raw, row) in rows {
        let Some(row) = row else {
            let why = format!("damaged meta row {}", raw.key().escape_ascii());
            return Lookup::InTransition(why, None);
        };
        if row.region.table() != table {
            break;
        }
        // The row of a split parent is just before the rows of its daughters, which may not exist
        // yet.
        if row.region.is_split_parent() {
            parent.get_or_insert(&row.region);
            continue;
        }
        if !locate.is_met_by(&row.region) {
            return match parent {
                Some(parent) => splitting(parent),
                None => Lookup::InTransition(format!("no region where {} ends", row.region), None),
            };
        }
        return match (row.location(), &row.state) {
            (Some(location), _) => Lookup::Found(location),
            (None, state) => {
                let why = match state {
                    Some(state) => format!("{} is {state}", row.region),
                    None => format!("{} has no server", row.region),
                };
                Lookup::InTransition(why, Some(row.region.clone()))
            }
        };
    }
    match parent {
        Some(parent) => splitting(parent),
        None => Lookup::NoTable,
    }
}

fn splitting(parent: &Region) -> Lookup {
    Lookup::InTransition(format!("{parent} is splitting"), Some(parent.clone()))
}

#[cfg(test)]
mod tests {
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
    fn check(locate: &RegionTarget, rows: &[Row], expected: &str) {
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

    fn holding(row: &str) -> RegionTarget {
        RegionTarget::Holding(row.to_owned().into())
    }

    #[test]
    fn stored_values_are_decoded() {
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
    fn first_row_has_the_region() {
        let rows = [row(&info("b", "d"), "s:1", "OPEN"), row(&info("", "b"), "s:2", "OPEN")];
        check(&holding("c"), &rows, "b@s,1,7");
        let (_, others) = read_lookup(&table(), &holding("c"), &rows);
        assert_eq!(others.len(), 2);
        assert_eq!(others[0].seq_num, 9);
        check(&RegionTarget::Before("d".into()), &rows, "b@s,1,7");
        check(
            &RegionTarget::Before(Bytes::new()),
            &[row(&info("b", ""), "s:1", "OPEN")],
            "b@s,1,7",
        );
    }

    #[test]
    fn no_row_or_a_row_of_another_table_means_no_table() {
        check(&holding("c"), &[], "no table");
        let other =
            Region::new("other".parse().unwrap(), Bytes::new(), Bytes::new(), ID).to_message();
        check(&holding("c"), &[row(&other, "s:1", "OPEN")], "no table");
    }

    #[test]
    fn split_parent_is_skipped() {
        let rows = [row(&info("c", "d"), "s:1", "OPEN"), row(&parent("b", "d"), "s:2", "CLOSED")];
        check(&holding("c"), &rows, "c@s,1,7");
        // Without daughters: only the parent and the region before it.
        let early = [row(&parent("b", "d"), "s:2", "SPLIT"), row(&info("", "b"), "s:1", "OPEN")];
        check(&holding("c"), &early, "later: tsdb,b,1700000000000.");
        check(&holding("c"), &early[..1], "later: tsdb,b,1700000000000.");
    }

    #[test]
    fn region_that_is_not_open_is_not_cached() {
        for state in ["OPENING", "CLOSED", "CLOSING"] {
            let rows = [row(&info("b", "d"), "s:1", state)];
            check(&holding("c"), &rows, "later: tsdb,b,1700000000000.");
            assert!(read_lookup(&table(), &holding("c"), &rows).1.is_empty());
        }
        check(&holding("c"), &[row(&info("b", "d"), "", "OPEN")], "later: ");
    }

    #[test]
    fn gap_between_regions_is_in_transition() {
        check(
            &holding("x"),
            &[row(&info("b", "d"), "s:1", "OPEN")],
            "later: no region where tsdb,b,",
        );
    }

    #[test]
    fn damaged_row_is_in_transition() {
        for columns in [
            &[("server", &b"s:1"[..])][..],
            &[("regioninfo", b"junk")],
            &[("regioninfo", b"PBUF\xff")],
        ] {
            check(
                &holding("c"),
                &[raw(b"tsdb,b,1.", columns)],
                "later: damaged meta row tsdb,b,1.",
            );
        }
    }
}
