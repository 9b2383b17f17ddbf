//! Tables, regions and the cluster, by way of the master.
//!
//! Most orders start a procedure that goes on after the answer; the methods here wait for its end.
//! Orders carry nonces, so that one repeated after a lost answer joins the procedure of the first.
//! A master that went away is looked up again; a standby master refuses and is asked later.

mod namespaces;
mod procedures;
mod schema;
mod status;

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use pb::region_specifier::RegionSpecifierType;
use prost::Message;
use tokio::time::{Instant, timeout_at};

pub use self::{
    namespaces::NamespaceDescriptor,
    schema::{FamilyDescriptor, TableDescriptor},
    status::ClusterStatus,
};
use crate::{
    attempts::Attempts,
    client::Client,
    connection::{CallClass, CallError, CallSpec},
    discovery::DiscoveryError,
    error::{Failure, OperationError},
    exception::Recovery,
    handshake::Service,
    multi::region_specifier,
    random::nonce,
    region::{info::Region, meta::RegionTarget},
    server_name::ServerName,
    table_name::TableName,
};

/// Priority of calls to the master.
const ADMIN_PRIORITY: u32 = 100;

/// State of a table.
pub use pb::table_state::State as TableState;

/// Orders to the master.
#[derive(Clone, Debug)]
pub struct Admin {
    client: Client,
}

impl Client {
    /// Returns a handle for calls to the active master.
    #[must_use]
    pub fn admin(&self) -> Admin {
        Admin { client: self.clone() }
    }
}

impl Admin {
    /// Makes a table whose regions begin at its start and at the splits, and waits until all serve.
    ///
    /// # Errors
    ///
    /// When it exists, its description is refused, or it does not come up in time.
    pub async fn create_table(
        &self,
        table: &TableDescriptor,
        splits: impl IntoIterator<Item = Bytes>,
    ) -> Result<(), OperationError> {
        let mut attempts = self.attempts("create table");
        // With a key given twice the master never finishes; the empty one is every table's first.
        let mut split_keys: Vec<_> = splits.into_iter().filter(|key| !key.is_empty()).collect();
        split_keys.sort();
        split_keys.dedup();
        let regions = split_keys.len() + 1;
        let request = pb::CreateTableRequest {
            table_schema: table.to_message(),
            split_keys,
            nonce_group: Some(self.client.nonce_group()),
            nonce: Some(nonce()),
        };
        let started: pb::CreateTableResponse =
            self.call("CreateTable", &request, &mut attempts).await?;
        self.finish(started.proc_id, &mut attempts).await?;
        self.wait_for_regions(table.name(), regions, &mut attempts).await
    }

    /// Removes a table, which must be disabled.
    ///
    /// # Errors
    ///
    /// When it is not there, is enabled, or is not removed in time.
    pub async fn delete_table(&self, table: &TableName) -> Result<(), OperationError> {
        let mut attempts = self.attempts("delete table");
        let request = pb::DeleteTableRequest {
            table_name: table.to_message(),
            nonce_group: Some(self.client.nonce_group()),
            nonce: Some(nonce()),
        };
        let started: pb::DeleteTableResponse =
            self.call("DeleteTable", &request, &mut attempts).await?;
        self.finish(started.proc_id, &mut attempts).await?;
        self.client.locator().table_gone(table);
        Ok(())
    }

    /// Lets a table serve.
    ///
    /// # Errors
    ///
    /// When it is not there or does not come up in time.
    pub async fn enable_table(&self, table: &TableName) -> Result<(), OperationError> {
        let mut attempts = self.attempts("enable table");
        let request = pb::EnableTableRequest {
            table_name: table.to_message(),
            nonce_group: Some(self.client.nonce_group()),
            nonce: Some(nonce()),
        };
        let started: pb::EnableTableResponse =
            self.call("EnableTable", &request, &mut attempts).await?;
        self.finish(started.proc_id, &mut attempts).await
    }

    /// Stops a table's service.
    ///
    /// # Errors
    ///
    /// When it is not there, is disabled already, or does not stop in time.
    pub async fn disable_table(&self, table: &TableName) -> Result<(), OperationError> {
        let mut attempts = self.attempts("disable table");
        let request = pb::DisableTableRequest {
            table_name: table.to_message(),
            nonce_group: Some(self.client.nonce_group()),
            nonce: Some(nonce()),
        };
        let started: pb::DisableTableResponse =
            self.call("DisableTable", &request, &mut attempts).await?;
        self.finish(started.proc_id, &mut attempts).await?;
        self.client.locator().table_gone(table);
        Ok(())
    }

