//! The publisher to an HTTP receiver: each batch is the body of a POST, JSON lines.
//!
//! A batch is delivered when the receiver answers with 2xx. After 408, 429 and 5xx the publisher retries; any
//! other status rejects the batch.

use std::{str::FromStr, sync::Arc};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, StatusCode, Uri,
    client::conn::http1::{self, SendRequest},
    header,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tsd_engine::PluginBatch;
use tsd_tls::ClientTls;

use super::{
    json_lines,
    sink::{Sink, SinkError, TIMEOUT},
};

/// Content type of the bodies.
const CONTENT_TYPE: &str = "application/x-ndjson";
/// Maximum bytes of an answer to read, so that the connection can be reused.
const MOST_ANSWER_BYTES: usize = 64 << 10;

/// The URL of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublisherUrl {
    /// `HOST:PORT`
    authority: String,
    path: String,
    is_encrypted: bool,
}

/// A text is not a valid URL of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH")]
pub struct PublisherUrlError;

impl PublisherUrl {
    /// Returns true for `https`.
    #[must_use]
    pub const fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }
}

impl FromStr for PublisherUrl {
    type Err = PublisherUrlError;

    fn from_str(text: &str) -> Result<Self, PublisherUrlError> {
        let no_url = PublisherUrlError;
        let uri: Uri = text.parse().map_err(|_| no_url)?;
        let (is_encrypted, default_port) = match uri.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            _ => return Err(no_url),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or(no_url)?;
        let authority = format!("{host}:{}", uri.port_u16().unwrap_or(default_port));
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { authority, path, is_encrypted })
    }
}

/// Posts batches to a URL.
pub(super) struct HttpPublisher {
    url: PublisherUrl,
    /// TLS; `None` for `http`.
    tls: Option<Arc<ClientTls>>,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl HttpPublisher {
    pub(super) const fn new(url: PublisherUrl, tls: Option<Arc<ClientTls>>) -> Self {
        Self { url, tls, sender: None }
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, SinkError> {
        let authority = &self.url.authority;
        let stream = TcpStream::connect(authority).await?;
        let Some(tls) = &self.tls else { return Self::handshake(stream).await };
        let host = authority.rsplit_once(':').map_or(&**authority, |(host, _)| host);
        Self::handshake(tls.connect(host, stream).await?).await
    }

    async fn handshake(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<SendRequest<Full<Bytes>>, SinkError> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection of the publisher ended");
            }
        });
        Ok(sender)
    }

    /// Sends a request and returns the status of its answer.
    async fn post(&mut self, body: Bytes) -> Result<StatusCode, SinkError> {
        let mut sender = match self.sender.take() {
            Some(sender) if !sender.is_closed() => sender,
            _ => self.connect().await?,
        };
        sender.ready().await?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(&self.url.path)
            .header(header::HOST, &self.url.authority)
            .header(header::CONTENT_TYPE, CONTENT_TYPE)
            .body(Full::new(body))
            .map_err(|error| SinkError::Refused(error.to_string()))?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        if Limited::new(answer.into_body(), MOST_ANSWER_BYTES).collect().await.is_ok() {
            self.sender = Some(sender);
        }
        Ok(status)
    }
}

impl Sink for HttpPublisher {
    async fn deliver(&mut self, batch: &PluginBatch) -> Result<u64, SinkError> {
        let body = Bytes::from(json_lines::render(batch));
        let answer = timeout(TIMEOUT, self.post(body)).await;
        let authority = &self.url.authority;
        let status = match answer {
            Err(_) => return Err(SinkError::Retry(format!("no answer from {authority}"))),
            Ok(answer) => answer.map_err(|error| match error {
                SinkError::Retry(reason) => SinkError::Retry(format!("{authority}: {reason}")),
                refused @ SinkError::Refused(_) => refused,
            })?,
        };
        let text = || format!("{authority} answered {status}");
        match status {
            status if status.is_success() => Ok(0),
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
                Err(SinkError::Retry(text()))
            }
            status if status.is_server_error() => Err(SinkError::Retry(text())),
            _ => Err(SinkError::Refused(text())),
        }
    }
}

impl From<hyper::Error> for SinkError {
    fn from(error: hyper::Error) -> Self {
        Self::Retry(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_scheme_and_a_host() {
        let url = |authority: &str, path: &str, is_encrypted| {
            Ok(PublisherUrl {
                authority: authority.to_owned(),
                path: path.to_owned(),
                is_encrypted,
            })
        };
        assert_eq!("http://a:8080/in?x=1".parse(), url("a:8080", "/in?x=1", false));
        assert_eq!("http://[::1]".parse(), url("[::1]:80", "/", false));
        assert_eq!("https://a/".parse(), url("a:443", "/", true));
        assert_eq!("HTTPS://a:8443/in".parse(), url("a:8443", "/in", true));
        for text in ["ftp://a/", "a:80", "/in", "http:///in", ""] {
            assert_eq!(text.parse::<PublisherUrl>(), Err(PublisherUrlError), "{text}");
        }
    }
}
