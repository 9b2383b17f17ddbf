//! Ports that stay ours.
//!
//! A port must be known before its server runs, must not be handed to another cluster that starts
//! at the same time, and must still be there when its server is started again. So each is held by a
//! socket that is bound and never listens: nobody else can take the port without asking for its
//! reuse, as servers of the JVM do and pickers of free ports do not. Until its server listens,
//! connections are refused.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use socket2::{Domain, Socket, Type};

/// Below those that the system gives to clients.
const FIRST: u16 = 18_000;
const COUNT: u16 = 12_000;

/// A port of this host that is held.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _holder: Socket,
}

impl Port {
    /// Takes any.
    pub(crate) fn take() -> io::Result<Self> {
        // Clusters of one moment begin at different places.
        let seed = std::process::id().wrapping_mul(7_919);
        let start = (seed % u32::from(COUNT)) as u16;
        let mut last = io::ErrorKind::AddrInUse.into();
        for at in 0..COUNT {
            match Self::hold(FIRST + (start + at) % COUNT) {
                Ok(port) => return Ok(port),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Takes this one, if nothing of anybody is bound to it.
    fn hold(number: u16) -> io::Result<Self> {
        let holder = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        holder.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, number)).into())?;
        // Only now: the binding itself was exclusive.
        holder.set_reuse_address(true)?;
        Ok(Self { number, _holder: holder })
    }

    /// Takes this one again, of whose former connections some may linger, if nobody listens.
    pub(crate) fn regain(number: u16) -> io::Result<Self> {
        let holder = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        holder.set_reuse_address(true)?;
        holder.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, number)).into())?;
        Ok(Self { number, _holder: holder })
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
    fn each_port_is_taken_once() {
        let ports: Vec<_> = (0..20).map(|_| Port::take().unwrap()).collect();
        let numbers: HashSet<_> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
        Port::hold(*numbers.iter().next().unwrap()).unwrap_err();
    }

    #[test]
    fn its_server_may_listen_and_come_back() {
        let port = Port::take().unwrap();
        let address = (Ipv4Addr::LOCALHOST, port.number());
        TcpStream::connect(address).unwrap_err();
        for _ in 0..2 {
            let server = listen(&port).unwrap();
            TcpStream::connect(address).unwrap();
            server.accept().unwrap();
        }
        Port::hold(port.number()).unwrap_err();
    }

    #[test]
    fn a_port_that_is_let_go_is_free() {
        let port = Port::take().unwrap();
        let number = port.number();
        drop(port);
        assert_eq!(Port::hold(number).unwrap().number(), number);
    }

    #[test]
    fn a_port_is_regained_from_connections_but_not_from_a_server() {
        let port = Port::take().unwrap();
        let number = port.number();
        let server = listen(&port).unwrap();
        let client = TcpStream::connect((Ipv4Addr::LOCALHOST, number)).unwrap();
        let (accepted, _) = server.accept().unwrap();
        drop(port);
        Port::regain(number).unwrap_err();
        drop(server);
        // The server's end closes first: the connection lingers on its port.
        drop(accepted);
        drop(client);
        Port::hold(number).unwrap_err();
        assert_eq!(Port::regain(number).unwrap().number(), number);
    }
}
