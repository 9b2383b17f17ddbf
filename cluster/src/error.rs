//! Errors of a cluster.

use std::{io, path::PathBuf, time::Duration};

use crate::{artifacts::ArtifactError, node::Node};

/// Why an operation on a cluster or its processes failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// Java was not found.
    #[error("no Java of version 17 or later: install a JDK or set JAVA_HOME")]
    NoJava,
    /// Java has no compiler.
    #[error("no javac next to {java}: install a JDK")]
    NoCompiler {
        /// Path of Java.
        java: PathBuf,
    },
    /// Java has no tool for its key stores.
    #[error("no keytool next to {java}: install a JDK")]
    NoKeytool {
        /// Path of Java.
        java: PathBuf,
    },
    /// MIT Kerberos is not installed.
    #[error(
        "no {tool}: install MIT Kerberos (Debian: krb5-kdc, krb5-admin-server, krb5-user), for example with \
         cluster/install-kdc.sh"
    )]
    NoKdc {
        /// The missing tool.
        tool: &'static str,
    },
    /// openssl is not installed.
    #[error("no openssl: install it, TLS needs certificates")]
    NoOpenssl,
    /// A tool failed.
    #[error("{what} failed:\n{output}")]
    Tool {
        /// The tool.
        what: String,
        /// Its output.
        output: String,
    },
    /// The configuration of a cluster contradicts itself, or this version of HBase cannot have it.
    #[error("the cluster cannot be configured so: {reason}")]
    Configuration {
        /// The contradiction.
        reason: String,
    },
    /// Jars cannot be provided.
    #[error("the jars of {set} are incomplete")]
    Artifacts {
        /// Name of the set.
        set: &'static str,
        /// Cause.
        source: ArtifactError,
    },
    /// A file operation failed.
    #[error("cannot {what} {path}")]
    File {
        /// The operation.
        what: &'static str,
        /// File or directory.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A cluster runs in the directory.
    #[error("a cluster is running in {directory}: stop it with `cluster down`")]
    Exists {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory has other files.
    #[error(
        "{directory} contains other files with names that a cluster uses: choose an empty directory"
    )]
    Occupied {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory has no cluster.
    #[error("no cluster in {directory}")]
    Missing {
        /// The directory.
        directory: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// No port is free.
    #[error("no free port")]
    NoPort {
        /// The last failure.
        source: io::Error,
    },
    /// The port is used by another process.
    #[error("port {port} of {node} is in use by another process")]
    PortTaken {
        /// Process of the port.
        node: Node,
        /// The port.
        port: u16,
        /// Cause.
        source: io::Error,
    },
    /// A process cannot be started.
    #[error("cannot start {what}")]
    Spawn {
        /// The process.
        what: String,
        /// Cause.
        source: io::Error,
    },
    /// A process exited unexpectedly.
    #[error("{node} exited unexpectedly; end of {log}:\n{tail}")]
    Exited {
        /// The process.
        node: Node,
        /// Its log file.
        log: PathBuf,
        /// Last lines of the log.
        tail: String,
    },
    /// A process did not serve in time.
    #[error("{what} does not serve after {} s: {last}; end of {log}:\n{tail}", limit.as_secs())]
    StartTimeout {
        /// The process.
        what: String,
        /// Duration of the wait.
        limit: Duration,
        /// Result of the last poll.
        last: String,
        /// Its log file.
        log: PathBuf,
        /// Last lines of the log.
        tail: String,
    },
    /// The cluster has no such process.
    #[error("the cluster has no {node}")]
    NoNode {
        /// The process.
        node: Node,
    },
    /// A process is not in the required state.
    #[error("{node} {state}")]
    WrongState {
        /// The process.
        node: Node,
        /// Its state.
        state: &'static str,
    },
    /// A signal cannot be sent.
    #[error("cannot signal {node}")]
    Signal {
        /// The process.
        node: Node,
        /// Cause.
        source: io::Error,
    },
    /// A process did not exit.
    #[error("{node} did not exit")]
    StillRunning {
        /// The process.
        node: Node,
    },
    /// An operation of HBase failed.
    #[error("HBase did not {what}")]
    HBase {
        /// The operation.
        what: String,
        /// Cause.
        source: hbase_rs::OperationError,
    },
    /// Regions are not in the expected state.
    #[error("{what}")]
    Regions {
        /// Description.
        what: String,
    },
    /// The `tsdb` command was not found.
    #[error("no tsdb command at {path}: run `cargo build` or set TSDB")]
    NoTsdb {
        /// Expected path.
        path: PathBuf,
    },
    /// The links cannot be started.
    #[error("the links of the cluster cannot be started")]
    Links {
        /// Cause.
        source: io::Error,
    },
    /// A Java program failed.
    #[error("{what} failed:\n{output}")]
    Java {
        /// The program, or its compilation.
        what: String,
        /// Its error output.
        output: String,
    },
}

impl ClusterError {
    /// Maps the error of a file operation.
    pub(crate) fn file(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { what, path, source }
    }
}
