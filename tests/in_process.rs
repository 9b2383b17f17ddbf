//! Runs a whole daemon with its listener in the test process, so that a test can reach its engine.

use std::path::Path;

use tempfile::TempDir;
use tokio::runtime::Runtime;
use tsd_cli::{Node, config::Config};

/// A temporary directory, in memory where possible: tests start many daemons, and each waits for the
/// syncs of its log.
pub(crate) fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("temporary directory")
}

/// Starts a daemon on a directory and a free port, in UTC, with `settings` over the defaults.
pub(crate) fn start(
    runtime: &Runtime,
    directory: &Path,
    settings: &[(&str, &str)],
) -> Result<Node, String> {
    let mut config = Config::default();
    for (key, value) in [
        ("tsd.storage.data_directory", directory.to_str().expect("a path")),
        ("tsd.network.bind", "127.0.0.1"),
        ("tsd.network.port", "0"),
        ("tsd.core.timezone", "UTC"),
    ]
    .iter()
    .chain(settings)
    {
        config.set_flag("test", key, *value);
    }
    runtime.block_on(Node::start(&config)).map_err(|error| format!("{error:#}"))
}

/// Shuts a daemon down.
pub(crate) fn stop(runtime: &Runtime, node: Node) {
    runtime.block_on(node.shutdown()).expect("a clean shutdown");
}
