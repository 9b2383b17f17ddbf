//! Namespace calls of the master.

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use prost::Message;

use super::{
    call_result::{RpcException, decode},
    state::ClusterState,
};

/// Executes a namespace RPC.
pub(crate) fn handle_call(
    state: &mut ClusterState,
    method: &str,
    message: Bytes,
) -> Result<Vec<u8>, RpcException> {
    Ok(match method {
        "CreateNamespace" => {
            let request: pb::CreateNamespaceRequest = decode(message);
            let repeated = state.procedure_ids.contains_key(&request.nonce());
            state.namespaces.create(request.namespace_descriptor, repeated)?;
            let id = state.start_procedure(request.nonce, None);
            pb::CreateNamespaceResponse { proc_id: Some(id) }.encode_to_vec()
        }
        "DeleteNamespace" => {
            let request: pb::DeleteNamespaceRequest = decode(message);
            delete(state, &request.namespace_name)?;
            let id = state.start_procedure(request.nonce, None);
            pb::DeleteNamespaceResponse { proc_id: Some(id) }.encode_to_vec()
        }
        "GetNamespaceDescriptor" => {
            let request: pb::GetNamespaceDescriptorRequest = decode(message);
            let descriptor = state.namespaces.get(&request.namespace_name)?.clone();
            pb::GetNamespaceDescriptorResponse { namespace_descriptor: descriptor }.encode_to_vec()
        }
        _ => {
            let namespace_descriptor = state.namespaces.all();
            pb::ListNamespaceDescriptorsResponse { namespace_descriptor }.encode_to_vec()
        }
    })
}

/// Removes a namespace that has no tables.
fn delete(state: &mut ClusterState, name: &str) -> Result<(), RpcException> {
    state.namespaces.get(name)?;
    if state.schemas.keys().any(|table| table.to_message().namespace == name) {
        let text = format!("Only empty namespaces can be removed. Namespace {name} has tables");
        return Err(("constraint.ConstraintException", text));
    }
    state.namespaces.remove(name);
    Ok(())
}
