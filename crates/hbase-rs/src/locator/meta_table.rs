//! Reads hbase:meta, wherever it is.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use tokio::time::{Instant, timeout_at};

use super::META_PRIORITY;
use crate::{
    attempts::Attempts,
    config::ClientConfig,
    connection::{CallClass, CallError, CallSpec},
    discovery::{Discovery, DiscoveryError},
    error::{Failure, OperationError},
    exception::Recovery,
    handshake::Service,
    pool::ConnectionPool,
    region::info::{Region, RegionLocation},
    request::{scan::Scan, selection::Selection},
    row::Row,
    scan::{
        calls::{OpenScanner, ScanResponse, open_scanner},
        rows::{RowAssembler, ScanStep},
    },
    server_name::ServerName,
    table_name::TableName,
};

/// The table that knows where all regions are.
#[derive(Debug)]
pub(super) struct MetaTable {
    config: Arc<ClientConfig>,
    discovery: Arc<dyn Discovery>,
    pool: Arc<ConnectionPool>,
    server: Mutex<Option<ServerName>>,
    /// One question to discovery at a time.
    asking: tokio::sync::Mutex<()>,
    region: Arc<Region>,
}

impl MetaTable {
    pub(super) fn new(
        config: Arc<ClientConfig>,
        discovery: Arc<dyn Discovery>,
        pool: Arc<ConnectionPool>,
    ) -> Self {
        Self {
            config,
            discovery,
            pool,
            server: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            region: Arc::new(Region::meta()),
        }
    }

    fn server(&self) -> MutexGuard<'_, Option<ServerName>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is not, or not any more, on this server.
    pub(super) fn forget(&self, server: &ServerName) {
        let mut known = self.server();
        if known.as_ref() == Some(server) {
            *known = None;
        }
    }

    /// Where it is.
    pub(super) async fn location(&self, deadline: Instant) -> Result<RegionLocation, Failure> {
        let location =
            |server| RegionLocation { region: Arc::clone(&self.region), server, seq_num: -1 };
        if let Some(server) = self.server().clone() {
            return Ok(location(server));
        }
        let deadline = deadline.min(Instant::now() + self.config.call_timeout);
        let asked = async {
            let _asking = self.asking.lock().await;
            if let Some(server) = self.server().clone() {
                return Ok(server);
            }
            self.discovery.meta_server().await
        };
        let server = match timeout_at(deadline, asked).await {
            Ok(server) => server?,
            Err(_) => {
                return Err(DiscoveryError::Unknown { what: "the server of hbase:meta" }.into());
            }
        };
        *self.server() = Some(server.clone());
        Ok(location(server))
    }

    /// First rows of a scan: at least one if there is one, at most so many.
    ///
    /// A server that passes over many rows that were deleted, as those of a table that was truncated often
    /// or of regions that were split, answers without rows and expects to be asked on. Who asks
    /// from the beginning again never gets past them.
    pub(super) async fn scan(
        &self,
        scan: Scan,
        rows: u32,
        deadline: Instant,
    ) -> Result<Vec<Row>, Failure> {
        let location = self.location(deadline).await?;
        let mut scanner = None;
        let found = self.first_rows(&location, scan.limit(rows), &mut scanner, deadline).await;
        if let Some(scanner) = scanner {
            self.close(&location, scanner);
        }
        found
    }

    async fn first_rows(
        &self,
        location: &RegionLocation,
        scan: Scan,
        scanner: &mut Option<OpenScanner>,
        deadline: Instant,
    ) -> Result<Vec<Row>, Failure> {
        let mut assembler = RowAssembler::new(&scan, self.config.max_row);
        let mut found = Vec::new();
        loop {
            let limit = assembler.position().limit();
            let request = if let Some(scanner) = scanner {
                scanner.next(&scan, limit)
            } else {
                let region = location.region.name();
                open_scanner(&scan, region, &scan.start, scan.include_start, limit)
            };
            let answer =
                call(&self.pool, &self.config, &location.server, &request, deadline).await?;
            *scanner = answer.open_after(*scanner);
            let step = assembler.add_response(answer, &location.region, &mut found)?;
            if step != ScanStep::Next || !found.is_empty() {
                return Ok(found.into_iter().map(|row| row.row).collect());
            }
        }
    }

    /// Ends a scanner. Nobody waits for that; without the call its lease ends it.
    fn close(&self, location: &RegionLocation, scanner: OpenScanner) {
        let (pool, config) = (Arc::clone(&self.pool), Arc::clone(&self.config));
        let server = location.server.clone();
        tokio::spawn(async move {
            let deadline = Instant::now() + config.call_timeout;
            let _ = call(&pool, &config, &server, &scanner.close(), deadline).await;
        });
    }

    /// What a failure says of its server; errs if no attempt helps. Returns the server that is gone.
    pub(super) fn settle(
        &self,
        cause: &Failure,
        attempts: &Attempts,
    ) -> Result<Option<ServerName>, OperationError> {
        match cause {
            // Of the server that failed: another one may be known by now.
            Failure::Call(error) => match error.recovery() {
                Recovery::Fail => return Err(attempts.fail(cause.clone(), false)),
                Recovery::ServerGone => return Ok(Some(error.server().clone())),
                Recovery::SamePlace | Recovery::Overloaded | Recovery::Wait(_) => {}
                _ => self.forget(error.server()),
            },
            Failure::Discovery(error) if error.is_permanent() => {
                return Err(attempts.fail(cause.clone(), false));
            }
            _ => {}
        }
        Ok(None)
    }

    /// Whether the table is disabled; no when it cannot be told.
    pub(super) async fn is_disabled(&self, table: &TableName, deadline: Instant) -> bool {
        let row = table.as_bytes().clone();
        let scan = Scan::range(row.clone(), row)
            .inclusive(true, true)
            .select(Selection::all().columns("table", [Bytes::from_static(b"state")]));
        let Ok(rows) = self.scan(scan, 1, deadline).await else { return false };
        let state = rows.first().and_then(|row| row.value(b"table", b"state"));
        let state = state.and_then(|state| <pb::TableState as prost::Message>::decode(state).ok());
        state.is_some_and(|state| state.state() != pb::table_state::State::Enabled)
    }
}

/// One call of a scanner.
async fn call(
    pool: &ConnectionPool,
    config: &ClientConfig,
    server: &ServerName,
    request: &pb::ScanRequest,
    deadline: Instant,
) -> Result<ScanResponse, Failure> {
    let deadline = deadline.min(Instant::now() + config.call_timeout);
    let spec = CallSpec { method: "Scan", priority: Some(META_PRIORITY), deadline };
    let unreadable =
        |source| CallError::InvalidResponse { server: server.clone(), source: Arc::new(source) };
    let connection = pool.connection(server, Service::Client, CallClass::Meta, deadline).await?;
    let answer = connection.call(&spec, request, Bytes::new()).await?;
    let response: pb::ScanResponse = answer.message().map_err(unreadable)?;
    let block = answer.block(config.compressor, config.max_frame).map_err(unreadable)?;
    Ok(ScanResponse::decode(&response, block)?)
}
