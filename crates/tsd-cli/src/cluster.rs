//! `tsdb cluster`: shows, flushes and drains the nodes of a cluster through one of its daemons, and reads the list of
//! nodes and their shared settings in HBase.

mod members;
mod queries;
mod settings;

use std::fmt::Write as _;

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::{
    args::{ClusterCommand, ClusterLocation},
    columns::table,
    daemon_url::cluster_daemon,
    json_fields::{elements, number, text},
    output::print_result,
};

/// Titles of the columns of `tsdb cluster status`.
const TITLES: [&str; 11] = [
    "NODE",
    "STATE",
    "ADDRESS",
    "INCARNATION",
    "HEARTBEAT",
    "SLOTS",
    "LOG",
    "HELD ROWS",
    "HELD",
    "CLOCK",
    "VERSION",
];

/// Runs the command.
pub(crate) fn run(command: &ClusterCommand) -> anyhow::Result<()> {
    Runtime::new()?.block_on(async {
        match command {
            ClusterCommand::Status(location) => status(location).await,
            ClusterCommand::Flush(location) => flush(location).await,
            ClusterCommand::Queries(args) => queries::run(args).await,
            ClusterCommand::Drain(location) => drain(location).await,
            ClusterCommand::Members(args) => members::run(args).await,
            ClusterCommand::Settings(args) => settings::run(args).await,
        }
    })
}

async fn status(location: &ClusterLocation) -> anyhow::Result<()> {
    let mut daemon = cluster_daemon(location)?;
    let response = daemon.get("/api/cluster").await?;
    let status = daemon.json_of(&response)?;
    print_result(location.json, &status, || describe(&status))
}

async fn drain(location: &ClusterLocation) -> anyhow::Result<()> {
    let mut daemon = cluster_daemon(location)?;
    let response = daemon.post("/api/cluster/drain", "").await?;
    let drained = response.json();
    let Some(slots) = drained.get("slots").and_then(Value::as_u64) else {
        bail!("{}: {}", daemon.authority(), response.error_text());
    };
    print_result(location.json, &drained, || {
        Ok(format!("{slots} slots were given to other nodes\n"))
    })?;
    ensure!(response.status == 200, "{}: {}", daemon.authority(), text(&drained, "error"));
    Ok(())
}

async fn flush(location: &ClusterLocation) -> anyhow::Result<()> {
    let mut daemon = cluster_daemon(location)?;
    let response = daemon.post("/api/cluster/flush", "").await?;
    let flushed = response.json();
    let Some(nodes) = flushed.get("nodes").and_then(Value::as_array) else {
        bail!("{}: {}", daemon.authority(), response.error_text());
    };
    let line = |node: &Value| {
        let result = node.get("error").and_then(Value::as_str).unwrap_or("flushed");
        format!("{}: {result}\n", text(node, "name"))
    };
    print_result(location.json, &flushed, || Ok(nodes.iter().map(line).collect()))?;
    ensure!(response.status == 200, "some nodes have not flushed their rows");
    Ok(())
}

/// Renders the nodes as text: a table, the slots, then the problems of each node and why a node is silent.
fn describe(status: &Value) -> anyhow::Result<String> {
    let nodes = status.get("nodes").and_then(Value::as_array);
    let nodes = nodes.context("the response is not a list of nodes")?;
    let mut rows = vec![TITLES.map(str::to_owned)];
    rows.extend(nodes.iter().map(cells));
    let mut out = table(&rows)?;
    if let Some(slots) = status.get("slots").filter(|slots| slots.is_object()) {
        let [generation, moving, alone] =
            ["generation", "moving", "withoutOwner"].map(|field| number(slots, field));
        write!(out, "slots: generation {generation}, {moving} to be moved, ")?;
        writeln!(out, "{alone} without an owner")?;
    }
    for node in nodes {
        for hot in elements(node, "hotSlots") {
            let (percent, slot) = (number(hot, "percent"), number(hot, "slot"));
            let name = hot.get("name").and_then(Value::as_str).unwrap_or("unnamed series");
            writeln!(
                out,
                "{}: {percent} % of its points are in slot {slot}: {name}",
                text(node, "name")
            )?;
        }
        let reasons = elements(node, "problems").iter().chain(node.get("error"));
        for reason in reasons.filter_map(Value::as_str) {
            writeln!(out, "{}: {reason}", text(node, "name"))?;
        }
    }
    Ok(out)
}

