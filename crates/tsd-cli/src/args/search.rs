//! Arguments of `tsdb search`.

use clap::Args;

use super::overrides::Overrides;

/// Arguments of `tsdb search`.
#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    #[command(flatten)]
    pub(crate) overrides: Overrides,
    /// URL of a running daemon, such as http://localhost:4242, to use instead of the store
    #[arg(long, visible_alias = "host", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Read the data table instead of the meta table; the default if the meta table records no series
    #[arg(long)]
    pub(crate) use_data_table: bool,
    /// Maximum series; 0 for no limit
    #[arg(long, value_name = "COUNT", default_value_t = 25)]
    pub(crate) limit: usize,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Log progress
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// lookup [METRIC] [TAGK=TAGV | TAGK= | =TAGV ...]
    #[arg(value_name = "WORD", required = true, num_args = 1..)]
    pub(crate) words: Vec<String>,
}
