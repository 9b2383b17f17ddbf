//! Arguments of `tsdb tsd`.

use clap::Args;

use super::overrides::{DamageArgs, Overrides, setter};
use crate::config::{Config, ConfigError};

/// Arguments of `tsdb tsd`.
#[derive(Debug, Args)]
pub(crate) struct TsdArgs {
    #[command(flatten)]
    overrides: Overrides,
    /// Port to listen on; 0 picks a free port [tsd.network.port]
    #[arg(long, value_name = "PORT")]
    port: Option<String>,
    /// Addresses to listen on, separated by commas; `::` includes IPv4 [tsd.network.bind]
    #[arg(long, value_name = "ADDRESSES")]
    bind: Option<String>,
    /// Maximum connections that are not yet accepted [tsd.network.backlog]
    #[arg(long, value_name = "COUNT")]
    backlog: Option<String>,
    /// Threads that serve connections [tsd.network.worker_threads]
    #[arg(long, value_name = "COUNT")]
    worker_threads: Option<String>,
    /// Maximum number of connections, 0 for no limit [tsd.core.connections.limit]
    #[arg(long, value_name = "COUNT")]
    max_connections: Option<String>,
    /// rw, ro (queries only) or wo (puts only) [tsd.mode]
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// Serve queries only, as with --mode ro; a value has no effect
    #[arg(long, value_name = "ANY", num_args = 0..=1, default_missing_value = "true", conflicts_with = "mode")]
    read_only: Option<String>,
    /// Serve no pages [tsd.core.enable_ui = false]; a value has no effect, as in OpenTSDB
    #[arg(long, value_name = "ANY", num_args = 0..=1, default_missing_value = "true")]
    disable_ui: Option<String>,
    /// Serve no HTTP API [tsd.core.enable_api = false]; a value has no effect, as in OpenTSDB
    #[arg(long, value_name = "ANY", num_args = 0..=1, default_missing_value = "true")]
    disable_api: Option<String>,
    /// Add the port to the tags of statistics [tsd.core.stats_with_port]
    #[arg(long)]
    statswport: bool,
    /// Create metrics on their first put [tsd.core.auto_create_metrics]
    #[arg(long)]
    auto_metric: bool,
    /// When a point is acknowledged on HBase: storage (HBase has stored it), log (the log in the
    /// data directory is synced) or cluster (a log in HBase has it) [tsd.storage.ack]
    #[arg(long, value_name = "WHERE")]
    ack: Option<String>,
    #[command(flatten)]
    damage: DamageArgs,
    /// Directory of files below /s/ [tsd.http.staticroot]
    #[arg(long, value_name = "DIRECTORY", hide_short_help = true)]
    staticroot: Option<String>,
    // OpenTSDB's start scripts pass these flags. They have no effect, and the daemon logs that.
    #[arg(long, hide = true)]
    cachedir: Option<String>,
    #[arg(long, hide = true)]
    flush_interval: Option<String>,
    #[arg(long, hide = true)]
    async_io: Option<String>,
}

impl TsdArgs {
    /// The configuration including this command line.
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        let mut config = self.overrides.load()?;
        let mut set = setter(&mut config);
        set("--port", "tsd.network.port", &self.port);
        set("--bind", "tsd.network.bind", &self.bind);
        set("--backlog", "tsd.network.backlog", &self.backlog);
        set("--worker-threads", "tsd.network.worker_threads", &self.worker_threads);
        set("--max-connections", "tsd.core.connections.limit", &self.max_connections);
        set("--mode", "tsd.mode", &self.mode);
        set("--ack", "tsd.storage.ack", &self.ack);
        set("--staticroot", "tsd.http.staticroot", &self.staticroot);
        set("--cachedir", "tsd.http.cachedir", &self.cachedir);
        set("--flush-interval", "tsd.storage.flush_interval", &self.flush_interval);
        set("--async-io", "tsd.network.async_io", &self.async_io);
        drop(set);
        for (is_given, flag, key, value) in [
            (self.read_only.is_some(), "--read-only", "tsd.mode", "ro"),
            (self.disable_ui.is_some(), "--disable-ui", "tsd.core.enable_ui", "false"),
            (self.disable_api.is_some(), "--disable-api", "tsd.core.enable_api", "false"),
            (self.statswport, "--statswport", "tsd.core.stats_with_port", "true"),
            (self.auto_metric, "--auto-metric", "tsd.core.auto_create_metrics", "true"),
        ] {
            if is_given {
                config.set_flag(flag, key, value);
            }
        }
        Ok(self.damage.apply(config))
    }
}
