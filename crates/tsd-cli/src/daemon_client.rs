//! HTTP client of a running daemon, for tools that find its data directory in use.

use std::{
    env, io,
    net::{Ipv6Addr, SocketAddr},
    pin::pin,
    sync::OnceLock,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, StatusCode,
    client::conn::http1,
    header::{self, HeaderValue},
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};

use crate::{daemon_tls, password, tell};

/// Port of a URL without one.
const DEFAULT_PORT: u16 = 4242;

/// The message of a daemon that does not serve a path, and its explanation.
const NO_ENDPOINT: &str = "Endpoint not found";
const NO_ENDPOINT_HINT: &str =
    "the daemon does not serve such requests (tsd.mode, tsd.core.enable_api)";

/// Silence after which the user is told that the command waits for a response.
const SILENCE: Duration = Duration::from_secs(10);

/// Variables with the secrets of the user. A command line would reveal the secrets to everybody on the host.
const PASSWORD_VARIABLE: &str = "TSDB_PASSWORD";
const TOKEN_VARIABLE: &str = "TSDB_TOKEN";

/// The `Authorization` header of all requests of this process.
static AUTHORIZATION: OnceLock<HeaderValue> = OnceLock::new();

/// Sets the user of all requests of this process: the named user with a password, else the user of the token in the
/// environment.
pub(crate) fn set_user(name: Option<&str>) -> anyhow::Result<()> {
    let value = match name {
        Some(name) => {
            let password = match env::var(PASSWORD_VARIABLE) {
                Ok(password) => password,
                Err(_) if password::is_interactive() => {
                    password::read(&format!("Password of {name}: "))?
                }
                Err(_) => {
                    anyhow::bail!("no password for {name}; set {PASSWORD_VARIABLE}")
                }
            };
            format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
        }
        None => match env::var(TOKEN_VARIABLE) {
            Ok(token) => format!("Bearer {token}"),
            Err(_) => return Ok(()),
        },
    };
    let mut value = HeaderValue::from_str(&value)
        .with_context(|| format!("{TOKEN_VARIABLE} is not a token: it has other characters"))?;
    value.set_sensitive(true);
    // There is only one call; the first value would stay.
    let _ = AUTHORIZATION.set(value);
    Ok(())
}

/// A connection to a daemon, opened when needed.
#[derive(Debug)]
pub(crate) struct DaemonClient {
    /// `host:port`
    authority: String,
    is_encrypted: bool,
    authorization: Option<HeaderValue>,
    sender: Option<http1::SendRequest<Full<Bytes>>>,
    /// True to report that a response takes long.
    tells_silence: bool,
}

/// A text that is not the URL of a daemon.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not the URL of a daemon; expected http://HOST:PORT or https://HOST:PORT")]
pub(crate) struct BadUrl(String);

