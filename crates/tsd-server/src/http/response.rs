//! Responses of routes (status, content type, content) and the bodies hyper sends.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::Stream;
use hyper::{
    StatusCode,
    body::{Body, Frame, SizeHint},
    header::{HeaderName, HeaderValue},
};
use tsd_protocol::Compressor;

use crate::{identity_limits::RunningQuery, timeout_io::ActiveRequest};

/// Maximum bytes to hand to the connection at once. The connection copies them to its write buffer, and accepts the
/// next bytes when less than its buffer size is unsent. So at most
/// [`HTTP_ACTIVE_BYTES`](crate::connection_memory::HTTP_ACTIVE_BYTES) of a response are outside of its own memory.
const SLICE_BYTES: usize = 16 << 10;

/// Content types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentType {
    /// API responses.
    Json,
    /// JSONP. OpenTSDB sends it as JSON, which browsers do not execute with `nosniff`.
    Script,
    /// JSON outside `/api`.
    LegacyJson,
    /// HTML pages.
    Html,
    /// Plain text.
    Text,
    /// Lines of points, as OpenTSDB sends them from a file.
    PlainText,
    /// Tables.
    Csv,
    /// Pictures.
    Png,
    /// Prometheus exposition.
    Metrics,
    /// Style sheets.
    Css,
    /// GIF images.
    Gif,
    /// Icons.
    Icon,
    /// SVG images.
    Svg,
}

impl ContentType {
    /// Returns false for images, whose formats already compress.
    pub(crate) const fn is_compressible(self) -> bool {
        !matches!(self, Self::Png | Self::Gif | Self::Icon)
    }

    /// Returns the header value.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "application/json; charset=UTF-8",
            Self::Script => "text/javascript; charset=UTF-8",
            Self::LegacyJson => "application/json",
            Self::Html => "text/html; charset=UTF-8",
            Self::Text => "text/plain; charset=UTF-8",
            Self::Csv => "text/csv; charset=UTF-8",
            Self::PlainText => "text/plain",
            Self::Png => "image/png",
            Self::Metrics => "text/plain; version=0.0.4; charset=utf-8",
            Self::Css => "text/css; charset=UTF-8",
            Self::Gif => "image/gif",
            Self::Icon => "image/x-icon",
            Self::Svg => "image/svg+xml",
        }
    }
}

/// A failure after the response head was sent; the connection is closed.
#[derive(Debug, thiserror::Error)]
#[error("response aborted: {0}")]
pub(crate) struct ResponseAborted(pub(crate) String);

/// Chunks of a body that is generated while it is sent. Dropping the stream stops the generation.
pub(crate) type Chunks = Pin<Box<dyn Stream<Item = Result<Bytes, ResponseAborted>> + Send>>;

/// Content of a response.
pub(crate) enum ResponseContent {
    /// No body.
    Empty,
    /// A complete body.
    Full(Bytes),
    /// A body in chunks.
    Chunks(Chunks),
    /// A body in chunks of this length in all, which is not compressed.
    File(u64, Chunks),
}

/// Called when the whole body is in the write buffer of the connection. Dropped without a call if sending fails.
pub(crate) type OnSent = Box<dyn FnOnce() + Send>;

/// The response of a route.
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) content_type: Option<ContentType>,
    pub(crate) body: ResponseContent,
    pub(crate) close: bool,
    /// Headers in addition to the headers of every response.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) on_sent: Option<OnSent>,
    /// Held until the response is sent.
    pub(crate) running_query: Option<RunningQuery>,
}

impl HttpResponse {
    pub(crate) fn new(
        status: StatusCode,
        content_type: ContentType,
        body: impl Into<Bytes>,
    ) -> Self {
        Self {
            content_type: Some(content_type),
            body: ResponseContent::Full(body.into()),
            ..Self::status_only(status)
        }
    }

    pub(crate) fn json(body: impl Into<Bytes>) -> Self {
        Self::new(StatusCode::OK, ContentType::Json, body)
    }

    pub(crate) const fn status_only(status: StatusCode) -> Self {
        Self {
            status,
            content_type: None,
            body: ResponseContent::Empty,
            close: false,
            headers: Vec::new(),
            on_sent: None,
            running_query: None,
        }
    }

    pub(crate) fn chunks(content_type: ContentType, chunks: Chunks) -> Self {
        Self {
            content_type: Some(content_type),
            body: ResponseContent::Chunks(chunks),
            ..Self::status_only(StatusCode::OK)
        }
    }

    /// A file of this length.
    pub(crate) fn file(content_type: ContentType, length: u64, chunks: Chunks) -> Self {
        Self {
            content_type: Some(content_type),
            body: ResponseContent::File(length, chunks),
            ..Self::status_only(StatusCode::OK)
        }
    }

    /// Adds a header.
    #[must_use]
    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Sets the callback for a completely sent body.
    #[must_use]
    pub(crate) fn with_on_sent(mut self, on_sent: OnSent) -> Self {
        self.on_sent = Some(on_sent);
        self
    }

    #[must_use]
    pub(crate) const fn close_if(mut self, close: bool) -> Self {
        self.close = close;
        self
    }

