//! Scanner: the rows of a scan as a stream.
//!
//! A task reads ahead by one response, and renews the lease of the region scanner while the caller is
//! slow. After a failure it closes the region scanner and opens another one after the last returned row.
//! Without progress the scan fails after the operation timeout.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use hbase_rs_protobuf as pb;
use tokio::{
    runtime::Handle,
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, timeout},
};
use tracing::Span;

use crate::{
    attempts::Attempts,
    client::{Client, RegionCall},
    connection::{CallClass, CallError},
    exception::ExceptionClass,
    operation_error::{Failure, OperationError},
    region::info::RegionLocation,
    request::scan::Scan,
    scan::{
        calls::{OpenScanner, ScanResponse, open_scanner},
        rows::{RowAssembler, ScanRow, ScanStep},
    },
    table_name::TableName,
    trace::{self, Attempt},
};

/// Number of responses that are buffered for the caller.
const READ_AHEAD: usize = 1;

/// Priority of the RPC that closes a region scanner.
const CLOSE_PRIORITY: u32 = 200;

/// Maximum number of consecutive out-of-order failures without a row before the scan fails.
const MAX_OUT_OF_ORDER: u32 = 2;

/// Maximum number of lease renewals while the caller takes no row. Afterwards the scanner is reopened.
const MAX_RENEWALS: u32 = 10;

/// Item sent by the task; `None` is the end of the scan. If the channel closes without it, the
/// task has failed.
type ReadAhead = Result<Option<Vec<ScanRow>>, OperationError>;

/// The rows of a scan, in order. Dropping it cancels the scan.
#[derive(Debug)]
pub struct Scanner {
    rows: std::vec::IntoIter<ScanRow>,
    finished: bool,
    ahead: mpsc::Receiver<ReadAhead>,
    task: JoinHandle<()>,
}

impl Scanner {
    pub(crate) fn start(
        client: Client,
        table: TableName,
        scan: Scan,
        timeout: Option<Duration>,
    ) -> Self {
        let (sender, ahead) = mpsc::channel(READ_AHEAD);
        let assembler = RowAssembler::new(&scan, client.config().max_row);
        let limit = timeout.unwrap_or(client.config().operation_timeout);
        let span = trace::operation("scan", Some(&table), Instant::now() + limit);
        let reader = ScanReader {
            client,
            table,
            scan,
            assembler,
            timeout,
            out_of_order: 0,
            reopening: false,
            span,
        };
        let task = tokio::spawn(reader.run(sender));
        Self { rows: Vec::new().into_iter(), finished: false, ahead, task }
    }

    /// Returns the next row, or `None` at the end.
    ///
    /// # Errors
    ///
    /// When the scan makes no progress within the operation timeout or fails permanently. It is finished
    /// then.
    pub async fn next(&mut self) -> Option<Result<ScanRow, OperationError>> {
        StreamExt::next(self).await
    }
}

impl Stream for Scanner {
    type Item = Result<ScanRow, OperationError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(row) = self.rows.next() {
                return Poll::Ready(Some(Ok(row)));
            }
            if self.finished {
                return Poll::Ready(None);
            }
            match ready!(self.ahead.poll_recv(context)) {
                Some(Ok(Some(rows))) => self.rows = rows.into_iter(),
                Some(Ok(None)) => self.finished = true,
                Some(Err(error)) => {
                    self.finished = true;
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    self.finished = true;
                    return Poll::Ready(Some(Err(OperationError {
                        operation: "scan",
                        attempts: 0,
                        elapsed: Duration::ZERO,
                        in_doubt: false,
                        cause: Box::new(Failure::ReaderGone),
                    })));
                }
            }
        }
    }
}

impl Drop for Scanner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Task of a [`Scanner`].
struct ScanReader {
    client: Client,
    table: TableName,
    scan: Scan,
    assembler: RowAssembler,
    /// Maximum time without progress.
    timeout: Option<Duration>,
    out_of_order: u32,
    /// True if the next region scanner replaces a lost one.
    reopening: bool,
    /// Span of the scan.
    span: Span,
}

/// A region scanner; dropping it closes an open scanner on the server.
struct RegionScanner {
    client: Client,
    location: RegionLocation,
    open: Option<OpenScanner>,
    lease: Duration,
}

impl ScanReader {
    async fn run(mut self, rows: mpsc::Sender<ReadAhead>) {
        let end = self.read(&rows).await.map(|()| None);
        // The caller may have dropped the scanner.
        let _ = rows.send(end).await;
    }

    async fn read(&mut self, rows: &mpsc::Sender<ReadAhead>) -> Result<(), OperationError> {
        let mut attempts = self.attempts();
        if self.assembler.position().limit_reached() {
            return Ok(());
        }
        loop {
            let locate = self.assembler.position().locate();
            let locator = self.client.locator();
            let location = locator.locate(&self.table, &locate, &mut attempts).await?;
            match self.read_region(location.clone(), rows, &mut attempts).await {
                Ok(true) | Err(RegionFailure::Cancelled) => return Ok(()),
                Ok(false) => attempts = self.attempts(),
                Err(RegionFailure::Failed(error)) => return Err(error),
                Err(RegionFailure::Reopen) => self.reset(),
                Err(RegionFailure::Call(error)) => {
                    self.reset();
                    self.recover(&location, error, &mut attempts).await?;
                }
            }
        }
    }

    fn reset(&mut self) {
        self.assembler.reset();
        self.reopening = true;
    }

    fn attempts(&self) -> Attempts {
        let deadline = self.timeout.map(|timeout| Instant::now() + timeout);
        let (config, metrics) = (self.client.config(), self.client.metrics());
        let attempts = Attempts::new("scan", config, metrics, deadline).reading();
        attempts.in_span(self.span.clone())
    }

