//! `tsdb uid fsck`: checks the UID table, with OpenTSDB's output.

use serde_json::json;
use tsd_engine::EngineHandle;
use tsd_tools::{FsckLevel, UidFsckObserver, UidFsckOptions, UidFsckReport, uid_fsck};

use super::{
    command::UidFlags,
    output::UidOutput,
    status::{FAILED, NOT_CLOSED, fail, stopped},
};
use crate::{
    console::{Console, Stopped},
    tell,
};

/// Prints findings and shows the progress.
struct UidFsckProgress<'p, 'o> {
    console: &'p Console,
    flags: UidFlags,
    out: &'p mut UidOutput<'o>,
    findings: u64,
}

impl UidFsckObserver for UidFsckProgress<'_, '_> {
    fn found(&mut self, level: FsckLevel, text: &str) {
        self.findings += u64::from(level != FsckLevel::Info);
        if level == FsckLevel::Info && !self.flags.verbose {
            return;
        }
        self.console.suspend(|| {
            if self.flags.json {
                tell!("{level} {text}");
            } else {
                self.out.line(&format!("{level} {text}"));
            }
        });
    }

    fn continues(&mut self, rows: u64) -> bool {
        self.console.show(None, &[(rows, "rows")], &format!(", {} findings", self.findings));
        self.console.stop.signal().is_none()
    }
}

/// Runs the check. The exit status is the number of errors, as in OpenTSDB, but at most 255: a shell keeps eight
/// bits, and 256 errors must not look like success.
pub(super) async fn fsck(
    engine: &EngineHandle,
    options: UidFsckOptions,
    flags: UidFlags,
    out: &mut UidOutput<'_>,
) -> u8 {
    let console = Console::new("uid fsck", flags.json, flags.stops_on_signals);
    let mut progress = UidFsckProgress { console: &console, flags, out, findings: 0 };
    let checked = uid_fsck(engine, options, &mut progress).await;
    let signal = console.stop.signal();
    drop(console);
    let report = match checked {
        Ok(report) => report,
        Err(error) => return fail(&error.into(), FAILED),
    };
    if flags.json {
        out.object(&as_json(&report));
    } else {
        let UidFsckReport { cells, errors, warnings, repairs, .. } = report;
        tell!("{cells} cells checked: {errors} errors, {warnings} warnings, {repairs} repairs");
    }
    match signal.filter(|_| report.is_stopped) {
        Some(signal) => stopped(&Stopped { signal, hint: "run the same command again" }),
        None if report.has_failed_repair => NOT_CLOSED,
        None => exit_status(&report),
    }
}

fn exit_status(report: &UidFsckReport) -> u8 {
    u8::try_from(report.errors).unwrap_or(u8::MAX)
}

fn as_json(report: &UidFsckReport) -> serde_json::Value {
    let UidFsckReport { cells, errors, warnings, repairs, has_failed_repair, is_stopped } = *report;
    json!({
        "completed": !is_stopped,
        "cells": cells,
        "errors": errors,
        "warnings": warnings,
        "repairs": repairs,
        "failedRepair": has_failed_repair,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_errors_do_not_look_like_none() {
        let status = |errors| exit_status(&UidFsckReport { errors, ..UidFsckReport::default() });
        assert_eq!([status(0), status(7), status(255), status(256)], [0, 7, 255, 255]);
    }
}
