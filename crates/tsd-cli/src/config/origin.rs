//! Where a value comes from. `config.rs` decides which of several sources wins.

use std::{fmt, path::PathBuf};

/// Source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The table of defaults.
    Default,
    /// A file.
    File {
        /// Its path.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
    },
    /// An environment variable of that name.
    Environment(String),
    /// A flag of the command line.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{} line {line}", path.display()),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}
