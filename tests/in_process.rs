//! A daemon in this process: the real one, listener and all, whose inside a test can reach.

use std::path::Path;

use tokio::runtime::Runtime;
use tsd_cli::{Node, config::Config};

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
