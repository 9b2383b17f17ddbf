//! Prints the rows of a table.
//!
//! `cargo run -p hbase-rs --example scan_table -- 127.0.0.1:2181 tsdb [prefix]`

use std::error::Error;

use hbase_rs::{Client, ClientConfig, Scan, discovery::ZooKeeperDiscovery};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let quorum = arguments.next().ok_or("missing argument: ZooKeeper quorum")?;
    let table = arguments.next().ok_or("missing argument: table")?.parse()?;
    let scan = Scan::prefix(arguments.next().unwrap_or_default());
    let client =
        Client::new(ClientConfig::new("example"), ZooKeeperDiscovery::new(&quorum, "/hbase"));
    let mut rows = client.table(table).scan(scan);
    while let Some(row) = rows.next().await {
        for cell in row?.row.cells() {
            println!(
                "{} {}:{} {} {}",
                cell.row.escape_ascii(),
                cell.family.escape_ascii(),
                cell.qualifier.escape_ascii(),
                cell.timestamp,
                cell.value.escape_ascii()
            );
        }
    }
    Ok(())
}
