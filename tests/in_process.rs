//! A daemon in this process: the real one, listener and all, whose inside a test can reach.

use std::path::Path;

use tempfile::TempDir;
use tokio::runtime::Runtime;
use tsd_cli::{Node, config::Config};

/// A directory for a daemon that nothing outlives: in memory where the system has such a place, since
/// on a busy disk each of many short lives waits for its syncs.
pub(crate) fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("temporary directory")
}

/// Starts a daemon on a directory and a free port, in UTC, with these settings over the defaults.
pub(crate) fn start(
    runtime: &Runtime,
    directory: &Path,
    settings: &[(&str, &str)],
) -> Result<Node, String> {
    let mut config = Config::new();
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

/// Ends a daemon in order.
pub(crate) fn stop(runtime: &Runtime, node: Node) {
    runtime.block_on(node.shutdown()).expect("an orderly end");
}
