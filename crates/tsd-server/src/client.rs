//! Source of a request.

use std::net::SocketAddr;

/// The client of a request or connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    /// Address of the client; port 0 if a proxy does not name the port.
    pub(crate) address: SocketAddr,
    /// False if an untrusted proxy forwarded the request; the address is then the proxy's.
    pub(crate) is_known: bool,
}

impl Client {
    /// A client that connects without a proxy.
    pub(crate) const fn direct(address: SocketAddr) -> Self {
        Self { address, is_known: true }
    }
}
