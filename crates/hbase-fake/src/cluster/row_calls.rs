//! Get, Mutate and Multi.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use hbase_rs::{Cell, CellKind, SERVER_TIME, TableName, protocol::Cells};
use hbase_rs_protobuf as pb;
use pb::mutation_proto::MutationType;
use prost::Message;

use super::{
    call_result::{CallResult, RpcException, class_name},
    cell_selector::CellSelector,
    state::{ClusterState, ColumnKey, DeleteMarkers, HistoryCell},
};
use crate::fault::FaultKind;

pub(crate) fn get(
    state: &ClusterState,
    server: usize,
    request: &pb::GetRequest,
    fault: Option<&FaultKind>,
) -> CallResult {
    let table = state.served_region(server, &request.region.value)?.table().clone();
    let mut block = BytesMut::new();
    let mut result = read(state, &table, &request.get, &mut block);
    if matches!(fault, Some(FaultKind::WrongCellCount)) {
        result.associated_cell_count = result.associated_cell_count.map(|count| count + 1);
    }
    let response = pb::GetResponse { result: Some(result) };
    Ok((response.encode_to_vec(), block.freeze()))
}

fn read(
    state: &ClusterState,
    table: &TableName,
    get: &pb::Get,
    block: &mut BytesMut,
) -> pb::Result {
    let mut count = 0;
    let selector = CellSelector::of_get(get);
    if let Some(columns) = state.row(table, &get.row) {
        for ((family, qualifier), (timestamp, value)) in columns {
            if !selector.matches(&get.row, (family, qualifier), *timestamp, value) {
                continue;
            }
            if !get.existence_only() {
                let timestamp = *timestamp;
                let cell = Cell {
                    row: &get.row,
                    family,
                    qualifier,
                    timestamp,
                    kind: CellKind::Put,
                    value,
                };
                cell.encode(block).unwrap();
            }
            count += 1;
        }
    }
    if get.existence_only() {
        return pb::Result {
            exists: Some(count > 0),
            associated_cell_count: Some(0),
            ..pb::Result::default()
        };
    }
    pb::Result { associated_cell_count: Some(count), ..pb::Result::default() }
}

pub(crate) fn mutate(
    state: &mut ClusterState,
    server: usize,
    request: &pb::MutateRequest,
    mut block: Bytes,
) -> CallResult {
    let region = state.served_region(server, &request.region.value)?;
    let table = region.table().clone();
    let mutation = &request.mutation;
    check_row(state, server, &request.region.value, mutation.row())?;
    if !request.condition.as_ref().is_none_or(|condition| condition_holds(state, &table, condition))
    {
        let response =
            pb::MutateResponse { processed: Some(false), ..pb::MutateResponse::default() };
        return Ok((response.encode_to_vec(), Bytes::new()));
    }
    if let Some(exception) = increment_error(state, &table, mutation, &block) {
        return Err(exception);
    }
    let mut cells = BytesMut::new();
    let result = apply(state, &table, (mutation, request.nonce_group()), &mut block, &mut cells);
    let response =
        pb::MutateResponse { result: Some(result), processed: Some(true), metrics: None };
    Ok((response.encode_to_vec(), cells.freeze()))
}

fn check_row(
    state: &ClusterState,
    server: usize,
    region: &Bytes,
    row: &[u8],
) -> Result<(), RpcException> {
    if state.served_region(server, region)?.contains(row) {
        return Ok(());
    }
    Err(("exceptions.FailedSanityCheckException", "Requested row out of range".to_owned()))
}

/// True if a check-and-mutate condition is met: a column equals a value or is absent, or a cell passes
/// a filter.
fn condition_holds(state: &ClusterState, table: &TableName, condition: &pb::Condition) -> bool {
    if let Some(filter) = &condition.filter {
        let selector = CellSelector::of_filter(filter);
        let columns = state.row(table, &condition.row);
        return columns.into_iter().flatten().any(|((family, qualifier), (timestamp, value))| {
            selector.matches(&condition.row, (family, qualifier), *timestamp, value)
        });
    }
    let comparator = condition.comparator.clone().unwrap();
    let comparator =
        pb::BinaryComparator::decode(comparator.serialized_comparator.unwrap()).unwrap();
    let expected = comparator.comparable.value.unwrap_or_default();
    let row = state.row(table, &condition.row);
    let column = (condition.family.clone().unwrap(), condition.qualifier.clone().unwrap());
    let is_in_range = |time: u64| {
        condition
            .time_range
            .is_none_or(|range| time >= range.from() && range.to.is_none_or(|to| time < to))
    };
    let stored =
        row.and_then(|columns| columns.get(&column)).filter(|(time, _)| is_in_range(*time));
    stored.map(|(_, value)| value.clone()).unwrap_or_default() == expected
}

