//! `tsdb health`: asks a daemon whether it is ready, for health checks of containers without another HTTP client.

use std::time::Duration;

use anyhow::Context as _;
use tokio::{runtime::Runtime, time::timeout};

use crate::{args::HealthArgs, daemon_client::DaemonClient, output::print_lines};

/// Maximum time for the response.
const LIMIT: Duration = Duration::from_secs(5);

/// Prints the response; an error unless the daemon is ready, or alive with `--live`.
pub(crate) fn run(args: &HealthArgs) -> anyhow::Result<()> {
    let path = if args.live { "/api/health/live" } else { "/api/health/ready" };
    let mut daemon = DaemonClient::new(&args.url)?.without_notices();
    let response = Runtime::new()?.block_on(async { timeout(LIMIT, daemon.get(path)).await });
    let response = response.with_context(|| {
        format!("{} has not responded for {} s", daemon.authority(), LIMIT.as_secs())
    })??;
    let body = String::from_utf8_lossy(&response.body).into_owned();
    if response.status != 200 {
        anyhow::bail!("{}: {} {}", daemon.authority(), response.status.as_u16(), body.trim_end());
    }
    print_lines(&format!("{}\n", body.trim_end()))?;
    Ok(())
}
