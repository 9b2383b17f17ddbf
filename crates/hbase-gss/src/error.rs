//! Errors of the library, classified by what their reader has to do.

use std::{ffi::c_int, ptr};

use crate::{
    api::{Api, KERBEROS, LoadError},
    buffer::OutputBuffer,
    keytab::KeytabError,
};

/// Bits of a status that mean failure; the others are information about a success.
const FAILURE_BITS: u32 = 0xffff_0000;

/// A failure of Kerberos. Its text has what the library reported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    kind: ErrorKind,
    major: u32,
    minor: u32,
    text: String,
}

/// Classes of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The library is not installed, or this program is static and cannot load it.
    LibraryMissing,
    /// The KDC has no such service principal.
    UnknownServer,
    /// No KDC is known for the realm of a principal, or the realms do not trust each other.
    WrongRealm,
    /// Keytab or cache is missing, unreadable, damaged, or without the principal.
    NoCredentials,
    /// The KDC refuses the client: the principal is unknown, disabled or expired, or the key of its keytab is
    /// outdated.
    ClientRefused,
    /// The tickets of a cache have expired.
    Expired,
    /// No KDC of the realm answers.
    KdcUnreachable,
    /// The clocks of client and KDC differ too much.
    ClockSkew,
    /// A token of the peer is damaged, was repeated, or arrived out of order.
    InvalidToken,
    /// Anything else; see the text.
    Other,
}

/// What the library was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Parse or render a principal.
    Name,
    /// Get or read tickets.
    Login,
    /// Produce the first token.
    FirstToken,
    /// Check a token of the peer and produce the next one.
    NextToken,
    /// Protect a message.
    Wrap,
    /// Check a message of the peer.
    Unwrap,
}

impl Operation {
    const fn text(self) -> &'static str {
        match self {
            Self::Name => "principal",
            Self::Login => "Kerberos login",
            Self::FirstToken => "service ticket",
            Self::NextToken => "Kerberos handshake",
            Self::Wrap => "protect a message",
            Self::Unwrap => "check a message",
        }
    }

    /// True if the input is a token of the peer.
    const fn checks_peer(self) -> bool {
        matches!(self, Self::NextToken | Self::Unwrap)
    }
}

impl Error {
    /// Class of the failure.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Major status of the GSS-API, 0 if the failure did not come from there.
    #[must_use]
    pub const fn major(&self) -> u32 {
        self.major
    }

    /// Minor status: the code of Kerberos as an unsigned number, 0 for no code.
    #[must_use]
    pub const fn minor(&self) -> u32 {
        self.minor
    }

    /// What failed and why.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A failure that this crate finds without the library.
    pub(crate) const fn own(kind: ErrorKind, text: String) -> Self {
        Self { kind, major: 0, minor: 0, text }
    }

    /// A text with a zero byte, which no C string can have.
    pub(crate) fn invalid(what: &str) -> Self {
        Self::own(ErrorKind::Other, format!("{what} has a zero byte"))
    }

    /// Names what the failure is about.
    pub(crate) fn about(mut self, subject: &str) -> Self {
        self.text = format!("{subject}: {}", self.text);
        self
    }

    /// Returns an error if the status means failure.
    ///
    /// The texts of a minor status belong to the thread of the failed call, so this must run on the same thread,
    /// before another call.
    pub(crate) fn check(
        api: &'static Api,
        operation: Operation,
        major: u32,
        minor: u32,
    ) -> Result<(), Self> {
        if major & FAILURE_BITS == 0 {
            return Ok(());
        }
        let details = status_text(api, minor, 2);
        let text = describe(major, &status_text(api, major, 1), &details);
        let kind = classify(operation, major, minor, &details);
        Err(Self { kind, major, minor, text: format!("{}: {text}", operation.text()) })
    }
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        Self::own(ErrorKind::LibraryMissing, error.0)
    }
}

impl From<KeytabError> for Error {
    fn from(error: KeytabError) -> Self {
        Self::own(ErrorKind::NoCredentials, error.to_string())
    }
}

