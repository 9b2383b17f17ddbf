//! The state file of a cluster, by which other processes attach to it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    config::ClusterConfig, error::ClusterError, files::ClusterFiles, node::Node,
    process::ProcessIdentity,
};

/// Contents of the state file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ClusterState {
    pub(crate) config: ClusterConfig,
    pub(crate) java: PathBuf,
    pub(crate) jars: Vec<PathBuf>,
    pub(crate) opentsdb_jars: Vec<PathBuf>,
    pub(crate) members: Vec<MemberRecord>,
}

/// One process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MemberRecord {
    pub(crate) node: Node,
    pub(crate) port: u16,
    /// Port with TLS, of ZooKeeper.
    pub(crate) secure_port: Option<u16>,
    /// Length of its log at its start.
    pub(crate) log_start: u64,
    /// The running process; `None` while it is stopped.
    pub(crate) process: Option<ProcessIdentity>,
    /// Time of its start, epoch milliseconds.
    pub(crate) started_ms: u64,
    /// Name of a region server.
    pub(crate) server: Option<String>,
}

impl ClusterState {
    pub(crate) fn read(directory: &Path) -> Result<Self, ClusterError> {
        let path = ClusterFiles { root: directory.to_path_buf() }.state();
        let missing = |source| ClusterError::Missing { directory: directory.to_path_buf(), source };
        let text = fs::read(path).map_err(missing)?;
        serde_json::from_slice(&text).map_err(|error| missing(io::Error::from(error)))
    }

    /// Writes the state file, and a pid file for each process.
    pub(crate) fn write(&self, layout: &ClusterFiles) -> Result<(), ClusterError> {
        for member in &self.members {
            let path = layout.pid(member.node);
            let outcome = match member.process {
                Some(process) => fs::write(&path, format!("{}\n", process.pid)),
                None => fs::remove_file(&path).or_else(|error| match error.kind() {
                    io::ErrorKind::NotFound => Ok(()),
                    _ => Err(error),
                }),
            };
            outcome.map_err(ClusterError::file("write", path))?;
        }
        let path = layout.state();
        let new = path.with_extension("new");
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::from);
        text.and_then(|text| fs::write(&new, text))
            .and_then(|()| fs::rename(&new, &path))
            .map_err(ClusterError::file("write", path))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn state_survives_a_round_trip() {
        let directory = TempDir::new().unwrap();
        let layout = ClusterFiles { root: directory.path().to_path_buf() };
        layout.create().unwrap();
        let record = |node, process| MemberRecord {
            node,
            port: 1,
            secure_port: Some(2),
            log_start: 3,
            process,
            started_ms: 2,
            server: Some("localhost,1,2".into()),
        };
        let mut state = ClusterState {
            config: ClusterConfig::new(2),
            java: "/java".into(),
            jars: vec!["/a.jar".into()],
            opentsdb_jars: Vec::new(),
            members: vec![
                record(Node::RegionServer(1), Some(ProcessIdentity { pid: 7, start: 8 })),
                record(Node::Master, None),
            ],
        };
        state.write(&layout).unwrap();
        let read = ClusterState::read(directory.path()).unwrap();
        assert_eq!(format!("{state:?}"), format!("{read:?}"));
        let pid = layout.pid(Node::RegionServer(1));
        assert_eq!(fs::read_to_string(&pid).unwrap(), "7\n");
        state.members.truncate(1);
        state.members.first_mut().unwrap().process = None;
        state.write(&layout).unwrap();
        assert!(!pid.exists());
        layout.remove().unwrap();
        assert!(!directory.path().exists());
    }

    #[test]
    fn a_missing_or_invalid_state_file_is_an_error() {
        let directory = TempDir::new().unwrap();
        let error = ClusterState::read(directory.path()).unwrap_err();
        assert!(matches!(error, ClusterError::Missing { .. }), "{error}");
        fs::write(directory.path().join("cluster.json"), "{}").unwrap();
        ClusterState::read(directory.path()).unwrap_err();
    }
}
