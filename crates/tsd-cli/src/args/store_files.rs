//! Arguments of the tools for the files of the embedded store: quarantine, verify, snapshot, restore.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::overrides::Overrides;

/// Sub-commands of `tsdb quarantine`.
#[derive(Debug, Subcommand)]
pub(crate) enum QuarantineCommand {
    /// List the files with their loss, its cause and its time
    List(QuarantineLocation),
    /// Accept the loss of files and remove them
    Accept(QuarantineAcceptArgs),
}

/// Arguments of `tsdb quarantine accept`.
#[derive(Debug, Args)]
pub(crate) struct QuarantineAcceptArgs {
    #[command(flatten)]
    pub(crate) location: QuarantineLocation,
    /// All files in quarantine
    #[arg(long, conflicts_with = "names")]
    pub(crate) all: bool,
    /// Accept without a question
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Names of files, as listed
    #[arg(value_name = "NAME", required_unless_present = "all")]
    pub(crate) names: Vec<String>,
}

/// The store of the files, and the output format.
#[derive(Debug, Args)]
pub(crate) struct QuarantineLocation {
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// URL of a running daemon, such as http://localhost:4242, to use instead of the store
    #[arg(long, visible_alias = "host", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Print JSON, as /api/quarantine does
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `tsdb verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// URL of a running daemon, such as http://localhost:4242, to use instead of the store
    #[arg(long, visible_alias = "host", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Print JSON, as /api/verify does
    #[arg(long)]
    pub(crate) json: bool,
    /// List the repairs; with --yes, make them
    #[arg(long)]
    pub(crate) repair: bool,
    /// Make the repairs; unreadable contents are lost
    #[arg(long, short, requires = "repair")]
    pub(crate) yes: bool,
}

/// Arguments of `tsdb snapshot`.
#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// URL of a running daemon, such as http://localhost:4242, to use instead of the store
    #[arg(long, visible_alias = "host", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Earlier snapshot; its unchanged files are linked
    #[arg(long, value_name = "SNAPSHOT")]
    pub(crate) base: Option<PathBuf>,
    /// Copy files even if they could be linked
    #[arg(long)]
    pub(crate) copy: bool,
    /// Take the snapshot even if the store has files in quarantine
    #[arg(long)]
    pub(crate) allow_damage: bool,
    /// Print JSON, as /api/snapshot does
    #[arg(long)]
    pub(crate) json: bool,
    /// Directory for the snapshot; must be missing or empty
    #[arg(value_name = "TARGET")]
    pub(crate) target: PathBuf,
}

/// Arguments of `tsdb restore`.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// Link files of the snapshot instead of copying them
    #[arg(long)]
    pub(crate) link: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Directory of the snapshot
    #[arg(value_name = "SNAPSHOT")]
    pub(crate) snapshot: PathBuf,
}
