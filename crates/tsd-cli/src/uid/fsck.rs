//! `tsdb uid fsck`: checks the UID table, with OpenTSDB's output.

use serde_json::json;
use tsd_engine::EngineHandle;
use tsd_tools::{FsckLevel, UidFsckOptions, UidFsckReport, uid_fsck};

use super::{
    command::UidFlags,
    output::UidOutput,
    status::{FAILED, NOT_CLOSED, fail},
};
use crate::tell;

/// Runs the check. The exit status is the number of errors, as in OpenTSDB, but at most 255: a shell keeps eight
/// bits, and 256 errors must not look like success.
pub(super) async fn fsck(
    engine: &EngineHandle,
    options: UidFsckOptions,
    flags: UidFlags,
    out: &mut UidOutput<'_>,
) -> u8 {
    let mut found = |level: FsckLevel, text: &str| {
        if level == FsckLevel::Info && !flags.verbose {
            return;
        }
        let line = format!("{level} {text}");
        if flags.json {
            tell!("{line}");
        } else {
            out.line(&line);
        }
    };
    let checked = uid_fsck(engine, options, &mut found).await;
    match checked {
        Ok(report) => {
            if flags.json {
                out.object(&as_json(&report));
            } else {
                let UidFsckReport { cells, errors, warnings, repairs, .. } = report;
                tell!(
                    "{cells} cells checked: {errors} errors, {warnings} warnings, {repairs} repairs"
                );
            }
            if report.has_failed_repair { NOT_CLOSED } else { exit_status(&report) }
        }
        Err(error) => fail(&error.into(), FAILED),
    }
}

fn exit_status(report: &UidFsckReport) -> u8 {
    u8::try_from(report.errors).unwrap_or(u8::MAX)
}

fn as_json(report: &UidFsckReport) -> serde_json::Value {
    let UidFsckReport { cells, errors, warnings, repairs, has_failed_repair } = *report;
    json!({
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
