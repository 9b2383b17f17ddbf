//! Region scanners: open, next, renew and close.

use std::{
    cmp::{Ordering, Reverse},
    ops::Bound,
};

use bytes::{Bytes, BytesMut};
use hbase_rs::{Cell, CellKind, protocol::compare_meta_rows, region::Region};
use hbase_rs_protobuf as pb;
use prost::Message;

use super::{
    call_result::CallResult,
    cell_selector::CellSelector,
    meta,
    state::{ClusterState, Columns, FakeScanner, HistoryCell, ScanPosition, StoredRow},
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
    let position = fill(state, &state.scanners[&id], request, &mut response, &mut block);
    if position.is_none() {
        state.scanners.remove(&id);
    } else if let Some(scanner) = state.scanners.get_mut(&id) {
        scanner.at = position;
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

/// Fills a response up to its limits, and returns the position of the next response. The last row may be
/// partial.
fn fill(
    state: &ClusterState,
    scanner: &FakeScanner,
    request: &pb::ScanRequest,
    response: &mut pb::ScanResponse,
    block: &mut BytesMut,
) -> Option<ScanPosition> {
    let or_none = |limit: usize| if limit == 0 { usize::MAX } else { limit };
    let max_rows = or_none(state.rows_per_response);
    let mut cells_left = or_none(state.cells_per_response);
    let mut limit = request.limit_of_rows.map_or(usize::MAX, |limit| limit as usize);
    let max_bytes = scanner.scan.max_result_size.map_or(usize::MAX, |bytes| bytes as usize);
    let batch = scanner.scan.batch_size.map_or(usize::MAX, |batch| batch as usize);
    let mut results = 0;
    for (row, columns) in remaining_rows(state, scanner) {
        let is_resumed = |(key, _): &&ScanPosition| *key == row;
        let mut sent = scanner.at.as_ref().filter(is_resumed).map_or(0, |(_, sent)| *sent);
        while sent < columns.len() {
            if results == max_rows || cells_left == 0 || block.len() >= max_bytes {
                return Some((row, sent));
            }
            let take = (columns.len() - sent).min(cells_left).min(batch);
            for (family, qualifier, timestamp, kind, value) in &columns[sent..sent + take] {
                let (row, timestamp, kind) = (&row, *timestamp, *kind);
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
            return None;
        }
    }
    response.more_results_in_region = Some(false);
    None
}

type RowIterator<'a, T> = Box<dyn Iterator<Item = T> + 'a>;

/// Returns the region's rows that the scanner has not sent, in scan order. Rows are read lazily, so that the
/// cost of a call depends on its result and not on the size of the table.
fn remaining_rows<'a>(
    state: &'a ClusterState,
    scanner: &'a FakeScanner,
) -> RowIterator<'a, StoredRow> {
    if scanner.region == meta::REGION {
        return Box::new(meta_rows(state, scanner).into_iter());
    }
    let region = state.regions.iter().find(|one| *one.region.name() == scanner.region).unwrap();
    let range = row_range(&region.region, scanner);
    let (table, scan) = (region.region.table(), &scanner.scan);
    let selector = CellSelector::of_scan(scan);
    if scan.attribute.iter().any(|attribute| attribute.name == "_raw_") {
        let rows =
            state.history.get(table).into_iter().flat_map(move |rows| rows.range(range.clone()));
        let rows = in_order(scan, rows);
        return Box::new(
            rows.map(move |(row, cells)| (row.clone(), raw_columns(cells, &selector))),
        );
    }
    let rows = state.rows.get(table).into_iter().flat_map(move |rows| rows.range(range.clone()));
    let rows = in_order(scan, rows).map(move |(row, columns)| {
        let columns = columns
            .iter()
            .filter(|((family, qualifier), (time, value))| {
                selector.matches(row, (family, qualifier), *time, value)
            })
            .map(|((family, qualifier), (time, value))| {
                (family.clone(), qualifier.clone(), *time, CellKind::Put, value.clone())
            });
        (row.clone(), columns.collect())
    });
    Box::new(rows.filter(|(_, columns): &StoredRow| !columns.is_empty()))
}

fn in_order<'a, T: 'a>(
    scan: &pb::Scan,
    rows: impl DoubleEndedIterator<Item = T> + 'a,
) -> RowIterator<'a, T> {
    if scan.reversed() { Box::new(rows.rev()) } else { Box::new(rows) }
}

/// Returns the range of keys from the scanner's position to the end of the scan or of the region.
fn row_range(region: &Region, scanner: &FakeScanner) -> (Bound<Bytes>, Bound<Bytes>) {
    let scan = &scanner.scan;
    let edge = |row: &[u8], is_included| {
        (!row.is_empty()).then(|| (Bytes::copy_from_slice(row), is_included))
    };
    let start = edge(scan.start_row(), scan.include_start_row());
    let stop = edge(scan.stop_row(), scan.include_stop_row());
    let at = scanner.at.as_ref().map(|(row, _)| (row.clone(), true));
    let (low, high) =
        if scan.reversed() { ([stop, None], [start, at]) } else { ([start, at], [stop, None]) };
    let lowest = (region.start_key().clone(), true);
    let low = low.into_iter().flatten().fold(lowest, |a, b| {
        std::cmp::max_by_key(a, b, |(row, is_included)| (row.clone(), Reverse(*is_included)))
    });
    let high = high.into_iter().flatten().chain(edge(region.end_key(), false)).min();
    let bound =
        |(row, is_included)| if is_included { Bound::Included(row) } else { Bound::Excluded(row) };
    match high {
        None => (bound(low), Bound::Unbounded),
        // A range of a map must not be reversed.
        Some(high) if low.0 > high.0 || low.0 == high.0 && !(low.1 && high.1) => {
            (Bound::Included(low.0.clone()), Bound::Excluded(low.0))
        }
        Some(high) => (bound(low), bound(high)),
    }
}

/// Returns the rows of hbase:meta that the scanner has not sent.
fn meta_rows(state: &ClusterState, scanner: &FakeScanner) -> Vec<StoredRow> {
    let scan = &scanner.scan;
    let mut rows = meta::rows(state, scan);
    if scan.reversed() {
        rows.reverse();
    }
    let compare = |a: &[u8], b: &[u8]| {
        let order = compare_meta_rows(a, b);
        if scan.reversed() { order.reverse() } else { order }
    };
    let is_in_range = |row: &[u8]| {
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
    rows.retain(|(row, _)| is_in_range(row));
    rows
}

/// Returns all versions of the selected columns and their delete markers, in HBase's order.
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
