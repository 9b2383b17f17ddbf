//! Moves, splits and merges regions through the master, and waits for servers and regions.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use hbase_rs::{Client, Scan, ServerName, Table, region::MetaRow};
use tokio::time::{Instant, sleep};

/// Longest wait for the cluster.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(3);
/// Rows that are read to choose a split point.
const SAMPLE_ROWS: u32 = 200;

/// Result of a scenario.
pub(crate) type ScenarioResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Polls until the condition is true.
pub(crate) async fn wait_until(
    condition: &str,
    mut poll: impl AsyncFnMut() -> ScenarioResult<bool>,
) -> ScenarioResult<()> {
    let deadline = Instant::now() + TIMEOUT;
    while !poll().await? {
        if Instant::now() > deadline {
            return Err(format!("{condition}: not in {TIMEOUT:?}").into());
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Regions of a table that are or will be open, in order.
async fn regions(table: &Table) -> ScenarioResult<Vec<MetaRow>> {
    let mut rows = table.regions().await?;
    rows.retain(|row| !row.region.is_split_parent() && row.state.as_deref() != Some("SPLIT"));
    Ok(rows)
}

/// Waits until exactly these servers serve.
pub(crate) async fn wait_for_servers(
    client: &Client,
    servers: &[ServerName],
) -> ScenarioResult<()> {
    wait_until("all region servers serve", async || {
        let serving = client.admin().cluster_status().await?.servers;
        Ok(serving.len() == servers.len() && servers.iter().all(|one| serving.contains(one)))
    })
    .await
}

/// Waits until all regions of the tables are open on servers that serve.
pub(crate) async fn wait_for_regions(
    tables: &[Table],
    servers: &[ServerName],
) -> ScenarioResult<()> {
    wait_until("all regions are open", async || {
        for table in tables {
            for row in regions(table).await? {
                if !row.location().is_some_and(|location| servers.contains(&location.server)) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    })
    .await
}

/// Assigns the regions to the servers in turn; another `shift` moves all of them.
pub(crate) async fn distribute(
    client: &Client,
    tables: &[Table],
    servers: &[ServerName],
    shift: usize,
) -> ScenarioResult<()> {
    for table in tables {
        for (at, row) in regions(table).await?.iter().enumerate() {
            let to = &servers[(at + shift) % servers.len()];
            if row.server.as_ref() != Some(to) {
                client.admin().move_region(&row.region, Some(to)).await?;
            }
        }
    }
    Ok(())
}

/// Splits the region of each table with the most rows at its middle row.
pub(crate) async fn split(client: &Client, tables: &[Table]) -> ScenarioResult<()> {
    for table in tables {
        let mut widest: Option<(usize, MetaRow, Bytes)> = None;
        for row in regions(table).await? {
            let (start, end) = (row.region.start_key().clone(), row.region.end_key().clone());
            let mut keys = Vec::new();
            let mut rows = table.scan(Scan::range(start.clone(), end).limit(SAMPLE_ROWS));
            while let Some(found) = rows.next().await {
                keys.push(found?.row.key_bytes());
            }
            let middle = keys.get(keys.len() / 2).filter(|middle| **middle != start).cloned();
            if let Some(middle) = middle
                && widest.as_ref().is_none_or(|(most, ..)| keys.len() > *most)
            {
                widest = Some((keys.len(), row, middle));
            }
        }
        let (_, row, middle) = widest.ok_or("no region has two rows")?;
        client.admin().split_region(&row.region, Some(middle)).await?;
    }
    Ok(())
}

/// Merges two regions of each table. Daughters of a split can be merged only after a compaction has
/// replaced their reference files, so pairs are tried in turn, with compactions in between.
pub(crate) async fn merge(client: &Client, tables: &[Table]) -> ScenarioResult<()> {
    for table in tables {
        wait_until("a merge", async || {
            for pair in regions(table).await?.windows(2) {
                let [first, second] = pair else { continue };
                let both = [&first.region, &second.region];
                if client.admin().merge_regions(&both).await.is_ok() {
                    return Ok(true);
                }
            }
            client.admin().compact_table(table.name(), true).await?;
            Ok(false)
        })
        .await?;
    }
    Ok(())
}
