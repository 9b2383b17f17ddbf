//! Decoding of recorded responses by method.

use bytes::Bytes;
use hbase_rs::{
    Row, RowResult,
    protocol::{
        ActionOutcome, CellBlock, RegionOutcome, ResponseBody, ScanResponse, multi_outcomes,
    },
};
use hbase_rs_protobuf as pb;
use prost::Message;

use crate::recording::Exchange;

const LIMIT: usize = 16 << 20;

/// Decodes a whole response to `method`. Returns the number of its cells. `request` is the message of the
/// call.
pub(crate) fn decode(
    exchange: &Exchange,
    method: &str,
    request: Option<Bytes>,
    body: &ResponseBody,
) -> usize {
    let block = body.block(exchange.compressor, LIMIT).unwrap();
    match method {
        "Get" => {
            let response: pb::GetResponse = decode_message(exchange, body);
            result(response.result.as_ref(), block)
        }
        "Mutate" => {
            let response: pb::MutateResponse = decode_message(exchange, body);
            result(response.result.as_ref(), block)
        }
        "Scan" => {
            let response: pb::ScanResponse = decode_message(exchange, body);
            let flags = response.partial_flag_per_result.len();
            let decoded = ScanResponse::decode(&response, block).unwrap();
            assert!(flags == 0 || flags == decoded.results.len(), "{}", exchange.name);
            decoded.results.iter().map(|(row, _)| cells(row)).sum()
        }
        "Multi" => {
            let response: pb::MultiResponse = decode_message(exchange, body);
            multi(&response, request, block)
        }
        _ => {
            assert!(block.is_empty(), "{}", exchange.name);
            decode_admin(exchange, method, body);
            0
        }
    }
}

/// Decodes the message. Its encoding must have the same length, so that no field is unknown.
fn decode_message<M: Message + Default>(exchange: &Exchange, body: &ResponseBody) -> M {
    let message: M = body.message().unwrap();
    let length = body.encoded_message().len();
    assert_eq!(message.encoded_len(), length, "{}: unknown fields", exchange.name);
    message
}

fn result(result: Option<&pb::Result>, block: Bytes) -> usize {
    let mut block = CellBlock::new(block);
    let row = result.map(|result| RowResult::decode(result, &mut block).unwrap().row);
    block.finish().unwrap();
    row.map_or(0, |row| cells(&row))
}

/// Counts a row's cells, which must be sorted.
fn cells(row: &Row) -> usize {
    let columns: Vec<_> =
        row.cells().map(|cell| (cell.family, cell.qualifier, !cell.timestamp)).collect();
    assert!(columns.is_sorted() && columns.len() == row.len());
    columns.len()
}

fn multi(response: &pb::MultiResponse, request: Option<Bytes>, block: Bytes) -> usize {
    // Indices are arbitrary, but unique in a region.
    let count =
        |indices: &mut dyn Iterator<Item = u32>| indices.max().map_or(0, |last| last as usize + 1);
    let results = &response.region_action_result;
    let shape: Vec<_> = match request.map(|request| pb::MultiRequest::decode(request).unwrap()) {
        Some(request) => (request.region_action.iter())
            .map(|region| {
                (count(&mut region.action.iter().map(pb::Action::index)), region.atomic())
            })
            .collect(),
        // The request was too large to be recorded, so the regions come from the response.
        None => (results.iter())
            .map(|region| {
                (
                    count(&mut region.result_or_exception.iter().map(pb::ResultOrException::index)),
                    false,
                )
            })
            .collect(),
    };
    let outcomes = multi_outcomes(&shape, response, block).unwrap();
    let done = outcomes.iter().flat_map(|outcome| match outcome {
        RegionOutcome::Each(actions) => actions.clone(),
        RegionOutcome::Group { result, .. } => vec![ActionOutcome::Done(result.clone())],
        RegionOutcome::Failed(_) => Vec::new(),
    });
    done.map(|action| if let ActionOutcome::Done(result) = action { cells(&result.row) } else { 0 })
        .sum()
}

fn decode_admin(exchange: &Exchange, method: &str, body: &ResponseBody) {
    macro_rules! messages {
        ($($method:literal => $message:ident,)+) => {
            match method {
                $($method => drop(decode_message::<pb::$message>(exchange, body)),)+
                other => panic!("no message for responses to {other}"),
            }
        };
    }
    if method == "GetClusterStatus" {
        // Its last fields differ between 2.x and 3.0 and are not decoded.
        let status: pb::GetClusterStatusResponse = body.message().unwrap();
        assert!(status.encoded_len() <= body.encoded_message().len());
        return;
    }
    messages! {
        "IsMasterRunning" => IsMasterRunningResponse,
        "ListNamespaces" => ListNamespacesResponse,
        "ListNamespaceDescriptors" => ListNamespaceDescriptorsResponse,
        "GetTableNames" => GetTableNamesResponse,
        "GetTableState" => GetTableStateResponse,
        "GetTableDescriptors" => GetTableDescriptorsResponse,
        "CreateTable" => CreateTableResponse,
        "DeleteTable" => DeleteTableResponse,
        "EnableTable" => EnableTableResponse,
        "DisableTable" => DisableTableResponse,
        "truncateTable" => TruncateTableResponse,
        "ModifyColumn" => ModifyColumnResponse,
        "AddColumn" => AddColumnResponse,
        "DeleteColumn" => DeleteColumnResponse,
        "getProcedureResult" => GetProcedureResultResponse,
        "MoveRegion" => MoveRegionResponse,
        "SplitRegion" => SplitTableRegionResponse,
        "MergeTableRegions" => MergeTableRegionsResponse,
        "FlushTable" => FlushTableResponse,
        "ExecProcedure" => ExecProcedureResponse,
        "IsProcedureDone" => IsProcedureDoneResponse,
        "Balance" => BalanceResponse,
        "SetBalancerRunning" => SetBalancerRunningResponse,
        "SetSplitOrMergeEnabled" => SetSplitOrMergeEnabledResponse,
        "CreateNamespace" => CreateNamespaceResponse,
        "DeleteNamespace" => DeleteNamespaceResponse,
        "GetNamespaceDescriptor" => GetNamespaceDescriptorResponse,
        "GetRegionInfo" => GetRegionInfoResponse,
        "GetOnlineRegion" => GetOnlineRegionResponse,
        "FlushRegion" => FlushRegionResponse,
        "CompactRegion" => CompactRegionResponse,
        "GetClusterId" => GetClusterIdResponse,
        "GetActiveMaster" => GetActiveMasterResponse,
        "GetMetaRegionLocations" => GetMetaRegionLocationsResponse,
        "GetBootstrapNodes" => GetBootstrapNodesResponse,
        "GetMasters" => GetMastersResponse,
        "Regist" => GetConnectionRegistryResponse,
        // Not supported by the client; its response has no fields.
        "SetQuota" => CompactRegionResponse,
    }
}