/// Returns the exception of an increment of a value that is not eight bytes long.
fn increment_error(
    state: &ClusterState,
    table: &TableName,
    mutation: &pb::MutationProto,
    block: &Bytes,
) -> Option<RpcException> {
    if mutation.mutate_type() != MutationType::Increment {
        return None;
    }
    let columns = state.row(table, mutation.row())?;
    let count = mutation.associated_cell_count() as usize;
    Cells::new(block).take(count).map(Result::unwrap).find_map(|cell| {
        let (_, value) = columns.get(&column_key(&cell))?;
        let text = format!("Field is not a long, it's {} bytes wide", value.len());
        (value.len() != 8).then_some(("DoNotRetryIOException", text))
    })
}

fn column_key(cell: &Cell<'_>) -> ColumnKey {
    (Bytes::copy_from_slice(cell.family), Bytes::copy_from_slice(cell.qualifier))
}

/// Server time in milliseconds since the epoch.
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Applies a mutation and removes its cells from the front of `block`. Nonces make it idempotent.
fn apply(
    state: &mut ClusterState,
    table: &TableName,
    (mutation, nonce_group): (&pb::MutationProto, u64),
    block: &mut Bytes,
    out: &mut BytesMut,
) -> pb::Result {
    let now = state.server_clock.map_or_else(now_ms, |clock| clock().unsigned_abs());
    let now = now.saturating_add_signed(state.clock_ahead_ms);
    let nonce = (nonce_group, mutation.nonce());
    if let Some((count, cells)) = state.nonces.get(&nonce) {
        skip_cells(mutation, block);
        out.extend_from_slice(cells);
        return pb::Result { associated_cell_count: Some(*count), ..pb::Result::default() };
    }
    let begin = out.len();
    let row = mutation.row.clone().unwrap();
    let markers = state.markers.entry(table.clone()).or_default();
    let markers = markers.entry(row.clone()).or_default();
    let history = state.history.entry(table.clone()).or_default().entry(row.clone()).or_default();
    let columns = state.rows.entry(table.clone()).or_default().entry(row).or_default();
    let source = block.clone();
    let mut cells = Cells::new(&source);
    let mut returned = 0;
    for _ in 0..mutation.associated_cell_count() {
        let cell = cells.next().unwrap().unwrap();
        let column = column_key(&cell);
        let mut time = if cell.timestamp == SERVER_TIME { now } else { cell.timestamp };
        let (newest, stored) = columns.get(&column).cloned().unwrap_or_default();
        let is_marker =
            matches!(cell.kind, CellKind::DeleteColumn | CellKind::DeleteFamily | CellKind::Delete);
        if is_marker || mutation.mutate_type() == MutationType::Put {
            let (column, kind) = (column.clone(), cell.kind);
            let value = Bytes::copy_from_slice(cell.value);
            let is_flushed = false;
            history.push(HistoryCell { column, timestamp: time, kind, value, is_flushed });
        }
        let value = match mutation.mutate_type() {
            MutationType::Put => Some(Bytes::copy_from_slice(cell.value)),
            MutationType::Delete => {
                add_marker(markers, &cell, time);
                columns.retain(|column, (timestamp, _)| !markers.hides(column, *timestamp));
                let is_newest = cell.timestamp == SERVER_TIME || time == newest;
                if cell.kind == CellKind::Delete && is_newest {
                    columns.remove(&column);
                }
                continue;
            }
            MutationType::Append => Some([&stored[..], cell.value].concat().into()),
            MutationType::Increment => {
                let number =
                    |bytes: &[u8]| <[u8; 8]>::try_from(bytes).map_or(0, i64::from_be_bytes);
                Some((number(&stored) + number(cell.value)).to_be_bytes().to_vec().into())
            }
        };
        if matches!(mutation.mutate_type(), MutationType::Append | MutationType::Increment) {
            let value = value.as_deref().unwrap_or_default();
            time = time.max(newest);
            Cell { timestamp: time, value, ..cell }.encode(out).unwrap();
            returned += 1;
        }
        let visible = time >= newest && !markers.hides(&column, time);
        if let Some(value) = value.filter(|_| visible) {
            columns.insert(column, (time, value));
        }
    }
    // A delete without cells deletes the row.
    if mutation.mutate_type() == MutationType::Delete && mutation.associated_cell_count() == 0 {
        let timestamp = mutation.timestamp.unwrap_or(now);
        markers.row = markers.row.max(Some(timestamp));
        let (column, kind) = ((Bytes::from_static(b"t"), Bytes::new()), CellKind::DeleteFamily);
        let value = Bytes::new();
        history.push(HistoryCell { column, timestamp, kind, value, is_flushed: false });
        columns.retain(|column, (timestamp, _)| !markers.hides(column, *timestamp));
    }
    *block = source.slice(source.len() - cells.rest().len()..);
    if mutation.nonce() != 0 {
        state.nonces.insert(nonce, (returned, Bytes::copy_from_slice(&out[begin..])));
    }
    pb::Result {
        associated_cell_count: (returned > 0).then_some(returned),
        ..pb::Result::default()
    }
}

