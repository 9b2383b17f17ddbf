//! Region scanners: open, next, renew and close.

use std::cmp::Ordering;

use bytes::{Bytes, BytesMut};
use hbase_rs::{Cell, CellKind, protocol::compare_meta_rows};
use hbase_rs_protobuf as pb;
use prost::Message;

use super::{
    call_result::CallResult,
    cell_selector::CellSelector,
    meta,
    state::{ClusterState, Columns, FakeScanner, HistoryCell, StoredRow},
};
use crate::fault::FaultKind;

pub(crate) fn scan(
    state: &mut ClusterState,
    server: usize,
    request: &pb::ScanRequest,
    fault: Option<&FaultKind>,
) -> CallResult {
    let (id, opened) = match &request.scan {
        Some(scan) => (open(state, server, request, scan)?, true),
        None => (request.scanner_id(), false),
    };
    if request.close_scanner() && !opened {
        state.scanners.remove(&id);
        return Ok(without_cells(&pb::ScanResponse {
            scanner_id: Some(id),
            ..pb::ScanResponse::default()
        }));
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
        return Ok(without_cells(&pb::ScanResponse {
            scanner_id: Some(id),
            ..pb::ScanResponse::default()
        }));
    }
    let mut response = pb::ScanResponse {
        scanner_id: Some(id),
        ttl: opened.then_some(8_000),
        more_results: Some(true),
        more_results_in_region: Some(true),
        ..pb::ScanResponse::default()
    };
    let skips_deleted_rows = scanner.heartbeats > 0;
    scanner.heartbeats = scanner.heartbeats.saturating_sub(1);
    let is_heartbeat = matches!(fault, Some(FaultKind::Heartbeat | FaultKind::HeartbeatAt(_)));
    if skips_deleted_rows || is_heartbeat {
        response.heartbeat_message = Some(true);
        if let Some(FaultKind::HeartbeatAt(row)) = fault
            && scanner.scan.need_cursor_result()
        {
            response.cursor = Some(pb::Cursor { row: Some(Bytes::from_static(row.as_bytes())) });
        }
        return Ok(without_cells(&response));
    }
    let mut block = BytesMut::new();
    fill(state, id, request, &mut response, &mut block);
    if response.more_results == Some(false) || response.more_results_in_region == Some(false) {
        state.scanners.remove(&id);
    }
    if matches!(fault, Some(FaultKind::WrongCellCount)) {
        response.cells_per_result.push(1);
    }
    Ok((response.encode_to_vec(), block.freeze()))
}

fn without_cells(response: &pb::ScanResponse) -> (Vec<u8>, Bytes) {
    (response.encode_to_vec(), Bytes::new())
}

fn open(
    state: &mut ClusterState,
    server: usize,
    request: &pb::ScanRequest,
    scan: &pb::Scan,
) -> Result<u64, (&'static str, String)> {
    let region = request.region.clone().unwrap().value;
    let of_meta = region == meta::REGION;
    if !of_meta {
        state.served_region(server, &region)?;
    } else if server != state.meta_server {
        return Err(("NotServingRegionException", "hbase:meta is not online".to_owned()));
    }
    if !of_meta {
        state.scan_starts.push(scan.start_row.clone().unwrap_or_default());
    }
    // Scanner ids use all 64 bits.
    let id = u64::MAX - state.tick();
    let heartbeats = if of_meta { state.meta_heartbeats } else { 0 };
    let scan = scan.clone();
    let scanner = FakeScanner { server, region, scan, next_call: 0, at: None, heartbeats };
    state.scanners.insert(id, scanner);
    Ok(id)
}

