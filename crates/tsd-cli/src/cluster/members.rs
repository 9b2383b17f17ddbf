//! `tsdb cluster members`: lists the nodes in the log table, without a daemon.

use anyhow::Context;
use serde_json::{Value, json};
use tsd_cluster::Member;

use crate::columns::table;
use crate::{
    args::ClusterMembersArgs, output::print_result, store::ClusterSettings, tool::prepare,
};

const TITLES: [&str; 6] = ["NODE", "STATE", "ADDRESS", "INCARNATION", "HEARTBEAT", "LOG"];

/// Prints the nodes.
pub(super) async fn run(args: &ClusterMembersArgs) -> anyhow::Result<()> {
    let (_, settings) = prepare(args.overrides.load()?)?;
    let cluster = ClusterSettings::find(&settings).await?;
    let members = cluster.members().await?;
    let members = members
        .with_context(|| format!("there is no table {}: no node has started", cluster.table()))?;
    let nodes: Vec<Value> = members.iter().map(as_json).collect();
    print_result(args.json, &json!({ "nodes": nodes }), || {
        let mut rows = vec![TITLES.map(str::to_owned)];
        rows.extend(members.iter().map(cells));
        Ok(table(&rows)?)
    })
}

fn as_json((member, state): &(Member, &'static str)) -> Value {
    json!({
        "name": member.name,
        "state": state,
        "address": member.address,
        "incarnation": member.incarnation,
        "heartbeatAgeMs": member.heartbeat_age.as_millis() as u64,
        "logBytes": member.log_bytes,
    })
}

fn cells((member, state): &(Member, &'static str)) -> [String; 6] {
    [
        member.name.clone(),
        (*state).to_owned(),
        member.address.clone().unwrap_or_else(|| "-".to_owned()),
        member.incarnation.to_string(),
        format!("{} ms", member.heartbeat_age.as_millis()),
        format!("{} KiB", member.log_bytes / 1_024),
    ]
}
