//! Buffered mutations of many callers.

use std::time::Duration;

use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::{
    Append, BufferConfig, BufferedMutator, Client, Delete, SERVER_TIME, Table,
    buffer::MutationBatch, errors::Failure,
};

use super::{config, fill, get, put, start, start_with, transient_faults, value};

fn rows() -> Vec<String> {
    ('a'..='z').flat_map(|letter| (0..4).map(move |at| format!("{letter}{at}"))).collect()
}

fn batch(rows: &[String]) -> MutationBatch {
    let mut batch = MutationBatch::with_capacity(rows.len(), rows.len() * 40);
    for row in rows {
        batch.put(row.as_bytes(), b"f", b"q", 1, row.as_bytes()).unwrap();
    }
    batch
}

fn batch_of(row: &str) -> MutationBatch {
    batch(&[row.to_owned()])
}

fn buffered(table: &Table) -> BufferedMutator {
    table.buffered(BufferConfig::default())
}

async fn read(table: &Table, rows: &[String]) -> Vec<String> {
    let gets = rows.iter().map(|row| get(row)).collect();
    table.get_many(gets).await.unwrap().iter().map(|row| value(row).to_owned()).collect()
}

#[tokio::test]
async fn batch_is_one_call_per_server() {
    let (cluster, table) = start().await;
    table.prefetch().await.unwrap();
    buffered(&table).write(batch(&rows())).await.unwrap();
    assert_eq!(cluster.calls("Multi"), 2);
    assert_eq!(read(&table, &rows()).await, rows());
}

#[tokio::test]
async fn uncached_regions_are_looked_up() {
    let (cluster, table) = start().await;
    buffered(&table).write(batch(&rows())).await.unwrap();
    assert_eq!(read(&table, &rows()).await, rows());
    // The first lookup also returns the following regions.
    assert!(cluster.calls("Scan") <= 3, "{}", cluster.calls("Scan"));
}

#[tokio::test]
async fn all_kinds_of_mutations_are_written() {
    let (cluster, table) = start().await;
    fill(&table, &["a", "b", "c", "h"]).await;
    let mut batch = MutationBatch::default();
    batch.delete_column(b"a", b"f", b"q", 1).unwrap();
    batch.delete_version(b"b", b"f", b"q", 1).unwrap();
    batch.push(Delete::try_new("c").unwrap()).unwrap();
    batch.push(Append::try_new("h").unwrap().value(b"f", b"q", b"!").unwrap()).unwrap();
    batch.put(b"z", b"f", b"q", 1, b"z").unwrap();
    batch.put(b"z", b"f", b"r", 1, b"y").unwrap();
    let writer = buffered(&table);
    writer.write(batch).await.unwrap();
    writer.mutate(put("g", "g")).await.unwrap();
    let rows: Vec<_> = ["a", "b", "c", "g", "h", "z"].map(str::to_owned).into();
    assert_eq!(read(&table, &rows).await, ["", "", "", "g", "h!", "z"]);
    assert_eq!(cluster.value(table.name(), "z", "f", "r").unwrap(), "y");
    writer.write(MutationBatch::default()).await.unwrap();
}