/// Why a daemon gave no response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ClientError {
    /// The daemon cannot be reached.
    #[error("cannot connect to {authority}")]
    Connect {
        /// Host and port.
        authority: String,
        /// I/O error.
        source: io::Error,
    },
    /// TLS failed.
    #[error("cannot set up TLS with {authority}: {reason}")]
    Tls {
        /// Host and port.
        authority: String,
        /// The reason, and what to do.
        reason: String,
    },
    /// The connection broke.
    #[error("no response from {authority}")]
    Broken {
        /// Host and port.
        authority: String,
        /// HTTP error.
        source: hyper::Error,
    },
    /// The request cannot be built.
    #[error("invalid request")]
    Request(#[from] hyper::http::Error),
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct DaemonResponse {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

impl DaemonResponse {
    /// The body as JSON; null if it is not JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The message of an error response with its details, on one line.
    pub(crate) fn error_text(&self) -> String {
        let body = self.json();
        let text = |name: &str| body.get("error")?.get(name)?.as_str();
        let message = match (text("message"), text("details")) {
            // OpenTSDB repeats the message of an exception as its details.
            (Some(message), Some(details)) if details != message => format!("{message}: {details}"),
            (Some(NO_ENDPOINT), _) => format!("{NO_ENDPOINT}; {NO_ENDPOINT_HINT}"),
            (Some(message), _) => message.to_owned(),
            (None, _) => String::from_utf8_lossy(&self.body).chars().take(200).collect(),
        };
        format!("{} {}", self.status.as_u16(), message.replace('\n', " "))
    }
}

impl DaemonClient {
    /// A client of `http://HOST[:PORT][/]` or `https://HOST[:PORT][/]`; without a scheme it is `http`.
    pub(crate) fn new(url: &str) -> Result<Self, BadUrl> {
        let bad = || BadUrl(tsd_server::redacted("", url));
        let encrypted = url.strip_prefix("https://");
        let rest = encrypted.or_else(|| url.strip_prefix("http://")).unwrap_or(url);
        let rest = rest.trim_end_matches('/');
        if rest.is_empty() || rest.contains(['/', '@', ' ', '?', '#']) {
            return Err(bad());
        }
        let authority = if let Ok(ip) = rest.parse::<Ipv6Addr>() {
            SocketAddr::new(ip.into(), DEFAULT_PORT).to_string()
        } else if rest.ends_with(']') || !rest.contains(':') {
            format!("{rest}:{DEFAULT_PORT}")
        } else {
            let port = rest.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
            port.and_then(Result::ok).ok_or_else(bad)?;
            rest.to_owned()
        };
        let authorization = AUTHORIZATION.get().cloned();
        let is_encrypted = encrypted.is_some();
        Ok(Self { authority, is_encrypted, authorization, sender: None, tells_silence: true })
    }

    /// The same client without notices, for a caller that shows its own progress.
    pub(crate) fn without_notices(self) -> Self {
        Self { tells_silence: false, ..self }
    }

    /// Another connection to the same daemon.
    pub(crate) fn another(&self) -> Self {
        Self {
            authority: self.authority.clone(),
            is_encrypted: self.is_encrypted,
            authorization: self.authorization.clone(),
            sender: None,
            tells_silence: self.tells_silence,
        }
    }

    /// Host and port.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// The JSON of a response; fails with its message unless its status is 200.
    pub(crate) fn json_of(&self, response: &DaemonResponse) -> anyhow::Result<Value> {
        self.check(response)?;
        serde_json::from_slice(&response.body).context("the response is not JSON")
    }

    /// Fails with the message of a response unless its status is 200.
    pub(crate) fn check(&self, response: &DaemonResponse) -> anyhow::Result<()> {
        ensure!(response.status == 200, "{}: {}", self.authority, response.error_text());
        Ok(())
    }

    /// Sends a JSON body and reads the whole response.
    pub(crate) async fn post(
        &mut self,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<DaemonResponse, ClientError> {
        self.send(Method::POST, path, body.into()).await
    }

    /// Sends a request without a body and reads the whole response.
    pub(crate) async fn get(&mut self, path: &str) -> Result<DaemonResponse, ClientError> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    /// Sends a DELETE and reads the whole response.
    pub(crate) async fn delete(&mut self, path: &str) -> Result<DaemonResponse, ClientError> {
        self.send(Method::DELETE, path, Bytes::new()).await
    }

    /// Sends a request. A query may take long, so the wait for a response has no limit, but the user gets a notice.
    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<DaemonResponse, ClientError> {
        let (authority, tells_silence) = (self.authority.clone(), self.tells_silence);
        let tell_silence = || {
            if tells_silence {
                tell!(
                    "tsdb: {authority} has not responded for {} s; still waiting",
                    SILENCE.as_secs()
                );
            }
        };
        with_notice(self.exchange(method, path, body), tell_silence).await
    }

    async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<DaemonResponse, ClientError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.authority)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(value) = &self.authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        let request = request.body(Full::new(body))?;
        let mut sender = match self.sender.take().filter(|sender| !sender.is_closed()) {
            Some(sender) => sender,
            None => Box::pin(self.connect()).await?,
        };
        let broken = |source| ClientError::Broken { authority: self.authority.clone(), source };
        sender.ready().await.map_err(broken)?;
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(broken)?.to_bytes();
        self.sender = Some(sender);
        Ok(DaemonResponse { status, body })
    }

    async fn connect(&self) -> Result<http1::SendRequest<Full<Bytes>>, ClientError> {
        let stream = TcpStream::connect(&self.authority)
            .await
            .map_err(|source| ClientError::Connect { authority: self.authority.clone(), source })?;
        if !self.is_encrypted {
            return self.handshake(stream).await;
        }
        let host = self.authority.rsplit_once(':').map_or(&*self.authority, |(host, _)| host);
        let stream = daemon_tls::connect(host, stream)
            .await
            .map_err(|reason| ClientError::Tls { authority: self.authority.clone(), reason })?;
        self.handshake(stream).await
    }

    async fn handshake(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<http1::SendRequest<Full<Bytes>>, ClientError> {
        let broken = |source| ClientError::Broken { authority: self.authority.clone(), source };
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // The request reports the same error.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }
}

/// Waits for `work`, and calls `tell` once if it takes long.
async fn with_notice<T>(work: impl Future<Output = T>, tell: impl FnOnce()) -> T {
    let mut work = pin!(work);
    if let Ok(done) = timeout(SILENCE, &mut work).await {
        return done;
    }
    tell();
    work.await
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_long_silence_has_a_notice() {
        for (seconds, expected) in [(9, 0), (11, 1), (100, 1)] {
            let mut notices = 0;
            let work = tokio::time::sleep(Duration::from_secs(seconds));
            with_notice(work, || notices += 1).await;
            assert_eq!(notices, expected, "{seconds} s");
        }
    }

    #[test]
    fn urls_of_daemons_have_a_host_and_a_port() {
        for (url, authority) in [
            ("http://localhost:4243", "localhost:4243"),
            ("http://127.0.0.1:1/", "127.0.0.1:1"),
            ("http://[::1]:4242/", "[::1]:4242"),
            ("[::1]", "[::1]:4242"),
            ("::1", "[::1]:4242"),
            ("tsd1", "tsd1:4242"),
            ("tsd1:80", "tsd1:80"),
            ("https://tsd1/", "tsd1:4242"),
            ("https://[::1]:443", "[::1]:443"),
        ] {
            assert_eq!(DaemonClient::new(url).unwrap().authority(), authority, "{url}");
        }
        assert!(DaemonClient::new("https://a").unwrap().another().is_encrypted);
        assert!(!DaemonClient::new("a").unwrap().is_encrypted);
        for bad in
            ["", "http://", "https://", "ftp://a", "https://a/b", "a:b", "a:99999", "a/b", "u@h"]
        {
            assert!(DaemonClient::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_error_is_one_line_with_its_details() {
        let error = |body: &'static str| {
            DaemonResponse {
                status: StatusCode::BAD_REQUEST,
                body: Bytes::from_static(body.as_bytes()),
            }
            .error_text()
        };
        assert_eq!(error(r#"{"error":{"code":400,"message":"a\nb","details":"c"}}"#), "400 a b: c");
        assert_eq!(error(r#"{"error":{"code":400,"message":"a"}}"#), "400 a");
        assert_eq!(error(r#"{"error":{"code":400,"message":"a","details":"a"}}"#), "400 a");
        assert_eq!(
            error(r#"{"error":{"code":400,"message":"Endpoint not found"}}"#),
            "400 Endpoint not found; the daemon does not serve such requests (tsd.mode, tsd.core.enable_api)"
        );
        assert_eq!(error("<html>"), "400 <html>");
    }
}
