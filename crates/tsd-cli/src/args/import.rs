//! Arguments of `tsdb import`.

use std::path::PathBuf;

use clap::Args;

use super::overrides::{DamageArgs, Overrides};
use crate::config::{Config, ConfigError};

/// Arguments of `tsdb import`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    damage: DamageArgs,
    /// URL of a running daemon, such as http://localhost:4242, to use instead of the store
    #[arg(long, visible_alias = "host", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Report invalid lines and continue
    #[arg(long)]
    pub(crate) skip_errors: bool,
    /// Replay files of the spool: timestamps in any order, values as `put` stores them
    #[arg(long)]
    pub(crate) spool: bool,
    /// Store values with a point or an exponent as OpenTSDB's import does: rounded to 32-bit floats
    #[arg(long, conflicts_with = "spool")]
    pub(crate) as_opentsdb: bool,
    /// Print the statistics of the import to standard error at the end, as OpenTSDB's import does
    #[arg(long)]
    pub(crate) stats: bool,
    /// Print the total as JSON, and everything else to standard error
    #[arg(long)]
    pub(crate) json: bool,
    /// Create metrics that do not exist yet [tsd.core.auto_create_metrics]
    #[arg(long)]
    pub(crate) auto_metric: bool,
    /// Create the data directory if it does not exist
    #[arg(long)]
    pub(crate) create: bool,
    /// Files to import, in order
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
}

impl ImportArgs {
    /// The configuration including this command line.
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        let mut config = self.overrides.load()?;
        if self.auto_metric {
            config.set_flag("--auto-metric", "tsd.core.auto_create_metrics", "true");
        }
        Ok(self.damage.apply(config))
    }
}
