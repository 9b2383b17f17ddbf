//! Connects to servers: sockets, encryption and authentication, below the frames.
//!
//! Clusters differ in TLS, in authentication (SASL) and in SASL protection of the stream. All of these
//! are negotiated before the connection header is sent, and the layers above do not see them. A
//! [`Transport`] dials, negotiates, and returns a stream with the bytes to send first and the user to
//! name in the header.
//!
//! | security | stream | preamble | identity |
//! |---|---|---|---|
//! | none | the socket | simple | [`Identity::User`] |
//! | TLS | encrypted; TLS from the first byte | simple | [`Identity::User`] |
//! | SASL | with the negotiated protection, inside TLS if there is TLS | empty: already sent | [`Identity::Principal`] or [`Identity::None`] |

pub(crate) mod digest;
mod error;
#[cfg(feature = "kerberos")]
pub(crate) mod kerberos;
pub(crate) mod sasl;
mod secure;
pub(crate) mod tls;
pub(crate) mod token_file;

use std::{fmt, pin::Pin, time::Duration};

use bytes::Bytes;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};

pub use self::error::{TransportError, TransportErrorKind};
pub use crate::handshake::{AuthMethod, Service};
use crate::{server_name::ServerName, stats::LoginStats};

/// Idle time before the first TCP keep-alive probe.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// Opens streams to servers. A client has one transport, which owns credentials, keys and sessions.
pub trait Transport: fmt::Debug + Send + Sync {
    /// Dials the server and negotiates encryption and authentication.
    ///
    /// The future is dropped after the connect timeout plus [`Self::login_timeout`], or earlier if the
    /// call that needs the connection ends. Dropping it must release its resources.
    fn connect<'a>(&'a self, to: Destination<'a>) -> TransportFuture<'a>;

    /// Time that a login may take in addition to the connect timeout; zero without logins.
    fn login_timeout(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns counters and gauges of Kerberos logins; `None` with another authentication.
    fn login_stats(&self) -> Option<LoginStats> {
        None
    }

    /// Names the security of the transport in errors, such as "plain text and simple authentication".
    fn description(&self) -> &'static str;
}

/// Future of a [`Transport`].
pub type TransportFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Established, TransportError>> + Send + 'a>>;

/// Destination of a connection.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Destination<'a> {
    /// Server; certificates and principals have its host.
    pub server: &'a ServerName,
    /// Address to dial, `host:port`. It differs from the server's name if addresses are mapped.
    pub address: &'a str,
    /// Service of the connection.
    pub service: Service,
    /// Role of the server, which selects its principal.
    pub role: Role,
    /// User of the client, for [`Identity::User`].
    pub user: &'a str,
    /// Timeout of dialing, the TLS handshake and the SASL exchange, without the login.
    pub connect_timeout: Duration,
}

/// Role of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Serves regions.
    RegionServer,
    /// Active or standby master.
    Master,
}

/// A stream ready for the connection header.
#[derive(Debug)]
pub struct Established {
    /// The stream.
    pub stream: Channel,
    /// Bytes to send before the header. Both and the first request are one write.
    pub preamble: Bytes,
    /// The user to name in the header.
    pub identity: Identity,
}

/// The user that a connection header names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// No user: the server uses the authenticated one.
    None,
    /// [`ClientConfig::user`](crate::ClientConfig::user), without proof.
    User,
    /// The full Kerberos principal. Any other name would ask the server to impersonate that user.
    Principal(String),
}

/// A bidirectional byte stream.
pub enum Channel {
    /// The socket; supports vectored writes.
    Plain(TcpStream),
    /// Layers on top of the socket. The halves are independent: a long read must not block a write.
    Layered {
        /// Received bytes.
        read: Box<dyn AsyncRead + Send + Unpin>,
        /// Sent bytes. One flush follows each batch of requests.
        write: Box<dyn AsyncWrite + Send + Unpin>,
    },
}

impl fmt::Debug for Channel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Layered { .. } => "Layered",
        })
    }
}

impl Destination<'_> {
    /// Connects a socket, within the connect timeout.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Unreachable`].
    pub async fn dial(&self) -> Result<TcpStream, TransportError> {
        let dialed = timeout(self.connect_timeout, TcpStream::connect(self.address)).await;
        let socket = dialed.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))?;
        socket.set_nodelay(true)?;
        SockRef::from(&socket).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEP_ALIVE))?;
        Ok(socket)
    }
}

/// Plain text with simple authentication.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainTransport;

impl Transport for PlainTransport {
    fn connect<'a>(&'a self, to: Destination<'a>) -> TransportFuture<'a> {
        Box::pin(async move {
            let stream = Channel::Plain(to.dial().await?);
            let preamble = Bytes::from_owner(AuthMethod::Simple.preamble());
            Ok(Established { stream, preamble, identity: Identity::User })
        })
    }

    fn description(&self) -> &'static str {
        "plain text and simple authentication"
    }
}
