//! Answers by method: message and every cell.

use bytes::Bytes;
use hbase_rs::{
    Row, RowResult,
    protocol::{ActionOutcome, Answer, CellBlock, RegionOutcome, ScanAnswer, multi_outcomes},
};
use hbase_rs_protobuf as pb;
use prost::Message;

use crate::recording::Exchange;

const LIMIT: usize = 16 << 20;

/// Reads the answer to `method` whole; `request` is the message it answers. Returns its cells.
pub(crate) fn read(
    exchange: &Exchange,
    method: &str,
    request: Option<Bytes>,
    answer: &Answer,
) -> usize {
    let block = answer.block(exchange.compressor, LIMIT).unwrap();
    match method {
        "Get" => {
            let response: pb::GetResponse = exact(exchange, answer);
            result(response.result.as_ref(), block)
        }
        "Mutate" => {
            let response: pb::MutateResponse = exact(exchange, answer);
            result(response.result.as_ref(), block)
        }
        "Scan" => {
            let response: pb::ScanResponse = exact(exchange, answer);
            let flags = response.partial_flag_per_result.len();
            let answer = ScanAnswer::decode(&response, block).unwrap();
            assert!(flags == 0 || flags == answer.results.len(), "{}", exchange.place);
            answer.results.iter().map(|(row, _)| cells(row)).sum()
        }
        "Multi" => {
            let response: pb::MultiResponse = exact(exchange, answer);
            multi(&response, request, block)
        }
        _ => {
            assert!(block.is_empty(), "{}", exchange.place);
            admin(exchange, method, answer);
            0
        }
    }
}

/// The message, which must lack nothing that was sent: encoded again it is as long.
fn exact<M: Message + Default>(exchange: &Exchange, answer: &Answer) -> M {
    let message: M = answer.message().unwrap();
    let whole = answer.encoded_message().len();
    assert_eq!(message.encoded_len(), whole, "{}: fields that are not known", exchange.place);
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
    // An index may be anything that tells the actions of a region apart.
    let room =
        |indices: &mut dyn Iterator<Item = u32>| indices.max().map_or(0, |last| last as usize + 1);
    let results = &response.region_action_result;
    let shape: Vec<_> = match request.map(|request| pb::MultiRequest::decode(request).unwrap()) {
        Some(request) => (request.region_action.iter())
            .map(|region| (room(&mut region.action.iter().map(pb::Action::index)), region.atomic()))
            .collect(),
        // Too large a request to be recorded: regions are as the answer has them.
        None => (results.iter())
            .map(|region| {
                (
                    room(&mut region.result_or_exception.iter().map(pb::ResultOrException::index)),
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

fn admin(exchange: &Exchange, method: &str, answer: &Answer) {
    macro_rules! messages {
        ($($method:literal => $message:ident,)+) => {
            match method {
                $($method => drop(exact::<pb::$message>(exchange, answer)),)+
                other => panic!("no message for answers to {other}"),
            }
        };
    }
    if method == "GetClusterStatus" {
        // Its last fields mean one thing in 2.x and another in 3.0, and are not read.
        let status: pb::GetClusterStatusResponse = answer.message().unwrap();
        assert!(status.encoded_len() <= answer.encoded_message().len());
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
        // Quotas are the operator's business; its answer has no field.
        "SetQuota" => CompactRegionResponse,
    }
}
