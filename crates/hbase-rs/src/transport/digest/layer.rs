//! Messages with a checksum, and with encryption under privacy.
//!
//! ```text
//! integrity  content | mac 10 bytes | 0001 | sequence number u32
//! privacy    rc4(content | mac) | 0001 | sequence number u32
//! ```
//!
//! The checksum is HMAC-MD5 of sequence number and content. Numbers start at zero in each direction. The key stream
//! of RC4 continues from message to message.

use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use rc4::{Rc4, StreamCipher};

use super::damaged::damaged;
use crate::transport::TransportError;

type HmacMd5 = Hmac<Md5>;

/// Length of a checksum in bytes.
const MAC_LENGTH: usize = 10;

/// Type of all messages.
const MESSAGE_TYPE: [u8; 2] = [0, 1];

/// Length in bytes of type and sequence number.
const TRAILER_LENGTH: usize = 6;

/// Keys of both directions, as one side uses them.
pub(super) struct Keys {
    pub(super) send_integrity: [u8; 16],
    pub(super) receive_integrity: [u8; 16],
    pub(super) send_privacy: [u8; 16],
    pub(super) receive_privacy: [u8; 16],
}

impl Keys {
    /// Derives the client's keys.
    pub(super) fn of_client(session_key: &[u8; 16]) -> Self {
        let key = |text: &str| Md5::new().chain_update(session_key).chain_update(text).finalize();
        let signing = |direction| {
            key(&format!("Digest session key to {direction} signing key magic constant")).into()
        };
        let sealing = |direction| {
            key(&format!("Digest H(A1) to {direction} sealing key magic constant")).into()
        };
        Self {
            send_integrity: signing("client-to-server"),
            receive_integrity: signing("server-to-client"),
            send_privacy: sealing("client-to-server"),
            receive_privacy: sealing("server-to-client"),
        }
    }
}

/// Protection of messages in both directions.
pub(super) struct MessageLayer {
    send: Half,
    receive: Half,
}

/// One direction.
struct Half {
    mac: HmacMd5,
    cipher: Option<Rc4>,
    sequence: u32,
}

impl MessageLayer {
    pub(super) fn new(keys: &Keys, confidential: bool) -> Result<Self, TransportError> {
        Ok(Self {
            send: Half::new(&keys.send_integrity, confidential.then_some(&keys.send_privacy))?,
            receive: Half::new(
                &keys.receive_integrity,
                confidential.then_some(&keys.receive_privacy),
            )?,
        })
    }

    pub(super) const fn is_confidential(&self) -> bool {
        self.send.cipher.is_some()
    }

    pub(super) fn wrap(&mut self, plain: &[u8]) -> Vec<u8> {
        let sequence = self.send.next_sequence();
        let mac = self.send.mac(sequence, plain).finalize().into_bytes();
        let mut message = Vec::with_capacity(plain.len() + MAC_LENGTH + TRAILER_LENGTH);
        message.extend_from_slice(plain);
        message.extend(mac.into_iter().take(MAC_LENGTH));
        if let Some(cipher) = &mut self.send.cipher {
            cipher.apply_keystream(&mut message);
        }
        message.extend_from_slice(&MESSAGE_TYPE);
        message.extend_from_slice(&sequence);
        message
    }

    pub(super) fn unwrap(&mut self, message: &[u8]) -> Result<Vec<u8>, TransportError> {
        let sequence = self.receive.next_sequence();
        let trailer = [&MESSAGE_TYPE[..], &sequence].concat();
        let body = message.strip_suffix(&trailer[..]);
        let mut body = body.ok_or_else(|| damaged("a message out of order"))?.to_vec();
        if let Some(cipher) = &mut self.receive.cipher {
            cipher.apply_keystream(&mut body);
        }
        let length = body.len().checked_sub(MAC_LENGTH);
        let length = length.ok_or_else(|| damaged("a message without a checksum"))?;
        let mac = body.split_off(length);
        let expected = self.receive.mac(sequence, &body);
        expected
            .verify_truncated_left(&mac)
            .map_err(|_| damaged("a message with a wrong checksum"))?;
        Ok(body)
    }
}

impl Half {
    fn new(integrity: &[u8; 16], privacy: Option<&[u8; 16]>) -> Result<Self, TransportError> {
        let mac = HmacMd5::new_from_slice(integrity).map_err(|_| damaged("an unusable key"))?;
        let cipher = privacy.map(|key| Rc4::new_from_slice(key)).transpose();
        let cipher = cipher.map_err(|_| damaged("an unusable key"))?;
        Ok(Self { mac, cipher, sequence: 0 })
    }

    fn next_sequence(&mut self) -> [u8; 4] {
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        sequence.to_be_bytes()
    }

    fn mac(&self, sequence: [u8; 4], plain: &[u8]) -> HmacMd5 {
        self.mac.clone().chain_update(sequence).chain_update(plain)
    }
}
