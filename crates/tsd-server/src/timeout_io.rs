//! A socket with timeouts for idle clients, slow request headers and unread responses.
//!
//! A read or write that takes too long fails as on a broken socket, so the telnet and HTTP code need no
//! timers.
//!
//! hyper's header timer also runs while a keep-alive connection is idle, and would disconnect every
//! collector that sends once a minute, so it is not used. hyper either serves half-closed clients or
//! detects disconnects, not both. So this type withholds the end of input for a grace period while a
//! request is in progress.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

use crate::reader_pace::{MemoryPressure, ReaderPace};

/// Timeouts of one connection; `None` is unlimited.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IoTimeouts {
    /// Time without reads and writes.
    pub(crate) idle: Option<Duration>,
    /// Time from the first byte of a request to [`RequestTracker::request_received`].
    pub(crate) header: Option<Duration>,
    /// Time without write progress.
    pub(crate) write: Option<Duration>,
    /// Time in which a client must read some bytes of its response while other requests wait for memory.
    pub(crate) response_stall: Option<Duration>,
    /// How long to withhold the end of input while a request is in progress.
    pub(crate) half_close: Duration,
}

/// Origin of the times of [`RequestTracker`].
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Request state shared by a socket and its request handler.
#[derive(Debug)]
pub(crate) struct RequestTracker {
    /// Time of the last read or write, milliseconds.
    last_activity_ms: AtomicU64,
    /// True while a request is half read.
    is_half_read: AtomicBool,
    /// True if there was no memory for the arriving request.
    is_without_memory: AtomicBool,
    active_request: AtomicUsize,
    /// Requests whose headers are complete; a change stops the header timeout.
    received: AtomicUsize,
    timed_out: AtomicBool,
}

impl Default for RequestTracker {
    fn default() -> Self {
        Self {
            last_activity_ms: AtomicU64::new(now_ms()),
            is_half_read: AtomicBool::new(false),
            is_without_memory: AtomicBool::new(false),
            active_request: AtomicUsize::new(0),
            received: AtomicUsize::new(0),
            timed_out: AtomicBool::new(false),
        }
    }
}

