//! hbase:meta, made up from what the cluster knows.

use bytes::{Bytes, BytesMut};
use hbase_rs::{Cell, CellKind, protocol::compare_meta_rows};
use hbase_rs_protobuf as pb;
use prost::Message;

use super::{
    call::Answered,
    fault::Misdeed,
    state::{FakeRegion, State},
};

/// Scans that are over with their first answer.
pub(crate) fn scan(
    state: &State,
    server: usize,
    request: &pb::ScanRequest,
    misdeed: Option<&Misdeed>,
) -> Answered {
    if server != state.meta_server {
        return Err(("NotServingRegionException", "hbase:meta is not online".to_owned()));
    }
    if matches!(misdeed, Some(Misdeed::Heartbeat)) {
        let response =
            pb::ScanResponse { heartbeat_message: Some(true), ..pb::ScanResponse::default() };
        return Ok((response.encode_to_vec(), Bytes::new()));
    }
    let asked = request.scan.clone().unwrap();
    let (start, stop) = (asked.start_row(), asked.stop_row());
    let mut regions: Vec<_> = state.regions.iter().collect();
    regions.sort_by(|a, b| compare_meta_rows(a.region.name(), b.region.name()));
    if asked.reversed() {
        regions.reverse();
    }
    let wanted = |one: &&FakeRegion| {
        let (mut from, mut to) = (
            compare_meta_rows(one.region.name(), start),
            compare_meta_rows(one.region.name(), stop),
        );
        if asked.reversed() {
            (from, to) = (from.reverse(), to.reverse());
        }
        let begun = from.is_gt() || from.is_eq() && asked.include_start_row();
        begun && (to.is_lt() || to.is_eq() && asked.include_stop_row())
    };
    let of_state = asked.column.first().is_some_and(|column| column.family == "table");
    let mut block = BytesMut::new();
    let mut response =
        pb::ScanResponse { more_results_in_region: Some(false), ..pb::ScanResponse::default() };
    if of_state {
        let disabled = state
            .regions
            .iter()
            .any(|one| one.region.table().as_bytes() == start && one.state == "CLOSED");
        let value = [8, u8::from(disabled)];
        cell(start, b"table", b"state", &value, &mut block);
        response.cells_per_result.push(1);
    } else {
        for one in regions.into_iter().filter(wanted).take(request.number_of_rows() as usize) {
            response.cells_per_result.push(row(state, one, &mut block));
        }
    }
    Ok((response.encode_to_vec(), block.freeze()))
}

/// One row; returns its cells.
fn row(state: &State, one: &FakeRegion, block: &mut BytesMut) -> u32 {
    let server = &state.servers[one.server];
    let info = [&b"PBUF"[..], &one.region.to_message().encode_to_vec()].concat();
    let address = format!("{}:{}", server.host(), server.port());
    let columns: [(&[u8], &[u8]); 5] = [
        (b"regioninfo", &info),
        (b"seqnumDuringOpen", &one.seq_num.to_be_bytes()),
        (b"server", address.as_bytes()),
        (b"serverstartcode", &server.start_code().to_be_bytes()),
        (b"state", one.state.as_bytes()),
    ];
    for (qualifier, value) in columns {
        cell(one.region.name(), b"info", qualifier, value, block);
    }
    columns.len() as u32
}

fn cell(row: &[u8], family: &[u8], qualifier: &[u8], value: &[u8], block: &mut BytesMut) {
    Cell { row, family, qualifier, timestamp: 1, kind: CellKind::Put, value }
        .encode(block)
        .unwrap();
}
