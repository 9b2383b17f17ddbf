//! `tsdb snapshot`: makes a consistent copy of the embedded store while it is in use.

use std::{
    fs,
    path::{Path, PathBuf, absolute},
};

use anyhow::{Context, bail, ensure};
use indicatif::HumanBytes;
use serde_json::{Value, json};
use tsd_engine::{EngineHandle, SnapshotRequest};
use tsd_server::snapshot_json;

use crate::{
    args::SnapshotArgs,
    config::{EngineKind, Settings},
    console::Console,
    daemon_client::DaemonClient,
    json_fields::number,
    print_lines,
    store::Purpose,
    tell,
    tool::{by_daemon_or_store, prepare, with_engine},
};

/// What a stopped command says.
const NOT_KEPT: &str = "nothing of the snapshot was kept";

/// Runs the command on the daemon that has the store open, or on the store itself.
pub(crate) fn run(args: &SnapshotArgs) -> anyhow::Result<()> {
    let whole = |path: &Path| absolute(path).with_context(|| format!("path {}", path.display()));
    let request = SnapshotRequest {
        target: whole(&args.target)?,
        base: args.base.as_deref().map(whole).transpose()?,
        copy: args.copy,
        allow_damage: args.allow_damage,
    };
    let by_daemon = async |client| print(args, &take_from_daemon(client, &request).await?);
    by_daemon_or_store(args.url.as_deref(), "taking the snapshot", by_daemon, || {
        let config = args.overrides.load_tool("tsdb snapshot without --log-level", "error")?;
        let (config, settings) = prepare(config)?;
        require_embedded(&settings, "snapshot")?;
        require_outside(&request.target, &settings.storage.data_directory)?;
        with_engine(&config, &settings, Purpose::Query, async |open| {
            print(args, &take(&open.engine, request.clone()).await?)
        })
    })
}

/// Fails with advice if the points are not in the embedded store.
pub(crate) fn require_embedded(settings: &Settings, command: &str) -> anyhow::Result<()> {
    match settings.storage.engine {
        EngineKind::Embedded => Ok(()),
        EngineKind::HBase => bail!(
            "`tsdb {command}` is for the embedded store; the points are in HBase, which has snapshots of its own: \
             `snapshot` and `restore_snapshot` of each table in `hbase shell`"
        ),
        EngineKind::Memory => bail!("the store is in memory; there is nothing to {command}"),
    }
}

/// Fails if the snapshot would be inside the data directory, and would be lost with it.
fn require_outside(target: &Path, data: &Path) -> anyhow::Result<()> {
    let place = target.ancestors().find_map(|above| fs::canonicalize(above).ok());
    let is_inside =
        fs::canonicalize(data).is_ok_and(|data| place.is_some_and(|place| place.starts_with(data)));
    ensure!(
        !is_inside,
        "{} is in the data directory {}, and would be lost with it; name a directory outside",
        target.display(),
        data.display()
    );
    Ok(())
}

async fn take(engine: &EngineHandle, request: SnapshotRequest) -> anyhow::Result<Value> {
    let console = Console::new("snapshot", false, true);
    let taking = engine.snapshot(request, env!("CARGO_PKG_VERSION"));
    let show = async || {
        if let Some(progress) = engine.snapshot_progress() {
            console.show_bytes(progress.bytes(), progress.total_bytes(), "");
        }
    };
    Ok(snapshot_json(&console.watch(taking, show, NOT_KEPT).await??))
}

async fn take_from_daemon(
    client: DaemonClient,
    request: &SnapshotRequest,
) -> anyhow::Result<Value> {
    let console = Console::new("snapshot", false, true);
    // The progress replaces the notices.
    let mut client = client.without_notices();
    let mut watch = client.another();
    let text = |path: &PathBuf| path.to_string_lossy().into_owned();
    let body = json!({
        "target": text(&request.target),
        "base": request.base.as_ref().map(text),
        "copy": request.copy,
        "allowDamage": request.allow_damage,
    });
    let show = async || {
        // Only for the display; the other request has the result.
        let Ok(response) = watch.get("/api/snapshot").await else { return };
        let progress = response.json();
        let number = |name| progress.get("running")?.get(name)?.as_u64();
        if let (Some(bytes), Some(total)) = (number("bytes"), number("totalBytes")) {
            console.show_bytes(bytes, total, "");
        }
    };
    // The daemon cancels the snapshot when its connection is closed.
    let taking = client.post("/api/snapshot", body.to_string());
    let response = console.watch(taking, show, NOT_KEPT).await??;
    client.json_of(&response)
}

fn print(args: &SnapshotArgs, report: &Value) -> anyhow::Result<()> {
    let text = |name| report.get(name).and_then(Value::as_str);
    if let Some(removed) = text("removed") {
        tell!("tsdb: removed {removed} of an interrupted snapshot");
    }
    let damaged = report.get("damaged").and_then(Value::as_array).context("no report")?;
    if !damaged.is_empty() {
        let names: Vec<&str> = damaged.iter().filter_map(Value::as_str).collect();
        tell!(
            "tsdb: the snapshot lacks the lost contents of damaged files: {}; `tsdb quarantine list` describes them",
            names.join(", ")
        );
    }
    if args.json {
        return Ok(print_lines(&format!("{report}\n"))?);
    }
    let bytes = |name| HumanBytes(number(report, name));
    Ok(print_lines(&format!(
        "Snapshot {}: {} files, {} (linked {}, linked to the base {}, copied {})\n",
        text("target").unwrap_or_default(),
        number(report, "files"),
        bytes("bytes"),
        bytes("linkedBytes"),
        bytes("baseBytes"),
        bytes("copiedBytes"),
    ))?)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_snapshot_is_outside_of_the_data_directory() {
        let directory = tempfile::tempdir().unwrap();
        let (data, link) = (directory.path().join("data"), directory.path().join("link"));
        fs::create_dir_all(data.join("there")).unwrap();
        std::os::unix::fs::symlink(&data, &link).unwrap();
        for inside in [data.clone(), data.join("there"), data.join("new/deep"), link.join("new")] {
            assert!(require_outside(&inside, &data).is_err(), "{}", inside.display());
        }
        for outside in [directory.path().join("data2"), data.join("../new")] {
            assert!(require_outside(&outside, &data).is_ok(), "{}", outside.display());
        }
        assert!(require_outside(&data, &directory.path().join("missing")).is_ok());
    }
}
