//! Read-only requests to the master: cluster status, tables and their states.

use hbase_rs_protobuf as pb;
use pb::ClusterStatusOption as StatusOption;
use prost::Message;

use super::{Admin, TableDescriptor};
use crate::{
    exception::ExceptionClass,
    operation_error::{Failure, OperationError},
    server_name::ServerName,
    table_name::TableName,
    table_state::TableState,
};

/// Status of the cluster as reported by the master.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterStatus {
    /// HBase version, like `2.6.4-hadoop3`.
    pub version: String,
    /// Cluster id.
    pub cluster_id: String,
    /// The active master.
    pub master: Option<ServerName>,
    /// Standby masters.
    pub backup_masters: Vec<ServerName>,
    /// Live region servers.
    pub servers: Vec<ServerName>,
    /// Dead region servers that have not restarted.
    pub dead_servers: Vec<ServerName>,
    /// True if the balancer is on.
    pub balancer_on: bool,
}

impl Admin {
    /// Returns version, servers and masters.
    ///
    /// # Errors
    ///
    /// When the master does not respond before the procedure timeout.
    pub async fn cluster_status(&self) -> Result<ClusterStatus, OperationError> {
        let options = [
            StatusOption::HbaseVersion,
            StatusOption::ClusterId,
            StatusOption::DeadServers,
            StatusOption::Master,
            StatusOption::BackupMasters,
            StatusOption::BalancerOn,
            StatusOption::ServersName,
        ];
        let request = pb::GetClusterStatusRequest { options: options.map(Into::into).to_vec() };
        let response: pb::GetClusterStatusResponse =
            self.ask("cluster status", "GetClusterStatus", &request).await?;
        let status = response.cluster_status;
        let names = |servers: &[pb::ServerName]| {
            servers.iter().filter_map(ServerName::from_message).collect()
        };
        Ok(ClusterStatus {
            master: status.master.as_ref().and_then(ServerName::from_message),
            backup_masters: names(&status.backup_masters),
            servers: names(&status.servers_name),
            dead_servers: names(&status.dead_servers),
            balancer_on: status.balancer_on(),
            version: status.hbase_version.map(|version| version.version).unwrap_or_default(),
            cluster_id: status.cluster_id.map(|id| id.cluster_id).unwrap_or_default(),
        })
    }

    /// Returns all tables except system tables.
    ///
    /// # Errors
    ///
    /// When the master does not respond before the procedure timeout.
    pub async fn tables(&self) -> Result<Vec<TableName>, OperationError> {
        self.list_tables(pb::GetTableNamesRequest {
            include_sys_tables: Some(false),
            ..pb::GetTableNamesRequest::default()
        })
        .await
    }

    pub(super) async fn list_tables(
        &self,
        request: pb::GetTableNamesRequest,
    ) -> Result<Vec<TableName>, OperationError> {
        let response: pb::GetTableNamesResponse =
            self.ask("list tables", "GetTableNames", &request).await?;
        let names = response.table_names.iter();
        Ok(names.filter_map(|name| TableName::from_message(name).ok()).collect())
    }

    /// Returns the descriptor of a table, or `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// When the master does not respond before the procedure timeout.
    pub async fn describe_table(
        &self,
        table: &TableName,
    ) -> Result<Option<TableDescriptor>, OperationError> {
        let request = pb::GetTableDescriptorsRequest {
            table_names: vec![table.to_message()],
            ..pb::GetTableDescriptorsRequest::default()
        };
        let response: pb::GetTableDescriptorsResponse =
            self.ask("describe table", "GetTableDescriptors", &request).await?;
        let schema = response.table_schema.first();
        Ok(schema.and_then(|schema| TableDescriptor::from_message(schema).ok()))
    }

    /// Returns the state of a table, or `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// When the master does not respond before the procedure timeout.
    pub async fn table_state(
        &self,
        table: &TableName,
    ) -> Result<Option<TableState>, OperationError> {
        let request = pb::GetTableStateRequest { table_name: table.to_message() };
        let found: Result<pb::GetTableStateResponse, _> =
            self.ask("table state", "GetTableState", &request).await;
        let found = none_if(ExceptionClass::TableNotFound, found)?;
        Ok(found.map(|found| TableState::from_message(found.table_state.state())))
    }

    /// Executes an operation that is one call and changes nothing.
    pub(super) async fn ask<M: Message, R: Message + Default>(
        &self,
        operation: &'static str,
        method: &'static str,
        request: &M,
    ) -> Result<R, OperationError> {
        self.call(method, request, &mut self.attempts(operation).reading()).await
    }
}

/// Returns `None` for an exception of this class, which means that the requested object does not
/// exist.
pub(super) fn none_if<R>(
    class: ExceptionClass,
    result: Result<R, OperationError>,
) -> Result<Option<R>, OperationError> {
    match result {
        Err(error) if error.class() == Some(class) => Ok(None),
        result => result.map(Some),
    }
}

impl OperationError {
    /// True if the server does not know the method.
    pub(super) fn is_unknown_method(&self) -> bool {
        match &*self.cause {
            Failure::Call(error) => error.is_unknown_method(),
            _ => false,
        }
    }
}