    /// Returns the body of a response that is not chunked.
    #[cfg(test)]
    pub(crate) fn full_body(&self) -> Bytes {
        match &self.body {
            ResponseContent::Full(bytes) => bytes.clone(),
            ResponseContent::Empty | ResponseContent::Chunks(_) | ResponseContent::File(..) => {
                Bytes::new()
            }
        }
    }
}

/// The body that hyper sends. The request stays in progress, and the memory of its response reserved, until the
/// connection has taken the last slice.
pub(crate) struct OutgoingBody {
    source: Source,
    /// Content not yet handed to the connection.
    rest: Bytes,
    active_request: Option<ActiveRequest>,
    on_sent: Option<OnSent>,
    running_query: Option<RunningQuery>,
}

enum Source {
    Full(Option<Bytes>),
    Chunks {
        head: Option<Bytes>,
        chunks: Chunks,
        tail: Option<Bytes>,
        compressor: Option<Box<Compressor>>,
        /// Yields to other tasks before generating the next chunk.
        yield_next: bool,
    },
    Ended,
}

impl OutgoingBody {
    pub(crate) fn full(bytes: Bytes, active_request: ActiveRequest) -> Self {
        let bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
        Self::new(Source::Full(bytes), active_request)
    }

    /// Sends `head`, the chunks and `tail`, compressed by `compressor`.
    pub(crate) fn chunks(
        head: Option<Bytes>,
        chunks: Chunks,
        tail: Option<Bytes>,
        compressor: Option<Box<Compressor>>,
        active_request: ActiveRequest,
    ) -> Self {
        let source = Source::Chunks { head, chunks, tail, compressor, yield_next: false };
        Self::new(source, active_request)
    }

    const fn new(source: Source, active_request: ActiveRequest) -> Self {
        Self {
            source,
            rest: Bytes::new(),
            active_request: Some(active_request),
            on_sent: None,
            running_query: None,
        }
    }

    /// Holds a query until the last byte is handed to the connection.
    pub(crate) fn with_running_query(mut self, query: Option<RunningQuery>) -> Self {
        self.running_query = query;
        self
    }

    /// Sets the callback for the last byte handed to the connection.
    pub(crate) fn with_on_sent(mut self, on_sent: Option<OnSent>) -> Self {
        self.on_sent = on_sent;
        self
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, ResponseAborted>>> {
        loop {
            match &mut self.source {
                Source::Ended => return Poll::Ready(None),
                Source::Full(bytes) => {
                    let bytes = bytes.take();
                    self.source = Source::Ended;
                    return Poll::Ready(bytes.map(Ok));
                }
                Source::Chunks { head, chunks, tail, compressor, yield_next } => {
                    // A chunk renders some thousand points. Without the yield, a fast reader
                    // would keep this thread generating chunks.
                    if std::mem::take(yield_next) {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    let chunk = match head.take() {
                        Some(head) => Some(head),
                        None => match ready!(chunks.as_mut().poll_next(cx)) {
                            Some(Ok(chunk)) => Some(chunk),
                            Some(Err(error)) => {
                                self.source = Source::Ended;
                                return Poll::Ready(Some(Err(error)));
                            }
                            None => None,
                        },
                    };
                    let result = match (chunk, compressor.as_mut()) {
                        (Some(chunk), None) => Ok(chunk),
                        (Some(chunk), Some(compressor)) => compressor.push(&chunk),
                        (None, _) => {
                            let last = last_chunk(tail.take(), compressor.take());
                            self.source = Source::Ended;
                            last
                        }
                    };
                    match result {
                        Ok(bytes) if bytes.is_empty() => {}
                        Ok(bytes) => {
                            if let Source::Chunks { yield_next, .. } = &mut self.source {
                                *yield_next = true;
                            }
                            return Poll::Ready(Some(Ok(bytes)));
                        }
                        Err(error) => {
                            self.source = Source::Ended;
                            return Poll::Ready(Some(Err(ResponseAborted(error.to_string()))));
                        }
                    }
                }
            }
        }
    }
}

fn last_chunk(tail: Option<Bytes>, compressor: Option<Box<Compressor>>) -> std::io::Result<Bytes> {
    let tail = tail.unwrap_or_default();
    match compressor {
        Some(compressor) => compressor.finish(&tail),
        None => Ok(tail),
    }
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = ResponseAborted;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseAborted>>> {
        let this = self.get_mut();
        let mut next = None;
        if this.rest.is_empty() {
            match ready!(this.poll_next(cx)) {
                Some(Ok(bytes)) => this.rest = bytes,
                other => next = other,
            }
        }
        if !this.rest.is_empty() {
            next = Some(Ok(this.rest.split_to(this.rest.len().min(SLICE_BYTES))));
        }
        if this.is_end_stream() {
            this.active_request = None;
            this.running_query = None;
            let on_sent = this.on_sent.take();
            if let (Some(call), None | Some(Ok(_))) = (on_sent, &next) {
                call();
            }
        }
        Poll::Ready(next.map(|chunk| chunk.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && matches!(self.source, Source::Ended | Source::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        match &self.source {
            Source::Full(Some(bytes)) => SizeHint::with_exact(rest + bytes.len() as u64),
            Source::Full(None) | Source::Ended => SizeHint::with_exact(rest),
            Source::Chunks { .. } => SizeHint::default(),
        }
    }
}
