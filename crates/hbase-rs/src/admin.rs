//! Administration of tables, regions and the cluster through the master.
//!
//! Most requests start a procedure on the master; the methods here wait until it completes. Requests
//! have nonces, so that a retry after a lost response joins the procedure of the first request. If the
//! master fails, the client locates it again; a standby master rejects requests, which the client
//! retries.

mod namespaces;
mod procedures;
mod schema;
mod status;
mod token;

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
pub use crate::table_state::TableState;
use crate::{
    attempts::Attempts,
    client::Client,
    connection::{CallClass, CallError, CallSpec},
    discovery::DiscoveryError,
    exception::Recovery,
    handshake::Service,
    operation_error::{Failure, OperationError},
    random::nonce,
    region::{info::Region, meta::RegionTarget, name::region_specifier},
    server_name::ServerName,
    table_name::TableName,
    trace::{self, Attempt},
};

/// Priority of calls to the master.
const ADMIN_PRIORITY: u32 = 100;

/// Administrative operations of a cluster.
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
    /// Creates a table with these split keys and waits until all regions are open.
    ///
    /// # Errors
    ///
    /// When it exists, its descriptor is rejected, or the procedure timeout passes.
    pub async fn create_table(
        &self,
        table: &TableDescriptor,
        splits: impl IntoIterator<Item = Bytes>,
    ) -> Result<(), OperationError> {
        let mut attempts = self.attempts("create table");
        let (nonce_group, nonce) = self.nonces();
        // Duplicate keys block the master's procedure; the empty key is the start of every table.
        let mut split_keys: Vec<_> = splits.into_iter().filter(|key| !key.is_empty()).collect();
        split_keys.sort();
        split_keys.dedup();
        let regions = split_keys.len() + 1;
        let request = pb::CreateTableRequest {
            table_schema: table.to_message(),
            split_keys,
            nonce_group,
            nonce,
        };
        self.run_procedure("CreateTable", &request, &mut attempts).await?;
        self.wait_for_regions(table.name(), regions, &mut attempts).await
    }

    /// Deletes a table, which must be disabled.
    ///
    /// # Errors
    ///
    /// When it does not exist, is enabled, or the procedure timeout passes.
    pub async fn delete_table(&self, table: &TableName) -> Result<(), OperationError> {
        let (nonce_group, nonce) = self.nonces();
        let request = pb::DeleteTableRequest { table_name: table.to_message(), nonce_group, nonce };
        self.execute("delete table", "DeleteTable", &request).await?;
        self.client.locator().table_gone(table);
        Ok(())
    }

    /// Enables a table.
    ///
    /// # Errors
    ///
    /// When it does not exist, or the procedure timeout passes.
    pub async fn enable_table(&self, table: &TableName) -> Result<(), OperationError> {
        let (nonce_group, nonce) = self.nonces();
        let request = pb::EnableTableRequest { table_name: table.to_message(), nonce_group, nonce };
        self.execute("enable table", "EnableTable", &request).await
    }

    /// Disables a table.
    ///
    /// # Errors
    ///
    /// When it does not exist, is disabled already, or the procedure timeout passes.
    pub async fn disable_table(&self, table: &TableName) -> Result<(), OperationError> {
        let (nonce_group, nonce) = self.nonces();
        let request =
            pb::DisableTableRequest { table_name: table.to_message(), nonce_group, nonce };
        self.execute("disable table", "DisableTable", &request).await?;
        self.client.locator().table_gone(table);
        Ok(())
    }

    /// Truncates a table, which must be disabled and is enabled afterwards.
    ///
    /// # Errors
    ///
    /// When it does not exist, is enabled, or the procedure timeout passes.
    pub async fn truncate_table(
        &self,
        table: &TableName,
        keep_splits: bool,
    ) -> Result<(), OperationError> {
        let (nonce_group, nonce) = self.nonces();
        let request = pb::TruncateTableRequest {
            table_name: table.to_message(),
            preserve_splits: Some(keep_splits),
            nonce_group,
            nonce,
        };
        self.execute("truncate table", "truncateTable", &request).await?;
        self.client.locator().table_gone(table);
        Ok(())
    }

    /// Flushes the memstores of a table.
    ///
    /// # Errors
    ///
    /// When it does not exist, or the procedure timeout passes.
    pub async fn flush_table(&self, table: &TableName) -> Result<(), OperationError> {
        let mut attempts = self.attempts("flush table");
        let (nonce_group, nonce) = self.nonces();
        let request = pb::FlushTableRequest {
            table_name: table.to_message(),
            column_family: Vec::new(),
            nonce_group,
            nonce,
        };
        match self.run_procedure("FlushTable", &request, &mut attempts).await {
            Err(error) if error.is_unknown_method() => {
                self.flush_by_older_procedure(table, &mut attempts).await
            }
            result => result,
        }
    }

    /// Requests a minor or major compaction of all regions of a table. Returns when the compactions are
    /// queued.
    ///
    /// # Errors
    ///
    /// When a region's server does not accept the request before the procedure timeout.
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

    /// Splits a region at a row, or at the split point that its server chooses.
    ///
    /// # Errors
    ///
    /// When it does not exist, cannot be split, or the procedure timeout passes.
    pub async fn split_region(
        &self,
        region: &Region,
        row: Option<Bytes>,
    ) -> Result<(), OperationError> {
        let (nonce_group, nonce) = self.nonces();
        let request = pb::SplitTableRegionRequest {
            region_info: region.to_message(),
            split_row: row,
            nonce_group,
            nonce,
        };
        self.execute("split region", "SplitRegion", &request).await
    }

    /// Merges adjacent regions.
    ///
    /// # Errors
    ///
    /// When one does not exist, they cannot be merged, or the procedure timeout passes.
    pub async fn merge_regions(&self, regions: &[&Region]) -> Result<(), OperationError> {
        let (nonce_group, nonce) = self.nonces();
        let request = pb::MergeTableRegionsRequest {
            region: regions.iter().map(|region| encoded_region(region)).collect(),
            forcible: Some(false),
            nonce_group,
            nonce,
        };
        self.execute("merge regions", "MergeTableRegions", &request).await
    }

    /// Moves a region to a server. The master chooses one without `to`, or if that server does not exist.
    ///
    /// # Errors
    ///
    /// When it does not exist, or the master does not accept the request before the procedure timeout.
    pub async fn move_region(
        &self,
        region: &Region,
        to: Option<&ServerName>,
    ) -> Result<(), OperationError> {
        let request = pb::MoveRegionRequest {
            region: encoded_region(region),
            dest_server_name: to.map(ServerName::to_message),
        };
        let mut attempts = self.attempts("move region");
        self.call::<_, pb::MoveRegionResponse>("MoveRegion", &request, &mut attempts).await?;
        Ok(())
    }

    /// Switches the balancer on or off. Returns its previous state.
    ///
    /// # Errors
    ///
    /// When the master does not respond before the procedure timeout.
    pub async fn set_balancer(&self, on: bool) -> Result<bool, OperationError> {
        let mut attempts = self.attempts("set balancer");
        let request = pb::SetBalancerRunningRequest { on, synchronous: Some(true) };
        let response: pb::SetBalancerRunningResponse =
            self.call("SetBalancerRunning", &request, &mut attempts).await?;
        Ok(response.prev_balance_value())
    }

    /// Returns the nonce group of the client and a new nonce, for a request that starts a procedure.
    fn nonces(&self) -> (Option<u64>, Option<u64>) {
        (Some(self.client.nonce_group()), Some(nonce()))
    }

    fn attempts(&self, operation: &'static str) -> Attempts {
        let config = self.client.config();
        let deadline = Instant::now() + config.procedure_timeout;
        let span = trace::operation(operation, None, deadline);
        Attempts::new(operation, config, self.client.metrics(), Some(deadline)).in_span(span)
    }

    /// Calls the active master, with retries.
    async fn call<M: Message, R: Message + Default>(
        &self,
        method: &'static str,
        request: &M,
        attempts: &mut Attempts,
    ) -> Result<R, OperationError> {
        loop {
            let call = self.admin_call(method, attempts);
            let cause = match self.master(call.spec.deadline).await {
                Ok(master) => match self.call_once(&master, Service::Master, call, request).await {
                    Ok(response) => return Ok(response),
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
        let master = timeout_at(deadline, self.client.master()).await;
        master.unwrap_or(Err(DiscoveryError::Unknown { what: "the active master" }))
    }

    /// Calls the server of a region, with retries.
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
            let call = self.admin_call(method, attempts);
            match self.call_once(&location.server, Service::Admin, call, request).await {
                Ok(response) => return Ok(response),
                Err(error) => self.client.recover(&location, error, true, attempts).await?,
            }
        }
    }

    async fn call_once<M: Message, R: Message + Default>(
        &self,
        server: &ServerName,
        service: Service,
        call: AdminCall,
        request: &M,
    ) -> Result<R, CallError> {
        let AdminCall { spec, attempt } = call;
        let pool = self.client.pool();
        let send = async {
            let connection =
                pool.connection(server, service, CallClass::Data, spec.deadline).await?;
            let body = connection.call(&spec, request, Bytes::new()).await?;
            body.message().map_err(|source| CallError::invalid_response(server, source))
        };
        attempt.run(spec.method, server, None, send).await
    }

    /// Returns the next call of an operation.
    fn admin_call(&self, method: &'static str, attempts: &Attempts) -> AdminCall {
        let deadline = attempts.call_deadline(self.client.config().admin_timeout);
        let spec = CallSpec { method, priority: Some(ADMIN_PRIORITY), deadline };
        AdminCall { spec, attempt: attempts.attempt() }
    }
}

/// An administrative call, which servers execute before those of clients.
struct AdminCall {
    spec: CallSpec,
    attempt: Attempt,
}

/// Specifies a region by its encoded name, as the master requires.
fn encoded_region(region: &Region) -> pb::RegionSpecifier {
    pb::RegionSpecifier {
        r#type: RegionSpecifierType::EncodedRegionName.into(),
        value: region.encoded_name().into(),
    }
}
