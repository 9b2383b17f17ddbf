//! Why a configuration cannot be used.

use std::{io, path::PathBuf};

use super::{Origin, PropertiesError};

/// A configuration that stops start-up. Each names the key or file to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file named by `--config` cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file that is no properties file.
    #[error("{} is no properties file", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where.
        source: PropertiesError,
    },
    /// A value its key does not allow.
    #[error("{key} = {value:?} ({origin}): {expected}")]
    BadValue {
        /// The key.
        key: String,
        /// The value given.
        value: String,
        /// Who gave it.
        origin: Origin,
        /// What would be right.
        expected: String,
    },
}
