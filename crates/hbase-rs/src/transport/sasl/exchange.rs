//! The messages of an authentication.

use std::io;

use hbase_rs_protobuf as pb;
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{SaslError, SaslMechanism, SaslStep, choose_protection};
use crate::{exception::RemoteException, handshake::AuthMethod, security::Protection};

/// Maximum length of a token in bytes.
pub(super) const MAX_TOKEN: usize = 1 << 20;

/// Maximum length in bytes of the class and of the text of a failure.
const MAX_TEXT: usize = 64 << 10;

/// Maximum length in bytes of an exception without SASL.
const MAX_EXCEPTION: usize = 64 << 10;

/// Length of a token that stands for "continue without authentication".
const NO_SECURITY: u32 = -88_i32 as u32;

/// Maximum content of a message that the client announces; no server enforces it.
const ANNOUNCED_MAX: u32 = 64 << 10;

/// Parameters of an authentication.
#[derive(Debug)]
pub(crate) struct SaslExchange<'a> {
    /// Method in the preamble.
    pub(crate) method: AuthMethod,
    /// First token of the mechanism; may be empty.
    pub(crate) first_token: &'a [u8],
    /// Accepted protections in order of preference.
    pub(crate) protections: &'a [Protection],
}

/// Result of an authentication.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Authenticated {
    /// The stream continues with this protection.
    Protected(Protection),
    /// The server has no authentication. The stream continues with the connection header, without a preamble.
    WithoutSecurity,
}

/// A message of the server.
enum ServerMessage {
    Token(Vec<u8>),
    WithoutSecurity,
}

impl SaslExchange<'_> {
    /// Sends the preamble and authenticates. Reads nothing beyond the server's last message.
    pub(crate) async fn run<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        mechanism: &mut dyn SaslMechanism,
    ) -> Result<Authenticated, SaslError> {
        send(stream, &self.method.preamble(), self.first_token).await?;
        let mut token = match read_first_message(stream).await? {
            ServerMessage::Token(token) => token,
            ServerMessage::WithoutSecurity => return Ok(Authenticated::WithoutSecurity),
        };
        loop {
            match mechanism.step(&token)? {
                SaslStep::Continue(reply) => {
                    send(stream, &[], &reply).await?;
                    token = read_token(stream).await?;
                }
                SaslStep::Negotiate(reply) => {
                    send(stream, &[], &reply).await?;
                    let offer = read_token(stream).await?;
                    return self.negotiate(stream, mechanism, &offer).await;
                }
                SaslStep::Complete(protection) => return Ok(Authenticated::Protected(protection)),
            }
        }
    }

    /// Chooses from a wrapped offer of protections (RFC 4752).
    async fn negotiate<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        mechanism: &mut dyn SaslMechanism,
        offer: &[u8],
    ) -> Result<Authenticated, SaslError> {
        let offer = mechanism.unwrap(offer, false)?;
        let Some([layers, _, _, _]) = offer.first_chunk::<4>() else {
            return Err(SaslError::Malformed(format!(
                "the offer of protections is {} bytes; expected 4",
                offer.len()
            )));
        };
        let protection = choose_protection(*layers, self.protections)?;
        let max = if protection == Protection::Authentication { 0 } else { ANNOUNCED_MAX };
        // Without a name the server takes the authenticated user.
        let choice = (u32::from(protection.layer()) << 24 | max).to_be_bytes();
        let choice = mechanism.wrap(&choice, false)?;
        send(stream, &[], &choice).await?;
        Ok(Authenticated::Protected(protection))
    }
}

/// Sends bytes and a token in one write.
async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    before: &[u8],
    token: &[u8],
) -> io::Result<()> {
    let length = (token.len() as u32).to_be_bytes();
    stream.write_all(&[before, &length, token].concat()).await?;
    stream.flush().await
}

/// Reads the first message, before which a server that rejects the preamble closes the connection.
async fn read_first_message(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<ServerMessage, SaslError> {
    let first = match stream.read_u8().await {
        Ok(first) => first,
        Err(error) if is_closed(&error) => return Err(SaslError::ClosedSilently),
        Err(error) => return Err(error.into()),
    };
    let mut rest = [0; 3];
    stream.read_exact(&mut rest).await?;
    let [second, third, fourth] = rest;
    read_body(stream, u32::from_be_bytes([first, second, third, fourth])).await
}

async fn read_token(stream: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, SaslError> {
    let status = stream.read_u32().await?;
    match read_body(stream, status).await? {
        ServerMessage::Token(token) => Ok(token),
        ServerMessage::WithoutSecurity => {
            Err(SaslError::Malformed("it drops the authentication after its start".to_owned()))
        }
    }
}

async fn read_body(
    stream: &mut (impl AsyncRead + Unpin),
    status: u32,
) -> Result<ServerMessage, SaslError> {
    match status {
        0 => match stream.read_u32().await? {
            NO_SECURITY => Ok(ServerMessage::WithoutSecurity),
            length => Ok(ServerMessage::Token(read_bytes(stream, length, MAX_TOKEN).await?)),
        },
        1 => {
            let class = read_text(stream).await?;
            let text = read_text(stream).await?;
            Err(SaslError::Rejected(RemoteException::from_sasl(&class, &text)))
        }
        length => Err(read_exception(stream, length).await?),
    }
}

/// Reads a text of a failure. Java writes the length -1 for a missing one.
async fn read_text(stream: &mut (impl AsyncRead + Unpin)) -> Result<String, SaslError> {
    match stream.read_u32().await? {
        u32::MAX => Ok(String::new()),
        length => {
            let text = read_bytes(stream, length, MAX_TEXT).await?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        }
    }
}

/// Reads a response frame, with which a server rejects the preamble.
async fn read_exception(
    stream: &mut (impl AsyncRead + Unpin),
    length: u32,
) -> Result<SaslError, SaslError> {
    let unknown = SaslError::Malformed(format!("status {length}; expected 0 or 1"));
    if length as usize > MAX_EXCEPTION {
        return Err(unknown);
    }
    let frame = read_bytes(stream, length, MAX_EXCEPTION).await?;
    let header = pb::ResponseHeader::decode_length_delimited(&frame[..]).ok();
    let exception = header.and_then(|header| header.exception);
    Ok(exception.map_or(unknown, |exception| {
        SaslError::Refused(RemoteException::from_response(&exception))
    }))
}

async fn read_bytes(
    stream: &mut (impl AsyncRead + Unpin),
    length: u32,
    max: usize,
) -> Result<Vec<u8>, SaslError> {
    if length as usize > max {
        return Err(SaslError::Malformed(format!("{length} bytes; the limit is {max}")));
    }
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// True if the peer has closed the connection, before or after it received the client's bytes.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}
