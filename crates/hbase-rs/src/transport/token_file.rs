//! Files with delegation tokens, as `HADOOP_TOKEN_FILE_LOCATION` names them.
//!
//! ```text
//! "HDTS" | format u8
//!   format 0: count | count × (alias, token) | count | count × (alias, secret)
//!             token: identifier, password, kind, service; each is a length and bytes, as are alias and secret
//!   format 1: a protobuf message, with its length before it
//! ```
//!
//! Counts and lengths of format 0 are Hadoop's variable-length integers: one byte up to 127, else a byte that tells
//! how many bytes of the number follow. Secrets are not read.

#[cfg(test)]
mod tests;

use std::{fmt, path::Path};

use hbase_rs_protobuf as pb;
use prost::Message;

/// First bytes of a file.
const MAGIC: &[u8] = b"HDTS";

/// Kind of HBase's tokens.
const HBASE_KIND: &str = "HBASE_AUTH_TOKEN";

/// Maximum length of a file in bytes.
const MAX_FILE: u64 = 16 << 20;

/// A delegation token, with which a client authenticates without Kerberos until it expires.
#[derive(Clone, PartialEq, Eq)]
pub struct DelegationToken {
    pub(crate) identifier: Vec<u8>,
    pub(crate) password: Vec<u8>,
    pub(crate) kind: String,
    /// Id of the cluster.
    pub(crate) service: String,
}

/// The password stays secret.
impl fmt::Debug for DelegationToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { identifier, kind, service, .. } = self;
        out.debug_struct("DelegationToken")
            .field("kind", kind)
            .field("service", service)
            .field("identifier", &identifier.escape_ascii().to_string())
            .finish_non_exhaustive()
    }
}

/// A token file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenFileError {
    /// The file cannot be read.
    #[error("cannot be read")]
    Io(#[from] std::io::Error),
    /// The file is too long.
    #[error("{0} bytes; the limit is {MAX_FILE}")]
    TooLong(u64),
    /// The file is of another format.
    #[error("it does not start with HDTS")]
    Magic,
    /// The file's format is not known.
    #[error("unknown format {0}")]
    Format(u8),
    /// The file is cut or damaged.
    #[error("cut or damaged")]
    Damaged,
    /// The file has no token of HBase.
    #[error("no token of the kind {HBASE_KIND}{}", list(.0))]
    NoToken(Vec<String>),
    /// The file has tokens of several clusters.
    #[error("tokens of several HBase clusters{}", list(.0))]
    SeveralClusters(Vec<String>),
}

fn list(words: &[String]) -> String {
    if words.is_empty() { String::new() } else { format!(" (found {})", words.join(", ")) }
}

impl DelegationToken {
    /// A token that HBase has issued.
    pub(crate) fn of_hbase(token: &pb::Token) -> Self {
        Self {
            identifier: token.identifier().to_vec(),
            password: token.password().to_vec(),
            kind: HBASE_KIND.to_owned(),
            service: String::from_utf8_lossy(token.service()).into_owned(),
        }
    }

    /// Returns the id of the cluster that accepts the token.
    #[must_use]
    pub fn cluster_id(&self) -> &str {
        &self.service
    }

    /// Encodes a token file of Hadoop with this token. It contains the token's password.
    #[must_use]
    pub fn encode_file(&self) -> Vec<u8> {
        let Self { identifier, password, kind, service } = self;
        let mut file = [MAGIC, &[0]].concat();
        put_number(&mut file, 1);
        for field in [service.as_bytes(), identifier, password, kind.as_bytes(), service.as_bytes()]
        {
            put_number(&mut file, field.len());
            file.extend_from_slice(field);
        }
        // No secrets.
        put_number(&mut file, 0);
        file
    }

    /// Reads HBase's token from a file.
    pub(crate) fn read(path: &Path) -> Result<Self, TokenFileError> {
        let length = std::fs::metadata(path)?.len();
        if length > MAX_FILE {
            return Err(TokenFileError::TooLong(length));
        }
        Self::choose(parse(&std::fs::read(path)?)?)
    }

