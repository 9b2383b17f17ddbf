//! Prints a table's regions and every later move, split and merge.
//!
//! `cargo run -p hbase-rs --example watch_regions -- 127.0.0.1:2181 tsdb`

use std::{collections::BTreeMap, error::Error, time::Duration};

use hbase_rs::{Client, ClientConfig, discovery::ZooKeeperDiscovery};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let quorum = arguments.next().ok_or("missing argument: ZooKeeper quorum")?;
    let table = arguments.next().ok_or("missing argument: table")?.parse()?;
    let client =
        Client::new(ClientConfig::new("example"), ZooKeeperDiscovery::new(&quorum, "/hbase"));
    let table = client.table(table);
    let mut previous = BTreeMap::new();
    loop {
        let rows = table.regions().await?;
        let mut current = BTreeMap::new();
        for row in rows {
            let server =
                row.server.map_or_else(|| "no server".to_owned(), |server| server.to_string());
            let state = row.state.unwrap_or_default();
            current.insert(
                row.region.to_string(),
                format!("{state} on {server}, open sequence number {}", row.seq_num),
            );
        }
        for (region, assignment) in &current {
            if previous.get(region) != Some(assignment) {
                println!("{region} {assignment}");
            }
        }
        for region in previous.keys().filter(|region| !current.contains_key(*region)) {
            println!("{region} removed");
        }
        previous = current;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
