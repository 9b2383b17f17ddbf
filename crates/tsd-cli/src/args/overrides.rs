//! Flags that every sub-command has. Each flag sets a configuration key, so every effect of a flag is also an effect
//! of a key.

use std::path::PathBuf;

use clap::Args;

use crate::config::{Config, ConfigError};

/// Headings that follow the options of a command in its help.
const CONFIGURATION: &str = "Configuration and log";
const HBASE: &str = "HBase";

/// Flags of every sub-command.
#[derive(Debug, Args)]
pub(crate) struct Overrides {
    /// Configuration file; it must exist
    #[arg(long, value_name = "FILE", help_heading = CONFIGURATION)]
    config: Option<PathBuf>,
    /// Directory of the embedded store, or of the log in front of HBase [tsd.storage.data_directory]
    #[arg(long, value_name = "DIRECTORY", help_heading = CONFIGURATION)]
    data: Option<PathBuf>,
    /// error, warn, info, debug, trace or off, or directives such as `info,tsd_engine=debug`
    /// [tsd.log.level]
    #[arg(long, value_name = "LEVEL", help_heading = CONFIGURATION)]
    log_level: Option<String>,
    /// text or json [tsd.log.format]
    #[arg(long, value_name = "FORMAT", help_heading = CONFIGURATION)]
    log_format: Option<String>,
    /// Data table [tsd.storage.hbase.data_table]
    #[arg(long, value_name = "NAME", help_heading = HBASE, hide_short_help = true)]
    table: Option<String>,
    /// UID table [tsd.storage.hbase.uid_table]
    #[arg(long, value_name = "NAME", help_heading = HBASE, hide_short_help = true)]
    uidtable: Option<String>,
    /// ZooKeeper quorum of HBase, host[:port],...; selects HBase as the store
    /// [tsd.storage.hbase.zk_quorum]
    #[arg(long, value_name = "HOSTS", help_heading = HBASE)]
    zkquorum: Option<String>,
    /// Root znode of HBase [tsd.storage.hbase.zk_basedir]
    #[arg(long, value_name = "PATH", help_heading = HBASE, hide_short_help = true)]
    zkbasedir: Option<String>,
}

/// Returns a function that sets a key if its flag is given.
pub(super) fn setter(config: &mut Config) -> impl FnMut(&'static str, &str, &Option<String>) {
    |flag, key, value| {
        if let Some(value) = value {
            config.set_flag(flag, key, value.as_str());
        }
    }
}

impl Overrides {
    /// The configuration including these flags.
    pub(crate) fn load(&self) -> Result<Config, ConfigError> {
        let mut config = Config::load(self.config.as_deref())?;
        config.add_environment(
            std::env::vars_os()
                .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))),
        );
        let data = self.data.as_ref().map(|path| path.to_string_lossy().into_owned());
        let mut set = setter(&mut config);
        set("--data", "tsd.storage.data_directory", &data);
        set("--log-level", "tsd.log.level", &self.log_level);
        set("--log-format", "tsd.log.format", &self.log_format);
        set("--table", "tsd.storage.hbase.data_table", &self.table);
        set("--uidtable", "tsd.storage.hbase.uid_table", &self.uidtable);
        set("--zkquorum", "tsd.storage.hbase.zk_quorum", &self.zkquorum);
        set("--zkbasedir", "tsd.storage.hbase.zk_basedir", &self.zkbasedir);
        drop(set);
        Ok(config)
    }

    /// As [`Self::load`], for a tool that logs only warnings unless `is_verbose` or a flag says otherwise.
    pub(crate) fn load_verbose(
        &self,
        is_verbose: bool,
        origin: &'static str,
    ) -> Result<Config, ConfigError> {
        if is_verbose { self.load() } else { self.load_tool(origin, "warn") }
    }

    /// As [`Self::load`], for a tool that logs at `log_level` unless a flag sets another level. `origin` names the
    /// source of the level.
    pub(crate) fn load_tool(
        &self,
        origin: &'static str,
        log_level: &str,
    ) -> Result<Config, ConfigError> {
        let mut config = self.load()?;
        if self.log_level.is_none() {
            config.set_flag(origin, "tsd.log.level", log_level);
        }
        Ok(config)
    }
}

/// The permission to open a damaged log.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DamageArgs {
    /// Start with a damaged write-ahead log, and lose the records that the error lists
    #[arg(long)]
    pub(crate) accept_damage: bool,
}

impl DamageArgs {
    /// Adds the permission to a configuration, if the flag is set.
    pub(super) fn apply(self, mut config: Config) -> Config {
        if self.accept_damage {
            config.set_flag("--accept-damage", "tsd.storage.accept_damage", "true");
        }
        config
    }
}

/// A rate that is not positive.
#[derive(Debug, thiserror::Error)]
#[error("expected a number above 0")]
pub(super) struct RateError;

/// Parses a positive rate.
pub(super) fn per_second(text: &str) -> Result<f64, RateError> {
    match text.parse() {
        Ok(number) if number > 0.0 && f64::is_finite(number) => Ok(number),
        _ => Err(RateError),
    }
}
