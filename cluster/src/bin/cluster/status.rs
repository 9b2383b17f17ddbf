//! The status of a cluster.

use cluster::Cluster;

use crate::print_line;

/// Prints the processes, then the status that the master reports.
pub(crate) async fn print(cluster: &Cluster) -> anyhow::Result<()> {
    print_line(format!(
        "quorum {}, directory {}",
        cluster.client_quorum(),
        cluster.directory().display()
    ));
    for node in cluster.nodes() {
        let address = cluster.address(node).unwrap_or_default();
        let state = match cluster.pid(node) {
            None => "stopped".to_owned(),
            Some(pid) => {
                let paused = if cluster.is_paused(node) { ", paused" } else { "" };
                let cpu = cluster.cpu_time(node).as_secs_f64();
                format!("pid {pid}{paused}, {cpu:.1} s CPU")
            }
        };
        print_line(format!("{:<10} {address:<16} {state}", node.to_string()));
    }
    if !cluster.config().security.admits_plain_clients() {
        print_line("HBase is secured: its master was not asked");
        return Ok(());
    }
    let status = cluster.status().await?;
    let names = |servers: &[hbase_rs::ServerName]| {
        let names: Vec<_> = servers.iter().map(ToString::to_string).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(" ") }
    };
    print_line(format!("HBase {}, live: {}", status.version, names(&status.servers)));
    print_line(format!("dead: {}", names(&status.dead_servers)));
    Ok(())
}
