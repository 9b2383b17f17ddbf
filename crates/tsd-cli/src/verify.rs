//! `tsdb verify`: checks all files of the store, and repairs them.

use std::{fmt::Write as _, process::ExitCode, sync::Arc};

use anyhow::anyhow;
use indicatif::HumanBytes;
use serde_json::{Value, json};
use tsd_engine::{RepairOutcome, Verification, VerificationFinding, VerificationStatus};
use tsd_server::verification_json;
use tsd_storage::Verifier;

use crate::{
    args::VerifyArgs,
    console::{Console, POLL_INTERVAL},
    daemon_client::DaemonClient,
    json_fields::{elements, number, text},
    output::print_result,
    store::offline::DirectoryVerifier,
    tool::{by_daemon_or_store, checked, prepare},
};

/// What a stopped command says.
const REPEAT: &str = "run the same command again to check all files";

/// Runs the command through the daemon that has the directory open, or on the directory.
pub(crate) fn main(args: &VerifyArgs) -> ExitCode {
    checked(run(args).and_then(|result| {
        print_result(args.json, &result, || Ok(describe(&result, args)))?;
        Ok(!is_damaged(&result))
    }))
}

fn run(args: &VerifyArgs) -> anyhow::Result<Value> {
    let repairs = args.repair && args.yes;
    let by_daemon = async |client| {
        verify_by_daemon(client, repairs, &Console::new("verify", args.json, true)).await
    };
    by_daemon_or_store(args.url.as_deref(), "verifying", by_daemon, || {
        let config = args.overrides.load_tool("tsdb verify without --log-level", "error")?;
        let (config, settings) = prepare(config)?;
        let directory = DirectoryVerifier::open(&config, &settings)?;
        verify_directory(directory, repairs, &Console::new("verify", args.json, true))
    })
}

