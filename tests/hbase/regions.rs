//! Regions of tables: spread, moved, split and merged by the master's orders.

use std::{error::Error, time::Duration};

use bytes::Bytes;
use hbase_rs::{Client, MetaRow, Scan, ServerName, Table};
use tokio::time::{Instant, sleep};

/// For so long the cluster may take for anything.
pub(crate) const PATIENCE: Duration = Duration::from_mins(3);
/// Rows that are looked at to find one to split at.
const SAMPLE: u32 = 200;

/// What fails is told to whoever runs the suite.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Asks until the answer is yes.
pub(crate) async fn wait_until(
    what: &str,
    mut ask: impl AsyncFnMut() -> Outcome<bool>,
) -> Outcome<()> {
    let deadline = Instant::now() + PATIENCE;
    while !ask().await? {
        if Instant::now() > deadline {
            return Err(format!("{what} did not come about in {PATIENCE:?}").into());
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Regions of a table that are or will be open, in order.
async fn regions(table: &Table) -> Outcome<Vec<MetaRow>> {
    let mut rows = table.regions().await?;
    rows.retain(|row| !row.region.is_split_parent() && row.state.as_deref() != Some("SPLIT"));
    Ok(rows)
}

/// Waits until exactly these servers serve.
pub(crate) async fn wait_for_servers(client: &Client, servers: &[ServerName]) -> Outcome<()> {
    wait_until("that all region servers serve", async || {
        let serving = client.admin().cluster_status().await?.servers;
        Ok(serving.len() == servers.len() && servers.iter().all(|one| serving.contains(one)))
    })
    .await
}

/// Waits until all regions of the tables are open on servers that serve.
pub(crate) async fn wait_for_regions(tables: &[Table], servers: &[ServerName]) -> Outcome<()> {
    wait_until("that all regions are open", async || {
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

/// Gives each server every second region; `shift` by one moves all of them.
pub(crate) async fn spread(
    client: &Client,
    tables: &[Table],
    servers: &[ServerName],
    shift: usize,
) -> Outcome<()> {
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

/// Splits a region of each table in the middle of what it holds.
pub(crate) async fn split(client: &Client, tables: &[Table]) -> Outcome<()> {
    for table in tables {
        let mut widest: Option<(usize, MetaRow, Bytes)> = None;
        for row in regions(table).await? {
            let (start, end) = (row.region.start_key().clone(), row.region.end_key().clone());
            let mut keys = Vec::new();
            let mut rows = table.scan(Scan::range(start.clone(), end).limit(SAMPLE));
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

/// Merges two regions of each table. Daughters of a split cannot be merged before their files are
/// their own, so pairs are tried in turn, and compacted in between.
pub(crate) async fn merge(client: &Client, tables: &[Table]) -> Outcome<()> {
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
