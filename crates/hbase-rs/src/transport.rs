//! Transport layer between sockets and frames: encryption and authentication.
//!
//! Clusters differ in TLS, in authentication (SASL) and in SASL protection of the stream. All of these
//! are negotiated before the connection header is sent, and the layers above do not see them. A
//! [`Transport`] takes the socket and returns a stream and the bytes to send first. Only
//! [`PlainTransport`] is implemented here.
//!
//! * Plain text with simple authentication: the socket itself and the preamble.
//! * TLS with simple authentication: the encrypted stream and the preamble. HBase expects TLS from the
//!   first byte.
//! * SASL: sends the preamble, negotiates, and returns a stream with the negotiated protection and no
//!   further bytes. With TLS, on the encrypted stream.

use std::{fmt, io, pin::Pin};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::{
    handshake::{AuthMethod, Service},
    server_name::ServerName,
};

/// Establishes streams on connected sockets. A client has one; it may cache keys and sessions.
pub trait Transport: fmt::Debug + Send + Sync {
    /// Establishes a stream on a newly connected socket.
    ///
    /// The future is dropped when the connect timeout passes. An error fails the connection.
    fn establish<'a>(&'a self, socket: TcpStream, to: Destination<'a>) -> TransportFuture<'a>;
}

/// Future of a [`Transport`].
pub type TransportFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Established>> + Send + 'a>>;

/// Destination of a connection.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Destination<'a> {
    /// Server; certificates and principals have its host.
    pub server: &'a ServerName,
    /// Service of the connection.
    pub service: Service,
    /// User of the client.
    pub user: &'a str,
}

/// A stream ready for the connection header.
#[derive(Debug)]
pub struct Established {
    /// The stream.
    pub stream: Channel,
    /// Bytes to send before the header. Both and the first request are one write.
    pub preamble: Bytes,
}

/// A bidirectional byte stream.
#[derive(Debug)]
pub enum Channel {
    /// The socket; supports vectored writes.
    Plain(TcpStream),
    /// A stream on top of the socket.
    Layered(Box<dyn ByteStream>),
}

/// A stream that can transport frames.
pub trait ByteStream: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> ByteStream for S {}

/// Plain text with simple authentication.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainTransport;

impl Transport for PlainTransport {
    fn establish<'a>(&'a self, socket: TcpStream, _to: Destination<'a>) -> TransportFuture<'a> {
        let preamble = Bytes::from_owner(AuthMethod::Simple.preamble());
        Box::pin(async { Ok(Established { stream: Channel::Plain(socket), preamble }) })
    }
}
