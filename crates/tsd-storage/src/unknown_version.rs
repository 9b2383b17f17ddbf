//! The error of a file that another release has written.

use std::{fmt::Display, io};

use crate::StorageError;

/// An intact file of a version that this release does not read. It is no damage: nothing is lost, and
/// the release that wrote it can read it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} {file} has version {version}, this release reads {reads}: start the release that wrote it"
)]
pub struct UnknownVersion {
    what: &'static str,
    file: String,
    version: String,
    reads: String,
}

impl UnknownVersion {
    /// Names the kind of the file, its path, its version, and the versions that are read.
    #[must_use]
    pub fn new(
        what: &'static str,
        file: impl Display,
        version: impl Display,
        reads: impl Display,
    ) -> Self {
        let [file, version, reads] = [file.to_string(), version.to_string(), reads.to_string()];
        Self { what, file, version, reads }
    }

    /// The path of the file.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }
}

impl From<UnknownVersion> for io::Error {
    fn from(error: UnknownVersion) -> Self {
        Self::new(io::ErrorKind::InvalidData, error)
    }
}

impl From<UnknownVersion> for StorageError {
    fn from(error: UnknownVersion) -> Self {
        Self::Damaged(error.to_string().into())
    }
}
