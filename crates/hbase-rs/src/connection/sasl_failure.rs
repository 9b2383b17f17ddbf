//! SASL failures that arrive after the authentication.
//!
//! A server answers nothing to the client's last SASL message. If it rejects that message, the failure
//! stands where the first response frame is expected, and is never wrapped:
//!
//! ```text
//! 00000001 | length u32, Java class | length u32, text
//! ```
//!
//! No response frame has a length of 1.

use crate::exception::RemoteException;

/// Maximum length in bytes of a class and of a text.
const MAX_TEXT: usize = 64 << 10;

/// What the first bytes of a stream say about the authentication.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FirstBytes {
    /// More bytes are needed.
    Incomplete,
    /// A response frame.
    Frame,
    /// The authentication failed.
    Failure(RemoteException),
}

impl FirstBytes {
    pub(super) fn read(bytes: &[u8]) -> Self {
        let Some((status, rest)) = bytes.split_first_chunk::<4>() else { return Self::Incomplete };
        if u32::from_be_bytes(*status) != 1 {
            return Self::Frame;
        }
        let Some((class, rest)) = text(rest) else { return Self::Incomplete };
        let Some((message, _)) = text(rest) else { return Self::Incomplete };
        Self::Failure(RemoteException::from_sasl(&class, &message))
    }
}

/// Splits a text with its length from the front, and cuts it if it is too long; `None` if it is incomplete. Java writes
/// the length -1 for a missing text.
fn text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0).min(MAX_TEXT);
    let (text, rest) = rest.split_at_checked(length)?;
    Some((String::from_utf8_lossy(text).into_owned(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_read_when_all_its_bytes_are_there() {
        let mut bytes = vec![0, 0, 0, 1];
        for text in ["javax.security.sasl.SaslException", "GSS initiate failed"] {
            bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        for end in 0..bytes.len() {
            assert_eq!(FirstBytes::read(&bytes[..end]), FirstBytes::Incomplete, "{end}");
        }
        let FirstBytes::Failure(failure) = FirstBytes::read(&bytes) else { panic!("no failure") };
        assert_eq!(failure.to_string(), "SaslException: GSS initiate failed");
    }

    #[test]
    fn frames_are_no_failures_and_damaged_failures_end() {
        assert_eq!(FirstBytes::read(&[0, 0, 0, 2]), FirstBytes::Frame);
        assert_eq!(FirstBytes::read(&[0, 0, 0, 0]), FirstBytes::Frame);
        let without_texts = [&[0, 0, 0, 1][..], &[0xff; 8]].concat();
        assert!(matches!(FirstBytes::read(&without_texts), FirstBytes::Failure(_)));
        let mut damaged = vec![0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff];
        assert_eq!(FirstBytes::read(&damaged), FirstBytes::Incomplete);
        damaged.resize(damaged.len() + 2 * MAX_TEXT + 4, 0xff);
        assert!(matches!(FirstBytes::read(&damaged), FirstBytes::Failure(_)));
    }
}
