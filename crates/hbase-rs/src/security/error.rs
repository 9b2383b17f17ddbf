//! Settings and files of the security that cannot be used.

use std::{fmt, io, path::PathBuf, sync::Arc};

use crate::transport::{TransportError, TransportErrorKind};

/// A security setting, or a file that it names, that cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecurityError {
    /// The file does not exist, or the user may not read it.
    #[error("cannot read {}", .file.display())]
    UnreadableFile {
        /// The file.
        file: PathBuf,
        /// Error of the operating system.
        source: Arc<io::Error>,
    },
    /// The contents of the file are wrong.
    #[error("{}{place}: {reason}; expected {expected}", .file.display())]
    InvalidFile {
        /// The file.
        file: PathBuf,
        /// Where in the file.
        place: FilePlace,
        /// What is wrong.
        reason: String,
        /// Valid contents, or the command that produces them.
        expected: String,
    },
    /// A setting is wrong, or does not go with another one.
    #[error("{setting}: {reason}; expected {expected}")]
    InvalidSetting {
        /// Name of the setting.
        setting: &'static str,
        /// What is wrong.
        reason: String,
        /// Valid values.
        expected: String,
    },
    /// The program lacks a library or feature that the settings need.
    #[error("{what} is not available: {reason}")]
    Unavailable {
        /// What the settings need.
        what: &'static str,
        /// What is missing, and how to get it.
        reason: String,
    },
}

/// Place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilePlace {
    /// The file as a whole.
    Whole,
    /// A line, from 1.
    Line(usize),
    /// A block of PEM or an entry, from 1.
    Block(usize),
    /// A byte, from 0.
    Byte(usize),
}

impl fmt::Display for FilePlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::Line(line) => write!(out, ", line {line}"),
            Self::Block(block) => write!(out, ", block {block}"),
            Self::Byte(byte) => write!(out, ", byte {byte}"),
        }
    }
}

impl SecurityError {
    /// A file that cannot be read.
    pub fn unreadable(file: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::UnreadableFile { file: file.into(), source: Arc::new(source) }
    }

    /// A file with wrong contents.
    pub fn invalid_file(
        file: impl Into<PathBuf>,
        place: FilePlace,
        reason: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        let (file, reason, expected) = (file.into(), reason.into(), expected.into());
        Self::InvalidFile { file, place, reason, expected }
    }

    /// The error of a file that this setting names. `contents`: what the file must have.
    #[cfg(feature = "rustls")]
    pub(crate) fn of_setting(self, setting: &'static str, contents: &str) -> Self {
        match self {
            Self::UnreadableFile { file, source } => Self::InvalidSetting {
                setting,
                reason: format!("cannot read {}: {source}", file.display()),
                expected: format!("a file with {contents}"),
            },
            Self::InvalidFile { file, place, reason, expected } => {
                let reason = format!("{}{place}: {reason}", file.display());
                Self::InvalidSetting { setting, reason, expected }
            }
            other => other,
        }
    }
}

/// Wrong settings stay wrong: a connection that needs them fails permanently.
impl From<SecurityError> for TransportError {
    fn from(error: SecurityError) -> Self {
        let new = |message| Self::new(TransportErrorKind::Permanent, message);
        match &error {
            SecurityError::UnreadableFile { source, .. } => new(format!("{error}: {source}")),
            _ => new(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_file_place_and_expectation() {
        let expected = "a certificate in PEM";
        let error =
            SecurityError::invalid_file("/etc/ca.pem", FilePlace::Block(2), "a key", expected);
        let text = "/etc/ca.pem, block 2: a key; expected a certificate in PEM";
        assert_eq!(error.to_string(), text);
        let error = TransportError::from(error);
        assert_eq!((error.kind(), &error.to_string()[..]), (TransportErrorKind::Permanent, text));
        let missing = SecurityError::unreadable("/x", io::ErrorKind::NotFound.into());
        assert_eq!(missing.to_string(), "cannot read /x");
        assert!(TransportError::from(missing).to_string().starts_with("cannot read /x: "));
    }
}
