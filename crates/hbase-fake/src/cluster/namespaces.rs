//! The namespaces of a cluster.

use std::collections::BTreeMap;

use hbase_rs_protobuf as pb;

use super::call_result::RpcException;

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
    pub(crate) fn create(
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

    pub(crate) fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    pub(crate) fn all(&self) -> Vec<pb::NamespaceDescriptor> {
        self.0.values().cloned().collect()
    }
}
