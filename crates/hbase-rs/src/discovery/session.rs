//! A session of ZooKeeper that only reads.
//!
//! A session lasts for one lookup: connect, TLS, SASL, reads, close. Lookups are rare and take far less than a session
//! timeout, so there are no pings, no watches and no state to repair after a failure.

mod connector;
mod failure;
#[cfg(feature = "kerberos")]
mod kerberos;
mod login;
#[cfg(not(feature = "kerberos"))]
mod no_kerberos;
mod packet;
mod started_login;

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use self::packet::{
    MAX_PACKET, RequestType, connect_request, path_body, read_buffer, read_children,
    read_connect_response, read_response, request,
};
pub(super) use self::{
    connector::SessionConnector,
    failure::{Lookup, NO_AUTH, SASL_REQUIRED, SessionError},
};
#[cfg(doc)]
use super::quorum::Quorum;
use super::root::Znodes;

/// Error code: no such znode.
const NO_NODE: i32 = -101;

/// Xids of packets that are no response: notifications of watches, and pings.
const UNREQUESTED: [i32; 2] = [-1, -2];

/// Longest wait for the end of a session.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// A stream to a server of the ensemble.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// An open session.
struct ReadSession {
    stream: Box<dyn Stream>,
    /// Prefix of all paths, see [`Quorum::chroot`].
    chroot: String,
    xid: i32,
    /// True after the first packet of the server.
    has_answered: bool,
}

impl ReadSession {
    /// Opens a session on a connected stream.
    async fn open(
        stream: Box<dyn Stream>,
        chroot: &str,
        timeout: Duration,
    ) -> Result<Self, SessionError> {
        let chroot = chroot.to_owned();
        let mut session = Self { stream, chroot, xid: 0, has_answered: false };
        let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        session.send(&connect_request(timeout_ms)).await?;
        let response = session.receive().await?;
        if read_connect_response(response)? { Ok(session) } else { Err(SessionError::Refused) }
    }

    /// Sends a request and returns the body of its response.
    async fn call(&mut self, kind: RequestType, body: &[u8]) -> Result<Bytes, SessionError> {
        self.xid += 1;
        self.send(&request(self.xid, kind, body)).await?;
        loop {
            let packet = self.receive().await?;
            let is_unrequested = |xid: &[u8; 4]| UNREQUESTED.contains(&i32::from_be_bytes(*xid));
            if packet.first_chunk().is_some_and(is_unrequested) {
                continue;
            }
            let response = read_response(packet, self.xid)?;
            return match response.error {
                0 => Ok(response.body),
                code => Err(SessionError::Code(code)),
            };
        }
    }

    /// Encodes the body of a read.
    fn read_body(&self, path: &str) -> Bytes {
        let path = if path == "/" && !self.chroot.is_empty() { "" } else { path };
        path_body(&format!("{}{path}", self.chroot))
    }

    /// Ends the session, so that the server need not wait for its timeout. Failures are ignored.
    async fn close(mut self) {
        let closing = self.call(RequestType::CloseSession, &[]);
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
    }

    async fn send(&mut self, packet: &[u8]) -> Result<(), SessionError> {
        let sent = async {
            self.stream.write_all(packet).await?;
            self.stream.flush().await
        };
        sent.await.map_err(|error| SessionError::of_stream(error, self.has_answered))
    }

    async fn receive(&mut self) -> Result<Bytes, SessionError> {
        let mut prefix = [0; 4];
        let has_answered = self.has_answered;
        let read = self.stream.read_exact(&mut prefix).await;
        read.map_err(|error| SessionError::of_stream(error, has_answered))?;
        let length = u32::from_be_bytes(prefix) as usize;
        if length > MAX_PACKET {
            return Err(SessionError::NotZooKeeper(format!(
                "it answers with the bytes {:?}",
                prefix.escape_ascii().to_string()
            )));
        }
        let mut packet = vec![0; length];
        let read = self.stream.read_exact(&mut packet).await;
        read.map_err(|error| SessionError::of_stream(error, true))?;
        self.has_answered = true;
        Ok(packet.into())
    }
}

impl Znodes for ReadSession {
    type Error = SessionError;

    async fn data(&mut self, path: &str) -> Result<Option<Bytes>, SessionError> {
        match self.call(RequestType::GetData, &self.read_body(path)).await {
            Ok(mut body) => Ok(Some(read_buffer(&mut body)?)),
            Err(SessionError::Code(NO_NODE)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn children(&mut self, path: &str) -> Result<Option<Vec<String>>, SessionError> {
        match self.call(RequestType::GetChildren, &self.read_body(path)).await {
            Ok(body) => Ok(Some(read_children(body)?)),
            Err(SessionError::Code(NO_NODE)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
