//! Arguments of `tsdb query`.

use std::path::PathBuf;

use clap::Args;

use super::overrides::{DamageArgs, Overrides};
use crate::config::{Config, ConfigError};

/// Arguments of `tsdb query`.
#[derive(Debug, Args)]
pub(crate) struct QueryArgs {
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    damage: DamageArgs,
    /// URL of a running daemon, such as http://localhost:4242, to use instead of the store
    #[arg(long, visible_alias = "host", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Log progress
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// Draw a graph instead of lines: BASE.png is a picture, - the terminal; other names get gnuplot files
    #[arg(long, value_name = "BASE")]
    pub(crate) graph: Option<PathBuf>,
    /// Print JSON, as /api/query does with msResolution
    #[arg(long, conflicts_with = "graph")]
    pub(crate) json: bool,
    /// Print CSV, a row for each point, as /api/query does with format=csv
    #[arg(long, conflicts_with_all = ["graph", "json"])]
    pub(crate) csv: bool,
    /// Hours before now in which `last` looks for a point; without it, the series index finds the newest point
    #[arg(long, value_name = "HOURS")]
    pub(crate) back_scan: Option<u32>,
    /// START [END] QUERY..., gexp START [END] EXPRESSION..., last SERIES..., or exp FILE
    #[arg(value_name = "WORD", required = true, num_args = 1.., allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
}

impl QueryArgs {
    /// The configuration including this command line.
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        let config = self.overrides.load_verbose(self.verbose, "tsdb query without --verbose")?;
        Ok(self.damage.apply(config))
    }
}
