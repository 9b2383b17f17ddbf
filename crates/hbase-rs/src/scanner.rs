//! Rows as a stream.
//!
//! A task reads ahead of the caller by one answer and keeps it until it is taken. While the caller is
//! slow the task renews the scanner's lease; while a server is slow the caller sees nothing, at most
//! for the time of an operation. Any fault ends the scanner at the server and opens another one where
//! the rows handed out end.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::Stream;
use hbase_rs_protobuf as pb;
use tokio::{
    runtime::Handle,
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, timeout},
};

use crate::{
    attempts::Attempts,
    client::{Client, RegionCall},
    connection::{CallClass, CallError},
    error::{Failure, OperationError},
    exception::ExceptionClass,
    region::info::RegionLocation,
    request::scan::Scan,
    scan::{
        calls::{OpenScanner, ScanAnswer, open_scanner},
        rows::{RowAssembler, ScanRow, ScanStep},
    },
    table_name::TableName,
};

/// Answers that wait for the caller.
const READ_AHEAD: usize = 1;

/// Priority of a call that ends a scanner.
const CLOSE_PRIORITY: u32 = 200;

/// So many scanners in a row out of order without a row between them, and the scan fails.
const MAX_OUT_OF_ORDER: u32 = 2;

/// Renewals of a lease for a caller who takes nothing. Then the server may forget the scanner.
const MAX_RENEWALS: u32 = 10;

/// What the task sends; `None` is the end. Without that word the task has failed.
type Ahead = Result<Option<Vec<ScanRow>>, OperationError>;

/// The rows of a scan, in order. Dropped, it stops the scan.
#[derive(Debug)]
pub struct Scanner {
    rows: std::vec::IntoIter<ScanRow>,
    over: bool,
    ahead: mpsc::Receiver<Ahead>,
    task: JoinHandle<()>,
}

impl Scanner {
    pub(crate) fn start(
        client: Client,
        table: TableName,
        scan: Scan,
        patience: Option<Duration>,
    ) -> Self {
        let (sender, ahead) = mpsc::channel(READ_AHEAD);
        let assembler = RowAssembler::new(&scan, client.config().max_row);
        let reader =
            Reader { client, table, scan, assembler, patience, out_of_order: 0, faulted: false };
        let task = tokio::spawn(reader.run(sender));
        Self { rows: Vec::new().into_iter(), over: false, ahead, task }
    }

    /// The next row; `None` at the end.
    ///
    /// # Errors
    ///
    /// When the scan cannot go on within the time of an operation. It is over then.
    pub async fn next(&mut self) -> Option<Result<ScanRow, OperationError>> {
        std::future::poll_fn(|context| self.poll_row(context)).await
    }

