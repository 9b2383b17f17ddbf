//! Arguments of `tsdb health`.

use clap::Args;

/// Arguments of `tsdb health`.
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// URL of the daemon
    #[arg(long, value_name = "URL", default_value = "http://localhost:4242")]
    pub(crate) url: String,
    /// Ask whether the daemon responds, not whether it is ready
    #[arg(long)]
    pub(crate) live: bool,
}