    /// Empties a table, which must be disabled and is enabled afterwards.
    ///
    /// # Errors
    ///
    /// When it is not there, is enabled, or is not emptied in time.
    pub async fn truncate_table(
        &self,
        table: &TableName,
        keep_splits: bool,
    ) -> Result<(), OperationError> {
        let mut attempts = self.attempts("truncate table");
        let request = pb::TruncateTableRequest {
            table_name: table.to_message(),
            preserve_splits: Some(keep_splits),
            nonce_group: Some(self.client.nonce_group()),
            nonce: Some(nonce()),
        };
        let started: pb::TruncateTableResponse =
            self.call("truncateTable", &request, &mut attempts).await?;
        self.finish(started.proc_id, &mut attempts).await?;
        self.client.locator().table_gone(table);
        Ok(())
    }

    /// Writes what a table has in memory to its files.
    ///
    /// # Errors
    ///
    /// When it is not there or is not flushed in time.
    pub async fn flush_table(&self, table: &TableName) -> Result<(), OperationError> {
        let mut attempts = self.attempts("flush table");
        let request = pb::FlushTableRequest {
            table_name: table.to_message(),
            column_family: Vec::new(),
            nonce_group: Some(self.client.nonce_group()),
            nonce: Some(nonce()),
        };
        let started =
            self.call::<_, pb::FlushTableResponse>("FlushTable", &request, &mut attempts).await;
        match started {
            Ok(started) => self.finish(started.proc_id, &mut attempts).await,
            Err(error) if error.is_unknown_method() => {
                self.flush_by_older_procedure(table, &mut attempts).await
            }
            Err(error) => Err(error),
        }
    }

    /// Lets the servers of a table compact its files; major: all of a store into one. Returns when
    /// the work is queued.
    ///
    /// # Errors
    ///
    /// When a region's server cannot be told in time.
    pub async fn compact_table(
        &self,
        table: &TableName,
        major: bool,
    ) -> Result<(), OperationError> {
        let mut attempts = self.attempts("compact table");
        for row in self.client.locator().regions(table, &mut attempts).await? {
            if row.region.is_split_parent() {
                continue;
            }
            let request = pb::CompactRegionRequest {
                region: region_specifier(row.region.name()),
                major: Some(major),
                family: None,
            };
            self.call_server::<_, pb::CompactRegionResponse>(
                &row.region,
                "CompactRegion",
                &request,
                &mut attempts,
            )
            .await?;
        }
        Ok(())
    }

    /// Splits a region at a row, or where its server thinks best.
    ///
    /// # Errors
    ///
    /// When it is not there, cannot be split, or is not split in time.
    pub async fn split_region(
        &self,
        region: &Region,
        row: Option<Bytes>,
    ) -> Result<(), OperationError> {
        let mut attempts = self.attempts("split region");
        let request = pb::SplitTableRegionRequest {
            region_info: region.to_message(),
            split_row: row,
            nonce_group: Some(self.client.nonce_group()),
            nonce: Some(nonce()),
        };
        let started: pb::SplitTableRegionResponse =
            self.call("SplitRegion", &request, &mut attempts).await?;
        self.finish(started.proc_id, &mut attempts).await
    }

    /// Merges regions that lie side by side.
    ///
    /// # Errors
    ///
    /// When one is not there, they cannot be merged, or are not merged in time.
    pub async fn merge_regions(&self, regions: &[&Region]) -> Result<(), OperationError> {
        let mut attempts = self.attempts("merge regions");
        let request = pb::MergeTableRegionsRequest {
            region: regions.iter().map(|region| encoded(region)).collect(),
            forcible: Some(false),
            nonce_group: Some(self.client.nonce_group()),
            nonce: Some(nonce()),
        };
        let started: pb::MergeTableRegionsResponse =
            self.call("MergeTableRegions", &request, &mut attempts).await?;
        self.finish(started.proc_id, &mut attempts).await
    }

