//! How a cluster is.

use cluster::Cluster;

use crate::say;

/// Prints its processes, then what the master says.
pub(crate) async fn print(cluster: &Cluster) -> anyhow::Result<()> {
    say(format!("quorum {}, directory {}", cluster.quorum(), cluster.directory().display()));
    for node in cluster.nodes() {
        let address = cluster.address(node).unwrap_or_default();
        let state = match cluster.pid(node) {
            None => "ended".to_owned(),
            Some(pid) => {
                let held = if cluster.is_paused(node) { ", held" } else { "" };
                let cpu = cluster.cpu_time(node).as_secs_f64();
                format!("pid {pid}{held}, {cpu:.1} s of processor time")
            }
        };
        say(format!("{:<10} {address:<16} {state}", node.to_string()));
    }
    let status = cluster.status().await?;
    let names = |servers: &[hbase_rs::ServerName]| {
        let names: Vec<_> = servers.iter().map(ToString::to_string).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(" ") }
    };
    say(format!("HBase {}, live: {}", status.version, names(&status.servers)));
    say(format!("dead: {}", names(&status.dead_servers)));
    Ok(())
}
