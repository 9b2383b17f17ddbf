//! Arguments of the tools for the files of the embedded store: quarantine, verify, snapshot, restore.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::overrides::Overrides;

/// Sub-commands of `tsdb quarantine`.
#[derive(Debug, Subcommand)]
pub(crate) enum QuarantineCommand {
    /// List the files: what was lost, why, since when
    List(QuarantinePlace),
    /// Accept the loss of files and remove them
    Accept(QuarantineAcceptArgs),
}

/// Arguments of `tsdb quarantine accept`.
#[derive(Debug, Args)]
pub(crate) struct QuarantineAcceptArgs {
    #[command(flatten)]
    pub(crate) place: QuarantinePlace,
    /// All files in quarantine
    #[arg(long, conflicts_with = "names")]
    pub(crate) all: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Names of files, as listed
    #[arg(value_name = "NAME", required_unless_present = "all")]
    pub(crate) names: Vec<String>,
}

/// Where the files are, and how they are printed.
#[derive(Debug, Args)]
pub(crate) struct QuarantinePlace {
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
    /// List what would repair the damage; with --yes, do it
    #[arg(long)]
    pub(crate) repair: bool,
    /// Repair without a question; what cannot be read is given up
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
    /// A former snapshot, of which files that did not change are linked
    #[arg(long, value_name = "SNAPSHOT")]
    pub(crate) base: Option<PathBuf>,
    /// Copy files although they could be linked
    #[arg(long)]
    pub(crate) copy: bool,
    /// Take the snapshot although the store has damaged files in quarantine
    #[arg(long)]
    pub(crate) allow_damage: bool,
    /// Print JSON, as /api/snapshot does
    #[arg(long)]
    pub(crate) json: bool,
    /// Directory of the snapshot; missing or empty
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
