//! Writes cells through a buffer, in batches whose results are awaited later.
//!
//! `cargo run --release -p hbase-rs --example buffered_writes -- 127.0.0.1:2181 example`; the table needs the family `f`.

use std::{collections::VecDeque, error::Error, time::Instant};

use hbase_rs::{
    BufferConfig, Client, ClientConfig, Table, buffer::MutationBatch, discovery::ZooKeeperDiscovery,
};

const BATCH: u32 = 1_000;

/// Batches whose results are awaited later. It bounds the memory of the caller; the buffer has its own bound.
const MAX_PENDING: usize = 16;

pub(crate) async fn run(table: &Table, cells: u32) -> Result<(), Box<dyn Error>> {
    let buffer = table.buffered(BufferConfig::default());
    let mut receipts = VecDeque::new();
    for first in (0..cells).step_by(BATCH as usize) {
        // A batch is encoded while it is filled. The buffer groups the mutations by region and server.
        let mut batch = MutationBatch::default();
        for number in first..(first + BATCH).min(cells) {
            // Distributes the rows over all regions.
            let row = number.wrapping_mul(2_654_435_761).to_be_bytes();
            batch.put(&row, b"f", b"q", 1, &number.to_be_bytes())?;
        }
        // Waits while the buffer is full.
        receipts.push_back(buffer.submit(batch).await?);
        if receipts.len() > MAX_PENDING
            && let Some(oldest) = receipts.pop_front()
        {
            oldest.await?;
        }
    }
    for receipt in receipts {
        receipt.await?;
    }
    buffer.close().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let quorum = arguments.next().ok_or("missing argument: ZooKeeper quorum")?;
    let table = arguments.next().ok_or("missing argument: table")?.parse()?;
    let discovery = ZooKeeperDiscovery::new(&quorum, "/hbase");
    let table = Client::new(ClientConfig::new("example"), discovery).table(table);
    let (cells, start) = (1_000_000, Instant::now());
    run(&table, cells).await?;
    println!("{cells} cells in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}
