//! Creates a table and puts a million cells through a `BufferedMutator`.
//!
//! `cargo run --release -p hbase-rs --example put_cells -- 127.0.0.1:2181 example`

use std::{collections::VecDeque, error::Error, time::Instant};

use hbase_rs::{
    BufferConfig, Client, ClientConfig, TableName,
    admin::{FamilyDescriptor, TableDescriptor},
    buffer::MutationBatch,
    discovery::ZooKeeperDiscovery,
};

const CELLS: u32 = 1_000_000;
const BATCH: u32 = 1_000;
const MAX_PENDING: usize = 16;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let quorum = arguments.next().ok_or("missing argument: ZooKeeper quorum")?;
    let name: TableName =
        arguments.next().ok_or("missing argument: name of a new table")?.parse()?;
    let client =
        Client::new(ClientConfig::new("example"), ZooKeeperDiscovery::new(&quorum, "/hbase"));
    let table = TableDescriptor::new(name.clone()).family(FamilyDescriptor::new("f"));
    let splits = [0x40, 0x80, 0xc0].map(|first| vec![first].into());
    client.admin().create_table(&table, splits).await?;
    let table = client.table(name);
    let writer = table.buffered(BufferConfig::default());
    let start = Instant::now();
    let mut receipts = VecDeque::new();
    for first in (0..CELLS).step_by(BATCH as usize) {
        let mut batch = MutationBatch::default();
        for number in first..first + BATCH {
            // Distributes the rows over all regions.
            let row = number.wrapping_mul(2_654_435_761).to_be_bytes();
            batch.put(&row, b"f", b"q", 1, &number.to_be_bytes())?;
        }
        receipts.push_back(writer.submit(batch).await?);
        if receipts.len() > MAX_PENDING
            && let Some(oldest) = receipts.pop_front()
        {
            oldest.await?;
        }
    }
    for receipt in receipts {
        receipt.await?;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{CELLS} cells in {seconds:.1} s, {:.0} a second", f64::from(CELLS) / seconds);
    Ok(())
}
