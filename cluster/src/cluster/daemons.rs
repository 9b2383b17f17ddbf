//! Configuration and command lines of OpenTSDB and of TSDs.

use std::{
    env,
    fmt::Write,
    fs, iter,
    path::{Path, PathBuf},
};

use hbase_rs::{
    OperationError, TableName,
    admin::{FamilyDescriptor, TableDescriptor},
};

use super::{Cluster, start::CommandLine};
use crate::{error::ClusterError, files::ClusterFiles, node::Node};

/// Logs warnings only: below that level OpenTSDB logs every request.
const LOGBACK: &str = r#"<?xml version="1.0"?>
<configuration>
  <appender name="STDERR" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <encoder><pattern>%d{ISO8601} %-5level [%thread] %logger{0}: %msg%n</pattern></encoder>
  </appender>
  <root level="warn"><appender-ref ref="STDERR"/></root>
</configuration>
"#;

/// A gnuplot that draws nothing. OpenTSDB describes a graph as JSON only if it finds a gnuplot; the JSON does not
/// depend on the picture.
const NO_GNUPLOT: &str = "#!/bin/sh\nexit 0\n";

/// The tables of OpenTSDB, their families and versions per cell.
const TABLES: &[(&str, &[&str], u32)] = &[
    ("tsdb", &["t"], 1),
    ("tsdb-uid", &["id", "name"], 1),
    ("tsdb-tree", &["t"], 1),
    ("tsdb-meta", &["name"], 1),
];

