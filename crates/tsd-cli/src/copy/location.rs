//! The two places of a copy: finds the store that a text names, and opens it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tsd_engine::{MEMORY_LIMIT_KEY, MetaTracking};
use tsd_model::TableSchema;

use crate::{
    args::CopyArgs,
    config::{Config, EngineKind, Settings},
    data_directory::{PARTS, explain_use, numbers},
    memory_limit::{SMALLEST_LIMIT, find_limit},
    node::OpenEngine,
    store::Purpose,
};

const DIRECTORY_KEY: &str = "tsd.storage.data_directory";
const QUORUM_KEY: &str = "tsd.storage.hbase.zk_quorum";
/// Advice if a daemon has the store open.
const WAY_OUT: &str = "to copy a store that a daemon has open, take a snapshot (`tsdb snapshot TARGET`, then \
                       `tsdb restore --link --data DIRECTORY TARGET`), or stop the daemon";
/// Keys that a target copies from the source unless it sets one of them, so that it has the tables of rollups.
const ROLLUP_KEYS: [&str; 4] = [
    "tsd.rollups.enable",
    "tsd.rollups.config",
    "tsd.rollups.agg_tag_key",
    "tsd.rollups.raw_agg_tag_value",
];

/// A place with its configuration, before the store is open.
#[derive(Debug)]
pub(super) struct StoreLocation {
    config: Config,
    /// `--from` or `--to`.
    flag: &'static str,
}

impl StoreLocation {
    /// The source.
    pub(super) fn source(args: &CopyArgs) -> anyhow::Result<Self> {
        Self::new("--from", "--from-set", &args.from, &args.from_set, args)
    }

    /// The target.
    pub(super) fn target(args: &CopyArgs) -> anyhow::Result<Self> {
        Self::new("--to", "--to-set", &args.to, &args.to_set, args)
    }

    fn new(
        flag: &'static str,
        set_flag: &'static str,
        text: &str,
        settings: &[(String, String)],
        args: &CopyArgs,
    ) -> anyhow::Result<Self> {
        let mut config = Config::default();
        match named_by(text)? {
            NamedLocation::Directory(path) => {
                config.set_flag(flag, DIRECTORY_KEY, path.to_string_lossy());
                config.set_flag(flag, "tsd.storage.engine", "embedded");
            }
            NamedLocation::File(path) => {
                let text = fs::read(&path).with_context(|| format!("{flag} {}", path.display()))?;
                config.add_file(&path, &text)?;
            }
            NamedLocation::Quorum { hosts, znode } => {
                config.set_flag(flag, QUORUM_KEY, hosts);
                if let Some(znode) = znode {
                    config.set_flag(flag, "tsd.storage.hbase.zk_basedir", znode);
                }
            }
        }
        for (key, value) in settings {
            config.set_flag(set_flag, key, value.as_str());
        }
        if !config.is_set(MEMORY_LIMIT_KEY) {
            // This process has two open stores.
            let half = (find_limit(None).bytes / 2).max(SMALLEST_LIMIT);
            config.set_flag("tsdb copy", MEMORY_LIMIT_KEY, half.to_string());
        }
        // The copy waits for full queues, like an import.
        config.set_flag("tsdb copy", "tsd.storage.write.deadline", i32::MAX.to_string());
        config.set_flag("--log-level", "tsd.log.level", args.log_level.as_str());
        if let Some(format) = &args.log_format {
            config.set_flag("--log-format", "tsd.log.format", format.as_str());
        }
        if args.accept_damage {
            config.set_flag("--accept-damage", "tsd.storage.accept_damage", "true");
        }
        Ok(Self { config, flag })
    }

