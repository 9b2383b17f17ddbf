//! SASL: authentication of a connection, and protection of its bytes afterwards.
//!
//! ```text
//! client  preamble | tok(first token)
//! server  00000000 | tok(token)                  or 00000001 | tok(class) | tok(text): rejected
//! client  tok(token)                             until the mechanism is complete
//! ```
//!
//! `tok(x)` is a length of four bytes and `x`. GSSAPI then negotiates the protection in two wrapped messages,
//! DIGEST-MD5 has negotiated it in its tokens:
//!
//! ```text
//! server  00000000 | tok(wrap(offered layers u8, maximum u24))
//! client  tok(wrap(layer u8, maximum u24))       the server sends no reply
//! ```
//!
//! After that, the stream of the connection follows. With integrity or privacy it is cut into messages of any
//! length, `length u32 | wrap(bytes)`, in both directions.

mod engine;
mod error;
mod exchange;
mod mechanism;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use tokio::io::{AsyncRead, AsyncWrite};

use self::{engine::SharedMechanism, reader::ProtectedReader, writer::ProtectedWriter};
pub(crate) use self::{
    error::{Peers, SaslError},
    exchange::{Authenticated, SaslExchange},
    mechanism::{SaslMechanism, SaslStep},
};
use crate::{
    security::Protection,
    transport::{Channel, TransportError, TransportErrorKind},
};

/// Returns the first accepted protection that the server offers; `offered` is the sum of their layers.
///
/// # Errors
///
/// [`TransportErrorKind::Permanent`] if the server offers none of them.
pub(crate) fn choose_protection(
    offered: u8,
    accepted: &[Protection],
) -> Result<Protection, TransportError> {
    let is_offered = |one: &&Protection| one.layer() & offered != 0;
    accepted.iter().find(is_offered).copied().ok_or_else(|| {
        let all = [Protection::Authentication, Protection::Integrity, Protection::Privacy];
        let offered: Vec<_> = all.iter().filter(is_offered).map(|one| one.name()).collect();
        let accepted: Vec<_> = accepted.iter().map(|one| one.name()).collect();
        let (offered, accepted) = (offered.join(","), accepted.join(","));
        let message = format!(
            "the server offers the protection {offered:?}, this client accepts {accepted:?}; set \
             hbase.rpc.protection to {offered}"
        );
        TransportError::new(TransportErrorKind::Permanent, message)
    })
}

/// Protects the bytes of a stream in both directions.
///
/// The halves are independent: a writer that waits for the peer does not delay the reader. They share the
/// mechanism, which is locked for one message at a time. A reader or writer waits for the lock without blocking its
/// thread.
pub(crate) fn protect(
    read: impl AsyncRead + Send + Unpin + 'static,
    write: impl AsyncWrite + Send + Unpin + 'static,
    mechanism: Box<dyn SaslMechanism>,
    confidential: bool,
) -> Channel {
    let mechanism = SharedMechanism::new(mechanism, confidential);
    Channel::Layered {
        read: Box::new(ProtectedReader::new(read, mechanism.clone())),
        write: Box::new(ProtectedWriter::new(write, mechanism)),
    }
}
