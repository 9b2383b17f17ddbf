//! Sockets without a client library: a test sends exactly the bytes it shows.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::Duration,
};

/// Longest wait for bytes of a server before a test fails.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// Connects; a read fails after a minute without bytes.
#[must_use]
pub fn connect(address: SocketAddr) -> TcpStream {
    connect_with_timeout(address, READ_TIMEOUT)
}

/// Connects; a read fails after `read_timeout` without bytes.
#[must_use]
pub fn connect_with_timeout(address: SocketAddr, read_timeout: Duration) -> TcpStream {
    try_connect(address, read_timeout).expect("connect")
}

pub(crate) fn try_connect(
    address: SocketAddr,
    read_timeout: Duration,
) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(read_timeout))?;
    Ok(stream)
}

/// Sends bytes, closes the sending half, and returns everything received until the server closes.
#[must_use]
pub fn exchange(address: SocketAddr, sent: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    stream.write_all(sent).expect("send");
    close_and_read(stream)
}

/// Closes the sending half of a telnet connection and waits until the server has stored its lines
/// and closed; fails if any line was answered.
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
