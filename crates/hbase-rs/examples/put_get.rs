//! Writes, reads and counts, changes a row under a condition, and deletes it.
//!
//! `cargo run -p hbase-rs --example put_get -- 127.0.0.1:2181 example`; the table needs the family `f`.

use std::error::Error;

use hbase_rs::{
    Client, ClientConfig, Delete, Get, Increment, Put, SERVER_TIME, Table, condition::Condition,
    discovery::ZooKeeperDiscovery,
};

/// Returns the value, and how often it was read.
pub(crate) async fn run(table: &Table) -> Result<(String, i64), Box<dyn Error>> {
    // With a timestamp of its own, a put that is retried writes the same version again.
    let put = Put::try_new("sensor-1")?.cell(b"f", b"celsius", 1_700_000_000_000, b"21.5")?;
    table.mutate(put).await?;
    let row = table.get(&Get::try_new("sensor-1")?).await?;
    let value = String::from_utf8_lossy(row.value(b"f", b"celsius").unwrap_or_default());

    // Increments return the new values, and are executed once even if they are retried.
    let increment = Increment::try_new("sensor-1")?.counter(b"f", b"reads", 1)?;
    let counted = table.mutate(increment).await?;
    let reads = counted.value(b"f", b"reads").ok_or("no counter")?;
    let reads = i64::from_be_bytes(reads.try_into()?);

    // Only the first of two claims wins.
    let unclaimed = Condition::absent("f", "owner");
    let claim =
        |owner: &str| Put::try_new("sensor-1")?.cell(b"f", b"owner", SERVER_TIME, owner.as_bytes());
    assert!(table.check_and_mutate(&unclaimed, claim("lab 1")?).await?);
    assert!(!table.check_and_mutate(&unclaimed, claim("lab 2")?).await?);

    // Several mutations of one row are applied together.
    let released = Delete::try_new("sensor-1")?.column(b"f", b"owner", SERVER_TIME)?;
    let moved = Put::try_new("sensor-1")?.cell(b"f", b"room", SERVER_TIME, b"2")?;
    table.mutate_row(vec![released.into(), moved.into()], None).await?;

    table.mutate(Delete::try_new("sensor-1")?).await?;
    Ok((value.into_owned(), reads))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let quorum = arguments.next().ok_or("missing argument: ZooKeeper quorum")?;
    let table = arguments.next().ok_or("missing argument: table")?.parse()?;
    let discovery = ZooKeeperDiscovery::new(&quorum, "/hbase");
    let table = Client::new(ClientConfig::new("example"), discovery).table(table);
    let (value, reads) = run(&table).await?;
    println!("{value} degrees, read {reads} times");
    Ok(())
}
