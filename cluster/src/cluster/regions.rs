//! Moves, splits and merges regions, and waits until the result is open.

use std::time::Duration;

use hbase_rs::{
    Client, OperationError, TableName,
    region::{MetaRow, Region},
};
use tokio::time::{Instant, sleep};

use super::Cluster;
use crate::{error::ClusterError, node::Node};

/// Longest wait for a region.
const TIMEOUT: Duration = Duration::from_mins(2);
/// Interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

impl Cluster {
    /// Moves the region of a row to a region server, and waits until it is open there.
    ///
    /// # Errors
    ///
    /// If the table does not exist, the region server does not run, or after two minutes.
    pub async fn move_region(
        &self,
        table: &TableName,
        row: &[u8],
        to: usize,
    ) -> Result<(), ClusterError> {
        // HBase would choose another server instead.
        let node = Node::RegionServer(to);
        if !self.is_running(node)? {
            return Err(ClusterError::WrongState { node, state: "does not run" });
        }
        let server = self.server_name(to);
        if !self.config.security.admits_plain_clients() {
            return self.move_secured_region(table, row, &server).await;
        }
        let client = self.client();
        let region = region_of(&client, table, row).await?;
        let moved = client.admin().move_region(&region, Some(&server)).await;
        moved.map_err(failed("move a region"))?;
        let there = |rows: &[MetaRow]| {
            rows.iter().any(|found| {
                found.region.contains(row) && open(found) && found.server.as_ref() == Some(&server)
            })
        };
        wait_until(&client, table, "the region was not opened on the target", there).await
    }

    /// Splits the region of a row at this row, and waits until both halves are open.
    ///
    /// # Errors
    ///
    /// If a region already starts there, or after two minutes.
    pub async fn split_region(&self, table: &TableName, row: &[u8]) -> Result<(), ClusterError> {
        let client = self.client();
        let region = region_of(&client, table, row).await?;
        let split = client.admin().split_region(&region, Some(row.to_vec().into())).await;
        split.map_err(failed("split a region"))?;
        let halves = |rows: &[MetaRow]| {
            let half = |edge: &dyn Fn(&Region) -> bool| {
                rows.iter().any(|found| edge(&found.region) && open(found))
            };
            half(&|region| region.start_key() == row)
                && half(&|region| region.end_key() == row && !region.is_split_parent())
        };
        wait_until(&client, table, "the halves of the region were not opened", halves).await
    }

    /// Merges the region of a row with the next one, and waits until the merged region is open. Halves of a split
    /// refer to files of their parent and cannot be merged yet, so the table is compacted first.
    ///
    /// # Errors
    ///
    /// If it is the last region, or after two minutes.
    pub async fn merge_regions(&self, table: &TableName, row: &[u8]) -> Result<(), ClusterError> {
        let client = self.client();
        let first = region_of(&client, table, row).await?;
        if first.end_key().is_empty() {
            return Err(ClusterError::Regions { what: "the last region has no successor".into() });
        }
        let second = region_of(&client, table, first.end_key()).await?;
        let (start, stop) = (first.start_key().clone(), second.end_key().clone());
        let end = Instant::now() + TIMEOUT;
        let admin = client.admin();
        while let Err(error) = admin.merge_regions(&[&first, &second]).await {
            if Instant::now() >= end {
                return Err(failed("merge regions")(error));
            }
            admin.compact_table(table, true).await.map_err(failed("compact a table"))?;
            sleep(Duration::from_secs(1)).await;
        }
        let whole = |rows: &[MetaRow]| {
            rows.iter().any(|found| {
                *found.region.start_key() == start && *found.region.end_key() == stop && open(found)
            })
        };
        wait_until(&client, table, "the merged region was not opened", whole).await
    }
}

fn failed(what: &str) -> impl Fn(OperationError) -> ClusterError {
    move |source| ClusterError::HBase { what: what.to_owned(), source }
}

fn open(row: &MetaRow) -> bool {
    row.server.is_some() && row.state.as_deref().is_none_or(|state| state == "OPEN")
}

async fn region_of(client: &Client, table: &TableName, row: &[u8]) -> Result<Region, ClusterError> {
    let rows = client.table(table.clone()).regions().await.map_err(failed("list regions"))?;
    let mut regions = rows.into_iter().map(|found| found.region);
    regions
        .find(|region| region.contains(row) && !region.is_split_parent())
        .ok_or_else(|| ClusterError::Regions { what: format!("{table} has no region for the row") })
}

/// Polls a table's regions until the condition is true.
async fn wait_until(
    client: &Client,
    table: &TableName,
    failure: &str,
    reached: impl Fn(&[MetaRow]) -> bool,
) -> Result<(), ClusterError> {
    let end = Instant::now() + TIMEOUT;
    loop {
        let rows = client.table(table.clone()).regions().await.map_err(failed("list regions"))?;
        if reached(&rows) {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(ClusterError::Regions { what: failure.to_owned() });
        }
        sleep(POLL_INTERVAL).await;
    }
}