    fn poll_row(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<ScanRow, OperationError>>> {
        loop {
            if let Some(row) = self.rows.next() {
                return Poll::Ready(Some(Ok(row)));
            }
            if self.over {
                return Poll::Ready(None);
            }
            match ready!(self.ahead.poll_recv(context)) {
                Some(Ok(Some(rows))) => self.rows = rows.into_iter(),
                Some(Ok(None)) => self.over = true,
                Some(Err(error)) => {
                    self.over = true;
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    self.over = true;
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

impl Stream for Scanner {
    type Item = Result<ScanRow, OperationError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_row(context)
    }
}

impl Drop for Scanner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads for a [`Scanner`].
struct Reader {
    client: Client,
    table: TableName,
    scan: Scan,
    assembler: RowAssembler,
    /// Time for each stretch without progress.
    patience: Option<Duration>,
    out_of_order: u32,
    /// Whether the next scanner stands in for one that was lost.
    faulted: bool,
}

/// A scanner that is open at a server. Dropped while it is, it is closed there.
struct Remote {
    client: Client,
    location: RegionLocation,
    scanner: Option<OpenScanner>,
    lease: Duration,
}

/// Why reading stopped before its end.
enum Stop {
    /// Nobody wants more.
    Unwanted,
    Failed(OperationError),
}

impl Reader {
    async fn run(mut self, rows: mpsc::Sender<Ahead>) {
        let end = match self.read(&rows).await {
            Ok(()) => Ok(None),
            Err(Stop::Failed(error)) => Err(error),
            Err(Stop::Unwanted) => return,
        };
        // The caller may be gone.
        let _ = rows.send(end).await;
    }

    async fn read(&mut self, rows: &mpsc::Sender<Ahead>) -> Result<(), Stop> {
        let mut attempts = self.attempts();
        if self.assembler.position().limit_reached() {
            return Ok(());
        }
        loop {
            let locate = self.assembler.position().locate();
            let locator = self.client.locator();
            let location =
                locator.locate(&self.table, &locate, &mut attempts).await.map_err(Stop::Failed)?;
            match self.read_region(location.clone(), rows, &mut attempts).await {
                Ok(true) => return Ok(()),
                Ok(false) => attempts = self.attempts(),
                Err(Fault::Stop(stop)) => return Err(stop),
                Err(Fault::Reopen) => self.fault(),
                Err(Fault::Call(error)) => {
                    self.fault();
                    self.recover(&location, error, &mut attempts).await.map_err(Stop::Failed)?;
                }
            }
        }
    }

    fn fault(&mut self) {
        self.assembler.fault();
        self.faulted = true;
    }

    fn attempts(&self) -> Attempts {
        let deadline = self.patience.map(|patience| Instant::now() + patience);
        Attempts::new("scan", self.client.config(), self.client.metrics(), deadline).reading()
    }

    /// Reads a region to its end with one scanner. Returns whether that was the scan's end.
    async fn read_region(
        &mut self,
        location: RegionLocation,
        rows: &mpsc::Sender<Ahead>,
        attempts: &mut Attempts,
    ) -> Result<bool, Fault> {
        let mut remote = Remote {
            client: self.client.clone(),
            location,
            scanner: None,
            lease: Duration::from_mins(1),
        };
        loop {
            let position = self.assembler.position();
            let limit = position.limit();
            let (start, include_start) = position.start();
            let request = if let Some(scanner) = &mut remote.scanner {
                scanner.next(&self.scan, limit)
            } else {
                let metrics = self.client.metrics();
                metrics.scanners_opened.one();
                if std::mem::take(&mut self.faulted) {
                    metrics.scanners_reopened.one();
                }
                let region = remote.location.region.name();
                open_scanner(&self.scan, region, start, include_start, limit)
            };
            let answer = remote.call(&request, attempts).await?;
            remote.opened(&answer);
            if answer.heartbeat {
                // The server is at work.
                *attempts = self.attempts();
            }
            let mut whole = Vec::new();
            let step = self
                .assembler
                .answer(answer, &remote.location.region, &mut whole)
                .map_err(|error| Fault::Stop(Stop::Failed(attempts.fail(error.into(), false))))?;
            if !whole.is_empty() {
                self.out_of_order = 0;
                remote.hand_over(whole, rows).await?;
                // The caller's time is not ours.
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
            // Its region is where it was: the scanner alone is gone.
            Some(ExceptionClass::ScannerGone) => attempts.at_once(error.into()),
            Some(ExceptionClass::ScannerOutOfOrder) => {
                self.out_of_order += 1;
                if self.out_of_order > MAX_OUT_OF_ORDER {
                    return Err(attempts.fail(error.into(), false));
                }
                attempts.at_once(error.into())
            }
            _ => self.client.recover(location, error, true, attempts).await,
        }
    }
}

/// Why a region was not read to its end.
enum Fault {
    Call(CallError),
    /// The scanner is gone or may be, for a reason that is no failure.
    Reopen,
    Stop(Stop),
}

impl From<CallError> for Fault {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl Remote {
    async fn call(
        &self,
        request: &pb::ScanRequest,
        attempts: &Attempts,
    ) -> Result<ScanAnswer, Fault> {
        let timeout = self.client.config().scan_timeout;
        let call = RegionCall { method: "Scan", class: CallClass::Scans, priority: None, timeout };
        let answer =
            self.client.call_region(&self.location, call, request, Bytes::new(), attempts).await?;
        let (response, block) = self.client.read::<pb::ScanResponse>(&self.location, &answer)?;
        ScanAnswer::decode(&response, block)
            .map_err(|error| Fault::Stop(Stop::Failed(attempts.fail(Failure::Cells(error), false))))
    }

    /// Keeps the scanner that an answer speaks of, or forgets it.
    fn opened(&mut self, answer: &ScanAnswer) {
        if let Some(lease) = answer.lease_ms.filter(|lease| *lease > 0) {
            self.lease = Duration::from_millis(lease.into());
        }
        self.scanner = answer.open_after(self.scanner);
    }

    /// Waits until the caller takes the rows, and keeps the scanner alive meanwhile.
    async fn hand_over(
        &mut self,
        whole: Vec<ScanRow>,
        rows: &mpsc::Sender<Ahead>,
    ) -> Result<(), Fault> {
        let mut renewals = 0;
        let mut lost = false;
        let permit = loop {
            match timeout(self.lease / 2, rows.reserve()).await {
                Ok(Ok(permit)) => break permit,
                Ok(Err(_)) => return Err(Fault::Stop(Stop::Unwanted)),
                Err(_) => {}
            }
            let Some(scanner) = self.scanner.as_mut().filter(|_| renewals < MAX_RENEWALS) else {
                lost |= self.scanner.take().is_some();
                continue;
            };
            renewals += 1;
            self.client.metrics().scanners_renewed.one();
            let request = scanner.renew();
            let attempts =
                Attempts::new("renew lease", self.client.config(), self.client.metrics(), None);
            if self.call(&request, &attempts).await.is_err() {
                // Opening it again finds out what is wrong.
                lost |= self.scanner.take().is_some();
            }
        };
        permit.send(Ok(Some(whole)));
        if lost { Err(Fault::Reopen) } else { Ok(()) }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let Some(scanner) = self.scanner.take() else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let (client, location) = (self.client.clone(), self.location.clone());
        // Nobody waits for the answer; without the call the lease ends it.
        runtime.spawn(async move {
            let timeout = client.config().call_timeout;
            let call = RegionCall {
                method: "Scan",
                class: CallClass::Scans,
                priority: Some(CLOSE_PRIORITY),
                timeout,
            };
            let attempts = Attempts::new("close scanner", client.config(), client.metrics(), None);
            let _ = client
                .call_region(&location, call, &scanner.close(), Bytes::new(), &attempts)
                .await;
        });
    }
}
