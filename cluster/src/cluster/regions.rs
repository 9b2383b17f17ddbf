//! Regions moved, split and merged, until it is done.

use std::time::Duration;

use hbase_rs::{Client, MetaRow, OperationError, Region, TableName};
use tokio::time::{Instant, sleep};

use super::Cluster;
use crate::{error::ClusterError, node::Node};

/// For so long regions may be on their way.
const LIMIT: Duration = Duration::from_mins(2);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

impl Cluster {
    /// Moves the region that holds a row to a region server, and waits until it serves there.
    ///
    /// # Errors
    ///
    /// When there is no such table, no such region server runs, or it is not done within two minutes.
    pub async fn move_region(
        &self,
        table: &TableName,
        row: &[u8],
        to: usize,
    ) -> Result<(), ClusterError> {
        // HBase would take any other instead.
        let node = Node::RegionServer(to);
        if !self.is_running(node)? {
            return Err(ClusterError::State { node, state: "does not run" });
        }
        let client = self.client();
        let server = self.server_name(to);
        let region = region_of(&client, table, row).await?;
        let moved = client.admin().move_region(&region, Some(&server)).await;
        moved.map_err(failed("move a region"))?;
        let there = |rows: &[MetaRow]| {
            rows.iter().any(|found| {
                found.region.contains(row) && open(found) && found.server.as_ref() == Some(&server)
            })
        };
        until(&client, table, "a region did not arrive", there).await
    }

    /// Splits the region that holds a row at this very row, and waits until both halves serve.
    ///
    /// # Errors
    ///
    /// When a region begins there already, or it is not done within two minutes.
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
        until(&client, table, "the halves of a region did not come up", halves).await
    }

    /// Merges the region that holds a row with the one behind it, and waits until the whole serves.
    /// Halves of a split refer to the files of their parent and cannot be merged: the table is
    /// compacted until they can.
    ///
    /// # Errors
    ///
    /// When there is none behind it, or it is not done within two minutes.
    pub async fn merge_regions(&self, table: &TableName, row: &[u8]) -> Result<(), ClusterError> {
        let client = self.client();
        let first = region_of(&client, table, row).await?;
        if first.end_key().is_empty() {
            return Err(ClusterError::Regions {
                what: "the last region has none behind it".into(),
            });
        }
        let second = region_of(&client, table, first.end_key()).await?;
        let (start, stop) = (first.start_key().clone(), second.end_key().clone());
        let end = Instant::now() + LIMIT;
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
        until(&client, table, "a merged region did not come up", whole).await
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

/// Looks at a table's regions until they are as they should be.
async fn until(
    client: &Client,
    table: &TableName,
    otherwise: &str,
    reached: impl Fn(&[MetaRow]) -> bool,
) -> Result<(), ClusterError> {
    let end = Instant::now() + LIMIT;
    loop {
        let rows = client.table(table.clone()).regions().await.map_err(failed("list regions"))?;
        if reached(&rows) {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(ClusterError::Regions { what: otherwise.to_owned() });
        }
        sleep(LOOK).await;
    }
}
