//! Sockets without a client library: a test sends exactly the bytes it shows.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
};

use crate::poll::PATIENCE;

/// Connects; a read fails after [`PATIENCE`] without bytes.
#[must_use]
pub fn connect(address: SocketAddr) -> TcpStream {
    try_connect(address).expect("connect")
}

pub(crate) fn try_connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Sends bytes, closes the sending half, and returns everything received until the server closes.
#[must_use]
pub fn exchange(address: SocketAddr, sent: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    stream.write_all(sent).expect("send");
    close_and_read(stream)
}

/// Closes the sending half of a telnet connection, and waits until the server has stored its lines
/// and closed. Fails if the server replied to a line.
pub fn close_and_drain(stream: TcpStream) {
    let received = close_and_read(stream);
    assert!(received.is_empty(), "{}", String::from_utf8_lossy(&received));
}

fn close_and_read(mut stream: TcpStream) -> Vec<u8> {
    stream.shutdown(Shutdown::Write).expect("half-close");
    let mut received = Vec::new();
    stream.read_to_end(&mut received).expect("the end of the connection");
    received
}
