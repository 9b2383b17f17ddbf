//! Prints a table's regions, and again whenever one opens elsewhere, splits or merges.
//!
//! `cargo run -p hbase-rs --example watch_regions -- 127.0.0.1:2181 tsdb`

use std::{collections::BTreeMap, error::Error, time::Duration};

use hbase_rs::{Client, ClientConfig, ZooKeeperDiscovery};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let quorum = arguments.next().ok_or("say the ZooKeeper quorum")?;
    let table = arguments.next().ok_or("say the table")?.parse()?;
    let client =
        Client::new(ClientConfig::new("example"), ZooKeeperDiscovery::new(&quorum, "/hbase"));
    let table = client.table(table);
    let mut known = BTreeMap::new();
    loop {
        let rows = table.regions().await?;
        let mut now = BTreeMap::new();
        for row in rows {
            let server =
                row.server.map_or_else(|| "nowhere".to_owned(), |server| server.to_string());
            let state = row.state.unwrap_or_default();
            now.insert(
                row.region.to_string(),
                format!("{state} on {server}, opened at {}", row.seq_num),
            );
        }
        for (region, place) in &now {
            if known.get(region) != Some(place) {
                println!("{region} {place}");
            }
        }
        for region in known.keys().filter(|region| !now.contains_key(*region)) {
            println!("{region} is gone");
        }
        known = now;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
