//! Quotas: a server rejects calls with the time to wait.

use std::time::Duration;

use hbase_fake::{FakeCluster, FaultKind, InjectedFault};
use hbase_rs::{
    Action, BufferConfig, Table, buffer::MutationBatch, errors::ExceptionClass, stats::RetryReason,
};

use super::{get, put, start, value};

/// Writes that a quota admits in a second.
const QUOTA: u32 = 20;
/// Rows of one region, more than the quota ever admits in one call.
const ROWS: usize = 50;

fn rows() -> Vec<String> {
    (0..ROWS).map(|at| format!("a{at:02}")).collect()
}

fn throttled(table: &Table) -> u64 {
    let reason = RetryReason::Exception(ExceptionClass::Throttling);
    let retries = table.client().stats().retries;
    retries.iter().find(|(of, _)| *of == reason).map_or(0, |(_, count)| *count)
}

async fn check(cluster: &FakeCluster, table: &Table) {
    assert_eq!(cluster.cells(table.name()), ROWS);
    assert!(throttled(table) > 0);
    assert_eq!(value(&table.get(&get("a49")).await.unwrap()), "v");
}

#[tokio::test]
async fn buffered_mutations_beyond_a_quota_are_written_in_smaller_calls() {
    let (cluster, table) = start().await;
    cluster.set_write_quota(table.name(), Some(QUOTA));
    let mut batch = MutationBatch::default();
    for row in rows() {
        batch.push(put(&row, "v")).unwrap();
    }
    let writer = table.buffered(BufferConfig::default());
    writer.write(batch).await.unwrap();
    check(&cluster, &table).await;
    // Larger calls again without the quota.
    cluster.set_write_quota(table.name(), None);
    for _ in 0..8 {
        writer.mutate(put("a00", "v")).await.unwrap();
    }
    let calls = cluster.calls("Multi");
    let mut batch = MutationBatch::default();
    for row in rows() {
        batch.push(put(&row, "v")).unwrap();
    }
    writer.write(batch).await.unwrap();
    assert_eq!(cluster.calls("Multi"), calls + 1);
}

#[tokio::test]
async fn batch_beyond_a_quota_is_executed_in_smaller_calls() {
    let (cluster, table) = start().await;
    cluster.set_write_quota(table.name(), Some(QUOTA));
    let actions: Vec<Action> = rows().iter().map(|row| put(row, "v").into()).collect();
    for result in table.batch(actions).await {
        result.unwrap();
    }
    check(&cluster, &table).await;
}

#[tokio::test]
async fn wait_beyond_the_deadline_is_an_error_at_once() {
    let (cluster, table) = start().await;
    let (class, text) = ("quotas.RpcThrottlingException", "write size limit exceeded - wait 2hrs");
    cluster.inject(InjectedFault::once("Mutate", FaultKind::Exception { class, text }));
    let error = table.mutate(put("a", "v")).await.unwrap_err();
    assert_eq!(error.class(), Some(ExceptionClass::Throttling));
    assert!(!error.in_doubt);
    table.mutate(put("a", "v")).await.unwrap();
}

#[tokio::test]
async fn buffered_mutation_fails_at_its_deadline_if_the_wait_is_longer() {
    let (cluster, table) = start().await;
    let (class, text) = ("quotas.RpcThrottlingException", "write size limit exceeded - wait 2hrs");
    cluster.inject(InjectedFault::once("Multi", FaultKind::RegionException { class, text }));
    let mut config = BufferConfig::default();
    config.timeout = Some(Duration::from_millis(300));
    let writer = table.buffered(config);
    let error = writer.mutate(put("a", "v")).await.unwrap_err();
    assert_eq!(error.class(), Some(ExceptionClass::Throttling));
    writer.mutate(put("a", "v")).await.unwrap();
}
