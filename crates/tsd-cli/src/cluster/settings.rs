//! `tsdb cluster settings`: shows and changes the settings that all nodes share.

use std::fmt::Write as _;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tsd_cluster::SharedSettings;
use tsd_cluster_log::ChangedSetting;

use crate::{args::ClusterSettingsArgs, print_lines, store::ClusterSettings, tool::prepare};

/// Shows the settings, or changes them.
pub(super) async fn run(args: &ClusterSettingsArgs) -> anyhow::Result<()> {
    let (_, settings) = prepare(args.overrides.load()?)?;
    let cluster = ClusterSettings::find(&settings).await?;
    if args.adopt {
        let changed = cluster.adopt().await?;
        return Ok(print_lines(&if args.json {
            changed_json(&changed)
        } else {
            lines(&changed)?
        })?);
    }
    let stored = cluster.stored().await?;
    let stored = stored
        .with_context(|| format!("no node has stored settings in table {}", cluster.table()))?;
    let differences = cluster.own().differences(&stored);
    let text = if args.json { as_json(&stored, &differences) } else { as_lines(&stored)? };
    print_lines(&text)?;
    ensure!(differences.is_empty(), "{}", differences.join("; "));
    Ok(())
}

fn as_lines(stored: &SharedSettings) -> anyhow::Result<String> {
    let mut out = String::new();
    for (name, value) in stored.iter() {
        writeln!(out, "{name} = {value}")?;
    }
    Ok(out)
}

fn as_json(stored: &SharedSettings, differences: &[String]) -> String {
    let settings: Value = stored.iter().collect();
    format!("{:#}\n", json!({ "settings": settings, "differences": differences }))
}

fn lines(changed: &[ChangedSetting]) -> anyhow::Result<String> {
    let mut out = String::new();
    if changed.is_empty() {
        out.push_str("nothing differs\n");
    }
    for ChangedSetting { name, before, now } in changed {
        writeln!(out, "{name}: {} -> {now}", before.as_deref().unwrap_or("not set"))?;
    }
    Ok(out)
}

fn changed_json(changed: &[ChangedSetting]) -> String {
    let one = |change: &ChangedSetting| {
        let ChangedSetting { name, before, now } = change;
        json!({ "name": name, "before": before, "now": now })
    };
    format!("{:#}\n", json!({ "changed": changed.iter().map(one).collect::<Vec<_>>() }))
}
