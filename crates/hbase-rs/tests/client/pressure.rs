//! Regions whose memstores fill up.

use std::time::Duration;

use hbase_fake::FakeCluster;
use hbase_rs::{
    BufferConfig, BufferedMutator, Table, buffer::MutationBatch, errors::ExceptionClass,
    stats::RetryReason,
};

use super::{get, put, start, value};

/// Bytes of a value.
const VALUE: usize = 1_000;

fn buffered(table: &Table, max_pressure_pause: Duration) -> BufferedMutator {
    let mut config = BufferConfig::default();
    config.max_pressure_pause = max_pressure_pause;
    config.batch_actions = 50;
    table.buffered(config)
}

fn batch(rows: impl IntoIterator<Item = String>) -> MutationBatch {
    let mut batch = MutationBatch::default();
    for row in rows {
        batch.put(row.as_bytes(), b"f", b"q", 1, &[7; VALUE]).unwrap();
    }
    batch
}

/// Writes 600 kB to one region as fast as possible. Returns how often the region was too busy, and
/// the sum of the pauses because of its load.
async fn write_fast(max_pressure_pause: Duration) -> (u64, Duration) {
    let (cluster, table) = start().await;
    cluster.set_memstore(table.name(), "h", 100_000, 400_000);
    let writer = buffered(&table, max_pressure_pause);
    let rows = 600;
    writer.write(batch((0..rows).map(|at| format!("h{at:03}")))).await.unwrap();
    assert_eq!(cluster.cells(table.name()), rows);
    let stats = table.client().stats();
    let busy = RetryReason::Exception(ExceptionClass::RegionTooBusy);
    let count = stats.retries.iter().find(|(reason, _)| *reason == busy).map_or(0, |(_, n)| *n);
    (count, stats.buffers.pressure_pauses)
}

#[tokio::test]
async fn memstore_pressure_slows_a_writer_before_the_region_is_too_busy() {
    let (busy, pauses) = write_fast(Duration::ZERO).await;
    assert!(busy > 0);
    assert_eq!(pauses, Duration::ZERO);
    let (slowed_busy, pauses) = write_fast(Duration::from_secs(2)).await;
    assert_eq!(slowed_busy, 0, "{busy} without pauses");
    assert!(pauses >= Duration::from_millis(200));
}

/// A table on a cluster, and a writer whose region of `h` was paused for very long.
async fn paused() -> (FakeCluster, Table, BufferedMutator) {
    let (cluster, table) = start().await;
    // All regions on one server, in the same calls.
    cluster.move_region(table.name(), "h", 0, false);
    cluster.set_memstore_load(table.name(), "h", 100);
    let mut config = BufferConfig::default();
    config.max_pressure_pause = Duration::from_hours(1);
    config.max_bytes = 20_000;
    config.timeout = Some(Duration::from_mins(10));
    let writer = table.buffered(config);
    writer.write(batch(["a", "h", "q"].map(str::to_owned))).await.unwrap();
    (cluster, table, writer)
}

#[tokio::test]
async fn region_under_pressure_does_not_delay_the_others() {
    let (cluster, table, writer) = paused().await;
    let receipt = writer.submit(batch(["h1".to_owned()])).await.unwrap();
    for at in 0..50 {
        writer.mutate(put(&format!("a{at}"), "v")).await.unwrap();
        writer.mutate(put(&format!("q{at}"), "v")).await.unwrap();
    }
    assert_eq!(cluster.value(table.name(), "h1", "f", "q"), None);
    let buffers = table.client().stats().buffers;
    assert_eq!((buffers.mutations, buffers.regions_under_pressure), (1, 1));
    assert_eq!((buffers.unavailable_regions, buffers.unavailable_bytes), (0, 0));
    drop((receipt, writer));
}

#[tokio::test]
async fn regions_under_pressure_use_at_most_half_of_the_buffer() {
    let (_cluster, table, writer) = paused().await;
    let tasks: Vec<_> = (0..40)
        .map(|at| {
            let writer = writer.clone();
            tokio::spawn(async move { writer.write(batch([format!("h{at}")])).await })
        })
        .collect();
    let bytes = || table.client().stats().buffers.bytes;
    while bytes() < 10_000 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for at in 0..20 {
        // The others find capacity.
        writer.write(batch((0..5).map(|row| format!("a{at}-{row}")))).await.unwrap();
    }
    assert!(bytes() < 12_000, "{}", bytes());
    assert!(tasks.iter().all(|task| !task.is_finished()));
}

#[tokio::test]
async fn puts_of_a_cell_under_pressure_keep_their_order() {
    let (cluster, table) = start().await;
    cluster.set_memstore_load(table.name(), "h", 100);
    let writer = buffered(&table, Duration::from_millis(20));
    let mut receipts = Vec::new();
    for at in 0..40 {
        let mut batch = MutationBatch::default();
        batch.push(put("h", &at.to_string())).unwrap();
        receipts.push(writer.submit(batch).await.unwrap());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for receipt in receipts {
        receipt.await.unwrap();
    }
    assert_eq!(value(&table.get(&get("h")).await.unwrap()), "39");
    assert!(table.client().stats().buffers.pressure_pauses > Duration::ZERO);
}
