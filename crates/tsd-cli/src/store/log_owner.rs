//! Records which cluster a log in front of HBase belongs to.
//!
//! The log of one cluster must never be replayed into another cluster. Its directory records the cluster. While the
//! log has rows, a configuration with another cluster is rejected; any cluster can claim an empty log. Records name
//! their tables, so table names may change.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tsd_storage_hbase::HBaseDiscovery;
use tsd_storage_wal::holds_log;

use crate::{
    config::HBaseSettings,
    properties_file::{PropertiesFile, PropertiesFileError, replace_file},
};

const FILE: &str = "cluster.conf";
const QUORUM: &str = "tsd.storage.hbase.zk_quorum";
const ROOT: &str = "tsd.storage.hbase.zk_basedir";
/// Default port of ZooKeeper.
const PORT: &str = "2181";

/// The log cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum LogOwnerError {
    /// I/O error.
    #[error("cannot use {}", path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] PropertiesFileError),
    /// The log has rows of an unknown cluster.
    #[error("{} contains rows but no {FILE} with their cluster; restore the file", path.display())]
    Lost {
        /// Directory of the log.
        path: PathBuf,
    },
    /// The log has rows of another cluster.
    #[error(
        "the log in {} contains rows of the HBase at {theirs}, not of {ours}; start once with the former settings to \
         flush them, or choose another tsd.storage.data_directory", path.display()
    )]
    OtherCluster {
        /// Directory of the log.
        path: PathBuf,
        /// Cluster of its rows.
        theirs: String,
        /// Configured cluster.
        ours: String,
    },
}

/// Claims the log in `directory` for the configured cluster. Creates the directory if needed.
pub(crate) fn claim(directory: &Path, settings: &HBaseSettings) -> Result<(), LogOwnerError> {
    let io = |source| LogOwnerError::Io { path: directory.to_owned(), source };
    fs::create_dir_all(directory).map_err(io)?;
    let ours = Owner::of(settings);
    let theirs = Owner::read(directory)?;
    if theirs.as_ref() == Some(&ours) {
        return Ok(());
    }
    if holds_log(directory).map_err(io)? {
        let path = directory.to_owned();
        return Err(match theirs {
            None => LogOwnerError::Lost { path },
            Some(theirs) => {
                LogOwnerError::OtherCluster { path, theirs: theirs.place(), ours: ours.place() }
            }
        });
    }
    ours.write(directory).map_err(io)
}

#[derive(Debug, PartialEq, Eq)]
struct Owner {
    /// Sorted members with ports, so that one ensemble has one text.
    quorum: String,
    root: String,
}

impl Owner {
    fn of(settings: &HBaseSettings) -> Self {
        match &settings.cluster.discovery {
            HBaseDiscovery::ZooKeeper { quorum, root, .. } => Self::of_ensemble(quorum, root),
            HBaseDiscovery::Registry { servers } => {
                let mut servers = servers.clone();
                servers.sort_by_key(ToString::to_string);
                let place = HBaseDiscovery::Registry { servers }.to_string();
                Self { quorum: place, root: String::new() }
            }
        }
    }

    fn of_ensemble(quorum: &str, root: &str) -> Self {
        let (members, chroot) = match quorum.split_once('/') {
            Some((members, chroot)) => (members, format!("/{}", chroot.trim_matches('/'))),
            None => (quorum, String::new()),
        };
        let with_port = |member: &str| match member.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => member.to_owned(),
            _ => format!("{member}:{PORT}"),
        };
        let mut members: Vec<String> = members
            .split(',')
            .map(str::trim)
            .filter(|member| !member.is_empty())
            .map(with_port)
            .collect();
        members.sort();
        let quorum = members.join(",") + chroot.trim_end_matches('/');
        let root = format!("/{}", root.trim_matches('/'));
        Self { quorum, root }
    }

    fn place(&self) -> String {
        format!("{} {}", self.quorum, self.root).trim_end().to_owned()
    }

    fn read(directory: &Path) -> Result<Option<Self>, LogOwnerError> {
        let Some(file) = PropertiesFile::read(&directory.join(FILE))? else { return Ok(None) };
        let value = |key| file.value(key).map(str::to_owned);
        Ok(value(QUORUM).zip(value(ROOT)).map(|(quorum, root)| Self { quorum, root }))
    }

    fn write(&self, directory: &Path) -> io::Result<()> {
        let text = format!(
            "# The HBase cluster of the rows in this log.\n\
             {QUORUM} = {}\n{ROOT} = {}\n",
            self.quorum, self.root
        );
        replace_file(&directory.join(FILE), &text)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::config::{Config, Settings};

    fn settings(quorum: &str, root: &str) -> HBaseSettings {
        let mut config = Config::default();
        config.set_flag("test", QUORUM, quorum);
        config.set_flag("test", ROOT, root);
        Settings::from_config(&config).unwrap().storage.hbase
    }

    #[test]
    fn the_same_ensemble_has_one_name() {
        let owner = |quorum, root| Owner::of(&settings(quorum, root));
        let one = owner("zk2, zk1:2181", "/hbase");
        assert_eq!(one.place(), "zk1:2181,zk2:2181 /hbase");
        assert_eq!(one, owner("zk1,zk2:2181,", "hbase/"));
        assert_ne!(one, owner("zk1,zk2:2182", "/hbase"));
        assert_ne!(one, owner("zk1,zk2", "/hbase-unsecure"));
        assert_eq!(owner("zk1/a/", "/hbase"), owner("zk1:2181/a", "/hbase"));
    }

    #[test]
    fn a_cluster_without_zookeeper_is_its_servers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let of = |servers: &str| settings(&format!("hbase+rpc://{servers}"), "/hbase");
        claim(&path, &of("m2:16000,m1:16000")).unwrap();
        fs::write(path.join("0000000000000001.wal"), b"").unwrap();
        claim(&path, &of("m1:16000,m2:16000")).unwrap();
        let error = claim(&path, &of("m1:16000")).unwrap_err().to_string();
        let expected = "hbase+rpc://m1:16000,m2:16000, not of hbase+rpc://m1:16000";
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_log_with_rows_keeps_its_cluster_and_an_empty_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let (one, two) = (settings("zk1", "/hbase"), settings("zk2", "/hbase"));
        claim(&path, &one).unwrap();
        claim(&path, &two).unwrap();
        fs::write(path.join("0000000000000001.wal"), b"").unwrap();
        assert!(holds_log(&path).unwrap());
        claim(&path, &two).unwrap();
        let error = claim(&path, &one).unwrap_err().to_string();
        assert!(error.contains("zk2:2181 /hbase, not of zk1:2181 /hbase"), "{error}");
        fs::remove_file(path.join(FILE)).unwrap();
        assert!(matches!(claim(&path, &one), Err(LogOwnerError::Lost { .. })));
    }
}
