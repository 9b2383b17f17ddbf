//! Administration of namespaces.
//!
//! A table outside the default namespace is named `namespace:table`. HBase's own tables are in `hbase`.

use std::collections::BTreeMap;

use hbase_rs_protobuf as pb;

use super::{Admin, status::none_if};
use crate::{exception::ExceptionClass, operation_error::OperationError, table_name::TableName};

/// Descriptor of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceDescriptor {
    name: String,
    properties: BTreeMap<String, String>,
}

impl NamespaceDescriptor {
    /// A namespace without properties.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), properties: BTreeMap::new() }
    }

    /// Sets a property by its HBase name, like `hbase.namespace.quota.maxtables`.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a property if it is set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.properties.get(name).map(String::as_str)
    }

    fn to_message(&self) -> pb::NamespaceDescriptor {
        let pair = |(name, value): (&String, &String)| pb::NameStringPair {
            name: name.clone(),
            value: value.clone(),
        };
        pb::NamespaceDescriptor {
            name: self.name.clone().into(),
            configuration: self.properties.iter().map(pair).collect(),
        }
    }

    fn from_message(message: pb::NamespaceDescriptor) -> Self {
        let pairs = message.configuration.into_iter().map(|pair| (pair.name, pair.value));
        Self {
            name: String::from_utf8_lossy(&message.name).into_owned(),
            properties: pairs.collect(),
        }
    }
}

impl Admin {
    /// Creates a namespace.
    ///
    /// # Errors
    ///
    /// When it exists, its name is invalid, or the procedure timeout passes.
    pub async fn create_namespace(
        &self,
        namespace: &NamespaceDescriptor,
    ) -> Result<(), OperationError> {
        let (nonce_group, nonce) = self.nonces();
        let namespace_descriptor = namespace.to_message();
        let request = pb::CreateNamespaceRequest { namespace_descriptor, nonce_group, nonce };
        self.execute("create namespace", "CreateNamespace", &request).await
    }

    /// Deletes a namespace, which must have no tables.
    ///
    /// # Errors
    ///
    /// When it does not exist, has tables, or the procedure timeout passes.
    pub async fn delete_namespace(&self, name: &str) -> Result<(), OperationError> {
        let (nonce_group, nonce) = self.nonces();
        let request =
            pb::DeleteNamespaceRequest { namespace_name: name.to_owned(), nonce_group, nonce };
        self.execute("delete namespace", "DeleteNamespace", &request).await
    }

    /// Returns all namespaces, including HBase's own.
    ///
    /// # Errors
    ///
    /// When the master does not respond before the procedure timeout.
    pub async fn namespaces(&self) -> Result<Vec<NamespaceDescriptor>, OperationError> {
        // Supported by all releases; `ListNamespaces` requires 2.4.
        let request = pb::ListNamespaceDescriptorsRequest {};
        let response: pb::ListNamespaceDescriptorsResponse =
            self.ask("list namespaces", "ListNamespaceDescriptors", &request).await?;
        let descriptors = response.namespace_descriptor.into_iter();
        Ok(descriptors.map(NamespaceDescriptor::from_message).collect())
    }

    /// Returns the descriptor of a namespace, or `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// When the master does not respond before the procedure timeout.
    pub async fn describe_namespace(
        &self,
        name: &str,
    ) -> Result<Option<NamespaceDescriptor>, OperationError> {
        let request = pb::GetNamespaceDescriptorRequest { namespace_name: name.to_owned() };
        let described: Result<pb::GetNamespaceDescriptorResponse, _> =
            self.ask("describe namespace", "GetNamespaceDescriptor", &request).await;
        let found = none_if(ExceptionClass::NamespaceNotFound, described)?;
        Ok(found.map(|found| NamespaceDescriptor::from_message(found.namespace_descriptor)))
    }

    /// Returns the tables of a namespace.
    ///
    /// # Errors
    ///
    /// When the master does not respond before the procedure timeout.
    pub async fn tables_in(&self, namespace: &str) -> Result<Vec<TableName>, OperationError> {
        self.list_tables(pb::GetTableNamesRequest {
            include_sys_tables: Some(true),
            namespace: Some(namespace.to_owned()),
            ..pb::GetTableNamesRequest::default()
        })
        .await
    }
}
