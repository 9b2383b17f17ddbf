//! Administration of namespaces.
//!
//! A table outside the default namespace is named `namespace:table`. HBase's own tables are in `hbase`.

use hbase_rs_protobuf as pb;

use super::Admin;
use crate::error::OperationError;

impl Admin {
    /// Creates a namespace without properties.
    ///
    /// # Errors
    ///
    /// When it exists, its name is invalid, or the procedure timeout passes.
    pub async fn create_namespace(&self, name: &str) -> Result<(), OperationError> {
        let mut attempts = self.attempts("create namespace");
        let (nonce_group, nonce) = self.nonces();
        let namespace_descriptor =
            pb::NamespaceDescriptor { name: name.to_owned().into(), configuration: Vec::new() };
        let request = pb::CreateNamespaceRequest { namespace_descriptor, nonce_group, nonce };
        self.run_procedure("CreateNamespace", &request, &mut attempts).await
    }

    /// Deletes a namespace, which must have no tables.
    ///
    /// # Errors
    ///
    /// When it does not exist, has tables, or the procedure timeout passes.
    pub async fn delete_namespace(&self, name: &str) -> Result<(), OperationError> {
        let mut attempts = self.attempts("delete namespace");
        let (nonce_group, nonce) = self.nonces();
        let namespace_name = name.to_owned();
        let request = pb::DeleteNamespaceRequest { namespace_name, nonce_group, nonce };
        self.run_procedure("DeleteNamespace", &request, &mut attempts).await
    }
}
