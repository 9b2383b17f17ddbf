//! Namespaces, at the master.

use std::collections::BTreeMap;

use hbase_rs_protobuf as pb;

use super::{call::Refusal, state::State};

/// Namespaces by name, with their properties.
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
    ) -> Result<(), Refusal> {
        let name = String::from_utf8_lossy(&descriptor.name).into_owned();
        if self.0.contains_key(&name) && !repeated {
            return Err(("NamespaceExistException", name));
        }
        self.0.insert(name, descriptor);
        Ok(())
    }

    pub(crate) fn get(&self, name: &str) -> Result<&pb::NamespaceDescriptor, Refusal> {
        self.0.get(name).ok_or_else(|| ("NamespaceNotFoundException", name.to_owned()))
    }

    pub(crate) fn all(&self) -> Vec<pb::NamespaceDescriptor> {
        self.0.values().cloned().collect()
    }
}

/// Removes a namespace that has no tables.
pub(crate) fn delete(state: &mut State, name: &str) -> Result<(), Refusal> {
    state.namespaces.get(name)?;
    if state.schemas.keys().any(|table| table.to_message().namespace == name) {
        let text = format!("Only empty namespaces can be removed. Namespace {name} has tables");
        return Err(("constraint.ConstraintException", text));
    }
    state.namespaces.0.remove(name);
    Ok(())
}