    /// Copies the source's rollup settings, and in a new data directory its key layout, unless others are configured.
    pub(super) fn follow(&mut self, source: &Self, schema: TableSchema) -> anyhow::Result<()> {
        if ROLLUP_KEYS.iter().all(|key| !self.config.is_set(key)) {
            for key in ROLLUP_KEYS {
                self.config.copy_value(&source.config, key);
            }
        }
        if !self.is_new_directory()? {
            return Ok(());
        }
        for (key, number) in numbers(schema) {
            if !self.config.is_set(key) {
                self.config.set_flag("as in the source", key, number.to_string());
            }
        }
        Ok(())
    }

    pub(super) fn settings(&self) -> anyhow::Result<Settings> {
        let settings = Settings::from_config(&self.config).context(self.flag)?;
        ensure!(
            settings.storage.engine != EngineKind::Memory,
            "{}: tsd.storage.engine is memory; a store in memory cannot be copied",
            self.flag
        );
        Ok(settings)
    }

    /// The data directory; `None` on HBase.
    pub(super) fn directory(&self) -> anyhow::Result<Option<PathBuf>> {
        let settings = self.settings()?;
        let is_embedded = settings.storage.engine == EngineKind::Embedded;
        Ok(is_embedded.then_some(settings.storage.data_directory))
    }

    /// Fails if the data directory has tables of points, but not the configured one. The copy would create an empty
    /// table and copy nothing.
    pub(super) fn check_tables(&self) -> anyhow::Result<()> {
        let Some(directory) = self.directory()? else { return Ok(()) };
        let wanted = self.settings()?.engine.tables.data;
        let tables = tsd_storage_embedded::point_tables(&directory.join("store"))?;
        let names: Vec<String> = tables.iter().map(ToString::to_string).collect();
        let flag = self.flag;
        ensure!(
            tables.is_empty() || tables.contains(&wanted),
            "{flag}: the store in {} has no table {wanted}, only {}; name the configuration file of its daemon, or \
             {flag}-set tsd.storage.hbase.data_table=NAME and the other tables",
            directory.display(),
            names.join(", ")
        );
        Ok(())
    }

    fn is_new_directory(&self) -> anyhow::Result<bool> {
        let directory = self.directory()?;
        let is_new = |data: PathBuf| !PARTS.iter().any(|part| data.join(part).exists());
        Ok(directory.is_some_and(is_new))
    }

    /// Identifies the place in the state of a copy.
    pub(super) fn identity(&self) -> anyhow::Result<Value> {
        let settings = self.settings()?;
        let tables = &settings.engine.tables;
        let tables =
            [&tables.data, &tables.uid, &tables.meta, &tables.tree].map(ToString::to_string);
        Ok(match settings.storage.engine {
            EngineKind::HBase => {
                let (quorum, znode) = settings.storage.hbase.cluster.discovery.identity();
                json!({ "quorum": quorum, "znode": znode, "tables": tables })
            }
            EngineKind::Embedded | EngineKind::Memory => {
                let data = &settings.storage.data_directory;
                json!({ "data": whole(data).to_string_lossy(), "tables": tables })
            }
        })
    }

    /// Opens the store.
    pub(super) async fn open(&self, purpose: OpenFor) -> anyhow::Result<OpenEngine> {
        let mut settings = self.settings()?;
        settings.engine.meta_tracking = MetaTracking::Off;
        if purpose == OpenFor::DryRun && self.is_new_directory()? {
            // The missing store would be empty.
            settings.storage.engine = EngineKind::Memory;
        }
        let create = purpose == OpenFor::Writing;
        if let Some(warning) = self.config.embedded_by_default() {
            tracing::warn!("{warning}");
        }
        let opened = OpenEngine::open(&self.config, &settings, Purpose::Copy { create }).await;
        opened.map_err(|error| explain_use(error, WAY_OUT)).context(self.flag)
    }

    /// True if cells may have the times of their points instead of the times of their writes.
    pub(super) fn has_times_of_points(&self) -> anyhow::Result<bool> {
        Ok(self.settings()?.engine.rows.use_otsdb_timestamp)
    }
}

