//! Arguments of `tsdb scan`.

use clap::Args;

use super::overrides::{DamageArgs, Overrides};
use crate::config::{Config, ConfigError};

/// Arguments of `tsdb scan`.
#[derive(Debug, Args)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    damage: DamageArgs,
    /// Print points only, as lines for `tsdb import`
    #[arg(long)]
    pub(crate) import: bool,
    /// Delete each whole row once it is printed, as lines for `tsdb import`
    #[arg(long)]
    pub(crate) delete: bool,
    /// Log progress
    #[arg(long, short)]
    verbose: bool,
    /// START [END] FUNC METRIC [TAGK=TAGV ...]
    #[arg(value_name = "WORD", required = true, num_args = 1.., allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
}

impl ScanArgs {
    /// The configuration including this command line.
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        let config = self.overrides.load_verbose(self.verbose, "tsdb scan without --verbose")?;
        Ok(self.damage.apply(config))
    }
}
