//! The UIDs of the slot tags, which place the series of a cluster.
//!
//! The first node looks them up, or assigns them, and stores them with the settings of the cluster. From then on all
//! nodes use the stored ones, so a rename of a tag key moves no series.

use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use hbase_rs::Client;
use tsd_cluster::{KeyWidths, SLOT_TAG_UIDS, SLOT_TAGS, SharedSettings, SlotRule};
use tsd_cluster_log::{ClusterLogConfig, stored_settings};
use tsd_engine::{UidKind, UidTable};
use tsd_model::{TableSchema, encode_latin1};
use tsd_storage::Storage;

use crate::config::Settings;

/// Returns the configuration of the log with the UIDs of the slot tags: those of the cluster if it has the same slot
/// tags, else those of the UID table. If the cluster has others, the start fails later and says so; then
/// `assigns` must be false.
pub(super) async fn with_uids(
    client: &Client,
    config: ClusterLogConfig,
    uids: &UidTable,
    assigns: bool,
) -> anyhow::Result<ClusterLogConfig> {
    let stored = Box::pin(stored_settings(client, &config)).await?;
    let tags = config.shared.value(SLOT_TAGS);
    let of_cluster = stored
        .as_ref()
        .and_then(|stored| Some((stored.value(SLOT_TAGS)?, stored.value(SLOT_TAG_UIDS)?)));
    let text = match of_cluster {
        Some((theirs, uids)) if Some(theirs) == tags => uids.to_owned(),
        Some(_) if !assigns => return Ok(config),
        _ => assigned(uids, tags.unwrap_or_default()).await?,
    };
    let shared = config.shared.clone().with(SLOT_TAG_UIDS, text);
    Ok(ClusterLogConfig { shared, ..config })
}

/// The UIDs of the UID table, assigned if necessary, as the cluster stores them.
async fn assigned(uids: &UidTable, tags: &str) -> anyhow::Result<String> {
    let names = slot_tags(tags).map(|tag| Ok(Bytes::from(encode_latin1(tag)?)));
    let names = names.collect::<anyhow::Result<Vec<_>>>()?;
    let found = uids.get_or_assign(UidKind::Tagk, &names).await;
    let found = found.context("cannot get UIDs for the tag keys of tsd.cluster.slot_tags")?;
    let found: Vec<&[u8]> = found.iter().map(tsd_model::Uid::as_bytes).collect();
    let rule = SlotRule::try_new(widths(uids.schema), &found);
    Ok(rule.context("the UIDs of tsd.cluster.slot_tags have another width")?.uid_text())
}

/// Text of slot tags as all nodes have it.
pub(super) fn text_of(tags: &[String]) -> String {
    if tags.is_empty() { NOT_SET.to_owned() } else { tags.join(", ") }
}

const NOT_SET: &str = "not set";

fn slot_tags(text: &str) -> impl Iterator<Item = &str> {
    text.split(", ").filter(|tag| !tag.is_empty() && *tag != NOT_SET)
}

/// The slot rule of the settings that this node has in common with the cluster.
pub(super) fn rule(schema: TableSchema, shared: &SharedSettings) -> anyhow::Result<Arc<SlotRule>> {
    let text = shared.value(SLOT_TAG_UIDS).unwrap_or_default();
    let rule = SlotRule::parse(widths(schema), text);
    let rule = rule.with_context(|| format!("{SLOT_TAG_UIDS} of the cluster is {text:?}"))?;
    Ok(Arc::new(rule))
}

const fn widths(schema: TableSchema) -> KeyWidths {
    KeyWidths {
        salt: schema.salt_width(),
        metric: schema.metric_width(),
        tagk: schema.tagk_width(),
        tagv: schema.tagv_width(),
    }
}

/// The UID table of a store.
pub(super) fn uid_table(settings: &Settings, storage: Arc<dyn Storage>) -> UidTable {
    UidTable { storage, table: settings.engine.tables.uid.clone(), schema: settings.storage.schema }
}