/// Fills a response up to its limits. The last row may be partial.
fn fill(
    state: &mut ClusterState,
    id: u64,
    request: &pb::ScanRequest,
    response: &mut pb::ScanResponse,
    block: &mut BytesMut,
) {
    let max_rows = if state.rows_per_response == 0 { usize::MAX } else { state.rows_per_response };
    let mut cells_left =
        if state.cells_per_response == 0 { usize::MAX } else { state.cells_per_response };
    let mut limit = request.limit_of_rows.map_or(usize::MAX, |limit| limit as usize);
    let rows = remaining_rows(state, id);
    let scanner = state.scanners.get_mut(&id).unwrap();
    let resume_at = scanner.at.take();
    let mut results = 0;
    for (at, (row, columns)) in rows.iter().enumerate() {
        let mut sent =
            resume_at.as_ref().filter(|(key, _)| key == row).map_or(0, |(_, sent)| *sent);
        while sent < columns.len() {
            if results == max_rows || cells_left == 0 {
                scanner.at = Some((row.clone(), sent));
                return;
            }
            let batch = scanner.scan.batch_size.map_or(usize::MAX, |batch| batch as usize);
            let take = (columns.len() - sent).min(cells_left).min(batch);
            for (family, qualifier, timestamp, kind, value) in &columns[sent..sent + take] {
                let (timestamp, kind) = (*timestamp, *kind);
                Cell { row, family, qualifier, timestamp, kind, value }.encode(block).unwrap();
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

/// Returns the region's rows that the scanner has not sent, in scan order.
fn remaining_rows(state: &ClusterState, id: u64) -> Vec<StoredRow> {
    let scanner = &state.scanners[&id];
    let scan = &scanner.scan;
    let of_meta = scanner.region == meta::REGION;
    let mut rows = if of_meta { meta::rows(state, scan) } else { selected_rows(state, scanner) };
    if scan.reversed() {
        rows.reverse();
    }
    let compare = |a: &[u8], b: &[u8]| {
        let order = if of_meta { compare_meta_rows(a, b) } else { a.cmp(b) };
        if scan.reversed() { order.reverse() } else { order }
    };
    let in_range = |row: &[u8]| {
        let (start, stop) = (scan.start_row(), scan.stop_row());
        let after_start = start.is_empty()
            || match compare(start, row) {
                Ordering::Less => true,
                Ordering::Equal => scan.include_start_row(),
                Ordering::Greater => false,
            };
        let after_stop = !stop.is_empty()
            && match compare(stop, row) {
                Ordering::Less => true,
                Ordering::Equal => !scan.include_stop_row(),
                Ordering::Greater => false,
            };
        let not_sent = scanner.at.as_ref().is_none_or(|(at, _)| compare(row, at).is_ge());
        after_start && !after_stop && not_sent
    };
    rows.retain(|(row, _)| in_range(row));
    rows
}

/// Returns the rows of the scanner's region with the selected cells.
fn selected_rows(state: &ClusterState, scanner: &FakeScanner) -> Vec<StoredRow> {
    let region = state.regions.iter().find(|one| *one.region.name() == scanner.region).unwrap();
    let selector = CellSelector::of_scan(&scanner.scan);
    let in_region = |table, row| table == region.region.table() && region.region.contains(row);
    if scanner.scan.attribute.iter().any(|attribute| attribute.name == "_raw_") {
        let rows = state.history.iter().filter(|((table, row), _)| in_region(table, row));
        return rows
            .map(|((_, row), cells)| (row.clone(), raw_columns(cells, &selector)))
            .collect();
    }
    state
        .rows
        .iter()
        .filter(|((table, row), _)| in_region(table, row))
        .map(|((_, row), columns)| {
            let columns = columns
                .iter()
                .filter(|((family, qualifier), (time, value))| {
                    selector.matches(row, (family, qualifier), *time, value)
                })
                .map(|((family, qualifier), (time, value))| {
                    (family.clone(), qualifier.clone(), *time, CellKind::Put, value.clone())
                });
            (row.clone(), columns.collect())
        })
        .filter(|(_, columns): &StoredRow| !columns.is_empty())
        .collect()
}

/// All versions of the selected columns and their delete markers, in HBase's order.
fn raw_columns(cells: &[HistoryCell], selector: &CellSelector) -> Columns {
    let is_selected = |cell: &&HistoryCell| {
        let (family, qualifier) = &cell.column;
        selector.matches(b"", (family, qualifier), cell.timestamp, &cell.value)
    };
    let mut selected: Vec<_> = cells.iter().filter(is_selected).collect();
    selected.sort_by(|a, b| {
        let order = a.column.cmp(&b.column).then(b.timestamp.cmp(&a.timestamp));
        order.then((b.kind as u8).cmp(&(a.kind as u8)))
    });
    let column = |cell: &HistoryCell| {
        let (family, qualifier) = cell.column.clone();
        (family, qualifier, cell.timestamp, cell.kind, cell.value.clone())
    };
    selected.into_iter().map(column).collect()
}
