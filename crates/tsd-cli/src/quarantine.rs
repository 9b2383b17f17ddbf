//! `tsdb quarantine`: lists damaged files of the store, and accepts their loss.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    io::{IsTerminal, stdin},
};

use anyhow::{Context, bail, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};
use tsd_engine::EngineHandle;
use tsd_server::quarantine_json;

use crate::{
    args::{QuarantineAcceptArgs, QuarantineCommand, QuarantineLocation},
    daemon_client::DaemonClient,
    json_fields::{elements, number, text},
    output::{print_result, utc, write_error},
    print_lines,
    store::Purpose,
    tool::{by_daemon_or_store, prepare, with_engine},
};

/// The store whose quarantine the command uses.
enum Store<'a> {
    Daemon(DaemonClient),
    Opened(&'a EngineHandle),
}

/// Runs the command on the daemon that has the store open, or on the store itself.
pub(crate) fn run(command: &QuarantineCommand) -> anyhow::Result<()> {
    let location = match command {
        QuarantineCommand::List(location) => location,
        QuarantineCommand::Accept(args) => &args.location,
    };
    let by_daemon = async |client| execute(Store::Daemon(client), command, location).await;
    by_daemon_or_store(location.url.as_deref(), "asking", by_daemon, || {
        let config =
            location.overrides.load_tool("tsdb quarantine without --log-level", "error")?;
        let (config, settings) = prepare(config)?;
        with_engine(&config, &settings, Purpose::Query, async |open| {
            execute(Store::Opened(&open.engine), command, location).await
        })
    })
}

async fn execute(
    mut store: Store<'_>,
    command: &QuarantineCommand,
    location: &QuarantineLocation,
) -> anyhow::Result<()> {
    let files = store.files().await?;
    match command {
        QuarantineCommand::List(_) => print_result(location.json, &files, || describe(&files))?,
        QuarantineCommand::Accept(args) => {
            let names = accepted_names(args, &files)?;
            if !names.is_empty() && !args.yes {
                confirm(&files, &names)?;
            }
            store.accept(&names).await?;
            if location.json {
                print_lines(&format!("{}\n", json!({ "accepted": names })))?;
            } else if names.is_empty() {
                print_lines("No file is in quarantine.\n")?;
            } else {
                let lines = names.iter().map(|name| format!("{name}: accepted and removed\n"));
                print_lines(&lines.collect::<String>())?;
            }
        }
    }
    Ok(())
}

impl Store<'_> {
    async fn files(&mut self) -> anyhow::Result<Value> {
        match self {
            Self::Opened(engine) => Ok(quarantine_json(&engine.quarantine().await)),
            Self::Daemon(daemon) => {
                let response = daemon.get("/api/quarantine").await?;
                daemon.json_of(&response)
            }
        }
    }

    async fn accept(&mut self, names: &[String]) -> anyhow::Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        match self {
            Self::Opened(engine) => {
                for name in names {
                    let accepted = engine.accept_loss(name).await?;
                    ensure!(accepted, "{name} is no longer in quarantine");
                }
            }
            Self::Daemon(daemon) => {
                let body = json!({ "files": names }).to_string();
                let response = daemon.post("/api/quarantine/accept", body).await?;
                daemon.check(&response)?;
            }
        }
        Ok(())
    }
}

/// The files that the command line names. Fails if a file is not in quarantine.
fn accepted_names(args: &QuarantineAcceptArgs, files: &Value) -> anyhow::Result<Vec<String>> {
    let known: Vec<&str> =
        files.as_array().into_iter().flatten().map(|file| text(file, "name")).collect();
    if args.all {
        return Ok(known.into_iter().map(str::to_owned).collect());
    }
    if let Some(unknown) = args.names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("file {unknown:?} is not in quarantine; `tsdb quarantine list` lists the files");
    }
    Ok(args.names.clone())
}

/// Asks the user on the terminal.
fn confirm(files: &Value, names: &[String]) -> anyhow::Result<()> {
    ensure!(
        stdin().is_terminal(),
        "standard input is not a terminal, so the command cannot ask; --yes accepts the loss without a question"
    );
    let chosen = files.as_array().into_iter().flatten();
    let chosen = chosen.filter(|file| names.iter().any(|name| name == text(file, "name")));
    let described = describe(&chosen.cloned().collect())?;
    write_error(format_args!("{described}Accept the loss and remove the damaged files? [y/N] "));
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    let accepted = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    ensure!(accepted, "nothing was accepted");
    Ok(())
}