/// The cells of a node's line; `-` for a value that the node has not reported.
fn cells(node: &Value) -> [String; 11] {
    let number = |field: &str| node.get(field).and_then(Value::as_i64);
    let shown = |number: Option<i64>, unit: &str| {
        number.map_or_else(|| "-".to_owned(), |number| format!("{number}{unit}"))
    };
    let bytes = |field: &str| shown(number(field).map(|bytes| bytes / 1_024), " KiB");
    let is_this = node.get("this").and_then(Value::as_bool).unwrap_or_default();
    let mark = if is_this { "*" } else { "" };
    let word = |field: &str| {
        let word = text(node, field);
        if word.is_empty() { "-".to_owned() } else { word.to_owned() }
    };
    [
        format!("{}{mark}", text(node, "name")),
        word("state"),
        word("address"),
        shown(number("incarnation"), ""),
        shown(number("heartbeatAgeMs"), " ms"),
        slots(node),
        bytes("logBytes"),
        shown(number("heldRows"), ""),
        bytes("heldBytes"),
        number("clockAheadMs").map_or_else(|| "-".to_owned(), |ms| format!("{ms:+} ms")),
        word("version"),
    ]
}

/// Number of slots, with the slots that move in and out.
fn slots(node: &Value) -> String {
    let number = |field: &str| node.get("slots")?.get(field)?.as_u64();
    let Some(owned) = number("owned") else { return "-".to_owned() };
    let moving = |sign: char, field: &str| match number(field) {
        None | Some(0) => String::new(),
        Some(count) => format!(" {sign}{count}"),
    };
    format!("{owned}{}{}", moving('+', "movingIn"), moving('-', "movingOut"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_are_lines_and_silent_ones_are_explained() {
        let status = json!({ "nodes": [
            {
                "name": "tsd0", "address": "10.0.0.1:4243", "state": "serving", "incarnation": 3,
                "this": true, "heartbeatAgeMs": 412, "logBytes": 4_096, "heldRows": 12,
                "heldBytes": 2_048, "version": "0.1.0", "clockAheadMs": 0, "problems": ["late"],
                "hotSlots": [{ "slot": 9, "percent": 43, "name": "web1" }],
                "error": null, "slots": { "owned": 340, "movingIn": 2, "movingOut": 1 },
            },
            {
                "name": "tsd1", "address": "", "state": "suspected", "incarnation": 5,
                "this": false, "heartbeatAgeMs": 6_100, "logBytes": 0, "heldRows": null,
                "heldBytes": null, "version": null, "clockAheadMs": null, "problems": null,
                "error": "no answer in time", "slots": null,
            },
        ], "silent": ["tsd1"], "slots": { "generation": 7, "moving": 3, "withoutOwner": 5 } });
        let text = describe(&status).unwrap();
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let [titles, first, second, slots, hot, problem, silent] = &lines[..] else {
            panic!("{text}")
        };
        assert_eq!(titles.first(), Some(&"NODE"));
        assert_eq!(
            first.join(" "),
            "tsd0* serving 10.0.0.1:4243 3 412 ms 340 +2 -1 4 KiB 12 2 KiB +0 ms 0.1.0"
        );
        assert_eq!(second.join(" "), "tsd1 suspected - 5 6100 ms - 0 KiB - - - -");
        let expected = "slots: generation 7, 3 to be moved, 5 without an owner";
        assert_eq!(slots.join(" "), expected);
        assert_eq!(hot.join(" "), "tsd0: 43 % of its points are in slot 9: web1");
        assert_eq!(problem.join(" "), "tsd0: late");
        assert_eq!(silent.join(" "), "tsd1: no answer in time");
    }
}
