//! The master's namespaces and their RPCs.

use std::collections::BTreeMap;

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use prost::Message;

use super::{
    call::RpcException,
    master::{decode, start_procedure},
    state::ClusterState,
};

/// Namespaces by name.
#[derive(Debug)]
pub(crate) struct Namespaces(BTreeMap<String, pb::NamespaceDescriptor>);

impl Default for Namespaces {
    fn default() -> Self {
        let namespace = |name: &'static str| {
            let descriptor =
                pb::NamespaceDescriptor { name: name.into(), configuration: Vec::new() };
            (name.to_owned(), descriptor)
        };
        Self(["default", "hbase"].map(namespace).into())
    }
}

impl Namespaces {
    fn create(
        &mut self,
        descriptor: pb::NamespaceDescriptor,
        repeated: bool,
    ) -> Result<(), RpcException> {
        let name = String::from_utf8_lossy(&descriptor.name).into_owned();
        if self.0.contains_key(&name) && !repeated {
            return Err(("NamespaceExistException", name));
        }
        self.0.insert(name, descriptor);
        Ok(())
    }

    pub(crate) fn get(&self, name: &str) -> Result<&pb::NamespaceDescriptor, RpcException> {
        self.0.get(name).ok_or_else(|| ("NamespaceNotFoundException", name.to_owned()))
    }

    fn all(&self) -> Vec<pb::NamespaceDescriptor> {
        self.0.values().cloned().collect()
    }
}

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
            let id = start_procedure(state, request.nonce, None);
            pb::CreateNamespaceResponse { proc_id: Some(id) }.encode_to_vec()
        }
        "DeleteNamespace" => {
            let request: pb::DeleteNamespaceRequest = decode(message);
            delete(state, &request.namespace_name)?;
            let id = start_procedure(state, request.nonce, None);
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
    state.namespaces.0.remove(name);
    Ok(())
}