/// Renders the files as text.
fn describe(files: &Value) -> anyhow::Result<String> {
    let files = files.as_array().context("the response is not a list of files")?;
    let mut out = String::new();
    if files.is_empty() {
        out.push_str("No file is in quarantine.\n");
    }
    for file in files {
        let name = text(file, "name");
        let since_ms = file.get("since").and_then(Value::as_i64).unwrap_or_default();
        writeln!(out, "{name}")?;
        writeln!(out, "  file   store/{}, {} bytes", text(file, "file"), number(file, "bytes"))?;
        writeln!(out, "  table  {}", text(file, "table"))?;
        writeln!(out, "  since  {}", utc(Timestamp::from_millisecond(since_ms)?))?;
        writeln!(out, "  cause  {}", text(file, "cause"))?;
        let lost = elements(file, "lost");
        // A metric has one range per salt bucket.
        let mut listed = BTreeSet::new();
        for range in lost {
            let range = describe_range(range)?;
            if listed.insert(range.clone()) {
                writeln!(out, "  lost   {range}")?;
            }
        }
        if let Some(extent) = file.get("extent").filter(|extent| extent.is_object()) {
            let count = |field| number(extent, field);
            let [points, all_points] = ["points", "allPoints"].map(count);
            let [blocks, all_blocks] = ["blocks", "allBlocks"].map(count);
            let rest =
                if points < all_points { "; the rest stays when this is accepted" } else { "" };
            writeln!(
                out,
                "  extent {points} of {all_points} points, in {blocks} of {all_blocks} blocks{rest}"
            )?;
        }
        if lost.is_empty() {
            writeln!(out, "  lost   nothing: the file was rebuilt")?;
            writeln!(out, "  to do  remove the damaged file: tsdb quarantine accept {name}")?;
        } else {
            writeln!(
                out,
                "  to do  put back a copy of the data directory, or let queries return what is \
                 left:\n         tsdb quarantine accept {name}"
            )?;
        }
    }
    Ok(out)
}

fn describe_range(range: &Value) -> anyhow::Result<String> {
    let names = range.get("metrics").and_then(Value::as_array);
    let names: Option<Vec<&str>> =
        names.map(|names| names.iter().filter_map(Value::as_str).collect());
    let mut out = match names.as_deref() {
        Some([metric]) => format!("points of metric {metric}"),
        Some(metrics) => format!("points of the metrics {}", metrics.join(", ")),
        None if range.get("from").is_some_and(Value::is_i64)
            && range.get("firstRow").is_none_or(Value::is_null) =>
        {
            "points of any metric".to_owned()
        }
        None => {
            let key = |field| range.get(field).and_then(Value::as_str);
            let first = key("firstRow").map_or("the start".to_owned(), |key| format!("row {key}"));
            let last = key("lastRow").map_or("the end".to_owned(), |key| format!("row {key}"));
            format!("cells of the table from {first} to {last}")
        }
    };
    let secs = |field| range.get(field).and_then(Value::as_i64);
    if let (Some(from), Some(to)) = (secs("from"), secs("to")) {
        let (from, to) = (Timestamp::from_second(from)?, Timestamp::from_second(to)?);
        write!(out, " from {} to {}", utc(from), utc(to))?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn files_are_described_with_what_was_lost_and_what_to_do() {
        let files = json!([
            {
                "name": "t.tsdb-7", "file": "t.tsdb/tables/7", "table": "tsdb", "bytes": 12,
                "cause": "data block at offset 40", "since": 1_600_000_000_123_i64, "loss": true,
                "lost": [
                    { "metrics": ["m"], "from": 1_599_998_400, "to": 1_600_002_000 },
                    { "metrics": ["a", "b"], "from": null, "to": null },
                    { "metrics": null, "firstRow": "0102", "lastRow": null },
                ],
            },
            {
                "name": "t.tsdb-8", "file": "t.tsdb/0000000008.part", "table": "tsdb", "bytes": 90,
                "cause": "checksum of a block at byte 8", "since": 0, "loss": true,
                "lost": [{ "metrics": null, "from": 1_599_955_200, "to": 1_600_041_600 }],
                "extent": { "points": 4, "allPoints": 100, "blocks": 1, "allBlocks": 12 },
            },
            {
                "name": "t.tsdb-v3", "file": "t.tsdb/v3", "table": "tsdb", "bytes": 1,
                "cause": "manifest: its checksum is wrong", "since": 0, "loss": false, "lost": [],
            },
        ]);
        insta::assert_snapshot!(describe(&files).unwrap());
        assert_eq!(describe(&json!([])).unwrap(), "No file is in quarantine.\n");
        assert!(describe(&json!({})).is_err());
    }
}