fn now_ms() -> u64 {
    u64::try_from(EPOCH.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl RequestTracker {
    /// Returns how long the connection has been idle; `None` if it is active. A half-read request counts as idle only
    /// after `half_read_patience` without further bytes.
    pub(crate) fn idle_time(&self, half_read_patience: Duration) -> Option<Duration> {
        if self.has_active_request() {
            return None;
        }
        let quiet_ms = now_ms().saturating_sub(self.last_activity_ms.load(Ordering::Relaxed));
        let quiet = Duration::from_millis(quiet_ms);
        if self.is_half_read.load(Ordering::Relaxed) {
            return quiet.checked_sub(half_read_patience);
        }
        Some(quiet)
    }

    /// Returns true if no request is in progress or half read.
    pub(crate) fn is_idle(&self) -> bool {
        !self.has_active_request() && !self.is_half_read.load(Ordering::Relaxed)
    }

    /// Records whether a request is half read.
    pub(crate) fn set_half_read(&self, is_half_read: bool) {
        self.is_half_read.store(is_half_read, Ordering::Relaxed);
    }

    /// Records whether there was no memory for the arriving request.
    pub(crate) fn set_without_memory(&self, is_without_memory: bool) {
        self.is_without_memory.store(is_without_memory, Ordering::Relaxed);
    }

    fn is_without_memory(&self) -> bool {
        self.is_without_memory.load(Ordering::Relaxed)
    }

    /// Records a read or write.
    pub(crate) fn record_activity(&self) {
        self.last_activity_ms.store(now_ms(), Ordering::Relaxed);
    }

    /// Records a complete request head. The request is in progress until the guard is dropped.
    pub(crate) fn request_received(self: &Arc<Self>) -> ActiveRequest {
        self.set_half_read(false);
        self.received.fetch_add(1, Ordering::Relaxed);
        self.active_request.fetch_add(1, Ordering::Relaxed);
        ActiveRequest(Arc::clone(self))
    }

    /// Returns true if a timeout closed the socket.
    pub(crate) fn timed_out(&self) -> bool {
        self.timed_out.load(Ordering::Relaxed)
    }

    fn time_out(&self) -> io::Error {
        self.timed_out.store(true, Ordering::Relaxed);
        io::ErrorKind::TimedOut.into()
    }

    pub(crate) fn has_active_request(&self) -> bool {
        self.active_request.load(Ordering::Relaxed) > 0
    }
}

/// Guard of a request in progress.
#[derive(Debug)]
pub(crate) struct ActiveRequest(Arc<RequestTracker>);

impl ActiveRequest {
    /// Returns true if there was no memory for the request.
    pub(crate) fn is_without_memory(&self) -> bool {
        self.0.is_without_memory()
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.active_request.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream with the timeouts of [`IoTimeouts`].
#[derive(Debug)]
pub(crate) struct TimeoutIo<S> {
    inner: S,
    timeouts: IoTimeouts,
    tracker: Arc<RequestTracker>,
    last_activity: Instant,
    /// Time of the first byte of a request, and the number of requests received before it.
    head: Option<(Instant, usize)>,
    end_of_input: Option<Instant>,
    read_timer: Option<Pin<Box<Sleep>>>,
    write_timer: Option<Pin<Box<Sleep>>>,
    /// True while a flush is pending.
    is_flushing: bool,
    pace: ReaderPace,
    pressure: Option<Arc<dyn MemoryPressure>>,
}

impl<S> TimeoutIo<S> {
    pub(crate) fn new(inner: S, timeouts: IoTimeouts, tracker: Arc<RequestTracker>) -> Self {
        Self {
            inner,
            timeouts,
            tracker,
            last_activity: Instant::now(),
            head: None,
            end_of_input: None,
            read_timer: None,
            write_timer: None,
            is_flushing: false,
            pace: ReaderPace::default(),
            pressure: None,
        }
    }

    /// Aborts responses that stall while other requests wait for memory.
    pub(crate) fn with_pressure(mut self, pressure: Arc<dyn MemoryPressure>) -> Self {
        self.pressure = Some(pressure);
        self
    }

    /// Returns when a pending read times out; `None` without a timeout.
    fn read_deadline(&mut self) -> Option<Instant> {
        let active_request = self.tracker.has_active_request();
        if let Some(ended) = self.end_of_input {
            // Checked again when the response is complete or the grace period is over.
            return Some(if active_request { ended + self.timeouts.half_close } else { ended });
        }
        let idle = self.timeouts.idle.map(|idle| {
            let since = if active_request { Instant::now() } else { self.last_activity };
            since + idle
        });
        if self.head.is_some_and(|(_, seen)| seen != self.tracker.received.load(Ordering::Relaxed))
        {
            self.head = None;
        }
        let head = match (self.head, self.timeouts.header) {
            (Some((began, _)), Some(limit)) => Some(began + limit),
            _ => None,
        };
        match (idle, head) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Fails a pending read after its deadline. A withheld end of input then becomes visible.
    fn poll_read_timeout(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let Some(deadline) = self.read_deadline() else {
                self.read_timer = None;
                return Poll::Pending;
            };
            if deadline <= Instant::now() {
                return Poll::Ready(if self.end_of_input.is_some() {
                    Ok(())
                } else {
                    Err(self.tracker.time_out())
                });
            }
            let timer =
                self.read_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            // Rearms a timer that fired early, and advances a timer that is set too late.
            if timer.is_elapsed() || timer.deadline() > deadline {
                timer.as_mut().reset(deadline);
            }
            ready!(timer.as_mut().poll(cx));
        }
    }

    /// Completes once the current response has stalled.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match (self.timeouts.response_stall, &self.pressure) {
            (Some(stall), Some(pressure)) if self.tracker.has_active_request() => {
                let request = self.tracker.received.load(Ordering::Relaxed);
                self.pace.poll_stalled(cx, request, stall, &**pressure)
            }
            _ => Poll::Pending,
        }
    }

    /// Records a write. Fails it if it made no progress within the write timeout, or if its response has stalled.
    fn after_write(
        &mut self,
        cx: &mut Context<'_>,
        result: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = &result {
            self.pace.record(*written.as_ref().unwrap_or(&0));
            self.write_timer = None;
            self.last_activity = Instant::now();
            self.tracker.record_activity();
            return result;
        }
        self.poll_write_timeout(cx).map(Err)
    }

    /// Completes with the error of a write or flush that made no progress within the write timeout, or whose response
    /// has stalled.
    fn poll_write_timeout(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.poll_stalled(cx).is_ready() {
            metrics::counter!("tsd_server_stalled_responses_total").increment(1);
            return Poll::Ready(self.tracker.time_out());
        }
        if let Some(limit) = self.timeouts.write {
            let timer = self.write_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
            ready!(timer.as_mut().poll(cx));
            return Poll::Ready(self.tracker.time_out());
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimeoutIo<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.end_of_input.is_some() {
            return this.poll_read_timeout(cx);
        }
        let before = buf.filled().len();
        match Pin::new(&mut this.inner).poll_read(cx, buf) {
            Poll::Ready(Ok(())) if buf.filled().len() > before => {
                this.last_activity = Instant::now();
                this.tracker.record_activity();
                if !this.tracker.has_active_request() {
                    this.tracker.set_half_read(true);
                }
                // Bytes received during a request belong to its body or to a pipelined request,
                // which stays in the parser's buffer as on an idle connection.
                if this.head.is_none() && !this.tracker.has_active_request() {
                    let received = this.tracker.received.load(Ordering::Relaxed);
                    this.head = Some((this.last_activity, received));
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Ok(())) => {
                this.end_of_input = Some(Instant::now());
                this.poll_read_timeout(cx)
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => this.poll_read_timeout(cx),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimeoutIo<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.inner).poll_write(cx, buf);
        this.after_write(cx, result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.inner).poll_write_vectored(cx, bufs);
        this.after_write(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // A socket has nothing to flush, TLS has records that the socket has not accepted.
        match Pin::new(&mut this.inner).poll_flush(cx) {
            Poll::Pending => {
                this.is_flushing = true;
                this.poll_write_timeout(cx).map(Err)
            }
            flushed @ Poll::Ready(_) => {
                if std::mem::take(&mut this.is_flushing) {
                    let progress = flushed.map_ok(|()| 0);
                    return this.after_write(cx, progress).map_ok(|_| ());
                }
                flushed
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn timeouts() -> IoTimeouts {
        IoTimeouts {
            idle: Some(Duration::from_mins(1)),
            header: Some(Duration::from_secs(10)),
            write: Some(Duration::from_secs(5)),
            response_stall: None,
            half_close: Duration::from_secs(3),
        }
    }

    fn timed<S>(inner: S) -> (TimeoutIo<S>, Arc<RequestTracker>) {
        let tracker = Arc::<RequestTracker>::default();
        (TimeoutIo::new(inner, timeouts(), Arc::clone(&tracker)), tracker)
    }

    async fn seconds_of<T>(future: impl Future<Output = T>) -> (u64, T) {
        let began = Instant::now();
        let value = future.await;
        (began.elapsed().as_secs(), value)
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_times_out() {
        let (_client, server) = tokio::io::duplex(64);
        let (mut io, _pulse) = timed(server);
        let (seconds, end) = seconds_of(io.read_u8()).await;
        assert_eq!((seconds, end.unwrap_err().kind()), (60, io::ErrorKind::TimedOut));
    }

    #[tokio::test(start_paused = true)]
    async fn incomplete_header_times_out() {
        let (mut client, server) = tokio::io::duplex(64);
        let (mut io, _pulse) = timed(server);
        client.write_all(b"G").await.unwrap();
        assert_eq!(io.read_u8().await.unwrap(), b'G');
        let (seconds, end) = seconds_of(io.read_u8()).await;
        assert_eq!((seconds, end.unwrap_err().kind()), (10, io::ErrorKind::TimedOut));
    }

    #[tokio::test(start_paused = true)]
    async fn active_request_is_not_idle() {
        let (mut client, server) = tokio::io::duplex(64);
        let (mut io, tracker) = timed(server);
        client.write_all(b"G").await.unwrap();
        io.read_u8().await.unwrap();
        let active_request = tracker.request_received();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_mins(5)).await;
            drop(active_request);
        });
        let (seconds, end) = seconds_of(io.read_u8()).await;
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(seconds >= 300, "{seconds}");
    }

    #[tokio::test(start_paused = true)]
    async fn end_of_input_is_withheld_during_a_request() {
        let (mut client, server) = tokio::io::duplex(64);
        let (mut io, tracker) = timed(server);
        client.shutdown().await.unwrap();
        let active_request = tracker.request_received();
        let mut buf = [0; 1];
        let (seconds, end) = seconds_of(io.read(&mut buf)).await;
        assert_eq!((seconds, end.unwrap()), (3, 0));
        drop(active_request);
        let (seconds, end) = seconds_of(io.read(&mut buf)).await;
        assert_eq!((seconds, end.unwrap()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn unread_response_times_out() {
        let (_client, server) = tokio::io::duplex(4);
        let (mut io, _pulse) = timed(server);
        let (seconds, end) = seconds_of(io.write_all(b"more than four")).await;
        assert_eq!((seconds, end.unwrap_err().kind()), (5, io::ErrorKind::TimedOut));
    }
}
