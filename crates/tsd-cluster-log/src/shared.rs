//! The settings that must be equal on all nodes. The first node stores them, each start compares its own settings
//! with them, and an operator may change some of them.

use bytes::Bytes;
use hbase_rs::Client;
use tokio::time::Instant;
use tsd_cluster::{
    ClusterId, Member, MemberState, SLOT_TAG_UIDS, SLOT_TAGS, SharedSettings, TableReply,
};
use tsd_storage::StorageError;

use crate::{
    calls::{CallFailure, LogTable, SETTINGS, damaged},
    changeable::CHANGEABLE,
    config::ClusterLogConfig,
    error::{MemberVersionsError, OpenLogError},
    listed_nodes::all_listed,
    log_table,
};

/// A setting of the cluster that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedSetting {
    /// Name of the setting.
    pub name: String,
    /// Value before the change; `None` if the cluster did not have the setting.
    pub before: Option<String>,
    /// Value after the change.
    pub now: String,
}

/// The stored settings of a cluster.
#[derive(Debug)]
struct Stored {
    settings: SharedSettings,
    /// The cell with its timestamp.
    cell: Option<(u64, Bytes)>,
}

/// Reason of a retry after a lost race.
const RACED: &str = "other nodes change the settings";

/// Fails if a setting differs from the cluster's. Stores settings that the cluster lacks.
pub(crate) async fn check(
    table: &LogTable,
    own: &SharedSettings,
    deadline: Instant,
) -> Result<(), OpenLogError> {
    let checked = table.repeat_raced(deadline, RACED, async || {
        let stored = read(table).await?;
        let differences = own.differences(&stored.settings);
        if !differences.is_empty() {
            return Ok(Some(Err(OpenLogError::Settings(differences))));
        }
        let all = stored.settings.with_missing(own);
        let is_done = all == stored.settings || replace(table, stored, &all).await?;
        Ok(is_done.then_some(Ok(())))
    });
    checked.await?
}

/// Reads the settings of a cluster; `None` if the log table does not exist, or no node has started yet.
///
/// # Errors
///
/// If the table cannot be read, or is not the table of a log.
pub async fn stored_settings(
    client: &Client,
    config: &ClusterLogConfig,
) -> Result<Option<SharedSettings>, OpenLogError> {
    let Some(table) = log_table::find(client, config).await? else { return Ok(None) };
    let deadline = Instant::now() + config.start_timeout;
    let stored = read_until(&table, deadline).await?;
    Ok(stored.cell.map(|_| stored.settings))
}

/// Changes the settings of a cluster to the changeable settings of `config`, and returns the changes. If a
/// changed setting must be equal on all nodes at any time, all nodes must be stopped. Otherwise `speaks` checks
/// that the running nodes speak one of the new versions of messages.
///
/// # Errors
///
/// If another setting differs, a node runs that must be stopped, or the table cannot be used. Nothing is changed
/// then.
pub async fn adopt_settings(
    client: &Client,
    config: &ClusterLogConfig,
    speaks: impl AsyncFn(ClusterId, Vec<Member>) -> Result<(), MemberVersionsError>,
) -> Result<Vec<ChangedSetting>, OpenLogError> {
    let Some(table) = log_table::find(client, config).await? else { return Ok(Vec::new()) };
    let deadline = Instant::now() + config.start_timeout;
    let before = read_until(&table, deadline).await?.settings;
    let all = adopted(&config.shared, &before).map_err(OpenLogError::Settings)?;
    let changed = changes(&before, &all);
    if changed.is_empty() {
        return Ok(changed);
    }
    let must_stop =
        changed.iter().any(|change| [SLOT_TAGS, SLOT_TAG_UIDS].contains(&&*change.name));
    let settled = async || {
        let Some((cluster, mut members)) = all_listed(client, config).await? else {
            return Ok(());
        };
        members.retain(|member| member.state != MemberState::Left);
        if must_stop {
            return none_of(&members);
        }
        speaks(cluster, members).await.map_err(OpenLogError::Versions)
    };
    settled().await?;
    exchange(&table, deadline, &before, &all).await?;
    // A starting node compares its settings once more after it is listed. So either this check sees the node, or
    // the node sees the new settings.
    if let Err(error) = settled().await {
        exchange(&table, deadline, &all, &before).await?;
        return Err(error);
    }
    Ok(changed)
}

/// The settings of a cluster with the changeable values of `own`.
fn adopted(
    own: &SharedSettings,
    of_cluster: &SharedSettings,
) -> Result<SharedSettings, Vec<String>> {
    let is_changeable = |(name, _): &(&str, &str)| CHANGEABLE.contains(name);
    let (changeable, others): (Vec<_>, Vec<_>) = own.iter().partition(is_changeable);
    let all = SharedSettings::new(others).adopted_by(of_cluster)?;
    Ok(SharedSettings::new(changeable).with_missing(&all))
}

/// Replaces the settings `before` by `after`. The answer of an attempt may be lost, so the stored settings
/// decide.
async fn exchange(
    table: &LogTable,
    deadline: Instant,
    before: &SharedSettings,
    after: &SharedSettings,
) -> Result<(), StorageError> {
    let exchanged = table.repeat_raced(deadline, RACED, async || {
        let now = read(table).await?;
        let is_done = now.settings == *after
            || (now.settings == *before && replace(table, now, after).await?);
        Ok(is_done.then_some(()))
    });
    exchanged.await
}

fn changes(before: &SharedSettings, now: &SharedSettings) -> Vec<ChangedSetting> {
    let change = |(name, value): (&str, &str)| ChangedSetting {
        name: name.to_owned(),
        before: before.value(name).map(str::to_owned),
        now: value.to_owned(),
    };
    now.iter().filter(|(name, value)| before.value(name) != Some(*value)).map(change).collect()
}

fn none_of(members: &[Member]) -> Result<(), OpenLogError> {
    if members.is_empty() {
        return Ok(());
    }
    let names = members.iter().map(|member| member.name.clone());
    Err(OpenLogError::NotStopped(names.collect()))
}

async fn read_until(table: &LogTable, deadline: Instant) -> Result<Stored, StorageError> {
    table.repeat_raced(deadline, RACED, async || read(table).await.map(Some)).await
}

async fn read(table: &LogTable) -> Result<Stored, CallFailure> {
    let cell = table.timed_state_cell(SETTINGS).await?;
    let settings = match cell.as_ref().map(|(_, value)| SharedSettings::decode(value)) {
        None => SharedSettings::default(),
        Some(Some(found)) => found,
        Some(None) => return Err(damaged("the settings of the cluster are of another version")),
    };
    Ok(Stored { settings, cell })
}

/// Returns false if another node was first.
async fn replace(
    table: &LogTable,
    stored: Stored,
    all: &SharedSettings,
) -> Result<bool, CallFailure> {
    let (time, expected) = stored.cell.unzip();
    // The timestamp grows with each change.
    let time = time.map_or(0, |time| time + 1).max(all.count() as u64);
    let reply = table.swap_state_cell(SETTINGS, expected, (time, &*all.encode())).await?;
    Ok(reply == TableReply::Applied(true))
}
