//! Quotas on the writes of a table, as of HBase's average rate limiter.

use std::{collections::HashMap, time::Instant};

use hbase_rs::TableName;

use super::call_result::RpcException;

/// Quotas by table.
#[derive(Debug, Default)]
pub(crate) struct Quotas(HashMap<TableName, WriteQuota>);

#[derive(Debug)]
struct WriteQuota {
    per_second: f64,
    available: f64,
    at: Instant,
}

impl Quotas {
    /// Limits the writes of a table; `None` removes the limit.
    pub(crate) fn set(&mut self, table: &TableName, per_second: Option<u32>) {
        match per_second.map(f64::from) {
            Some(per_second) => {
                let quota = WriteQuota { per_second, available: per_second, at: Instant::now() };
                self.0.insert(table.clone(), quota);
            }
            None => {
                self.0.remove(table);
            }
        }
    }

    /// Takes the writes of one region in one call. They are admitted together or not at all, so more than
    /// the quota of a second are never admitted.
    ///
    /// # Errors
    ///
    /// If they are throttled.
    pub(crate) fn take(&mut self, table: &TableName, writes: usize) -> Result<(), RpcException> {
        let Some(quota) = self.0.get_mut(table) else { return Ok(()) };
        let now = Instant::now();
        let refilled = quota.per_second * (now - quota.at).as_secs_f64();
        quota.available = (quota.available + refilled).min(quota.per_second);
        quota.at = now;
        let missing = writes as f64 - quota.available;
        if missing > 0.0 {
            let wait = (missing / quota.per_second * 1_000.0) as u64;
            let text = format!(
                "number of write requests exceeded - wait {}sec, {}ms",
                wait / 1_000,
                wait % 1_000
            );
            return Err(("quotas.RpcThrottlingException", text));
        }
        quota.available -= writes as f64;
        Ok(())
    }
}