/// Returns the texts of a status: `kind` 1 for major, 2 for minor.
fn status_text(api: &'static Api, status: u32, kind: c_int) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut context = 0;
    // The library returns one line per call; none has more than a few.
    for _ in 0..8 {
        let mut text = OutputBuffer::new(api);
        let mut minor = 0;
        // SAFETY: all pointers are valid for the call, and `text` takes ownership of the result.
        let major = unsafe {
            (api.gss_display_status)(
                &raw mut minor,
                status,
                kind,
                if kind == 2 { &raw const KERBEROS } else { ptr::null() },
                &raw mut context,
                text.as_mut_ptr(),
            )
        };
        if major & FAILURE_BITS != 0 {
            break;
        }
        lines.push(text.to_text());
        if context == 0 {
            break;
        }
    }
    lines.join("; ")
}

/// Joins both texts. The general ones of two statuses only say that the other text has the cause.
fn describe(major: u32, general: &str, details: &str) -> String {
    if details.is_empty() || details == "Success" {
        general.to_owned()
    } else if matches!(routine(major), FAILURE | NO_CREDENTIALS) || general == details {
        details.to_owned()
    } else {
        format!("{general}: {details}")
    }
}

/// Number of the routine error in a major status.
const fn routine(major: u32) -> u32 {
    (major >> 16) & 0xff
}

// Routine errors of RFC 2744.
const BAD_SIGNATURE: u32 = 6;
const NO_CREDENTIALS: u32 = 7;
const DEFECTIVE_TOKEN: u32 = 9;
const CREDENTIALS_EXPIRED: u32 = 11;
const CONTEXT_EXPIRED: u32 = 12;
const FAILURE: u32 = 13;

/// First code of Kerberos' own error table, and of the one of its GSS mechanism.
const KRB5_TABLE: i32 = -1_765_328_384;
const GSS_TABLE: i32 = 39_756_032;

/// Finds the class of a failure.
///
/// Codes decide where they are known: their numbers are part of the library's binary interface. Texts decide in
/// two cases: one code means an unknown service and an unknown realm, whose text has `krbtgt/`; and a code that two
/// mechanisms use is replaced by an arbitrary number.
fn classify(operation: Operation, major: u32, minor: u32, details: &str) -> ErrorKind {
    let by_major = match routine(major) {
        BAD_SIGNATURE | DEFECTIVE_TOKEN => Some(ErrorKind::InvalidToken),
        CREDENTIALS_EXPIRED | CONTEXT_EXPIRED => Some(ErrorKind::Expired),
        _ => None,
    };
    // What the peer has sent says nothing about the credentials of this side.
    if operation.checks_peer() {
        return by_major.unwrap_or(ErrorKind::InvalidToken);
    }
    let minor = minor as i32;
    by_major
        .or_else(|| by_krb5_code(minor.wrapping_sub(KRB5_TABLE), details))
        .or_else(|| by_gss_code(minor.wrapping_sub(GSS_TABLE)))
        .or_else(|| by_text(details))
        .unwrap_or(if routine(major) == NO_CREDENTIALS {
            ErrorKind::NoCredentials
        } else {
            ErrorKind::Other
        })
}

/// Classes of the codes in Kerberos' table, by their offset.
fn by_krb5_code(code: i32, details: &str) -> Option<ErrorKind> {
    Some(match code {
        // Server not found; the ticket of a realm is the service `krbtgt/REALM`.
        7 if details.contains("krbtgt/") => ErrorKind::WrongRealm,
        7 => ErrorKind::UnknownServer,
        // Not the KDC's realm; no KDC known; realm of a host unknown; no default realm.
        68 | 154 | 217 | 224 => ErrorKind::WrongRealm,
        // Entry expired; client unknown; no key; revoked; key expired; pre-authentication failed (both sides);
        // wrong key.
        1 | 6 | 9 | 18 | 23 | 24 | 31 | 210 => ErrorKind::ClientRefused,
        // Service of the KDC unavailable; unreachable; its name does not resolve.
        29 | 156 | 220 => ErrorKind::KdcUnreachable,
        32 => ErrorKind::Expired,
        37 | 148 => ErrorKind::ClockSkew,
        // Ticket or key not found; cache not readable, missing or damaged.
        141 | 181 | 194 | 195 | 199 => ErrorKind::NoCredentials,
        _ => return None,
    })
}

