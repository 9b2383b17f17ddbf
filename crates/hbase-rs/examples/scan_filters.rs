//! Scans the rows of a prefix whose column has a value, and reads only some columns of them.
//!
//! `cargo run -p hbase-rs --example scan_filters -- 127.0.0.1:2181 example`; the table needs the family `f`.

use std::error::Error;

use hbase_rs::{
    Client, ClientConfig, Put, Scan, Selection, Table,
    discovery::ZooKeeperDiscovery,
    filter::{Comparator, CompareOp, Filter, REGEX_DOTALL},
};

/// Returns the hosts of the matching rows.
pub(crate) async fn run(table: &Table) -> Result<Vec<String>, Box<dyn Error>> {
    for (row, state) in
        [("cpu.web1", "up"), ("cpu.web2", "down"), ("cpu.db1", "up"), ("mem.web1", "up")]
    {
        table.mutate(Put::try_new(row)?.cell(b"f", b"state", 1, state.as_bytes())?).await?;
    }
    // The range limits which regions are read; the filter runs in their servers.
    let web = Filter::row(CompareOp::Equal, Comparator::binary_regex(b"\\.web[0-9]", REGEX_DOTALL));
    let up = Filter::column_value("f", "state", CompareOp::Equal, Comparator::binary("up"));
    let selection = Selection::all().family("f").filter(Filter::all_of([web, up]));
    let mut rows = table.scan(Scan::prefix("cpu.").select(selection));
    let mut hosts = Vec::new();
    while let Some(row) = rows.next().await {
        let row = row?.row;
        hosts.push(String::from_utf8_lossy(row.key()).trim_start_matches("cpu.").to_owned());
    }
    Ok(hosts)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let quorum = arguments.next().ok_or("missing argument: ZooKeeper quorum")?;
    let table = arguments.next().ok_or("missing argument: table")?.parse()?;
    let discovery = ZooKeeperDiscovery::new(&quorum, "/hbase");
    let table = Client::new(ClientConfig::new("example"), discovery).table(table);
    println!("{:?} are up", run(&table).await?);
    Ok(())
}
