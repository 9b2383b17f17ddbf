//! Scanners of regions.

use bytes::{Bytes, BytesMut};
use hbase_rs::{Cell, CellKind};
use hbase_rs_protobuf as pb;
use prost::Message;

use super::{
    call::Answered,
    fault::Misdeed,
    select::Wanted,
    state::{FakeScanner, State},
};

pub(crate) fn scan(
    state: &mut State,
    server: usize,
    request: &pb::ScanRequest,
    misdeed: Option<&Misdeed>,
) -> Answered {
    let (id, opened) = match &request.scan {
        Some(scan) => (open(state, server, request, scan)?, true),
        None => (request.scanner_id(), false),
    };
    if request.close_scanner() && !opened {
        state.scanners.remove(&id);
        return Ok(done(&pb::ScanResponse { scanner_id: Some(id), ..pb::ScanResponse::default() }));
    }
    let Some(scanner) = state.scanners.get_mut(&id).filter(|scanner| scanner.server == server)
    else {
        return Err(("UnknownScannerException", format!("Unknown scanner '{id}'")));
    };
    if !opened {
        if request.next_call_seq != Some(scanner.next_call) {
            return Err(("exceptions.OutOfOrderScannerNextException", "wrong number".to_owned()));
        }
        scanner.next_call += 1;
    }
    if request.renew() {
        return Ok(done(&pb::ScanResponse { scanner_id: Some(id), ..pb::ScanResponse::default() }));
    }
    let mut response = pb::ScanResponse {
        scanner_id: Some(id),
        ttl: opened.then_some(8_000),
        more_results: Some(true),
        more_results_in_region: Some(true),
        ..pb::ScanResponse::default()
    };
    if matches!(misdeed, Some(Misdeed::Heartbeat)) {
        response.heartbeat_message = Some(true);
        return Ok(done(&response));
    }
    let mut block = BytesMut::new();
    fill(state, id, request, &mut response, &mut block);
    if response.more_results == Some(false) || response.more_results_in_region == Some(false) {
        state.scanners.remove(&id);
    }
    if matches!(misdeed, Some(Misdeed::WrongCount)) {
        response.cells_per_result.push(1);
    }
    Ok((response.encode_to_vec(), block.freeze()))
}

fn done(response: &pb::ScanResponse) -> (Vec<u8>, Bytes) {
    (response.encode_to_vec(), Bytes::new())
}

fn open(
    state: &mut State,
    server: usize,
    request: &pb::ScanRequest,
    scan: &pb::Scan,
) -> Result<u64, (&'static str, String)> {
    let region = request.region.clone().unwrap().value;
    state.served(server, &region)?;
    // All 64 bits are used.
    let id = u64::MAX - state.tick();
    let scanner = FakeScanner { server, region, scan: scan.clone(), next_call: 0, at: None };
    state.scanners.insert(id, scanner);
    Ok(id)
}

/// Rows up to the bounds of an answer. The last may be a part of its row.
fn fill(
    state: &mut State,
    id: u64,
    request: &pb::ScanRequest,
    response: &mut pb::ScanResponse,
    block: &mut BytesMut,
) {
    let max_rows = if state.rows_per_answer == 0 { usize::MAX } else { state.rows_per_answer };
    let mut cells_left =
        if state.cells_per_answer == 0 { usize::MAX } else { state.cells_per_answer };
    let mut limit = request.limit_of_rows.map_or(usize::MAX, |limit| limit as usize);
    let rows = left(state, id);
    let scanner = state.scanners.get_mut(&id).unwrap();
    let skipped = scanner.at.take();
    let mut results = 0;
    for (at, (row, columns)) in rows.iter().enumerate() {
        let mut sent = skipped.as_ref().filter(|(key, _)| key == row).map_or(0, |(_, sent)| *sent);
        while sent < columns.len() {
            if results == max_rows || cells_left == 0 {
                scanner.at = Some((row.clone(), sent));
                return;
            }
            let batch = scanner.scan.batch_size.map_or(usize::MAX, |batch| batch as usize);
            let take = (columns.len() - sent).min(cells_left).min(batch);
            for (family, qualifier, timestamp, value) in &columns[sent..sent + take] {
                let cell = Cell {
                    row,
                    family,
                    qualifier,
                    timestamp: *timestamp,
                    kind: CellKind::Put,
                    value,
                };
                cell.encode(block).unwrap();
            }
            sent += take;
            cells_left -= take;
            results += 1;
            response.cells_per_result.push(take as u32);
            response.partial_flag_per_result.push(sent < columns.len());
        }
        limit -= 1;
        if limit == 0 {
            response.more_results = Some(false);
            return;
        }
        if let Some((next, _)) = rows.get(at + 1) {
            scanner.at = Some((next.clone(), 0));
        }
    }
    response.more_results_in_region = Some(false);
}

type Columns = Vec<(Bytes, Bytes, u64, Bytes)>;

/// Rows of the region that the scanner has not sent, in its order.
fn left(state: &State, id: u64) -> Vec<(Bytes, Columns)> {
    let scanner = &state.scanners[&id];
    let scan = &scanner.scan;
    let region = state.regions.iter().find(|one| *one.region.name() == scanner.region).unwrap();
    let before = |a: &[u8], b: &[u8]| if scan.reversed() { a > b } else { a < b };
    let wanted = |row: &[u8]| {
        let (start, stop) = (scan.start_row(), scan.stop_row());
        let begun =
            start.is_empty() || before(start, row) || start == row && scan.include_start_row();
        let ended =
            !stop.is_empty() && (before(stop, row) || stop == row && !scan.include_stop_row());
        let behind = scanner.at.as_ref().is_none_or(|(at, _)| !before(row, at));
        begun && !ended && behind && region.region.contains(row)
    };
    let cells = Wanted::of_scan(scan);
    let mut rows: Vec<(Bytes, Columns)> = state
        .rows
        .iter()
        .filter(|((table, row), _)| table == region.region.table() && wanted(row))
        .map(|((_, row), columns)| {
            let columns = columns
                .iter()
                .filter(|((family, qualifier), (time, value))| {
                    cells.cell(row, (family, qualifier), *time, value)
                })
                .map(|((family, qualifier), (time, value))| {
                    (family.clone(), qualifier.clone(), *time, value.clone())
                });
            (row.clone(), columns.collect())
        })
        .filter(|(_, columns): &(_, Columns)| !columns.is_empty())
        .collect();
    if scan.reversed() {
        rows.reverse();
    }
    rows
}