    /// Moves a region to a server, or to any. A server that does not exist counts as any.
    ///
    /// # Errors
    ///
    /// When it is not there or is not moved in time.
    pub async fn move_region(
        &self,
        region: &Region,
        to: Option<&ServerName>,
    ) -> Result<(), OperationError> {
        let mut attempts = self.attempts("move region");
        let request = pb::MoveRegionRequest {
            region: encoded(region),
            dest_server_name: to.map(ServerName::to_message),
        };
        self.call::<_, pb::MoveRegionResponse>("MoveRegion", &request, &mut attempts).await?;
        Ok(())
    }

    /// Lets the master move regions by itself or not; returns what held before.
    ///
    /// # Errors
    ///
    /// When the master cannot be told in time.
    pub async fn set_balancer(&self, on: bool) -> Result<bool, OperationError> {
        let mut attempts = self.attempts("set balancer");
        let request = pb::SetBalancerRunningRequest { on, synchronous: Some(true) };
        let answer: pb::SetBalancerRunningResponse =
            self.call("SetBalancerRunning", &request, &mut attempts).await?;
        Ok(answer.prev_balance_value())
    }

    fn attempts(&self, operation: &'static str) -> Attempts {
        let config = self.client.config();
        let deadline = Instant::now() + config.procedure_timeout;
        Attempts::new(operation, config, self.client.metrics(), Some(deadline))
    }

    /// A call to the active master, repeated until it answers.
    async fn call<M: Message, R: Message + Default>(
        &self,
        method: &'static str,
        request: &M,
        attempts: &mut Attempts,
    ) -> Result<R, OperationError> {
        loop {
            let deadline = attempts.call_deadline(self.client.config().admin_timeout);
            let cause = match self.master(deadline).await {
                Ok(master) => match self
                    .call_once(&master, Service::Master, method, request, deadline)
                    .await
                {
                    Ok(answer) => return Ok(answer),
                    Err(error) => {
                        if error.is_ambiguous() {
                            attempts.doubt();
                        }
                        match error.recovery() {
                            Recovery::Fail | Recovery::CloseConnection | Recovery::SplitBatch => {
                                return Err(attempts.fail(error.into(), false));
                            }
                            Recovery::SamePlace | Recovery::Overloaded | Recovery::Wait(_) => {}
                            _ => self.client.forget_master(&master),
                        }
                        Failure::Call(error)
                    }
                },
                Err(error) if error.is_permanent() => {
                    return Err(attempts.fail(error.into(), false));
                }
                Err(error) => error.into(),
            };
            attempts.pause(cause, false).await?;
        }
    }

    async fn master(&self, deadline: Instant) -> Result<ServerName, DiscoveryError> {
        let asked = timeout_at(deadline, self.client.master()).await;
        asked.unwrap_or(Err(DiscoveryError::Unknown { what: "the active master" }))
    }

    /// A call to the server of a region, repeated until it answers.
    async fn call_server<M: Message, R: Message + Default>(
        &self,
        region: &Region,
        method: &'static str,
        request: &M,
        attempts: &mut Attempts,
    ) -> Result<R, OperationError> {
        let locate = RegionTarget::Holding(region.start_key().clone());
        loop {
            let location = self.client.locator().locate(region.table(), &locate, attempts).await?;
            let deadline = attempts.call_deadline(self.client.config().admin_timeout);
            match self.call_once(&location.server, Service::Admin, method, request, deadline).await
            {
                Ok(answer) => return Ok(answer),
                Err(error) => self.client.recover(&location, error, true, attempts).await?,
            }
        }
    }

    async fn call_once<M: Message, R: Message + Default>(
        &self,
        server: &ServerName,
        service: Service,
        method: &'static str,
        request: &M,
        deadline: Instant,
    ) -> Result<R, CallError> {
        let connection =
            self.client.pool().connection(server, service, CallClass::Data, deadline).await?;
        let spec = CallSpec { method, priority: Some(ADMIN_PRIORITY), deadline };
        let answer = connection.call(&spec, request, Bytes::new()).await?;
        answer
            .message()
            .map_err(|source| CallError::Answer { server: server.clone(), source: source.into() })
    }
}

/// Names a region towards the master, which takes encoded names only.
fn encoded(region: &Region) -> pb::RegionSpecifier {
    pb::RegionSpecifier {
        r#type: RegionSpecifierType::EncodedRegionName.into(),
        value: region.encoded_name().into(),
    }
}
