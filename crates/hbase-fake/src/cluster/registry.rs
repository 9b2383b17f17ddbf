//! Discovery by RPC: the methods of `ClientMetaService`.

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use prost::Message;

use super::{call_result::CallResult, state::ClusterState};

/// True if a connection to this service of the server is accepted.
pub(crate) fn has_service(state: &ClusterState, server: usize, service: &str) -> bool {
    service != "ClientMetaService" || !state.registry.is_old || state.master == Some(server)
}

/// Handles the call if it is one of this service.
pub(crate) fn handle_call(state: &ClusterState, server: usize, method: &str) -> Option<CallResult> {
    let is_empty = state.registry.empty.contains(&server);
    let name = |index: usize| state.servers[index].to_message();
    let message = match method {
        "GetClusterId" => {
            let cluster_id = (!is_empty).then(|| "fake".to_owned());
            pb::GetClusterIdResponse { cluster_id }.encode_to_vec()
        }
        "GetActiveMaster" => {
            let server_name = state.master.filter(|_| !is_empty).map(name);
            pb::GetActiveMasterResponse { server_name }.encode_to_vec()
        }
        "GetMetaRegionLocations" => {
            let location = pb::RegionLocation {
                region_info: pb::RegionInfo {
                    region_id: 1,
                    table_name: pb::TableName {
                        namespace: Bytes::from_static(b"hbase"),
                        qualifier: Bytes::from_static(b"meta"),
                    },
                    ..pb::RegionInfo::default()
                },
                server_name: Some(name(state.meta_server)),
                seq_num: -1,
            };
            let meta_locations = if is_empty { Vec::new() } else { vec![location] };
            pb::GetMetaRegionLocationsResponse { meta_locations }.encode_to_vec()
        }
        "GetBootstrapNodes" if state.registry.is_old => {
            let text = "java.lang.UnsupportedOperationException: GetBootstrapNodes".to_owned();
            return Some(Err(("DoNotRetryIOException", text)));
        }
        "GetBootstrapNodes" => {
            let all = || (0..state.servers.len()).collect();
            let nodes = state.registry.bootstrap_nodes.clone().unwrap_or_else(all);
            let nodes = nodes.into_iter().filter(|_| !is_empty);
            pb::GetBootstrapNodesResponse { server_name: nodes.map(name).collect() }.encode_to_vec()
        }
        "GetMasters" => {
            let masters = state.master.into_iter().filter(|_| !is_empty);
            let entry =
                |index| pb::GetMastersResponseEntry { server_name: name(index), is_active: true };
            pb::GetMastersResponse { master_servers: masters.map(entry).collect() }.encode_to_vec()
        }
        _ => return None,
    };
    Some(Ok((message, Bytes::new())))
}