async fn verify_by_daemon(
    mut daemon: DaemonClient,
    repairs: bool,
    console: &Console,
) -> anyhow::Result<Value> {
    let body = json!({ "repair": repairs }).to_string();
    let started = daemon.post("/api/verify", body).await?;
    daemon.check(&started)?;
    loop {
        if let Err(stopped) = console.stop.check(REPEAT) {
            daemon.post("/api/verify/stop", "").await?;
            return Err(stopped.into());
        }
        let response = daemon.get("/api/verify").await?;
        if let Some(result) = ended(console, daemon.json_of(&response)?)? {
            return Ok(result);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Verifies the directory; with damage and `repairs`, opens the store and repairs it.
fn verify_directory(
    directory: DirectoryVerifier,
    repairs: bool,
    console: &Console,
) -> anyhow::Result<Value> {
    let directory = Arc::new(directory);
    let verifier = Arc::<DirectoryVerifier>::clone(&directory);
    // Rebuilds unreadable manifests before the store is opened.
    let found = watch(verifier, repairs, console)?;
    let has_failed =
        |found: &VerificationFinding| matches!(found.outcome, RepairOutcome::Failed(_));
    let needs_store = found.findings.iter().any(|found| found.finding.action.is_some());
    // The store cannot be opened without its manifests.
    if !repairs || !needs_store || found.findings.iter().any(has_failed) {
        return Ok(verification_json(&found));
    }
    let store = directory.open_store()?;
    let repaired = watch(store.verifier(), true, console)?;
    drop(store);
    Ok(verification_json(&merged(found, &repaired)))
}

/// The first findings with the results of the open store's repair. Opening the store has restored files that are not
/// found again.
fn merged(mut found: VerificationStatus, repaired: &VerificationStatus) -> VerificationStatus {
    for first in &mut found.findings {
        first.outcome = RepairOutcome::Open;
        if first.finding.action.is_none() {
            continue;
        }
        let again = repaired.findings.iter().filter(|other| is_same_file(other, first));
        let open = again.map(|other| &other.outcome).find(|o| **o != RepairOutcome::Repaired);
        first.outcome = open.cloned().unwrap_or(RepairOutcome::Repaired);
    }
    // Findings of the open store only.
    for other in &repaired.findings {
        if !found.findings.iter().any(|first| is_same_file(first, other)) {
            found.found += 1;
            found.findings.push(other.clone());
        }
    }
    found.stage = repaired.stage.clone();
    found
}

/// True if both findings are about the same file. A file in quarantine has another name.
fn is_same_file(a: &VerificationFinding, b: &VerificationFinding) -> bool {
    let name = |found: &VerificationFinding| {
        let file = &found.finding.file;
        file.strip_suffix(".damaged").unwrap_or(file).to_owned()
    };
    name(a) == name(b)
}

fn watch(
    verifier: Arc<dyn Verifier>,
    repairs: bool,
    console: &Console,
) -> anyhow::Result<VerificationStatus> {
    let verification = Verification::start(verifier, repairs, false, || {})?;
    console.begin("verify");
    loop {
        // After a signal, the drop of the verification stops it.
        console.stop.check(REPEAT)?;
        let status = verification.status();
        if ended(console, verification_json(&status))?.is_some() {
            return Ok(status);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn is_repaired(finding: &Value) -> bool {
    finding.get("repaired").and_then(Value::as_bool).unwrap_or_default()
}

/// True if damage was not repaired.
fn is_damaged(result: &Value) -> bool {
    let listed = elements(result, "findings");
    !listed.iter().all(is_repaired) || number(result, "found") > listed.len() as u64
}

/// Shows a status; returns it if it is the last one.
fn ended(console: &Console, status: Value) -> anyhow::Result<Option<Value>> {
    let state = text(&status, "state");
    let note = format!(", {state}, {} found", number(&status, "found"));
    console.show_bytes(number(&status, "bytes"), number(&status, "totalBytes"), &note);
    match state {
        "done" => Ok(Some(status)),
        "failed" => Err(anyhow!("the verification did not complete: {}", text(&status, "error"))),
        _ => Ok(None),
    }
}

/// Renders the result as text.
fn describe(result: &Value, args: &VerifyArgs) -> String {
    let mut out = String::new();
    let findings = elements(result, "findings");
    for finding in findings {
        let text = |field: &str| finding.get(field).and_then(Value::as_str);
        let _ = writeln!(out, "{}", text("file").unwrap_or_default());
        let _ = writeln!(out, "  damage  {}", text("damage").unwrap_or_default());
        let _ = writeln!(out, "  cost    {}", text("cost").unwrap_or_default());
        let action = text("action").unwrap_or("not by this command");
        let _ = writeln!(out, "  repair  {action}");
        if let Some(error) = text("error") {
            let _ = writeln!(out, "  result  failed: {error}");
        } else if is_repaired(finding) {
            let _ = writeln!(out, "  result  done");
        }
    }
    let found = number(result, "found");
    if found > findings.len() as u64 {
        let _ = writeln!(out, "and {} more", found - findings.len() as u64);
    }
    let secs = result.get("seconds").and_then(Value::as_f64).unwrap_or_default();
    let read = format!("{} read in {secs:.1} s", HumanBytes(number(result, "bytes")));
    let _ = match (found, args.repair, args.yes) {
        (0, ..) => writeln!(out, "No damage found: {read}."),
        (_, true, true) => writeln!(out, "{found} damaged, {read}."),
        (_, true, false) => {
            writeln!(
                out,
                "{found} damaged, {read}. Nothing was changed: --yes makes the listed repairs."
            )
        }
        _ => writeln!(
            out,
            "{found} damaged, {read}. Nothing was changed: --repair lists the repairs."
        ),
    };
    out
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::time::Duration;

    use clap::Parser as _;
    use tsd_engine::VerificationStage;
    use tsd_storage::{RepairAction, VerifyFinding};

    use super::*;
    use crate::args::{Cli, Command};

    fn args(words: &[&str]) -> VerifyArgs {
        match Cli::try_parse_from([&["tsdb", "verify"], words].concat()).unwrap().command {
            Command::Verify(args) => args,
            _ => unreachable!(),
        }
    }

    fn found(
        file: &str,
        action: Option<RepairAction>,
        outcome: RepairOutcome,
    ) -> VerificationFinding {
        let (file, what) = (file.to_owned(), "checksum of a block at byte 8".to_owned());
        let cost = "4 of 100 points of 2013-01-01".to_owned();
        VerificationFinding { finding: VerifyFinding { file, what, cost, action }, outcome }
    }

    fn status(findings: Vec<VerificationFinding>) -> VerificationStatus {
        VerificationStatus {
            stage: VerificationStage::Done,
            done_bytes: 3_000_000,
            total_bytes: 3_000_000,
            duration: Duration::from_millis(1_500),
            found: findings.len() as u64,
            findings,
        }
    }

    #[test]
    fn findings_are_described_with_cost_and_repair() {
        let name = || Some(RepairAction::AcceptLoss { name: "t.tsdb-1".to_owned() });
        let failed = RepairOutcome::Failed("no space left on the data disk".to_owned());
        let found = status(vec![
            found("/d/store/a.part", name(), RepairOutcome::Repaired),
            found("/d/store/b.part", name(), failed),
            found("/d/log/1.wal", None, RepairOutcome::Open),
        ]);
        let json = verification_json(&found);
        assert!(is_damaged(&json));
        insta::assert_snapshot!(describe(&json, &args(&["--repair", "--yes"])));
        let clean = verification_json(&status(Vec::new()));
        assert!(!is_damaged(&clean));
        assert_eq!(describe(&clean, &args(&[])), "No damage found: 2.86 MiB read in 1.5 s.\n");
    }

    #[test]
    fn what_is_not_found_again_was_restored_by_the_open_store() {
        let action = || Some(RepairAction::Reopen);
        let first = status(vec![
            found("/d/a.part", action(), RepairOutcome::Repaired),
            found("/d/b.part", action(), RepairOutcome::Repaired),
            found("/d/1.wal", None, RepairOutcome::Open),
        ]);
        let failed = RepairOutcome::Failed("full".to_owned());
        let again = status(vec![
            found("/d/b.part.damaged", action(), failed.clone()),
            found("/d/c", action(), RepairOutcome::Repaired),
        ]);
        let merged = merged(first, &again);
        let outcomes: Vec<_> = merged.findings.into_iter().map(|found| found.outcome).collect();
        let (repaired, open) = (RepairOutcome::Repaired, RepairOutcome::Open);
        assert_eq!(outcomes, [repaired.clone(), failed, open, repaired]);
        assert_eq!(merged.found, 4);
    }

    #[test]
    fn more_findings_than_are_listed_are_damage() {
        let mut found = status(Vec::new());
        found.found = 1;
        assert!(is_damaged(&verification_json(&found)));
    }
}
