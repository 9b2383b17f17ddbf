//! Arguments of `tsdb uid` and `tsdb mkmetric`.

use clap::Args;

use super::overrides::Overrides;

/// Arguments of `tsdb uid`.
#[derive(Debug, Args)]
pub(crate) struct UidArgs {
    #[command(flatten)]
    pub(crate) location: UidLocation,
    /// Width of a UID that is given as a number; by default the width of its kind
    #[arg(long = "idwidth", value_name = "BYTES", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub(crate) id_width: Option<u8>,
    /// grep: ignore the case of letters
    #[arg(long, short)]
    pub(crate) ignore_case: bool,
    /// A sub-command with its arguments, a name, or a UID
    #[arg(value_name = "WORD", required = true, num_args = 1..)]
    pub(crate) words: Vec<String>,
}

/// Arguments of `tsdb mkmetric`.
#[derive(Debug, Args)]
pub(crate) struct MkmetricArgs {
    #[command(flatten)]
    pub(crate) location: UidLocation,
    /// Names of metrics
    #[arg(value_name = "NAME", required = true, num_args = 1..)]
    pub(crate) names: Vec<String>,
}

/// The store of the names, and the output format.
#[derive(Debug, Args)]
pub(crate) struct UidLocation {
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// URL of a running daemon, such as http://localhost:4242, to use instead of the store
    #[arg(long, visible_alias = "host", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Log progress
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
