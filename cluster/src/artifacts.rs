//! The jars of a cluster, from local caches or a Maven repository.
//!
//! Each set is pinned by a committed list with a checksum per jar, so that a cluster always runs the
//! same code. Starting a cluster needs no build tool.

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
    lock::{Artifact, JarSet},
};

/// Why jars cannot be provided.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactError {
    /// The list of jars cannot be parsed.
    #[error("the list of jars is damaged")]
    Lock {
        /// The line.
        #[from]
        source: LockError,
    },
    /// The cache cannot be read or written.
    #[error("cannot use {path} in the cache of jars")]
    Cache {
        /// File or directory.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// No cache directory is configured and there is no home directory.
    #[error("no directory for the cache of jars: set CLUSTER_CACHE or HOME")]
    NoCache,
    /// curl cannot be run.
    #[error("cannot run curl, which downloads the jars")]
    NoCurl {
        /// Cause.
        source: io::Error,
    },
    /// The download failed.
    #[error("cannot download {count} jars from {repository} ({status}):\n{output}")]
    Download {
        /// Number of missing jars.
        count: usize,
        /// URL of the repository.
        repository: String,
        /// Exit status of curl.
        status: ExitStatus,
        /// Error output of curl.
        output: String,
    },
    /// A downloaded jar differs from the pinned one.
    #[error("{artifact} from {repository} has the checksum {found} instead of {expected}")]
    Checksum {
        /// Name of the jar.
        artifact: String,
        /// URL of the repository.
        repository: String,
        /// Its checksum.
        found: String,
        /// The pinned checksum.
        expected: String,
    },
}

/// Places where jars are searched and stored.
#[derive(Clone, Debug)]
pub(crate) struct JarLocations {
    /// The cache of this crate.
    pub(crate) cache: PathBuf,
    /// Maven's local repository, read only.
    pub(crate) maven: Option<PathBuf>,
    /// URL of the repository for missing jars.
    pub(crate) repository: String,
}

/// The repository unless `MAVEN_REPOSITORY` is set.
const CENTRAL: &str = "https://repo.maven.apache.org/maven2";

impl JarLocations {
    /// The locations of the user, by the usual environment variables.
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
