//! Paths of all files of a cluster, and configuration files of HBase and ZooKeeper.

use std::{
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
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

    /// Creates the directories.
    pub(crate) fn create(&self) -> Result<(), ClusterError> {
        for part in Self::PARTS {
            let path = self.root.join(part);
            fs::create_dir_all(&path).map_err(ClusterError::file("create", path))?;
        }
        Ok(())
    }

    /// True if a file has a name that a cluster uses.
    pub(crate) fn is_occupied(&self) -> bool {
        Self::PARTS.iter().any(|part| self.root.join(part).exists())
    }

    /// Removes the files of the cluster, and the directory itself if it is empty then.
    pub(crate) fn remove(&self) -> io::Result<()> {
        for part in Self::PARTS {
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

    /// Writes the configuration of an HBase server. `ports` are the ports of ZooKeeper and of the
    /// server.
    pub(crate) fn write_hbase(
        &self,
        node: Node,
        config: &ClusterConfig,
        ports: (u16, u16),
    ) -> Result<(), ClusterError> {
        self.write(node, "log4j2.properties", LOG4J2)?;
        let site = hbase_site(&self.root, node, config, ports);
        self.write(node, "hbase-site.xml", &site).map(|_| ())
    }

    /// Writes the configuration of ZooKeeper; returns the path of `zoo.cfg`.
    pub(crate) fn write_zookeeper(
        &self,
        session: Duration,
        port: u16,
    ) -> Result<PathBuf, ClusterError> {
        let data = self.data(Node::ZooKeeper);
        fs::create_dir_all(&data).map_err(ClusterError::file("create", &data))?;
        self.write(Node::ZooKeeper, "log4j2.properties", LOG4J2)?;
        self.write(Node::ZooKeeper, "zoo.cfg", &zoo_cfg(&data, session, port))
    }
}

fn zoo_cfg(data: &Path, session: Duration, port: u16) -> String {
    // The default maximum is 20 ticks, less than clients request.
    let longest = session.max(Duration::from_secs(90)).as_millis();
    let data = data.display();
    format!(
        "tickTime=500\ninitLimit=10\nsyncLimit=5\ndataDir={data}\nclientPort={port}\n\
         clientPortAddress=127.0.0.1\nminSessionTimeout=1000\nmaxSessionTimeout={longest}\n\
         admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n"
    )
}

fn hbase_site(root: &Path, node: Node, config: &ClusterConfig, ports: (u16, u16)) -> String {
    let (quorum, port) = ports;
    let server = node != Node::Master;
    let (master_port, server_port) = if server { (0, port) } else { (port, 0) };
    let session = config.session_timeout.as_millis();
    let servers = config.region_servers;
    let root = root.display();
    let ours: [(&str, String); 31] = [
        ("hbase.cluster.distributed", "true".into()),
        ("hbase.rootdir", format!("file://{root}/data/hbase")),
        ("hbase.tmp.dir", format!("{root}/tmp/{node}")),
        ("hbase.zookeeper.quorum", "127.0.0.1".into()),
        ("hbase.zookeeper.property.clientPort", quorum.to_string()),
        ("zookeeper.session.timeout", session.to_string()),
        // The local file system has no hflush and hsync, which the WAL requires by default.
        ("hbase.unsafe.stream.capability.enforce", "false".into()),
        ("hbase.wal.provider", "filesystem".into()),
        ("hbase.wal.meta_provider", "filesystem".into()),
        ("hbase.master.hostname", "localhost".into()),
        ("hbase.unsafe.regionserver.hostname", "localhost".into()),
        ("hbase.master.ipc.address", "127.0.0.1".into()),
        ("hbase.regionserver.ipc.address", "127.0.0.1".into()),
        ("hbase.master.port", master_port.to_string()),
        ("hbase.regionserver.port", server_port.to_string()),
        ("hbase.master.info.port", "-1".into()),
        ("hbase.regionserver.info.port", "-1".into()),
        ("hbase.master.wait.on.regionservers.mintostart", servers.to_string()),
        ("hbase.master.wait.on.regionservers.interval", "100".into()),
        ("hbase.master.wait.on.regionservers.timeout", "2000".into()),
        ("hbase.regionserver.msginterval", "500".into()),
        ("hbase.master.handler.count", "8".into()),
        ("hbase.regionserver.handler.count", if config.bench { "30" } else { "8" }.into()),
        ("hbase.regionserver.metahandler.count", "4".into()),
        ("hbase.procedure.threads", "8".into()),
        ("hbase.regionserver.executor.openregion.threads", "4".into()),
        ("hbase.regionserver.executor.closeregion.threads", "4".into()),
        ("hbase.regionserver.global.memstore.size", "0.35".into()),
        ("hfile.block.cache.size", "0.2".into()),
        (
            "hbase.hregion.memstore.flush.size",
            (if config.bench { 128 << 20 } else { 16 << 20 }).to_string(),
        ),
        // Removes files of split and merged regions soon, so that daughters can be merged again.
        ("hbase.catalogjanitor.interval", "5000".into()),
    ];
    let mut properties: Vec<(String, String)> = Vec::new();
    let ours = ours.into_iter().map(|(name, value)| (name.to_owned(), value));
    for (name, value) in ours.chain(config.properties.iter().cloned()) {
        properties.retain(|(other, _)| *other != name);
        properties.push((name, value));
    }
    render_site(&properties)
}

fn render_site(properties: &[(String, String)]) -> String {
    let mut text = String::from("<?xml version=\"1.0\"?>\n<configuration>\n");
    for (name, value) in properties {
        let (name, value) = (escaped(name), escaped(value));
        let _ = writeln!(text, "  <property><name>{name}</name><value>{value}</value></property>");
    }
    text + "</configuration>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
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

    #[test]
    fn given_properties_take_precedence() {
        let mut config = ClusterConfig::new(2);
        config.properties = vec![("hbase.wal.provider".into(), "a<b&c".into())];
        let site = |node| hbase_site(Path::new("/d"), node, &config, (1, 2));
        let server = site(Node::RegionServer(0));
        let property = |name, value| format!("<name>{name}</name><value>{value}</value>");
        assert_eq!(server.matches("<name>hbase.wal.provider</name>").count(), 1);
        assert!(server.contains(&property("hbase.wal.provider", "a&lt;b&amp;c")));
        assert!(server.contains(&property("hbase.regionserver.port", "2")));
        assert!(server.contains(&property("hbase.master.port", "0")));
        assert!(site(Node::Master).contains(&property("hbase.master.port", "2")));
    }

    #[test]
    fn zookeeper_grants_the_requested_session_timeout() {
        for (session, longest) in [(10, "90000"), (120, "120000")] {
            let text = zoo_cfg(Path::new("/d"), Duration::from_secs(session), 1);
            assert!(text.contains(&format!("maxSessionTimeout={longest}\n")), "{text}");
        }
    }
}
