//! SASL of a fake server: the exchange, and the protection of the stream after it.

use bytes::{Buf, BytesMut};
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex,
    split,
};

use super::digest::{self, Authenticated, DigestFailure, HalfLayer};
use crate::security::{FakeTokens, SaslFault};

/// Capacity of the pipe between the protected socket and the server's calls.
const PIPE: usize = 64 << 10;

/// An authenticated connection. Its bytes pass through [`Self::pump`].
pub(super) struct Session<R, W> {
    read: R,
    write: FaultyWriter<W>,
    authenticated: Authenticated,
    pipe: DuplexStream,
    message_size: usize,
}

/// The server's side of the connection's bytes.
pub(super) type Pipe = (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>);

/// Writes in pieces, and fails where a fault says so.
struct FaultyWriter<W> {
    write: W,
    fault: Option<SaslFault>,
    /// Bytes until the connection is closed.
    left: usize,
    write_size: usize,
}

impl<W: AsyncWrite + Unpin> FaultyWriter<W> {
    /// Sends bytes; `None` if the connection is closed.
    async fn send(&mut self, bytes: &[u8]) -> Option<()> {
        let is_cut = bytes.len() >= self.left;
        let bytes = &bytes[..bytes.len().min(self.left)];
        self.left -= bytes.len();
        for piece in bytes.chunks(self.write_size) {
            self.write.write_all(piece).await.ok()?;
            self.write.flush().await.ok()?;
        }
        if is_cut {
            let _ = self.write.shutdown().await;
            return None;
        }
        Some(())
    }

    async fn succeed(&mut self, token: &str) -> Option<()> {
        self.send(&[&[0; 4][..], &tok(token.as_bytes())].concat()).await
    }

    async fn fail(&mut self, (class, text): DigestFailure) {
        let failure = [vec![0, 0, 0, 1], tok(class.as_bytes()), tok(text.as_bytes())].concat();
        self.send(&failure).await;
        let _ = self.write.shutdown().await;
    }
}

/// Authenticates a client after its preamble; `None` if the connection has ended.
pub(super) async fn authenticate<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    mut read: R,
    write: W,
    tokens: &FakeTokens,
    nonce: u64,
) -> Option<(Session<R, W>, Pipe)> {
    let left = match tokens.fault {
        Some(SaslFault::CloseAfter(bytes)) => bytes,
        _ => usize::MAX,
    };
    let mut write =
        FaultyWriter { write, fault: tokens.fault, left, write_size: tokens.write_size };
    assert_eq!(read_token(&mut read).await?, b"");
    if let Some(SaslFault::Reject { class, text }) = tokens.fault {
        write.fail((class, text)).await;
        return None;
    }
    let nonce = format!("nonce-{nonce}");
    write.succeed(&digest::challenge(tokens, &nonce)).await?;
    let response = read_token(&mut read).await?;
    let mut authenticated = match digest::check(tokens, &nonce, &response) {
        Ok(authenticated) => authenticated,
        Err(failure) => {
            write.fail(failure).await;
            return None;
        }
    };
    if tokens.fault == Some(SaslFault::WrongProof) {
        authenticated.proof = "0".repeat(32);
    }
    write.succeed(&format!("rspauth={}", authenticated.proof)).await?;
    if let Some(SaslFault::RejectLate { class, text }) = tokens.fault {
        read.read_u8().await.ok()?;
        write.fail((class, text)).await;
        return None;
    }
    let (pipe, calls) = duplex(PIPE);
    let message_size = tokens.message_size;
    Some((Session { read, write, authenticated, pipe, message_size }, split(calls)))
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Session<R, W> {
    /// Returns the protection in the words of DIGEST-MD5.
    pub(super) fn protection(&self) -> &str {
        &self.authenticated.protection
    }

    /// Passes bytes between socket and pipe until either ends.
    pub(super) async fn pump(self) {
        let (from_calls, to_calls) = split(self.pipe);
        let (wrap, unwrap) = match self.authenticated.layer {
            Some(layer) => (Some(layer.wrap), Some(layer.unwrap)),
            None => (None, None),
        };
        tokio::join!(
            receive(self.read, to_calls, unwrap),
            send(from_calls, self.write, wrap, self.message_size)
        );
    }
}

/// Passes received bytes to the calls.
async fn receive(
    mut read: impl AsyncRead + Unpin,
    mut to: WriteHalf<DuplexStream>,
    mut layer: Option<HalfLayer>,
) {
    let mut raw = BytesMut::new();
    while matches!(read.read_buf(&mut raw).await, Ok(1..)) {
        while let Some(content) = next_content(&mut raw, layer.as_mut()) {
            if to.write_all(&content).await.is_err() {
                return;
            }
        }
    }
    let _ = to.shutdown().await;
}

/// Takes the content of the next message; without protection, all bytes.
fn next_content(raw: &mut BytesMut, layer: Option<&mut HalfLayer>) -> Option<Vec<u8>> {
    let Some(layer) = layer else {
        return (!raw.is_empty()).then(|| raw.split().to_vec());
    };
    let length = u32::from_be_bytes(*raw.first_chunk()?) as usize;
    if raw.len() < 4 + length {
        return None;
    }
    raw.advance(4);
    Some(layer.unwrap(&raw.split_to(length)))
}

/// Sends the bytes of the calls.
async fn send(
    mut from: ReadHalf<DuplexStream>,
    mut write: FaultyWriter<impl AsyncWrite + Unpin>,
    mut layer: Option<HalfLayer>,
    message_size: usize,
) {
    let mut content = vec![0; message_size.min(PIPE)];
    let mut messages = 0;
    while let Ok(count @ 1..) = from.read(&mut content).await {
        let mut bytes = match &mut layer {
            Some(layer) => tok(&layer.wrap(&content[..count])),
            None => content[..count].to_vec(),
        };
        messages += 1;
        if messages == 2 && write.fault == Some(SaslFault::DamagedMessage) {
            bytes[5] ^= 1;
        }
        if write.send(&bytes).await.is_none() {
            return;
        }
    }
    let _ = write.write.shutdown().await;
}

async fn read_token(read: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let length = read.read_u32().await.ok()?;
    let mut token = vec![0; length as usize];
    read.read_exact(&mut token).await.ok()?;
    Some(token)
}

/// Returns a length and the bytes.
fn tok(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}