/// Why a place is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenFor {
    /// To copy from it, or to compare it.
    Reading,
    /// To copy to it; creates a missing store.
    Writing,
    /// To find out what a copy to it would do.
    DryRun,
}

impl OpenFor {
    pub(super) const fn writing(is_written: bool) -> Self {
        if is_written { Self::Writing } else { Self::Reading }
    }
}

/// The place that a text names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NamedLocation {
    Directory(PathBuf),
    File(PathBuf),
    Quorum { hosts: String, znode: Option<String> },
}

/// Interprets a text. An existing file or directory wins. Otherwise a path that begins with `/` or `.` is a directory
/// to create, and a text with a port, several hosts or the prefix `hbase:` is a quorum.
fn named_by(text: &str) -> anyhow::Result<NamedLocation> {
    let path = Path::new(text);
    if path.is_file() {
        return Ok(NamedLocation::File(path.to_owned()));
    }
    if path.exists() || text.starts_with(['/', '.']) {
        return Ok(NamedLocation::Directory(path.to_owned()));
    }
    // A URI names the servers and the znode in one text.
    if text.starts_with("hbase+") && text.contains("://") {
        return Ok(NamedLocation::Quorum { hosts: text.to_owned(), znode: None });
    }
    let prefixed = text.strip_prefix("hbase:");
    let is_quorum = prefixed.is_some() || text.contains([',', ':']);
    let text = prefixed.unwrap_or(text);
    let (hosts, znode) = match text.split_once('/') {
        Some((hosts, znode)) => (hosts, Some(format!("/{znode}"))),
        None => (text, None),
    };
    ensure!(
        is_quorum && !hosts.is_empty(),
        "there is no file or directory {text}; write ./{text} for a directory to create, or hbase:{text} for a \
         ZooKeeper quorum"
    );
    Ok(NamedLocation::Quorum { hosts: hosts.to_owned(), znode })
}

/// The absolute path of a directory, without a separator at its end.
pub(super) fn whole(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path);
    absolute.unwrap_or_else(|_| path.to_owned()).components().collect()
}

/// The path of a directory without symbolic links, as far as it exists.
pub(super) fn resolved(path: &Path) -> PathBuf {
    let path = whole(path);
    let found = path.ancestors().find_map(|parent| {
        let rest = path.strip_prefix(parent).ok()?;
        Some(whole(&fs::canonicalize(parent).ok()?.join(rest)))
    });
    found.unwrap_or(path)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn places_are_distinguished() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("opentsdb.conf");
        fs::write(&file, "").unwrap();
        let named = |path: &Path| named_by(path.to_str().unwrap()).unwrap();
        assert_eq!(named(directory.path()), NamedLocation::Directory(directory.path().into()));
        assert_eq!(named(&file), NamedLocation::File(file));
        let new = directory.path().join("new");
        assert_eq!(named(&new), NamedLocation::Directory(new));
        let quorum = |text: &str, hosts: &str, znode: Option<&str>| {
            let (hosts, znode) = (hosts.to_owned(), znode.map(str::to_owned));
            assert_eq!(named_by(text).unwrap(), NamedLocation::Quorum { hosts, znode });
        };
        quorum("zk1,zk2:2182", "zk1,zk2:2182", None);
        quorum("zk1:2181/hbase-unsecure", "zk1:2181", Some("/hbase-unsecure"));
        quorum("hbase:zk1", "zk1", None);
        quorum("hbase:zk1/hbase", "zk1", Some("/hbase"));
        quorum("hbase+zk://zk1:2181/hbase", "hbase+zk://zk1:2181/hbase", None);
        quorum("hbase+rpc://m1:16000", "hbase+rpc://m1:16000", None);
        for text in ["hbase:", "backup", "zk1/hbase", ""] {
            let error = named_by(text).unwrap_err().to_string();
            assert!(error.contains("there is no file or directory"), "{error}");
        }
    }
}