#[tokio::test]
async fn many_callers_share_calls() {
    let (cluster, table) = start().await;
    table.prefetch().await.unwrap();
    cluster
        .inject(InjectedFault::once("Multi", FaultKind::Delay(Duration::from_millis(20))).times(2));
    let writer = buffered(&table);
    let tasks: Vec<_> = (0..500)
        .map(|at| {
            let writer = writer.clone();
            tokio::spawn(async move { writer.mutate(put(&format!("{at:03}"), "v")).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert!(cluster.calls("Multi") < 20, "{}", cluster.calls("Multi"));
}

#[tokio::test]
async fn transient_failures_are_retried() {
    let (cluster, table) = start().await;
    let writer = buffered(&table);
    for fault in transient_faults() {
        cluster.inject(InjectedFault::once("Multi", fault.clone()).times(3));
        let written = writer.write(batch(&rows())).await;
        written.unwrap_or_else(|error| panic!("{fault:?}: {error:?}"));
    }
    assert_eq!(read(&table, &rows()).await, rows());
}

#[tokio::test]
async fn permanent_failure_fails_only_its_mutation() {
    let (cluster, table) = start().await;
    let class = "regionserver.NoSuchColumnFamilyException";
    cluster.inject(
        InjectedFault::once("Multi", FaultKind::ActionException { class, text: "no" }).on(1),
    );
    let rows = rows();
    let error = buffered(&table).write(batch(&rows)).await.unwrap_err();
    assert_eq!((error.failed.len(), error.total), (1, rows.len()));
    let failed = error.failed[0].0;
    for (at, row) in rows.iter().enumerate() {
        assert_eq!(cluster.value(table.name(), row, "f", "q").is_some(), at != failed, "{row}");
    }
}

#[tokio::test]
async fn changed_regions_are_regrouped() {
    let (cluster, table) = start().await;
    let writer = buffered(&table);
    writer.write(batch(&rows())).await.unwrap();
    cluster.split_region(table.name(), "c");
    cluster.move_region(table.name(), "c", 1, false);
    cluster.move_region(table.name(), "h", 0, true);
    cluster.merge_region(table.name(), "h");
    let changed: Vec<_> = rows().iter().map(|row| format!("{row}x")).collect();
    writer.write(batch(&changed)).await.unwrap();
    assert_eq!(read(&table, &changed).await, changed);
}

#[tokio::test]
async fn unavailable_region_does_not_delay_the_others() {
    let (cluster, table) = start().await;
    let writer = buffered(&table);
    writer.write(batch(&rows())).await.unwrap();
    cluster.kill(1).await;
    let receipt = writer.submit(batch_of("h")).await.unwrap();
    for at in 0..50 {
        writer.mutate(put(&format!("a{at}"), "v")).await.unwrap();
    }
    while writer.client().stats().buffers.unavailable_bytes == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(writer.client().stats().buffers.unavailable_regions, 1);
    cluster.evacuate(1, 0);
    receipt.await.unwrap();
    assert_eq!(read(&table, &["h".to_owned()]).await, ["h"]);
    assert_eq!(writer.client().stats().buffers.bytes, 0);
}

#[tokio::test]
async fn unavailable_regions_use_at_most_half_of_the_buffer() {
    let (cluster, table) = start().await;
    let mut config = BufferConfig::default();
    config.max_bytes = 20_000;
    let writer = table.buffered(config);
    writer.write(batch(&rows())).await.unwrap();
    cluster.kill(1).await;
    let tasks: Vec<_> = (0..400)
        .map(|at| {
            let writer = writer.clone();
            tokio::spawn(async move { writer.mutate(put(&format!("h{at}"), "v")).await })
        })
        .collect();
    while writer.client().stats().buffers.unavailable_bytes < 10_000 {
        // Mutations accepted before the failure may exceed the half for a moment.
        if writer.client().stats().buffers.bytes >= 19_000 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    cluster.evacuate(1, 0);
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert!(writer.client().stats().buffers.admission_waits > 0);
    assert_eq!(writer.client().stats().buffers.bytes, 0);
}

#[tokio::test]
async fn callers_wait_for_buffer_capacity() {
    let (_cluster, table) = start().await;
    let mut config = BufferConfig::default();
    config.max_bytes = 500;
    let writer = table.buffered(config);
    // Larger than the buffer: sent alone.
    writer.write(batch(&rows())).await.unwrap();
    let tasks: Vec<_> = (0..100)
        .map(|at| {
            let writer = writer.clone();
            tokio::spawn(async move { writer.mutate(put(&format!("a{at}"), "v")).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let buffers = writer.client().stats().buffers;
    assert!(buffers.admission_waits > 0);
    assert_eq!((buffers.bytes, buffers.mutations, buffers.failed), (0, 0, 0));
    assert_eq!(buffers.written, 204);
}

#[tokio::test]
async fn timeout_error_has_the_cause_of_the_last_attempt() {
    let (cluster, table) = start().await;
    let mut config = BufferConfig::default();
    config.timeout = Some(Duration::from_millis(300));
    let writer = table.buffered(config);
    writer.write(batch(&rows())).await.unwrap();
    cluster.kill(1).await;
    let error = writer.mutate(put("h", "v")).await.unwrap_err();
    assert!(matches!(&*error.cause, Failure::Call(_)), "{error:?}");
    assert!(!error.in_doubt);
    writer.mutate(put("a", "v")).await.unwrap();
}

#[tokio::test]
async fn only_idempotent_mutations_are_retried_in_doubt() {
    let (cluster, table) = start().await;
    fill(&table, &["a", "b"]).await;
    let writer = buffered(&table);
    cluster.inject(InjectedFault::once("Multi", FaultKind::CloseAfter(5)));
    let mut batch = MutationBatch::default();
    batch.put(b"a0", b"f", b"q", 1, b"0").unwrap();
    batch.delete_version(b"a", b"f", b"q", SERVER_TIME).unwrap();
    batch.push(Append::try_new("b").unwrap().value(b"f", b"q", b"!").unwrap()).unwrap();
    let error = writer.write(batch).await.unwrap_err();
    assert_eq!(error.failed.len(), 1);
    assert_eq!(error.failed[0].0, 1);
    assert!(error.first().unwrap().in_doubt);
    assert_eq!(value(&table.get(&get("b")).await.unwrap()), "b!");
}

#[tokio::test]
async fn missing_or_disabled_table_is_an_error() {
    let (cluster, table) = start().await;
    let client = Client::new(config(), cluster.discovery());
    let none = client.table("none".parse().unwrap()).buffered(BufferConfig::default());
    let error = none.mutate(put("a", "v")).await.unwrap_err();
    assert!(matches!(&*error.cause, Failure::NoTable(_)), "{error:?}");
    let writer = buffered(&table);
    writer.write(batch(&rows())).await.unwrap();
    cluster.set_region_states(table.name(), "CLOSED");
    let error = writer.mutate(put("a", "v")).await.unwrap_err();
    assert!(matches!(&*error.cause, Failure::TableDisabled(_)), "{error:?}");
    cluster.set_region_states(table.name(), "OPEN");
    writer.mutate(put("a", "v")).await.unwrap();
}

#[tokio::test]
async fn flush_waits_for_all_earlier_mutations() {
    let (cluster, table) = start().await;
    let mut config = BufferConfig::default();
    config.linger = Duration::from_secs(100);
    let writer = table.buffered(config);
    writer.write(batch(&rows())).await.unwrap();
    cluster
        .inject(InjectedFault::once("Multi", FaultKind::Delay(Duration::from_millis(10))).times(1));
    let receipts =
        [writer.submit(batch_of("a")).await.unwrap(), writer.submit(batch_of("b")).await.unwrap()];
    writer.flush().await;
    for row in ["a", "b"] {
        assert!(cluster.value(table.name(), row, "f", "q").is_some());
    }
    for receipt in receipts {
        receipt.await.unwrap();
    }
    writer.flush().await;
}

#[tokio::test]
async fn close_writes_all_mutations_and_rejects_further_ones() {
    let (cluster, table) = start().await;
    let writer = buffered(&table);
    let receipt = writer.submit(batch(&rows())).await.unwrap();
    let other = writer.clone();
    writer.close().await;
    assert!(cluster.value(table.name(), "z3", "f", "q").is_some());
    receipt.await.unwrap();
    let error = other.submit(batch_of("a")).await.unwrap_err();
    assert!(matches!(&*error.cause, Failure::Closed), "{error:?}");
    other.close().await;
}

#[tokio::test]
async fn dropped_buffer_writes_its_mutations() {
    let (cluster, table) = start().await;
    cluster.inject(InjectedFault::once("Multi", FaultKind::Delay(Duration::from_millis(5))));
    let writer = buffered(&table);
    let receipt = writer.submit(batch(&rows())).await.unwrap();
    drop(writer);
    receipt.await.unwrap();
    assert_eq!(read(&table, &rows()).await, rows());
}

#[test]
fn receipts_resolve_when_the_runtime_shuts_down() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let cluster = second.block_on(FakeCluster::start(1));
    let name = cluster.create_table("t", &[]);
    cluster.inject(InjectedFault::once("Multi", FaultKind::NoResponse).times(usize::MAX));
    let table = Client::new(config(), cluster.discovery()).table(name);
    let [receipt] = first.block_on(async {
        let writer = buffered(&table);
        [writer.submit(batch(&rows())).await.unwrap()]
    });
    first.shutdown_background();
    let error = second.block_on(receipt).unwrap_err();
    assert_eq!(error.failed.len(), rows().len());
    let first = error.first().unwrap();
    assert!(first.in_doubt && matches!(&*first.cause, Failure::WriterGone), "{first:?}");
}

#[tokio::test]
async fn cells_over_the_limit_are_rejected() {
    let mut config = config();
    config.max_cell = 100;
    let (cluster, table) = start_with(config).await;
    let error = buffered(&table).mutate(put("a", &"v".repeat(200))).await.unwrap_err();
    assert!(matches!(&*error.cause, Failure::CellTooLong { .. }), "{error:?}");
    assert_eq!(cluster.calls("Multi"), 0);
}
