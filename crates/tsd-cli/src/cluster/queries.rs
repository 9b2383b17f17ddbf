//! `tsdb cluster queries`: lists the queries that run on all nodes, and cancels one of them.

use std::fmt::Write as _;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::columns::table;
use crate::{
    args::ClusterQueriesArgs,
    daemon_url::cluster_daemon,
    json_fields::{elements, number, text},
    output::print_result,
    print_lines,
};

/// Titles of the columns.
const TITLES: [&str; 7] = ["ID", "NODE", "FOR", "ROWS", "STAGE", "CLIENT", "QUERY"];
/// Maximum characters shown of a query.
const QUERY_CHARS: usize = 100;

/// Lists the queries, or cancels one.
pub(super) async fn run(args: &ClusterQueriesArgs) -> anyhow::Result<()> {
    let mut daemon = cluster_daemon(&args.location)?;
    if let Some(id) = &args.cancel {
        ensure!(
            !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'),
            "{id:?} is not the id of a query; `tsdb cluster queries` lists them"
        );
        let response = daemon.delete(&format!("/api/cluster/queries?id={id}")).await?;
        daemon.check(&response)?;
        let cancelled = response.json();
        return Ok(print_lines(&format!("cancelled {id} on {}\n", text(&cancelled, "node")))?);
    }
    let response = daemon.get("/api/cluster/queries").await?;
    let list = daemon.json_of(&response)?;
    print_result(args.location.json, &list, || describe(&list))
}

/// Renders the queries as text: a table, then why a node is silent.
fn describe(list: &Value) -> anyhow::Result<String> {
    let nodes = list.get("nodes").and_then(Value::as_array);
    let nodes = nodes.context("the response is not a list of nodes")?;
    let mut rows = vec![TITLES.map(str::to_owned)];
    for node in nodes {
        let running = elements(node, "running").iter();
        rows.extend(running.map(|query| cells(text(node, "name"), query)));
    }
    let mut out = table(&rows)?;
    for node in nodes {
        if let Some(error) = node.get("error").and_then(Value::as_str) {
            writeln!(out, "{}: {error}", text(node, "name"))?;
        }
        let omitted = number(node, "omitted");
        if omitted > 0 {
            writeln!(out, "{}: {omitted} more", text(node, "name"))?;
        }
    }
    Ok(out)
}

fn cells(node: &str, query: &Value) -> [String; 7] {
    let user = query.get("user").and_then(Value::as_str);
    let remote = text(query, "remote");
    let rows = query.pointer("/progress/rowsFromStorage").and_then(Value::as_u64);
    let elapsed_ms = query.get("elapsed").and_then(Value::as_f64).unwrap_or_default();
    let body = query.get("query").map(Value::to_string).unwrap_or_default();
    [
        text(query, "clusterId").to_owned(),
        node.to_owned(),
        format!("{:.1} s", elapsed_ms / 1_000.0),
        rows.unwrap_or_default().to_string(),
        text(query, "stage").to_owned(),
        user.map_or_else(|| remote.to_owned(), |user| format!("{user}@{remote}")),
        body.chars().take(QUERY_CHARS).collect(),
    ]
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    #[test]
    fn queries_of_all_nodes_are_lines() {
        let list = json!({ "nodes": [
            {
                "name": "tsd0", "omitted": 3, "error": null,
                "running": [{
                    "clusterId": "3-7", "elapsed": 1_234.0, "remote": "10.0.0.9:5", "user": "ann",
                    "stage": "queued", "progress": { "rowsFromStorage": 12 },
                    "query": { "start": "1h-ago" },
                }],
            },
            { "name": "tsd1", "running": [], "omitted": 0, "error": "no answer in time" },
        ], "silent": ["tsd1"] });
        let text = describe(&list).unwrap();
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<&str>>().join(" "))
            .collect();
        let expected = [
            "ID NODE FOR ROWS STAGE CLIENT QUERY",
            r#"3-7 tsd0 1.2 s 12 queued ann@10.0.0.9:5 {"start":"1h-ago"}"#,
            "tsd0: 3 more",
            "tsd1: no answer in time",
        ];
        assert_eq!(lines, expected);
    }
}
