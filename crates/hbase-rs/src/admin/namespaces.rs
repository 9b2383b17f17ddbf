//! Namespaces: what tables of one purpose are called by.
//!
//! A table outside the default namespace is named `namespace:table`, and everything else is the same.
//! HBase's own tables are in `hbase`.

use std::collections::BTreeMap;

use hbase_rs_protobuf as pb;

use super::Admin;
use crate::{
    error::OperationError, exception::ExceptionClass, random::nonce, table_name::TableName,
};

/// A namespace.
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

    /// Sets a property by HBase's name for it, like `hbase.namespace.quota.maxtables`.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A property, if it is set.
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
    /// Makes a namespace.
    ///
    /// # Errors
    ///
    /// When it exists, its name is none, or it is not made in time.
    pub async fn create_namespace(
        &self,
        namespace: &NamespaceDescriptor,
    ) -> Result<(), OperationError> {
        let mut attempts = self.attempts("create namespace");
        let request = pb::CreateNamespaceRequest {
            namespace_descriptor: namespace.to_message(),
            nonce_group: Some(self.client.nonce_group()),
            nonce: Some(nonce()),
        };
        let started: pb::CreateNamespaceResponse =
            self.call("CreateNamespace", &request, &mut attempts).await?;
        self.finish(started.proc_id, &mut attempts).await
    }

    /// Removes a namespace, which must have no tables.
    ///
    /// # Errors
    ///
    /// When it is not there, has tables, or is not removed in time.
    pub async fn delete_namespace(&self, name: &str) -> Result<(), OperationError> {
        let mut attempts = self.attempts("delete namespace");
        let request = pb::DeleteNamespaceRequest {
            namespace_name: name.to_owned(),
            nonce_group: Some(self.client.nonce_group()),
            nonce: Some(nonce()),
        };
        let started: pb::DeleteNamespaceResponse =
            self.call("DeleteNamespace", &request, &mut attempts).await?;
        self.finish(started.proc_id, &mut attempts).await
    }

    /// All namespaces, HBase's own among them.
    ///
    /// # Errors
    ///
    /// When the master does not tell in time.
    pub async fn namespaces(&self) -> Result<Vec<NamespaceDescriptor>, OperationError> {
        let mut attempts = self.attempts("list namespaces").reading();
        // Every release knows this one; the one that lists names alone came with 2.4.
        let request = pb::ListNamespaceDescriptorsRequest {};
        let answer: pb::ListNamespaceDescriptorsResponse =
            self.call("ListNamespaceDescriptors", &request, &mut attempts).await?;
        let descriptors = answer.namespace_descriptor.into_iter();
        Ok(descriptors.map(NamespaceDescriptor::from_message).collect())
    }

    /// Description of a namespace; `None` if there is no such.
    ///
    /// # Errors
    ///
    /// When the master does not tell in time.
    pub async fn describe_namespace(
        &self,
        name: &str,
    ) -> Result<Option<NamespaceDescriptor>, OperationError> {
        let mut attempts = self.attempts("describe namespace").reading();
        let request = pb::GetNamespaceDescriptorRequest { namespace_name: name.to_owned() };
        let answer = self
            .call::<_, pb::GetNamespaceDescriptorResponse>(
                "GetNamespaceDescriptor",
                &request,
                &mut attempts,
            )
            .await;
        match answer {
            Ok(answer) => Ok(Some(NamespaceDescriptor::from_message(answer.namespace_descriptor))),
            Err(error) if error.class() == Some(ExceptionClass::NamespaceNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Tables of a namespace.
    ///
    /// # Errors
    ///
    /// When the master does not tell in time.
    pub async fn tables_in(&self, namespace: &str) -> Result<Vec<TableName>, OperationError> {
        let mut attempts = self.attempts("list tables").reading();
        let request = pb::GetTableNamesRequest {
            include_sys_tables: Some(true),
            namespace: Some(namespace.to_owned()),
            ..pb::GetTableNamesRequest::default()
        };
        let answer: pb::GetTableNamesResponse =
            self.call("GetTableNames", &request, &mut attempts).await?;
        let names = answer.table_names.iter();
        Ok(names.filter_map(|name| TableName::from_message(name).ok()).collect())
    }
}
