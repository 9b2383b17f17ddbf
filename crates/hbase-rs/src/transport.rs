//! What lies between a socket and the frames on it.
//!
//! Three things differ with how a cluster is secured: what is done with the fresh socket (TLS), how the
//! client proves who it is (SASL), and whether bytes are wrapped from then on (SASL with protection).
//! All of them are over before the connection header is sent, and none is known to anything above: a
//! [`Transport`] takes the socket and gives back a stream and the bytes to begin with.
//!
//! * Plain text with simple authentication: the socket itself, and the preamble.
//! * TLS with simple authentication: the encrypted stream, and the preamble; HBase expects TLS from the
//!   first byte on.
//! * SASL: sends its preamble, talks until both sides agree, and gives back a stream that wraps if that
//!   was agreed; nothing is left to begin with. With TLS as well, it does so on the encrypted stream.

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

/// Makes streams for frames out of sockets. One for a client; it may keep keys and sessions.
pub trait Transport: fmt::Debug + Send + Sync {
    /// Secures a socket that has just been connected.
    ///
    /// The time for that is what is left of the connection's; when it is over the future is dropped.
    /// An error is one of the connection: it did not come up.
    fn establish<'a>(&'a self, socket: TcpStream, to: Destination<'a>) -> TransportFuture<'a>;
}

/// Future of a [`Transport`].
pub type TransportFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Established>> + Send + 'a>>;

/// Whom a connection is to.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Destination<'a> {
    /// What the server calls itself: its host is the one in certificates and principals.
    pub server: &'a ServerName,
    /// What is wanted of it.
    pub service: Service,
    /// Name under which changes are made.
    pub user: &'a str,
}

/// A stream that is ready for the connection header.
#[derive(Debug)]
pub struct Established {
    /// Where it goes.
    pub stream: Channel,
    /// Bytes in front of the header. They leave with it and the first call, in one write.
    pub first: Bytes,
}

/// A stream of bytes both ways.
#[derive(Debug)]
pub enum Channel {
    /// The socket itself; what waits is written to it from several buffers at once.
    Plain(TcpStream),
    /// Anything on top of it.
    Layered(Box<dyn ByteStream>),
}

/// What can carry frames.
pub trait ByteStream: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin> ByteStream for S {}

/// Plain text, and the user's name is taken on trust.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainTransport;

impl Transport for PlainTransport {
    fn establish<'a>(&'a self, socket: TcpStream, _to: Destination<'a>) -> TransportFuture<'a> {
        let first = Bytes::from_owner(AuthMethod::Simple.preamble());
        Box::pin(async { Ok(Established { stream: Channel::Plain(socket), first }) })
    }
}
