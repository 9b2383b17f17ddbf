//! The socket of an HTTP connection: withholds hyper's own error responses, and accounts for the buffers of requests.
//!
//! hyper answers a head that it cannot parse with a status line and no body, as the last bytes of the connection. This
//! type recognizes and drops such an answer, so that the connection can end with an error object instead.
//!
//! It reports no support for vectored writes (`is_write_vectored`). So hyper copies a response to its write buffer,
//! slice by slice as the socket accepts them. The memory of the response is released when the last slice is copied.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use hyper::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    connection_memory::{HTTP_ACTIVE_BYTES, HTTP_IDLE_BYTES},
    open_connections::{OpenConnection, OpenConnections},
    timeout_io::TimeoutIo,
};

/// hyper's own answers to heads: the text after the version in the status line, and the status.
const OWN_ANSWERS: [(&[u8], StatusCode); 3] = [
    (b" 400 Bad Request", StatusCode::BAD_REQUEST),
    (b" 414 URI Too Long", StatusCode::URI_TOO_LONG),
    (b" 431 Request Header Fields Too Large", StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
];
const VERSIONS: [&[u8]; 2] = [b"HTTP/1.1", b"HTTP/1.0"];
/// The end of these answers. HTTP/1.0 has no such header, since its connections close by default.
const CLOSE: &[u8] = b"\r\nConnection: close";
const NO_CONTENT: &[u8] = b"\r\nContent-Length: 0\r\n\r\n";

/// The socket of an HTTP connection.
pub(super) struct ConnectionIo<S> {
    pub(super) inner: TimeoutIo<S>,
    connections: Arc<OpenConnections>,
    connection: Arc<OpenConnection>,
    /// True while the buffers of a request are accounted for.
    is_active: bool,
    /// True while the socket accepts no more bytes of hyper's write buffer.
    is_full: bool,
    /// Status of hyper's withheld answer.
    withheld: Option<StatusCode>,
}

impl<S> ConnectionIo<S> {
    pub(super) const fn new(
        inner: TimeoutIo<S>,
        connections: Arc<OpenConnections>,
        connection: Arc<OpenConnection>,
    ) -> Self {
        Self { inner, connections, connection, is_active: false, is_full: false, withheld: None }
    }

    /// Returns the status of hyper's withheld answer, if there was one.
    pub(super) const fn withheld(&self) -> Option<StatusCode> {
        self.withheld
    }

    /// Reserves the buffers of a request when its first bytes arrive, and releases them while the connection waits for
    /// the next request.
    fn account(&mut self, is_read: bool) {
        let tracker = &self.connection.tracker;
        if is_read && !self.is_active {
            self.is_active = self.connections.reserve_memory(&self.connection, HTTP_ACTIVE_BYTES);
            tracker.set_without_memory(!self.is_active);
        } else if !is_read && self.is_active && !self.is_full && tracker.is_idle() {
            self.is_active = false;
            self.connection.keep_memory(HTTP_IDLE_BYTES);
        }
    }

    /// Returns the length and the status of hyper's answer at the end of `bytes`.
    fn own_answer(&self, bytes: &[u8]) -> Option<(usize, StatusCode)> {
        // While a request is in progress, these are bytes of its response.
        if self.connection.tracker.has_active_request() {
            return None;
        }
        let head = bytes.strip_suffix(NO_CONTENT)?;
        let head = head.strip_suffix(CLOSE).unwrap_or(head);
        let (before, status) = OWN_ANSWERS
            .iter()
            .find_map(|(text, status)| Some((head.strip_suffix(*text)?, *status)))?;
        let before = VERSIONS.iter().find_map(|version| before.strip_suffix(*version))?;
        Some((bytes.len() - before.len(), status))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ConnectionIo<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let polled = Pin::new(&mut this.inner).poll_read(cx, buf);
        match polled {
            Poll::Pending => this.account(false),
            Poll::Ready(Ok(())) if buf.filled().len() > before => this.account(true),
            Poll::Ready(_) => {}
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ConnectionIo<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let mut sent = buf;
        if let Some((length, status)) = this.own_answer(buf) {
            // Responses to earlier requests may precede it.
            sent = buf.get(..buf.len() - length).unwrap_or_default();
            if sent.is_empty() {
                this.withheld = Some(status);
                return Poll::Ready(Ok(length));
            }
        }
        let polled = Pin::new(&mut this.inner).poll_write(cx, sent);
        this.is_full = polled.is_pending();
        polled
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let last = bufs.iter().rposition(|buf| !buf.is_empty());
        let at_end = last.and_then(|last| bufs.get(..last).zip(bufs.get(last)));
        match at_end {
            Some((before, last)) if self.own_answer(last).is_some() => {
                if before.iter().all(|buf| buf.is_empty()) {
                    return self.poll_write(cx, last);
                }
                Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, before)
            }
            _ => Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_flush(cx);
        this.is_full = polled.is_pending();
        polled
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.withheld.is_some() {
            // The replacing answer is not written yet.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.inner).poll_shutdown(cx)
    }
}
