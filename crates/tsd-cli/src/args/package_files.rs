//! Arguments of the commands that make files of a package: completions and manual pages.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// Arguments of `tsdb completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// Arguments of `tsdb man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The directory, which must exist
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}
