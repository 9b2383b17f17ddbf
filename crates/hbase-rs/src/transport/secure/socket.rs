//! Streams under SASL: a socket, or TLS.

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use crate::transport::Channel;
#[cfg(feature = "rustls")]
use crate::transport::tls::TlsSocket;

pub(super) type ReadHalf = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type WriteHalf = Box<dyn AsyncWrite + Send + Unpin>;

/// A connected stream.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {
    /// Returns the stream for the connection.
    fn into_channel(self: Box<Self>) -> Channel;

    /// Splits the stream for a protection on top of it.
    fn into_halves(self: Box<Self>) -> (ReadHalf, WriteHalf);
}

impl Socket for TcpStream {
    fn into_channel(self: Box<Self>) -> Channel {
        Channel::Plain(*self)
    }

    fn into_halves(self: Box<Self>) -> (ReadHalf, WriteHalf) {
        let (read, write) = (*self).into_split();
        (Box::new(read), Box::new(write))
    }
}

#[cfg(feature = "rustls")]
impl Socket for TlsSocket {
    fn into_channel(self: Box<Self>) -> Channel {
        let (read, write) = self.into_halves();
        Channel::Layered { read, write }
    }

    /// The halves share a lock, for the time that it takes to decrypt or encrypt a record.
    fn into_halves(self: Box<Self>) -> (ReadHalf, WriteHalf) {
        let (read, write) = tokio::io::split(*self);
        (Box::new(read), Box::new(write))
    }
}
