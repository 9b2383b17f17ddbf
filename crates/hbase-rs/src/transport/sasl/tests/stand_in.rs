//! A mechanism with the messages of GSSAPI and no cryptography, and a stream that replays bytes.

use std::{
    io,
    pin::Pin,
    sync::mpsc,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::{SaslMechanism, SaslStep};
use crate::transport::{TransportError, TransportErrorKind};

/// Bytes that protection adds to a message.
pub(super) const OVERHEAD: usize = 6;

/// Either side of a connection. A message is `I` or `C`, its number, the content (inverted if confidential), and the
/// sum of the content.
#[derive(Debug, Default)]
pub(super) struct StandIn {
    sent: u32,
    received: u32,
    /// Unwrapping waits for a message of this channel.
    unwrap_waits_for: Option<mpsc::Receiver<()>>,
}

fn invalid(what: &str) -> TransportError {
    TransportError::new(TransportErrorKind::Unreachable, what)
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte))
}

impl StandIn {
    /// A mechanism whose unwrapping waits for a message of a channel.
    pub(super) fn waiting_for(receiver: mpsc::Receiver<()>) -> Self {
        Self { unwrap_waits_for: Some(receiver), ..Self::default() }
    }
}

impl SaslMechanism for StandIn {
    /// Expects `challenge`, and the token `done` after `more`.
    fn step(&mut self, token: &[u8]) -> Result<SaslStep, TransportError> {
        match token {
            b"more" => Ok(SaslStep::Continue(b"reply".to_vec())),
            b"challenge" => Ok(SaslStep::Negotiate(Vec::new())),
            _ => Err(invalid("unknown token")),
        }
    }

    fn wrap(&mut self, plain: &[u8], confidential: bool) -> Result<Vec<u8>, TransportError> {
        let mut message = vec![if confidential { b'C' } else { b'I' }];
        message.extend_from_slice(&self.sent.to_be_bytes());
        message.extend(plain.iter().map(|byte| if confidential { !byte } else { *byte }));
        message.push(sum(plain));
        self.sent += 1;
        Ok(message)
    }

    fn unwrap(&mut self, wrapped: &[u8], confidential: bool) -> Result<Vec<u8>, TransportError> {
        if let Some(receiver) = &self.unwrap_waits_for {
            receiver.recv().unwrap();
        }
        let [kind, number @ .., _] = wrapped else { return Err(invalid("too short")) };
        let (number, content) = number.split_first_chunk::<4>().ok_or(invalid("too short"))?;
        if (*kind == b'C') != confidential {
            return Err(invalid("other protection"));
        }
        if u32::from_be_bytes(*number) != self.received {
            return Err(invalid("out of order"));
        }
        self.received += 1;
        let plain: Vec<_> =
            content.iter().map(|byte| if confidential { !byte } else { *byte }).collect();
        if wrapped.last() != Some(&sum(&plain)) {
            return Err(invalid("wrong sum"));
        }
        Ok(plain)
    }
}

/// Returns a length and the bytes.
pub(super) fn tok(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

/// Returns a status of success and a token.
pub(super) fn success(token: &[u8]) -> Vec<u8> {
    [vec![0; 4], tok(token)].concat()
}

/// Returns the bytes of a failure.
pub(super) fn failure(class: &str, text: &str) -> Vec<u8> {
    [vec![0, 0, 0, 1], tok(class.as_bytes()), tok(text.as_bytes())].concat()
}

/// A stream that returns given bytes, and then ends or fails. It records each write.
#[derive(Debug, Default)]
pub(super) struct Replay {
    pub(super) input: Vec<u8>,
    /// Error after the input; the end of the stream without.
    pub(super) error: Option<io::ErrorKind>,
    pub(super) writes: Vec<Vec<u8>>,
}

impl Replay {
    pub(super) fn new(input: &[u8]) -> Self {
        Self { input: input.to_vec(), ..Self::default() }
    }
}

impl AsyncRead for Replay {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.input.is_empty() {
            return Poll::Ready(self.error.map_or(Ok(()), |kind| Err(kind.into())));
        }
        let count = self.input.len().min(buffer.remaining());
        buffer.put_slice(&self.input[..count]);
        self.input.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Replay {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writes.push(bytes.to_vec());
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
