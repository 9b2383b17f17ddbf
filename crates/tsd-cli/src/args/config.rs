//! Arguments of `tsdb config`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Sub-commands of `tsdb config`.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Report the effect of each key of a file
    Check(ConfigCheckArgs),
    /// List every key with its default, meaning and values
    List(ConfigListArgs),
    /// Print a file with every key as a comment, with its meaning and default
    Example(ConfigExampleArgs),
}

/// Arguments of `tsdb config check`.
#[derive(Debug, Args)]
pub(crate) struct ConfigCheckArgs {
    /// Treat unknown keys as errors
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The configuration file
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// Arguments of `tsdb config list`.
#[derive(Debug, Args)]
pub(crate) struct ConfigListArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `tsdb config example`.
#[derive(Debug, Args)]
pub(crate) struct ConfigExampleArgs {
    /// Set the data directory in the file [tsd.storage.data_directory]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) data: Option<String>,
}
