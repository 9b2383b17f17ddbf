//! Finds the daemon of a data directory without opening a store. A daemon with an embedded store writes its URL into
//! the lock file of the directory; a node of a cluster, whose store is HBase, locks a directory below it for this
//! purpose.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tsd_files::DirectoryLock;

use crate::{
    args::ClusterLocation,
    config::Settings,
    daemon_client::DaemonClient,
    data_directory::{DataDirectoryError, LOCK_FILE, lock, write_owner},
    tell,
};

/// Directory below the data directory, which a node of a cluster locks while it serves.
const NODE: &str = "cluster-node";

/// The URL of a node of a cluster in its data directory, until it is dropped.
#[derive(Debug)]
pub(crate) struct PublishedUrl(DirectoryLock);

impl PublishedUrl {
    /// Writes the URL for tools that are given the data directory.
    pub(crate) fn publish(data_directory: &Path, url: &str) -> Result<Self, DataDirectoryError> {
        let path = data_directory.join(NODE);
        let io = |source| DataDirectoryError::Io { path: path.clone(), source };
        fs::create_dir_all(&path).map_err(io)?;
        let published = Self(lock(&path)?);
        write_owner(published.0.file(), Some(url)).map_err(io)?;
        Ok(published)
    }
}

impl Drop for PublishedUrl {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// The daemon that `tsdb cluster` asks: the daemon at `--url`, else the daemon of the data directory, else the daemon
/// on the configured port.
pub(crate) fn cluster_daemon(location: &ClusterLocation) -> anyhow::Result<DaemonClient> {
    if let Some(url) = &location.url {
        return Ok(DaemonClient::new(url)?);
    }
    let settings = Settings::from_config(&location.overrides.load()?)?;
    let directory = &settings.storage.data_directory;
    if let Some((owner, url)) = serving(directory) {
        tell!("tsdb: {} is in use by {owner}: asking {url}", directory.display());
        return Ok(DaemonClient::new(&url)?);
    }
    let host = match settings.server.bind.first() {
        Some(ip) if !ip.is_unspecified() && ip.is_ipv6() => format!("[{ip}]"),
        Some(ip) if !ip.is_unspecified() => ip.to_string(),
        _ => "localhost".to_owned(),
    };
    Ok(DaemonClient::new(&format!("{host}:{}", settings.server.port))?)
}

/// The process that serves a data directory, and its URL. Creates no file.
fn serving(directory: &Path) -> Option<(String, String)> {
    let find = |path: PathBuf| {
        if !path.join(LOCK_FILE).exists() {
            return None;
        }
        match lock(&path) {
            Err(DataDirectoryError::InUse { owner, url: Some(url), .. }) => Some((owner, url)),
            _ => None,
        }
    };
    [directory.join(NODE), directory.to_owned()].into_iter().find_map(find)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_node_is_found_by_its_data_directory_while_it_runs() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        assert_eq!(serving(&data), None);
        let url = "http://127.0.0.1:4711/";
        let node = PublishedUrl::publish(&data, url).unwrap();
        let owner = format!("process {}", std::process::id());
        assert_eq!(serving(&data), Some((owner, url.to_owned())));
        let second = PublishedUrl::publish(&data, "http://127.0.0.1:4712/").unwrap_err();
        assert!(matches!(second, DataDirectoryError::InUse { .. }), "{second}");
        // A node does not prevent a store from locking the directory.
        drop(lock(&data).unwrap());
        drop(node);
        assert_eq!(serving(&data), None);
    }
}