/// Classes of the codes of the mechanism: another principal in the cache, no key, no ticket, an empty cache.
const fn by_gss_code(code: i32) -> Option<ErrorKind> {
    match code {
        0..=2 | 12 => Some(ErrorKind::NoCredentials),
        _ => None,
    }
}

/// Classes of texts that MIT Kerberos has used since 1.11.
fn by_text(details: &str) -> Option<ErrorKind> {
    const TEXTS: &[(&str, ErrorKind)] = &[
        ("krbtgt/", ErrorKind::WrongRealm),
        ("Cannot find KDC", ErrorKind::WrongRealm),
        ("Server not found in Kerberos database", ErrorKind::UnknownServer),
        ("Client not found in Kerberos database", ErrorKind::ClientRefused),
        ("Preauthentication failed", ErrorKind::ClientRefused),
        ("Cannot contact any KDC", ErrorKind::KdcUnreachable),
        ("Ticket expired", ErrorKind::Expired),
        ("Clock skew too great", ErrorKind::ClockSkew),
        ("No credentials cache found", ErrorKind::NoCredentials),
    ];
    TEXTS.iter().find(|(text, _)| details.contains(text)).map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_CODE: u32 = 100_001;

    #[track_caller]
    fn check(operation: Operation, routine: u32, code: i32, details: &str, expected: ErrorKind) {
        let minor = KRB5_TABLE.wrapping_add(code) as u32;
        assert_eq!(classify(operation, routine << 16, minor, details), expected);
    }

    #[test]
    fn codes_decide() {
        let first = Operation::FirstToken;
        check(first, FAILURE, 7, "Server hbase/x@R not found …", ErrorKind::UnknownServer);
        check(first, FAILURE, 7, "Server krbtgt/OTHER@R not found …", ErrorKind::WrongRealm);
        check(first, FAILURE, 154, "Cannot find KDC for realm \"R\"", ErrorKind::WrongRealm);
        check(first, FAILURE, 32, "Ticket expired", ErrorKind::Expired);
        check(first, CREDENTIALS_EXPIRED, 0, "", ErrorKind::Expired);
        let login = Operation::Login;
        check(login, NO_CREDENTIALS, 156, "Cannot contact …", ErrorKind::KdcUnreachable);
        check(login, NO_CREDENTIALS, 6, "Client 'a@R' not found …", ErrorKind::ClientRefused);
        check(login, NO_CREDENTIALS, 24, "Preauthentication failed", ErrorKind::ClientRefused);
        check(login, NO_CREDENTIALS, 195, "No credentials cache found", ErrorKind::NoCredentials);
        check(login, NO_CREDENTIALS, 250, "", ErrorKind::NoCredentials);
        check(login, FAILURE, 250, "", ErrorKind::Other);
    }

    #[test]
    fn texts_decide_about_replaced_codes() {
        for (text, kind) in [
            ("Server not found in Kerberos database", ErrorKind::UnknownServer),
            ("Cannot contact any KDC for realm 'R'", ErrorKind::KdcUnreachable),
            ("anything", ErrorKind::Other),
        ] {
            assert_eq!(classify(Operation::FirstToken, FAILURE << 16, NO_CODE, text), kind);
        }
    }

    /// A wrong key of the peer is no reason to doubt the keytab.
    #[test]
    fn failures_of_tokens_are_the_peers() {
        check(Operation::NextToken, FAILURE, 31, "", ErrorKind::InvalidToken);
        check(Operation::NextToken, DEFECTIVE_TOKEN, 0, "", ErrorKind::InvalidToken);
        check(Operation::Unwrap, BAD_SIGNATURE, 0, "", ErrorKind::InvalidToken);
        check(Operation::Unwrap, CONTEXT_EXPIRED, 0, "", ErrorKind::Expired);
    }

    #[test]
    fn texts_are_joined_without_repetition() {
        assert_eq!(describe(FAILURE << 16, "Unspecified", "KDC is down"), "KDC is down");
        assert_eq!(describe(FAILURE << 16, "Unspecified", ""), "Unspecified");
        assert_eq!(describe(DEFECTIVE_TOKEN << 16, "Defective", "cut off"), "Defective: cut off");
        assert_eq!(describe(CREDENTIALS_EXPIRED << 16, "Expired", "Success"), "Expired");
    }
}
