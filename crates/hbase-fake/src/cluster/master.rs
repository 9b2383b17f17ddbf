//! RPCs of the master, and the region administration of a region server.

use bytes::Bytes;
use hbase_rs::TableName;
use hbase_rs_protobuf as pb;
use prost::Message;

use super::{
    call_result::{CallResult, RpcException, class_name, decode},
    namespace_calls,
    state::ClusterState,
};

pub(crate) fn handle_call(
    state: &mut ClusterState,
    server: usize,
    method: &str,
    message: Bytes,
) -> CallResult {
    if state.master != Some(server) && method != "CompactRegion" {
        return Err(("ipc.ServerNotRunningYetException", "Server is not running yet".to_owned()));
    }
    let message = match method {
        "CreateTable" => create(state, &decode(message))?.encode_to_vec(),
        "DeleteTable" => delete(state, &decode(message))?.encode_to_vec(),
        "EnableTable" => {
            let request: pb::EnableTableRequest = decode(message);
            state.set_region_states(&existing_table(state, &request.table_name)?, "OPEN");
            let id = state.start_procedure(request.nonce, None);
            pb::EnableTableResponse { proc_id: Some(id) }.encode_to_vec()
        }
        "DisableTable" => {
            let request: pb::DisableTableRequest = decode(message);
            state.set_region_states(&existing_table(state, &request.table_name)?, "CLOSED");
            let id = state.start_procedure(request.nonce, None);
            pb::DisableTableResponse { proc_id: Some(id) }.encode_to_vec()
        }
        "truncateTable" => {
            let request: pb::TruncateTableRequest = decode(message);
            let table = disabled_table(state, &request.table_name)?;
            state.forget_rows(&table);
            state.set_region_states(&table, "OPEN");
            let id = state.start_procedure(request.nonce, None);
            pb::TruncateTableResponse { proc_id: Some(id) }.encode_to_vec()
        }
        "getProcedureResult" => procedure_result(state, decode(message)).encode_to_vec(),
        "SplitRegion" => {
            let request: pb::SplitTableRegionRequest = decode(message);
            let table = existing_table(state, &request.region_info.table_name)?;
            state.split_region(&table, request.split_row());
            let id = state.start_procedure(request.nonce, None);
            pb::SplitTableRegionResponse { proc_id: Some(id) }.encode_to_vec()
        }
        "MergeTableRegions" => merge(state, &decode(message))?.encode_to_vec(),
        "MoveRegion" => {
            let request: pb::MoveRegionRequest = decode(message);
            let (table, row) = find_region(state, &request.region)?;
            let to = request.dest_server_name.and_then(|name| {
                state.servers.iter().position(|server| server.to_message() == name)
            });
            state.move_region(&table, &row, to.unwrap_or(0), false);
            Vec::new()
        }
        "FlushTable" if state.has_flush_table => {
            let request: pb::FlushTableRequest = decode(message);
            existing_table(state, &request.table_name)?;
            pb::FlushTableResponse { proc_id: Some(state.start_procedure(request.nonce, None)) }
                .encode_to_vec()
        }
        "ExecProcedure" | "CompactRegion" => Vec::new(),
        "IsProcedureDone" => pb::IsProcedureDoneResponse { done: Some(true) }.encode_to_vec(),
        "SetBalancerRunning" => {
            pb::SetBalancerRunningResponse { prev_balance_value: Some(true) }.encode_to_vec()
        }
        "GetClusterStatus" => cluster_status(state).encode_to_vec(),
        "GetTableNames" => {
            let request: pb::GetTableNamesRequest = decode(message);
            let names = state.schemas.keys().map(TableName::to_message);
            let in_namespace = |name: &pb::TableName| {
                request.namespace.as_ref().is_none_or(|namespace| name.namespace == *namespace)
            };
            pb::GetTableNamesResponse { table_names: names.filter(in_namespace).collect() }
                .encode_to_vec()
        }
        "GetTableDescriptors" => {
            let request: pb::GetTableDescriptorsRequest = decode(message);
            let requested = |name: &&TableName| request.table_names.contains(&name.to_message());
            let found = state.schemas.iter().filter(|(name, _)| requested(name));
            let table_schema = found.map(|(_, schema)| schema.clone()).collect();
            pb::GetTableDescriptorsResponse { table_schema }.encode_to_vec()
        }
        "GetTableState" => {
            let request: pb::GetTableStateRequest = decode(message);
            let table = existing_table(state, &request.table_name)?;
            let closed =
                state.regions.iter().any(|one| *one.region.table() == table && one.state != "OPEN");
            let table_state = pb::TableState { state: i32::from(closed) };
            pb::GetTableStateResponse { table_state }.encode_to_vec()
        }
        _ if method.contains("Namespace") => namespace_calls::handle_call(state, method, message)?,
        _ => {
            let text = format!(
                "is unable to read call parameter; java.lang.UnsupportedOperationException: {method}"
            );
            return Err(("DoNotRetryIOException", text));
        }
    };
    Ok((message, Bytes::new()))
}