/// Stores the delete marker of a cell. Markers of single versions hide no later put.
fn add_marker(markers: &mut DeleteMarkers, cell: &Cell<'_>, until: u64) {
    let marker = match cell.kind {
        CellKind::DeleteColumn => markers.columns.entry(column_key(cell)).or_default(),
        CellKind::DeleteFamily => {
            markers.families.entry(Bytes::copy_from_slice(cell.family)).or_default()
        }
        _ => return,
    };
    *marker = until.max(*marker);
}

pub(crate) fn multi(
    state: &mut ClusterState,
    server: usize,
    request: &pb::MultiRequest,
    block: Bytes,
    fault: Option<&FaultKind>,
) -> (Vec<u8>, Bytes) {
    let (nonce_group, cells) = (request.nonce_group(), BytesMut::new());
    let mut call = MultiCall { state, server, nonce_group, block, cells, fault };
    let mut response = pb::MultiResponse::default();
    for action in &request.region_action {
        response.region_action_result.push(call.execute(action));
    }
    response.region_statistics = call.state.memstores.statistics(request);
    (response.encode_to_vec(), call.cells.freeze())
}

/// A `Multi` call while its actions are executed.
struct MultiCall<'a> {
    state: &'a mut ClusterState,
    server: usize,
    nonce_group: u64,
    /// Cells of the request that are not read yet.
    block: Bytes,
    /// Cells of the response.
    cells: BytesMut,
    fault: Option<&'a FaultKind>,
}

impl MultiCall<'_> {
    fn execute(&mut self, region_action: &pb::RegionAction) -> pb::RegionActionResult {
        let Self { server, nonce_group, fault, .. } = *self;
        let Self { state, block, cells, .. } = self;
        let mutations =
            || region_action.action.iter().filter_map(|action| action.mutation.as_ref());
        let exception = match fault {
            Some(FaultKind::RegionException { class, text }) => Some((*class, (*text).to_owned())),
            _ => state.served_region(server, &region_action.region.value).err(),
        };
        let exception = exception.or_else(|| {
            let region = state.served_region(server, &region_action.region.value).ok()?;
            let table = region.table().clone();
            state.quotas.take(&table, mutations().count()).err()
        });
        let exception = exception.or_else(|| {
            let bytes = mutations().fold((block.clone(), 0), |(mut rest, bytes), mutation| {
                let before = rest.len();
                skip_cells(mutation, &mut rest);
                let after = rest.len();
                (rest, bytes + before - after)
            });
            state.memstores.add(&region_action.region.value, bytes.1).err()
        });
        let mut result = pb::RegionActionResult::default();
        if let Some((class, text)) = exception {
            // Skips the cells of mutations that are not executed.
            for mutation in mutations() {
                skip_cells(mutation, block);
            }
            result.exception = Some(encode_exception(class, &text));
            return result;
        }
        let table =
            state.served_region(server, &region_action.region.value).unwrap().table().clone();
        if region_action.atomic() {
            let reads_conditions = state.version.is_none_or(|version| version >= "2.4");
            let condition = region_action.condition.as_ref().filter(|_| reads_conditions);
            let processed =
                condition.is_none_or(|condition| condition_holds(state, &table, condition));
            for mutation in
                region_action.action.iter().filter_map(|action| action.mutation.as_ref())
            {
                if processed {
                    let mutation = (mutation, nonce_group);
                    apply(state, &table, mutation, block, &mut BytesMut::new());
                }
                result.result_or_exception.push(pb::ResultOrException::default());
            }
            result.processed = reads_conditions.then_some(processed);
            return result;
        }
        for (at, action) in region_action.action.iter().enumerate() {
            let mut entry =
                pb::ResultOrException { index: action.index, ..pb::ResultOrException::default() };
            match (fault, &action.mutation, &action.get) {
                (Some(FaultKind::ActionException { class, text }), mutation, _) if at == 0 => {
                    if let Some(mutation) = mutation {
                        skip_cells(mutation, block);
                    }
                    entry.exception = Some(encode_exception(class, text));
                }
                (_, Some(mutation), _)
                    if increment_error(state, &table, mutation, block).is_some() =>
                {
                    skip_cells(mutation, block);
                    entry.exception =
                        Some(encode_exception("DoNotRetryIOException", "Field is not a long"));
                }
                (_, Some(mutation), _) => {
                    entry.result =
                        Some(apply(state, &table, (mutation, nonce_group), block, cells));
                }
                (_, None, Some(get)) => entry.result = Some(read(state, &table, get, cells)),
                (_, None, None) => {}
            }
            result.result_or_exception.push(entry);
        }
        if matches!(fault, Some(FaultKind::OmitActionResult)) {
            result.result_or_exception.pop();
        }
        result
    }
}

fn skip_cells(mutation: &pb::MutationProto, block: &mut Bytes) {
    let source = block.clone();
    let mut cells = Cells::new(&source);
    for _ in 0..mutation.associated_cell_count() {
        cells.next().unwrap().unwrap();
    }
    *block = source.slice(source.len() - cells.rest().len()..);
}

fn encode_exception(class: &str, text: &str) -> pb::NameBytesPair {
    let name = class_name(class);
    let value = format!("{name}: {text}\n\tat fake");
    pb::NameBytesPair { name, value: Some(value.into()) }
}