    /// Reads a region to its end with one region scanner. Returns true if the scan is complete.
    async fn read_region(
        &mut self,
        location: RegionLocation,
        rows: &mpsc::Sender<ReadAhead>,
        attempts: &mut Attempts,
    ) -> Result<bool, RegionFailure> {
        let mut scanner = RegionScanner {
            client: self.client.clone(),
            location,
            open: None,
            lease: Duration::from_mins(1),
        };
        loop {
            let position = self.assembler.position();
            let limit = position.limit();
            let (start, include_start) = position.start();
            let request = if let Some(open) = &mut scanner.open {
                open.next(&self.scan, limit)
            } else {
                let metrics = self.client.metrics();
                metrics.scanners_opened.one();
                if std::mem::take(&mut self.reopening) {
                    metrics.scanners_reopened.one();
                }
                let region = scanner.location.region.name();
                open_scanner(&self.scan, region, start, include_start, limit)
            };
            let response = scanner.call(&request, attempts).await?;
            scanner.update(&response);
            if response.heartbeat {
                // The server makes progress.
                *attempts = self.attempts();
            }
            let mut complete = Vec::new();
            let step = self
                .assembler
                .add_response(response, &scanner.location.region, &mut complete)
                .map_err(|error| attempts.fail(error.into(), false))?;
            if !complete.is_empty() {
                self.out_of_order = 0;
                scanner.deliver(complete, rows).await?;
                // The time that the caller took does not count.
                *attempts = self.attempts();
            }
            match step {
                ScanStep::Next => {}
                ScanStep::NextRegion => return Ok(false),
                ScanStep::Done => return Ok(true),
            }
        }
    }

    async fn recover(
        &mut self,
        location: &RegionLocation,
        error: CallError,
        attempts: &mut Attempts,
    ) -> Result<(), OperationError> {
        match error.class() {
            // Only the scanner is lost; its region has not moved.
            Some(ExceptionClass::ScannerGone) => attempts.at_once(error.into()).await,
            Some(ExceptionClass::ScannerOutOfOrder) => {
                self.out_of_order += 1;
                if self.out_of_order > MAX_OUT_OF_ORDER {
                    return Err(attempts.fail(error.into(), false));
                }
                attempts.at_once(error.into()).await
            }
            _ => self.client.recover(location, error, true, attempts).await,
        }
    }
}

/// Reason why a region was not read to its end.
enum RegionFailure {
    Call(CallError),
    /// The region scanner may be lost and has to be reopened. This does not count as a failure.
    Reopen,
    /// The caller dropped the scanner.
    Cancelled,
    /// The scan fails.
    Failed(OperationError),
}

impl From<CallError> for RegionFailure {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<OperationError> for RegionFailure {
    fn from(error: OperationError) -> Self {
        Self::Failed(error)
    }
}

impl RegionScanner {
    async fn call(
        &self,
        request: &pb::ScanRequest,
        attempts: &Attempts,
    ) -> Result<ScanResponse, RegionFailure> {
        let deadline = attempts.call_deadline(self.client.config().scan_timeout);
        let call = RegionCall {
            method: "Scan",
            class: CallClass::Scans,
            priority: None,
            deadline,
            attempt: attempts.attempt(),
        };
        let body = self.client.call_region(&self.location, call, request, Bytes::new()).await?;
        let (response, block) = self.client.read::<pb::ScanResponse>(&self.location, &body)?;
        let decoded = ScanResponse::decode(&response, block);
        Ok(decoded.map_err(|error| attempts.fail(error.into(), false))?)
    }

    /// Updates lease and open scanner from a response.
    fn update(&mut self, response: &ScanResponse) {
        if let Some(lease) = response.lease_ms.filter(|lease| *lease > 0) {
            self.lease = Duration::from_millis(lease.into());
        }
        self.open = response.open_after(self.open);
    }

    /// Delivers rows to the caller and renews the lease while it waits.
    async fn deliver(
        &mut self,
        complete: Vec<ScanRow>,
        rows: &mpsc::Sender<ReadAhead>,
    ) -> Result<(), RegionFailure> {
        let mut renewals = 0;
        let mut lost = false;
        let permit = loop {
            match timeout(self.lease / 2, rows.reserve()).await {
                Ok(Ok(permit)) => break permit,
                Ok(Err(_)) => return Err(RegionFailure::Cancelled),
                Err(_) => {}
            }
            let Some(open) = self.open.as_mut().filter(|_| renewals < MAX_RENEWALS) else {
                lost |= self.open.take().is_some();
                continue;
            };
            renewals += 1;
            self.client.metrics().scanners_renewed.one();
            let request = open.renew();
            let attempts =
                Attempts::new("renew lease", self.client.config(), self.client.metrics(), None);
            if self.call(&request, &attempts).await.is_err() {
                // Reopening it will show the cause.
                lost |= self.open.take().is_some();
            }
        };
        permit.send(Ok(Some(complete)));
        if lost { Err(RegionFailure::Reopen) } else { Ok(()) }
    }
}

impl Drop for RegionScanner {
    fn drop(&mut self) {
        let Some(open) = self.open.take() else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let (client, location) = (self.client.clone(), self.location.clone());
        // The response is ignored. If the call fails, the lease expires.
        runtime.spawn(async move {
            let call = RegionCall {
                method: "Scan",
                class: CallClass::Scans,
                priority: Some(CLOSE_PRIORITY),
                deadline: Instant::now() + client.config().call_timeout,
                attempt: Attempt::default(),
            };
            let _ = client.call_region(&location, call, &open.close(), Bytes::new()).await;
        });
    }
}
