//! Errors of the configuration.

use std::{io, path::PathBuf};

use tsd_server::redacted;

use super::{origin::Origin, properties::PropertiesError};

/// A configuration error that prevents the start. Each names the key or file to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file named by `--config` cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// I/O error.
        source: io::Error,
    },
    /// The file is not a properties file.
    #[error("{} is not a properties file", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Parse error.
        source: PropertiesError,
    },
    /// The value is not valid for its key.
    #[error("{key} = {:?} ({origin}): {expected}", redacted(key, value))]
    BadValue {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// Its source.
        origin: Origin,
        /// Description of valid values.
        expected: String,
    },
    /// Several values are not valid for their keys.
    #[error("{} settings are wrong{}", .0.len(), lines(.0))]
    BadValues(Vec<Self>),
}

/// Each error on a line of its own.
fn lines(errors: &[ConfigError]) -> String {
    let lines: Vec<_> = errors.iter().map(|error| format!("\n  {error}")).collect();
    lines.concat()
}

/// The configuration contradicts what it names: a table, or a cluster.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UnusableConfiguration(String);

impl UnusableConfiguration {
    /// The error with its whole text.
    pub(crate) const fn new(text: String) -> Self {
        Self(text)
    }
}
