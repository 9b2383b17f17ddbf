//! The publisher to a TCP receiver: JSON lines on one connection, reopened when it ends.
//!
//! The receiver sends no acknowledgements: lines that it has not read when a connection ends may be lost.

use std::io::{self, Read};

use socket2::SockRef;
use tokio::{io::AsyncWriteExt, net::TcpStream, time::timeout};
use tsd_engine::PluginBatch;

use super::{
    json_lines,
    sink::{Sink, SinkError, TIMEOUT},
};

/// Sends lines to an address.
pub(super) struct TcpPublisher {
    address: String,
    stream: Option<TcpStream>,
}

impl TcpPublisher {
    pub(super) const fn new(address: String) -> Self {
        Self { address, stream: None }
    }

    async fn connect(&self) -> Result<TcpStream, SinkError> {
        let connected = timeout(TIMEOUT, TcpStream::connect(&self.address)).await;
        let stream = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        stream.map_err(|error| {
            SinkError::Retry(format!("cannot connect to {}: {error}", self.address))
        })
    }
}

impl Sink for TcpPublisher {
    async fn deliver(&mut self, batch: &PluginBatch) -> Result<u64, SinkError> {
        let mut stream = match self.stream.take().filter(is_open) {
            Some(stream) => stream,
            None => self.connect().await?,
        };
        let lines = json_lines::render(batch);
        let written = timeout(TIMEOUT, stream.write_all(lines.as_bytes())).await;
        // A connection with a partial line is not reused.
        written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(|error| {
            SinkError::Retry(format!("cannot send to {}: {error}", self.address))
        })?;
        self.stream = Some(stream);
        Ok(0)
    }

    async fn idle(&mut self) {
        self.stream = self.stream.take().filter(is_open);
    }
}

/// Returns false if the receiver has closed the connection. Ignores received bytes.
fn is_open(stream: &TcpStream) -> bool {
    // Reads the nonblocking socket itself, since the runtime may not have seen its end yet.
    let socket = SockRef::from(stream);
    let mut ignored = [0; 512];
    loop {
        match (&*socket).read(&mut ignored) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}
