//! Makes a table and puts a million cells into it, in batches.
//!
//! `cargo run --release -p hbase-rs --example put_cells -- 127.0.0.1:2181 example`

use std::{error::Error, time::Instant};

use hbase_rs::{
    Action, Client, ClientConfig, FamilyDescriptor, Put, TableDescriptor, TableName,
    ZooKeeperDiscovery,
};

const CELLS: u32 = 1_000_000;
const BATCH: u32 = 10_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let quorum = arguments.next().ok_or("say the ZooKeeper quorum")?;
    let name: TableName = arguments.next().ok_or("say a table that is not there")?.parse()?;
    let client =
        Client::new(ClientConfig::new("example"), ZooKeeperDiscovery::new(&quorum, "/hbase"));
    let table = TableDescriptor::new(name.clone()).family(FamilyDescriptor::new("f"));
    let splits = [0x40, 0x80, 0xc0].map(|first| vec![first].into());
    client.admin().create_table(&table, splits).await?;
    let table = client.table(name);
    let begun = Instant::now();
    for first in (0..CELLS).step_by(BATCH as usize) {
        let puts: Result<Vec<Action>, _> = (first..first + BATCH).map(put).collect();
        for outcome in table.batch(puts?).await {
            outcome?;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("{CELLS} cells in {seconds:.1} s, {:.0} a second", f64::from(CELLS) / seconds);
    Ok(())
}

/// A cell whose row is spread over all regions.
fn put(number: u32) -> Result<Action, hbase_rs::RequestError> {
    let row = number.wrapping_mul(2_654_435_761).to_be_bytes();
    let put = Put::try_new(row.to_vec())?.cell(b"f", b"q", 1, &number.to_be_bytes())?;
    Ok(put.into())
}
