//! Arguments of `tsdb table`.

use clap::{Args, Subcommand};

use super::overrides::Overrides;
use crate::config::{Config, ConfigError};

/// Sub-commands of `tsdb table`.
#[derive(Debug, Subcommand)]
pub(crate) enum TableCommand {
    /// Create the missing tables
    Create(TableCreateArgs),
    /// Show the tables; fails if a table is missing or differs from the settings
    Status(Overrides),
}

/// Arguments of `tsdb table create`.
#[derive(Debug, Args)]
pub(crate) struct TableCreateArgs {
    #[command(flatten)]
    overrides: Overrides,
    /// Compression of files: auto (the best the cluster supports), snappy, lz4, zstd, gzip or none
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) compression: String,
    /// Data block encoding: DIFF, FAST_DIFF, PREFIX, ROW_INDEX_V1 or NONE
    #[arg(long, value_name = "NAME", default_value = "DIFF")]
    pub(crate) encoding: String,
    /// Bloom filters: ROW, ROWCOL or NONE
    #[arg(long, value_name = "NAME", default_value = "ROW")]
    pub(crate) bloom: String,
    /// Time to live of points in seconds
    #[arg(long, value_name = "SECONDS")]
    pub(crate) ttl: Option<u32>,
    /// Print the changes without making them
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl TableCommand {
    /// The configuration including this command line.
    pub(crate) fn config(&self) -> Result<Config, ConfigError> {
        let overrides = match self {
            Self::Create(args) => &args.overrides,
            Self::Status(overrides) => overrides,
        };
        overrides.load_tool("tsdb table without --log-level", "warn")
    }
}