    /// Returns the only token of HBase; of several tokens of one cluster, the last.
    fn choose(tokens: Vec<Self>) -> Result<Self, TokenFileError> {
        let (mut tokens, others): (Vec<_>, Vec<_>) =
            tokens.into_iter().partition(|token| token.kind == HBASE_KIND);
        let Some(chosen) = tokens.pop() else {
            return Err(TokenFileError::NoToken(others.into_iter().map(|one| one.kind).collect()));
        };
        if tokens.iter().any(|token| token.service != chosen.service) {
            tokens.push(chosen);
            let services = tokens.into_iter().map(|token| token.service).collect();
            return Err(TokenFileError::SeveralClusters(services));
        }
        Ok(chosen)
    }
}

/// Returns all tokens of a file.
fn parse(file: &[u8]) -> Result<Vec<DelegationToken>, TokenFileError> {
    let rest = file.strip_prefix(MAGIC).ok_or(TokenFileError::Magic)?;
    match rest.split_first() {
        Some((0, rest)) => parse_writable(rest).ok_or(TokenFileError::Damaged),
        Some((1, rest)) => {
            let file = CredentialsMessage::decode_length_delimited(rest);
            let entries = file.map_err(|_| TokenFileError::Damaged)?.tokens;
            Ok(entries.into_iter().filter_map(|entry| Some(entry.token?.into())).collect())
        }
        Some((format, _)) => Err(TokenFileError::Format(*format)),
        None => Err(TokenFileError::Damaged),
    }
}

/// Parses the tokens of format 0; `None` if they are incomplete.
fn parse_writable(file: &[u8]) -> Option<Vec<DelegationToken>> {
    let mut reader = WritableReader(file);
    let count = reader.number()?;
    let mut tokens = Vec::new();
    for _ in 0..count {
        reader.bytes()?;
        tokens.push(DelegationToken {
            identifier: reader.bytes()?.to_vec(),
            password: reader.bytes()?.to_vec(),
            kind: reader.text()?,
            service: reader.text()?,
        });
    }
    Some(tokens)
}

/// Reads Hadoop's `Writable` encoding.
struct WritableReader<'a>(&'a [u8]);

impl<'a> WritableReader<'a> {
    /// Reads a number that is not negative.
    fn number(&mut self) -> Option<usize> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        let first = first.cast_signed();
        if first >= 0 {
            return Some(first as usize);
        }
        // -113 is followed by one byte, -114 by two, and so on.
        let length =
            usize::try_from(-112 - i16::from(first)).ok().filter(|one| (1..=8).contains(one))?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        let number = bytes.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        usize::try_from(number).ok()
    }

    /// Reads bytes with their length.
    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }
}

/// Appends a number in Hadoop's `Writable` encoding.
fn put_number(file: &mut Vec<u8>, number: usize) {
    if number <= 127 {
        file.push(number as u8);
        return;
    }
    let bytes = number.to_be_bytes();
    let zeros = number.leading_zeros() as usize / 8;
    let bytes = bytes.get(zeros..).unwrap_or_default();
    file.push((-112 - bytes.len() as i8).cast_unsigned());
    file.extend_from_slice(bytes);
}

/// Content of a file of format 1.
#[derive(Clone, PartialEq, Message)]
struct CredentialsMessage {
    #[prost(message, repeated, tag = "1")]
    tokens: Vec<EntryMessage>,
}

/// A token with its alias.
#[derive(Clone, PartialEq, Message)]
struct EntryMessage {
    #[prost(message, optional, tag = "2")]
    token: Option<TokenMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct TokenMessage {
    #[prost(bytes = "vec", tag = "1")]
    identifier: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    password: Vec<u8>,
    #[prost(string, tag = "3")]
    kind: String,
    #[prost(string, tag = "4")]
    service: String,
}

impl From<TokenMessage> for DelegationToken {
    fn from(TokenMessage { identifier, password, kind, service }: TokenMessage) -> Self {
        Self { identifier, password, kind, service }
    }
}
