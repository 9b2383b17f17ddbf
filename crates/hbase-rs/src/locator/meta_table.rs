//! Reads hbase:meta: finds its server and scans its rows.

use parking_lot::Mutex;
use std::sync::Arc;

use bytes::Bytes;
use hbase_rs_protobuf as pb;
use tokio::time::{Instant, timeout_at};

use crate::{
    config::ClientConfig,
    connection::{CallClass, CallSpec, read_response},
    discovery::{Discovery, DiscoveryError},
    handshake::Service,
    operation_error::Failure,
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
    table_state::TableState,
};

/// Priority of calls to hbase:meta.
pub(crate) const META_PRIORITY: u32 = 300;

/// hbase:meta, the table of all region locations.
#[derive(Debug)]
pub(super) struct MetaTable {
    config: Arc<ClientConfig>,
    discovery: Arc<dyn Discovery>,
    pool: Arc<ConnectionPool>,
    server: Mutex<Option<ServerName>>,
    /// Locked during a call to discovery. Has the last failure and its time.
    discovering: tokio::sync::Mutex<Option<(Instant, DiscoveryError)>>,
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
            discovering: tokio::sync::Mutex::default(),
            region: Arc::new(Region::meta()),
        }
    }

    /// Removes the server from the cache, unless another one has been cached since.
    pub(super) fn invalidate(&self, server: &ServerName) {
        let mut cached = self.server.lock();
        if cached.as_ref() == Some(server) {
            *cached = None;
        }
    }

    /// Returns the location of hbase:meta on this server.
    pub(super) fn location_at(&self, server: &ServerName) -> RegionLocation {
        let (region, server) = (Arc::clone(&self.region), server.clone());
        RegionLocation { region, server, seq_num: -1 }
    }

    /// Returns the location of hbase:meta, cached or from discovery.
    pub(super) async fn location(&self, deadline: Instant) -> Result<RegionLocation, Failure> {
        if let Some(server) = self.server.lock().clone() {
            return Ok(self.location_at(&server));
        }
        let begun = Instant::now();
        let deadline = deadline.min(begun + self.config.call_timeout);
        let discovered = async {
            let mut failed = self.discovering.lock().await;
            if let Some(server) = self.server.lock().clone() {
                return Ok(server);
            }
            // Callers that waited for a failed call share its error. One by one, most of them would reach
            // their deadlines without a cause.
            if let Some((_, error)) = failed.as_ref().filter(|(at, _)| *at >= begun) {
                return Err(error.clone());
            }
            let server = self.discovery.meta_server().await;
            *failed = server.as_ref().err().map(|error| (Instant::now(), error.clone()));
            server
        };
        let server = match timeout_at(deadline, discovered).await {
            Ok(server) => server?,
            Err(_) => {
                return Err(DiscoveryError::Unknown { what: "the server of hbase:meta" }.into());
            }
        };
        let location = self.location_at(&server);
        *self.server.lock() = Some(server);
        Ok(location)
    }

    /// Returns the first rows of a scan: at most `rows`, and at least one if the scan has a row.
    ///
    /// A server that skips many deleted rows, as after splits or truncations, responds without rows
    /// and expects the scan to continue. Starting again would never pass the deleted rows.
    pub(super) async fn scan(
        self: &Arc<Self>,
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
            let response = self.call(&location.server, &request, deadline).await?;
            *scanner = response.open_after(*scanner);
            let step = assembler.add_response(response, &location.region, &mut found)?;
            if step != ScanStep::Next || !found.is_empty() {
                return Ok(found.into_iter().map(|row| row.row).collect());
            }
        }
    }

    /// Closes a scanner in the background. Without the call its lease expires.
    fn close(self: &Arc<Self>, location: &RegionLocation, scanner: OpenScanner) {
        let (meta, server) = (Arc::clone(self), location.server.clone());
        tokio::spawn(async move {
            let deadline = Instant::now() + meta.config.call_timeout;
            let _ = meta.call(&server, &scanner.close(), deadline).await;
        });
    }

    /// Sends one call of a scanner.
    async fn call(
        &self,
        server: &ServerName,
        request: &pb::ScanRequest,
        deadline: Instant,
    ) -> Result<ScanResponse, Failure> {
        let deadline = deadline.min(Instant::now() + self.config.call_timeout);
        let spec = CallSpec { method: "Scan", priority: Some(META_PRIORITY), deadline };
        let (service, class) = (Service::Client, CallClass::Meta);
        let connection = self.pool.connection(server, service, class, deadline).await?;
        let body = connection.call(&spec, request, Bytes::new()).await?;
        let (response, block): (pb::ScanResponse, _) = read_response(&self.config, server, &body)?;
        Ok(ScanResponse::decode(&response, block)?)
    }

    /// True if the table is disabled or being disabled; false if its state cannot be read.
    pub(super) async fn is_disabled(
        self: &Arc<Self>,
        table: &TableName,
        deadline: Instant,
    ) -> bool {
        let state = self.table_state(table, deadline).await;
        matches!(state, Ok(Some(TableState::Disabled | TableState::Disabling)))
    }

    /// True if the table is being enabled or created; false if its state cannot be read.
    pub(super) async fn is_enabling(
        self: &Arc<Self>,
        table: &TableName,
        deadline: Instant,
    ) -> bool {
        matches!(self.table_state(table, deadline).await, Ok(Some(TableState::Enabling)))
    }

    /// Reads the state of a table; `None` if no state is stored, as before 2.0.
    pub(super) async fn table_state(
        self: &Arc<Self>,
        table: &TableName,
        deadline: Instant,
    ) -> Result<Option<TableState>, Failure> {
        let row = table.as_bytes().clone();
        let scan = Scan::range(row.clone(), row)
            .inclusive(true, true)
            .select(Selection::all().columns("table", [Bytes::from_static(b"state")]));
        let rows = self.scan(scan, 1, deadline).await?;
        let state = rows.first().and_then(|row| row.value(b"table", b"state"));
        let decode = |state| <pb::TableState as prost::Message>::decode(state).ok();
        Ok(state.and_then(decode).map(|state| TableState::from_message(state.state())))
    }
}
