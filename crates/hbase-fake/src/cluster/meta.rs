//! Rows of hbase:meta, generated from the cluster state.

use bytes::Bytes;
use hbase_rs::{CellKind, protocol::compare_meta_rows};
use hbase_rs_protobuf as pb;
use prost::Message;

use super::state::{ClusterState, Columns, FakeRegion, StoredRow};

/// Name of the region of hbase:meta.
pub(crate) const REGION: &[u8] = b"hbase:meta,,1";

/// Timestamp of all cells.
const TIMESTAMP: u64 = 1;

/// Returns the rows in order: the rows of all regions, or the row with the state of the scanned
/// table if it exists.
pub(crate) fn rows(state: &ClusterState, scan: &pb::Scan) -> Vec<StoredRow> {
    if scan.column.first().is_some_and(|column| column.family == "table") {
        return table(state, scan.start_row()).into_iter().collect();
    }
    let mut regions: Vec<_> = state.regions.iter().collect();
    regions.sort_by(|a, b| compare_meta_rows(a.region.name(), b.region.name()));
    regions.into_iter().map(|one| region(state, one)).collect()
}

fn table(state: &ClusterState, name: &[u8]) -> Option<StoredRow> {
    let set = state.table_states.iter().find(|(table, _)| table.as_bytes() == name);
    let value = if let Some((_, state)) = set {
        [8, *state as u8]
    } else {
        let is_of_table = |one: &&FakeRegion| one.region.table().as_bytes() == name;
        let mut regions = state.regions.iter().filter(is_of_table).peekable();
        regions.peek()?;
        [8, u8::from(regions.any(|one| one.state == "CLOSED"))]
    };
    Some((Bytes::copy_from_slice(name), columns("table", [("state", &value)])))
}

fn region(state: &ClusterState, one: &FakeRegion) -> StoredRow {
    let server = &state.servers[one.server];
    let info = [&b"PBUF"[..], &one.region.to_message().encode_to_vec()].concat();
    let address = format!("{}:{}", server.host(), server.port());
    let columns = columns(
        "info",
        [
            ("regioninfo", &info[..]),
            ("seqnumDuringOpen", &one.seq_num.to_be_bytes()),
            ("server", address.as_bytes()),
            ("serverstartcode", &server.start_code().to_be_bytes()),
            ("state", one.state.as_bytes()),
        ],
    );
    (one.region.name().clone(), columns)
}

fn columns<const N: usize>(family: &'static str, values: [(&'static str, &[u8]); N]) -> Columns {
    let column = |(qualifier, value): (&'static str, &[u8])| {
        (family.into(), qualifier.into(), TIMESTAMP, CellKind::Put, Bytes::copy_from_slice(value))
    };
    values.into_iter().map(column).collect()
}
