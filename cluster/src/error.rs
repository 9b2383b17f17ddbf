//! What can go wrong with a cluster.

use std::{io, path::PathBuf, time::Duration};

use crate::{artifacts::ArtifactError, node::Node};

/// A cluster, or a process of it, that does not do what it was told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// No Java.
    #[error("no Java of version 17 or later: install a JDK, or name one by JAVA_HOME")]
    NoJava,
    /// A Java that cannot compile.
    #[error("{java} has no javac beside it: install a JDK")]
    NoCompiler {
        /// What was found.
        java: PathBuf,
    },
    /// Jars that cannot be had.
    #[error("the jars of {set} are not complete")]
    Artifacts {
        /// Which set of them.
        set: &'static str,
        /// What is wrong.
        source: ArtifactError,
    },
    /// A file or directory.
    #[error("cannot {what} {path}")]
    File {
        /// What was to be done.
        what: &'static str,
        /// With which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A directory that is taken.
    #[error("{directory} holds a cluster already: `down` ends it")]
    Exists {
        /// Which.
        directory: PathBuf,
    },
    /// A directory with things of somebody else.
    #[error("{directory} holds other files by the names a cluster uses: choose an empty directory")]
    Occupied {
        /// Which.
        directory: PathBuf,
    },
    /// A directory without a cluster.
    #[error("{directory} holds no cluster")]
    Missing {
        /// Which.
        directory: PathBuf,
        /// Why it cannot be read.
        source: io::Error,
    },
    /// No port is free.
    #[error("no free port was found")]
    NoPort {
        /// The last failure.
        source: io::Error,
    },
    /// A port that somebody took meanwhile.
    #[error("port {port} of {node} is in use by another process")]
    PortTaken {
        /// Whose port.
        node: Node,
        /// Which.
        port: u16,
        /// What was said.
        source: io::Error,
    },
    /// A process that cannot be started.
    #[error("cannot start {what}")]
    Spawn {
        /// Which.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// A process that ended by itself.
    #[error("{node} ended by itself; the end of {log}:\n{tail}")]
    Died {
        /// Which.
        node: Node,
        /// Where it wrote.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// It took too long.
    #[error("{what} did not come up within {} s: {last}; the end of {log}:\n{tail}", limit.as_secs())]
    Slow {
        /// What was waited for.
        what: String,
        /// For how long.
        limit: Duration,
        /// What was seen last.
        last: String,
        /// Where it wrote.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// A process that there is none of.
    #[error("the cluster has no {node}")]
    NoNode {
        /// Which.
        node: Node,
    },
    /// A process that should not run, or should.
    #[error("{node} {state}")]
    State {
        /// Which.
        node: Node,
        /// What is wrong with it.
        state: &'static str,
    },
    /// A signal that did not arrive.
    #[error("cannot signal {node}")]
    Signal {
        /// Which.
        node: Node,
        /// Why not.
        source: io::Error,
    },
    /// A process that would not end.
    #[error("{node} is still there")]
    Lingers {
        /// Which.
        node: Node,
    },
    /// HBase refused or failed.
    #[error("HBase did not {what}")]
    HBase {
        /// What it was told to.
        what: String,
        /// What it said.
        source: hbase_rs::OperationError,
    },
    /// Regions that are not as they were to be.
    #[error("{what}")]
    Regions {
        /// What is wrong.
        what: String,
    },
    /// Our own command is not there.
    #[error("no tsdb command at {path}: `cargo build` makes it, TSDB names another")]
    NoTsdb {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// Links that are not there.
    #[error("the links of the cluster cannot be set up")]
    Links {
        /// Why not.
        source: io::Error,
    },
    /// A Java program that failed.
    #[error("{what} failed:\n{output}")]
    Java {
        /// Which, or its compilation.
        what: String,
        /// What it said.
        output: String,
    },
}

impl ClusterError {
    /// Turns a failure of a file operation into an error.
    pub(crate) fn file(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }
}
