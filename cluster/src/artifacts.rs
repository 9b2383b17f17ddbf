//! Jars: which, and that they are those.
//!
//! Each set is pinned by a committed list with a checksum per jar, so that a cluster of next year
//! runs the same code and nothing else. No build tool takes part when a cluster starts.

mod fetch;
mod lock;

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitStatus,
};

pub use self::lock::LockError;
pub(crate) use self::{
    fetch::resolve,
    lock::{Artifact, Set},
};

/// Jars that cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// A list that is not one.
    #[error("the list of jars is damaged")]
    Lock {
        /// Where.
        #[from]
        source: LockError,
    },
    /// A cache that cannot be used.
    #[error("cannot use {path} of the cache of jars")]
    Cache {
        /// What of it.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Neither a directory for a cache nor a home.
    #[error("no directory to keep jars in: set CLUSTER_CACHE or HOME")]
    NoCache,
    /// No curl.
    #[error("cannot run curl, which fetches the jars")]
    NoCurl {
        /// Why not.
        source: io::Error,
    },
    /// A download that failed.
    #[error("cannot fetch {count} jars from {repository} ({status}):\n{output}")]
    Download {
        /// How many were missing.
        count: usize,
        /// From where.
        repository: String,
        /// How curl ended.
        status: ExitStatus,
        /// What it said.
        output: String,
    },
    /// A jar that is not the one that was pinned.
    #[error("{artifact} from {repository} has the checksum {found} instead of {expected}")]
    Checksum {
        /// Which.
        artifact: String,
        /// From where.
        repository: String,
        /// What came.
        found: String,
        /// What was pinned.
        expected: String,
    },
}

/// Where jars are looked for and kept.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// Ours.
    pub(crate) cache: PathBuf,
    /// Maven's, read only.
    pub(crate) maven: Option<PathBuf>,
    /// What is missing is fetched from under this URL.
    pub(crate) repository: String,
}

/// Where released jars are, unless `MAVEN_REPOSITORY` says otherwise.
const CENTRAL: &str = "https://repo.maven.apache.org/maven2";

impl Places {
    /// The user's, by the usual variables of the environment.
    pub(crate) fn of_user(cache: Option<&Path>) -> Result<Self, ArtifactError> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let home = variable("HOME").map(PathBuf::from);
        let cache = cache
            .map(Path::to_path_buf)
            .or_else(|| variable("CLUSTER_CACHE").map(PathBuf::from))
            .or_else(|| Some(PathBuf::from(variable("XDG_CACHE_HOME")?).join("saltern")))
            .or_else(|| Some(home.as_ref()?.join(".cache/saltern")))
            .ok_or(ArtifactError::NoCache)?;
        let repository = std::env::var("MAVEN_REPOSITORY").ok().filter(|url| !url.is_empty());
        Ok(Self {
            cache,
            maven: home.map(|home| home.join(".m2/repository")),
            repository: repository
                .map_or_else(|| CENTRAL.to_owned(), |url| url.trim_end_matches('/').to_owned()),
        })
    }
}
