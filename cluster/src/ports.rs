//! Reserved ports.
//!
//! A port must be known before its server starts, must not go to another cluster that starts
//! concurrently, and must be available when the server restarts. So a socket that is bound and never
//! listens reserves each port. Another process can bind the port only with `SO_REUSEADDR`. Servers of
//! the JVM set it, and searches for free ports do not. Connections are refused until the server
//! listens.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use socket2::{Domain, Socket, Type};

/// First port; below the ephemeral ports of the system.
const FIRST: u16 = 18_000;
const COUNT: u16 = 12_000;

/// A reserved port of the loopback interface.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _socket: Socket,
}

impl Port {
    /// Reserves any free port.
    pub(crate) fn reserve() -> io::Result<Self> {
        // Clusters that start concurrently begin at different ports.
        let seed = std::process::id().wrapping_mul(7_919);
        let start = (seed % u32::from(COUNT)) as u16;
        let mut last = io::ErrorKind::AddrInUse.into();
        for at in 0..COUNT {
            match Self::bind_exclusive(FIRST + (start + at) % COUNT) {
                Ok(port) => return Ok(port),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Reserves this port if no socket is bound to it.
    fn bind_exclusive(number: u16) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, number)).into())?;
        // After the bind, which must be exclusive.
        socket.set_reuse_address(true)?;
        Ok(Self { number, _socket: socket })
    }

    /// Reserves this port again if no socket listens; connections in TIME_WAIT are ignored.
    pub(crate) fn rebind(number: u16) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, number)).into())?;
        Ok(Self { number, _socket: socket })
    }

    pub(crate) const fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::{collections::HashSet, net::TcpStream};

    use super::*;

    fn listen(port: &Port) -> io::Result<Socket> {
        let server = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        server.set_reuse_address(true)?;
        server.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port.number())).into())?;
        server.listen(1)?;
        Ok(server)
    }

    #[test]
    fn each_port_is_reserved_once() {
        let ports: Vec<_> = (0..20).map(|_| Port::reserve().unwrap()).collect();
        let numbers: HashSet<_> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
        Port::bind_exclusive(*numbers.iter().next().unwrap()).unwrap_err();
    }

    #[test]
    fn a_server_may_listen_on_a_reserved_port_again() {
        let port = Port::reserve().unwrap();
        let address = (Ipv4Addr::LOCALHOST, port.number());
        TcpStream::connect(address).unwrap_err();
        for _ in 0..2 {
            let server = listen(&port).unwrap();
            TcpStream::connect(address).unwrap();
            server.accept().unwrap();
        }
        Port::bind_exclusive(port.number()).unwrap_err();
    }

    #[test]
    fn a_dropped_port_is_free() {
        let port = Port::reserve().unwrap();
        let number = port.number();
        drop(port);
        assert_eq!(Port::bind_exclusive(number).unwrap().number(), number);
    }

    #[test]
    fn a_port_is_rebound_beside_old_connections_but_not_beside_a_server() {
        let port = Port::reserve().unwrap();
        let number = port.number();
        let server = listen(&port).unwrap();
        let client = TcpStream::connect((Ipv4Addr::LOCALHOST, number)).unwrap();
        let (accepted, _) = server.accept().unwrap();
        drop(port);
        Port::rebind(number).unwrap_err();
        drop(server);
        // The server closes first: its end is in TIME_WAIT.
        drop(accepted);
        drop(client);
        Port::bind_exclusive(number).unwrap_err();
        assert_eq!(Port::rebind(number).unwrap().number(), number);
    }
}