impl Cluster {
    /// Creates OpenTSDB's missing tables, with one region each and no compression.
    ///
    /// # Errors
    ///
    /// If HBase rejects a request.
    pub async fn create_tables(&self) -> Result<(), ClusterError> {
        let admin = self.client().admin();
        for (table, families, versions) in TABLES {
            let failed = |source: OperationError| ClusterError::HBase {
                what: format!("create table {table}"),
                source,
            };
            let name: TableName = table.parse().map_err(|_| ClusterError::Regions {
                what: format!("{table} is not a table name"),
            })?;
            if admin.table_state(&name).await.map_err(failed)?.is_some() {
                continue;
            }
            let family = |name: &&str| {
                FamilyDescriptor::new(name.to_string())
                    .versions(*versions)
                    .compression("NONE")
                    .bloom_filter("ROW")
                    .data_block_encoding("DIFF")
            };
            let described = families
                .iter()
                .map(family)
                .fold(TableDescriptor::new(name), TableDescriptor::family);
            admin.create_table(&described, []).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Replaces the additional settings of OpenTSDB ([`ClusterConfig::opentsdb_settings`]) from its next
    /// start on.
    ///
    /// [`ClusterConfig::opentsdb_settings`]: crate::ClusterConfig::opentsdb_settings
    pub fn set_opentsdb_settings(&mut self, settings: &[(&str, &str)]) {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        self.config.opentsdb_settings = settings.iter().map(owned).collect();
    }

    pub(super) fn opentsdb_program(
        &self,
        node: Node,
        port: u16,
    ) -> Result<CommandLine, ClusterError> {
        self.opentsdb_command(node, port, "net.opentsdb.tools.TSDMain")
    }

    /// The command line of a class of OpenTSDB, without the arguments after its settings file.
    pub(crate) fn opentsdb_command(
        &self,
        node: Node,
        port: u16,
        class: &str,
    ) -> Result<CommandLine, ClusterError> {
        let data = self.layout.data(node);
        let (web, cache) = (data.join("web"), data.join("cache"));
        for directory in [&web, &cache] {
            fs::create_dir_all(directory).map_err(ClusterError::file("create", directory))?;
        }
        self.layout.write(node, "logback.xml", LOGBACK)?;
        // OpenTSDB looks for `gnuplot` on the path. It copies and calls `mygnuplot.sh`, which it looks for among its
        // classes.
        for name in ["gnuplot", "mygnuplot.sh"] {
            self.layout.write(node, name, NO_GNUPLOT)?;
        }
        let quorum = self.quorum();
        let (web, cache) = (web.display().to_string(), cache.display().to_string());
        let port = port.to_string();
        let settings = [
            ("tsd.network.port", port.as_str()),
            ("tsd.network.bind", "127.0.0.1"),
            ("tsd.http.staticroot", &web),
            ("tsd.http.cachedir", &cache),
            ("tsd.http.request.enable_chunked", "true"),
            ("tsd.http.request.max_chunk", "16777216"),
            ("tsd.core.auto_create_metrics", "true"),
            ("tsd.storage.hbase.zk_quorum", &quorum),
            ("tsd.storage.fix_duplicates", "true"),
        ];
        let file = self.settings_file(node, &settings, &self.config.opentsdb_settings)?;
        let heap_mb = if self.config.bench { 2_048 } else { 512 };
        let mut arguments = self.jvm(heap_mb).arguments();
        arguments.push(class.to_owned());
        arguments.push(format!("--config={}", file.display()));
        let mut environment = self.java_environment(node, &self.opentsdb_jars);
        let path = env::var_os("PATH").unwrap_or_default();
        let places = iter::once(self.layout.conf(node)).chain(env::split_paths(&path));
        // Fails only for a colon in a path, which Java cannot read either.
        environment.push(("PATH", env::join_paths(places).unwrap_or(path)));
        Ok((self.java.clone(), arguments, environment))
    }

    pub(super) fn tsd_program(&self, node: Node, port: u16) -> Result<CommandLine, ClusterError> {
        let command = tsdb(self.config.tsdb.as_deref())?;
        let data = self.layout.data(node).display().to_string();
        let quorum = self.client_quorum();
        let port = port.to_string();
        let hosts = self.links.hosts_setting();
        let name = node.to_string();
        let mut settings = vec![
            ("tsd.network.port", port.as_str()),
            ("tsd.network.bind", "127.0.0.1"),
            ("tsd.storage.data_directory", &data),
            ("tsd.core.auto_create_metrics", "true"),
            ("tsd.storage.hbase.zk_quorum", &quorum),
            // Used with tsd.storage.ack = cluster.
            ("tsd.cluster.name", &name),
            ("tsd.cluster.bind", "127.0.0.1:0"),
        ];
        if !hosts.is_empty() {
            settings.push(("tsd.storage.hbase.hosts", &hosts));
        }
        let file = self.settings_file(node, &settings, &self.config.tsd_settings)?;
        let arguments = vec!["tsd".to_owned(), format!("--config={}", file.display())];
        Ok((command, arguments, Vec::new()))
    }

    /// Writes a settings file: `ours`, then `given`, which take precedence.
    fn settings_file(
        &self,
        node: Node,
        ours: &[(&str, &str)],
        given: &[(String, String)],
    ) -> Result<PathBuf, ClusterError> {
        let given = given.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut text = String::new();
        for (name, value) in ours.iter().copied().chain(given) {
            let _ = writeln!(text, "{name} = {value}");
        }
        let layout: &ClusterFiles = &self.layout;
        layout.write(node, "opentsdb.conf", &text)
    }
}

/// Path of the `tsdb` command: as given, from `TSDB`, or next to this executable or one directory above
/// it, where tests find it.
fn tsdb(given: Option<&Path>) -> Result<PathBuf, ClusterError> {
    let named = given.map(Path::to_path_buf).or_else(|| env::var_os("TSDB").map(PathBuf::from));
    if let Some(path) = named {
        return if path.is_file() { Ok(path) } else { Err(ClusterError::NoTsdb { path }) };
    }
    let this = env::current_exe().map_err(ClusterError::file("find", "this executable"))?;
    let mut places = this.ancestors().skip(1).take(2).map(|directory| directory.join("tsdb"));
    let path = this.with_file_name("tsdb");
    places.find(|place| place.is_file()).ok_or(ClusterError::NoTsdb { path })
}
