//! Paths of all files of a cluster, and configuration files of HBase and ZooKeeper.

mod client;
mod site;
mod zookeeper;

use std::{fs, io, path::PathBuf};

pub use self::client::ClientFiles;
pub(crate) use self::{
    site::{Ports, zookeeper_host},
    zookeeper::ZooKeeperPorts,
};
use crate::{config::ClusterConfig, error::ClusterError, node::Node};

/// Logs to standard error, which is redirected to the log file.
const LOG4J2: &str = "\
status = warn
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %-5p [%t] %c{2}: %.1000m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
";

/// The directory of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct ClusterFiles {
    pub(crate) root: PathBuf,
}

impl ClusterFiles {
    const PARTS: [&str; 6] = ["conf", "data", "logs", "pids", "tmp", "classes"];
    /// Directories that are created when they are needed.
    const OTHER_PARTS: [&str; 3] = ["kerberos", "tls", "client"];

    fn all_parts() -> impl Iterator<Item = &'static str> {
        Self::PARTS.into_iter().chain(Self::OTHER_PARTS)
    }

    /// Creates the directories of every cluster.
    pub(crate) fn create(&self) -> Result<(), ClusterError> {
        for part in Self::PARTS {
            let path = self.root.join(part);
            fs::create_dir_all(&path).map_err(ClusterError::file("create", path))?;
        }
        Ok(())
    }

    /// True if a file has a name that a cluster uses.
    pub(crate) fn is_occupied(&self) -> bool {
        Self::all_parts().any(|part| self.root.join(part).exists())
    }

    /// Removes the files of the cluster, and the directory itself if it is empty then.
    pub(crate) fn remove(&self) -> io::Result<()> {
        for part in Self::all_parts() {
            match fs::remove_dir_all(self.root.join(part)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        match fs::remove_file(self.state()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        match fs::remove_dir(&self.root) {
            Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => Err(error),
            _ => Ok(()),
        }
    }

    /// Files of the realm.
    pub(crate) fn kerberos(&self) -> PathBuf {
        self.root.join("kerberos")
    }

    /// Certificates.
    pub(crate) fn tls(&self) -> PathBuf {
        self.root.join("tls")
    }

    /// Files for clients.
    pub(crate) fn client(&self) -> ClientFiles {
        ClientFiles { directory: self.root.join("client") }
    }

    /// State file for attaching.
    pub(crate) fn state(&self) -> PathBuf {
        self.root.join("cluster.json")
    }

    pub(crate) fn conf(&self, node: Node) -> PathBuf {
        self.root.join("conf").join(node.to_string())
    }

    pub(crate) fn data(&self, node: Node) -> PathBuf {
        self.root.join("data").join(node.to_string())
    }

    pub(crate) fn log(&self, node: Node) -> PathBuf {
        self.root.join("logs").join(format!("{node}.log"))
    }

    pub(crate) fn pid(&self, node: Node) -> PathBuf {
        self.root.join("pids").join(node.to_string())
    }

    /// Writes a configuration file of a process; returns its path.
    pub(crate) fn write(
        &self,
        node: Node,
        name: &str,
        text: &str,
    ) -> Result<PathBuf, ClusterError> {
        let directory = self.conf(node);
        fs::create_dir_all(&directory).map_err(ClusterError::file("create", &directory))?;
        let path = directory.join(name);
        fs::write(&path, text).map_err(ClusterError::file("write", &path))?;
        Ok(path)
    }

    /// Writes the configuration of an HBase server.
    pub(crate) fn write_hbase(
        &self,
        node: Node,
        config: &ClusterConfig,
        ports: Ports,
    ) -> Result<(), ClusterError> {
        self.write(node, "log4j2.properties", LOG4J2)?;
        self.write_jaas(node, config)?;
        if config.security.kerberos.is_some() {
            let text = site::core_site(&config.security).render();
            self.write(node, "core-site.xml", &text)?;
        }
        let site = site::hbase_site(self, node, config, ports).render();
        self.write(node, "hbase-site.xml", &site).map(|_| ())
    }

    /// Writes the configuration of ZooKeeper; returns the path of `zoo.cfg`.
    pub(crate) fn write_zookeeper(
        &self,
        config: &ClusterConfig,
        ports: ZooKeeperPorts,
    ) -> Result<PathBuf, ClusterError> {
        let data = self.data(Node::ZooKeeper);
        fs::create_dir_all(&data).map_err(ClusterError::file("create", &data))?;
        self.write(Node::ZooKeeper, "log4j2.properties", LOG4J2)?;
        self.write_jaas(Node::ZooKeeper, config)?;
        let text = zookeeper::zoo_cfg(self, config, ports);
        self.write(Node::ZooKeeper, "zoo.cfg", &text)
    }

    /// The JAAS file of a server.
    pub(crate) fn jaas(&self, node: Node) -> PathBuf {
        self.conf(node).join("jaas.conf")
    }

    fn write_jaas(&self, node: Node, config: &ClusterConfig) -> Result<(), ClusterError> {
        let Some(kerberos) = &config.security.kerberos else { return Ok(()) };
        self.write(node, "jaas.conf", &zookeeper::server_jaas(self, kerberos)).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn other_files_are_not_removed() {
        let directory = TempDir::new().unwrap();
        let layout = ClusterFiles { root: directory.path().join("cluster") };
        assert!(!layout.is_occupied());
        layout.create().unwrap();
        assert!(layout.is_occupied());
        let other = layout.root.join("other");
        fs::write(&other, "").unwrap();
        layout.remove().unwrap();
        assert!(other.exists() && !layout.is_occupied());
        fs::remove_file(other).unwrap();
        layout.remove().unwrap();
        assert!(!layout.root.exists());
    }
}