fn procedure_result(
    state: &mut ClusterState,
    request: pb::GetProcedureResultRequest,
) -> pb::GetProcedureResultResponse {
    let Some(procedure) = state.procedures.get_mut(&request.proc_id) else {
        return pb::GetProcedureResultResponse::default();
    };
    if procedure.polls > 0 {
        procedure.polls -= 1;
        return pb::GetProcedureResultResponse {
            state: 1,
            ..pb::GetProcedureResultResponse::default()
        };
    }
    let exception = procedure.failure.as_ref().map(|(class, text)| pb::ForeignExceptionMessage {
        source: Some("master".to_owned()),
        generic_exception: Some(pb::GenericExceptionMessage {
            class_name: Some(class_name(class)),
            message: Some(text.clone()),
            ..pb::GenericExceptionMessage::default()
        }),
    });
    pb::GetProcedureResultResponse {
        state: 2,
        exception,
        ..pb::GetProcedureResultResponse::default()
    }
}

fn create(
    state: &mut ClusterState,
    request: &pb::CreateTableRequest,
) -> Result<pb::CreateTableResponse, RpcException> {
    let name = request.table_schema.table_name.clone().unwrap();
    let table = TableName::from_message(&name).unwrap();
    state.namespaces.get(&String::from_utf8_lossy(&name.namespace))?;
    let repeated = state.procedure_ids.contains_key(&request.nonce());
    if state.schemas.contains_key(&table) && !repeated {
        return Err(("TableExistsException", table.to_string()));
    }
    if request.table_schema.column_families.is_empty() {
        return Err(("exceptions.FailedSanityCheckException", "no family".to_owned()));
    }
    if !repeated {
        let splits: Vec<_> = request.split_keys.iter().map(|key| &key[..]).collect();
        state.create_table(&table, &splits);
        state.schemas.insert(table, request.table_schema.clone());
    }
    Ok(pb::CreateTableResponse { proc_id: Some(state.start_procedure(request.nonce, None)) })
}

fn delete(
    state: &mut ClusterState,
    request: &pb::DeleteTableRequest,
) -> Result<pb::DeleteTableResponse, RpcException> {
    let table = disabled_table(state, &request.table_name)?;
    state.drop_table(&table);
    Ok(pb::DeleteTableResponse { proc_id: Some(state.start_procedure(request.nonce, None)) })
}

/// Merges two regions; the procedure fails unless they are adjacent.
fn merge(
    state: &mut ClusterState,
    request: &pb::MergeTableRegionsRequest,
) -> Result<pb::MergeTableRegionsResponse, RpcException> {
    let (table, left) = find_region(state, &request.region[0])?;
    let (_, right) = find_region(state, &request.region[1])?;
    let (left, right) = if left < right { (left, right) } else { (right, left) };
    let adjacent = state
        .regions
        .iter()
        .any(|one| *one.region.start_key() == left && *one.region.end_key() == right);
    let failure = if adjacent {
        state.merge_region(&table, &left);
        None
    } else {
        Some(("exceptions.MergeRegionException", "not adjacent".to_owned()))
    };
    Ok(pb::MergeTableRegionsResponse {
        proc_id: Some(state.start_procedure(request.nonce, failure)),
    })
}

fn existing_table(state: &ClusterState, name: &pb::TableName) -> Result<TableName, RpcException> {
    let table = TableName::from_message(name).unwrap();
    if state.schemas.contains_key(&table) {
        return Ok(table);
    }
    Err(("TableNotFoundException", table.to_string()))
}

fn disabled_table(state: &ClusterState, name: &pb::TableName) -> Result<TableName, RpcException> {
    let table = existing_table(state, name)?;
    if state.regions.iter().any(|one| *one.region.table() == table && one.state == "OPEN") {
        return Err(("TableNotDisabledException", table.to_string()));
    }
    Ok(table)
}

/// Returns table and start key of a region by its encoded name.
fn find_region(
    state: &ClusterState,
    region: &pb::RegionSpecifier,
) -> Result<(TableName, Bytes), RpcException> {
    let region_state =
        state.regions.iter().find(|one| one.region.encoded_name().as_bytes() == region.value);
    let name = || String::from_utf8_lossy(&region.value).into_owned();
    let one = region_state.ok_or_else(|| ("UnknownRegionException", name()))?;
    Ok((one.region.table().clone(), one.region.start_key().clone()))
}

fn cluster_status(state: &ClusterState) -> pb::GetClusterStatusResponse {
    let servers_name = state.servers.iter().map(hbase_rs::ServerName::to_message).collect();
    pb::GetClusterStatusResponse {
        cluster_status: pb::ClusterStatus {
            hbase_version: Some(pb::HBaseVersionFileContent {
                version: state.version.unwrap_or("2.6.4-fake").to_owned(),
            }),
            cluster_id: Some(pb::ClusterId { cluster_id: "fake".to_owned() }),
            master: state.master.map(|master| state.servers[master].to_message()),
            balancer_on: Some(true),
            servers_name,
            ..pb::ClusterStatus::default()
        },
    }
}
