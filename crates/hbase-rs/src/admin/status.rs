//! Questions to the master.

use hbase_rs_protobuf as pb;
use pb::ClusterStatusOption as Ask;

use super::{Admin, TableDescriptor, TableState};
use crate::{
    error::{Failure, OperationError},
    exception::ExceptionClass,
    server_name::ServerName,
    table_name::TableName,
};

/// What the master says of its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterStatus {
    /// Release, like `2.6.4-hadoop3`.
    pub version: String,
    /// Id of the cluster.
    pub cluster_id: String,
    /// The active master.
    pub master: Option<ServerName>,
    /// Masters that stand by.
    pub backup_masters: Vec<ServerName>,
    /// Region servers that serve.
    pub servers: Vec<ServerName>,
    /// Region servers that died and were not yet seen again.
    pub dead_servers: Vec<ServerName>,
    /// Whether regions are moved by the master itself.
    pub balancer_on: bool,
}

impl Admin {
    /// Release, servers, masters.
    ///
    /// # Errors
    ///
    /// When the master does not tell in time.
    pub async fn cluster_status(&self) -> Result<ClusterStatus, OperationError> {
        let mut attempts = self.attempts("cluster status").reading();
        let options = [
            Ask::HbaseVersion,
            Ask::ClusterId,
            Ask::DeadServers,
            Ask::Master,
            Ask::BackupMasters,
            Ask::BalancerOn,
            Ask::ServersName,
        ];
        let request = pb::GetClusterStatusRequest { options: options.map(Into::into).to_vec() };
        let answer: pb::GetClusterStatusResponse =
            self.call("GetClusterStatus", &request, &mut attempts).await?;
        let status = answer.cluster_status;
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

    /// Tables of users.
    ///
    /// # Errors
    ///
    /// When the master does not tell in time.
    pub async fn tables(&self) -> Result<Vec<TableName>, OperationError> {
        let mut attempts = self.attempts("list tables").reading();
        let request = pb::GetTableNamesRequest {
            include_sys_tables: Some(false),
            ..pb::GetTableNamesRequest::default()
        };
        let answer: pb::GetTableNamesResponse =
            self.call("GetTableNames", &request, &mut attempts).await?;
        Ok(answer
            .table_names
            .iter()
            .filter_map(|name| TableName::from_message(name).ok())
            .collect())
    }

    /// Description of a table; `None` if there is no such.
    ///
    /// # Errors
    ///
    /// When the master does not tell in time.
    pub async fn describe_table(
        &self,
        table: &TableName,
    ) -> Result<Option<TableDescriptor>, OperationError> {
        let mut attempts = self.attempts("describe table").reading();
        let request = pb::GetTableDescriptorsRequest {
            table_names: vec![table.to_message()],
            ..pb::GetTableDescriptorsRequest::default()
        };
        let answer: pb::GetTableDescriptorsResponse =
            self.call("GetTableDescriptors", &request, &mut attempts).await?;
        Ok(answer
            .table_schema
            .first()
            .and_then(|schema| TableDescriptor::from_message(schema).ok()))
    }

    /// Whether a table serves; `None` if there is no such.
    ///
    /// # Errors
    ///
    /// When the master does not tell in time.
    pub async fn table_state(
        &self,
        table: &TableName,
    ) -> Result<Option<TableState>, OperationError> {
        let mut attempts = self.attempts("table state").reading();
        let request = pb::GetTableStateRequest { table_name: table.to_message() };
        let answer = self
            .call::<_, pb::GetTableStateResponse>("GetTableState", &request, &mut attempts)
            .await;
        match answer {
            Ok(answer) => Ok(Some(answer.table_state.state())),
            Err(error) if error.class() == Some(ExceptionClass::TableNotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl OperationError {
    /// Whether the server is too old to know what was asked.
    pub(super) fn is_unknown_method(&self) -> bool {
        match &*self.cause {
            Failure::Call(error) => error.is_unknown_method(),
            _ => false,
        }
    }
}
