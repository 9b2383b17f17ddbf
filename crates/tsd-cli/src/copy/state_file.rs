//! The state file of a copy. It keeps the progress, so that the same command continues there, and the start time, so
//! that `--since last` copies later cells.

use std::{collections::BTreeMap, fs, io, path::PathBuf};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use tsd_model::{from_hex, to_hex};
use tsd_tools::{CopiedRows, RangeProgress};

use crate::properties_file::replace_file;

/// Version of the file.
const FORMAT: u64 = 1;

/// A copy, in progress or complete.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CopyState {
    /// The selection and the two places.
    pub(super) scope: Value,
    /// Start of the copy, epoch milliseconds.
    pub(super) started_ms: i64,
    /// Only cells written since this time are copied, epoch milliseconds.
    pub(super) since_ms: Option<i64>,
    /// Older mappings of the target are copies, epoch milliseconds.
    pub(super) copied_before_ms: Option<i64>,
    /// True if newer cells of the target stay.
    pub(super) keeps_newer: bool,
    pub(super) is_complete: bool,
    pub(super) ranges: BTreeMap<String, RangeProgress>,
    /// Copied rows by table.
    pub(super) tables: BTreeMap<String, CopiedRows>,
}

/// The file of a state.
#[derive(Clone, Debug)]
pub(super) struct StateFile {
    pub(super) path: PathBuf,
}

impl StateFile {
    /// Reads the state, which must have the same scope; `None` without a file.
    pub(super) fn read(&self, scope: &Value) -> anyhow::Result<Option<CopyState>> {
        let shown = || format!("the state of the copy, {}", self.path.display());
        let text = match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.with_context(shown)?,
        };
        let state = parse(&text).with_context(shown)?;
        if state.scope != *scope {
            bail!(
                "{} belongs to another copy; name another file (--state), or start again with --restart\n\
                 there: {}\nhere:  {scope}",
                self.path.display(),
                state.scope
            );
        }
        Ok(Some(state))
    }

    /// Replaces the file, durably.
    pub(super) fn write(&self, state: &CopyState) -> anyhow::Result<()> {
        replace_file(&self.path, &format!("{:#}\n", render(state)))
            .with_context(|| format!("the state of the copy, {}", self.path.display()))
    }
}

fn render(state: &CopyState) -> Value {
    let range =
        |range: &RangeProgress| json!({ "row": to_hex(&range.row), "complete": range.is_complete });
    let ranges: Value = state.ranges.iter().map(|(name, of)| (name.as_str(), range(of))).collect();
    let tables: Value =
        state.tables.iter().map(|(name, rows)| (name.as_str(), rows_json(rows))).collect();
    json!({
        "format": FORMAT,
        "scope": state.scope,
        "startedMs": state.started_ms,
        "sinceMs": state.since_ms,
        "copiedBeforeMs": state.copied_before_ms,
        "keepsNewer": state.keeps_newer,
        "complete": state.is_complete,
        "tables": tables,
        "parts": ranges,
    })
}

/// Counters, as in the report.
pub(super) fn rows_json(rows: &CopiedRows) -> Value {
    json!({
        "rows": rows.rows,
        "cells": rows.cells,
        "bytes": rows.bytes,
        "keptCells": rows.kept_cells,
        "refusedRows": rows.refused_rows,
        "refusedCells": rows.refused_cells,
        "staleReferences": rows.stale_references,
    })
}

fn parse(text: &[u8]) -> anyhow::Result<CopyState> {
    let file: Value = serde_json::from_slice(text).context("this is not the state of a copy")?;
    let format =
        file.get("format").and_then(Value::as_u64).context("this is not the state of a copy")?;
    ensure!(format == FORMAT, "it has format {format}, this release reads {FORMAT}");
    let number = |key: &str| file.get(key).and_then(Value::as_i64);
    let flag = |key: &str| file.get(key).and_then(Value::as_bool);
    let object = |key: &str| file.get(key).and_then(Value::as_object).context("a part is missing");
    let range = |(name, range): (&String, &Value)| {
        let row = range.get("row").and_then(Value::as_str);
        let row = row
            .and_then(|row| from_hex(row.as_bytes()))
            .context("a row is not a hexadecimal key")?;
        let is_complete = range.get("complete").and_then(Value::as_bool).unwrap_or_default();
        Ok((name.clone(), RangeProgress { row: row.into(), is_complete }))
    };
    let rows = |(name, table): (&String, &Value)| {
        let count = |key: &str| table.get(key).and_then(Value::as_u64).unwrap_or_default();
        let rows = CopiedRows {
            rows: count("rows"),
            cells: count("cells"),
            bytes: count("bytes"),
            kept_cells: count("keptCells"),
            refused_rows: count("refusedRows"),
            refused_cells: count("refusedCells"),
            stale_references: count("staleReferences"),
        };
        (name.clone(), rows)
    };
    Ok(CopyState {
        scope: file.get("scope").cloned().context("it has no scope")?,
        started_ms: number("startedMs").context("it has no time")?,
        since_ms: number("sinceMs"),
        copied_before_ms: number("copiedBeforeMs"),
        keeps_newer: flag("keepsNewer").context("a part is missing")?,
        is_complete: flag("complete").context("a part is missing")?,
        ranges: object("parts")?.iter().map(range).collect::<anyhow::Result<_>>()?,
        tables: object("tables")?.iter().map(rows).collect(),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile { path: directory.path().join("state") };
        let scope = json!({ "from": "a" });
        assert_eq!(file.read(&scope).unwrap(), None);
        let progress = RangeProgress { row: vec![0, 0xAB].into(), is_complete: true };
        let rows = CopiedRows { rows: 3, refused_cells: 7, ..CopiedRows::default() };
        let state = CopyState {
            scope: scope.clone(),
            started_ms: 5,
            since_ms: Some(-1),
            copied_before_ms: Some(4),
            keeps_newer: true,
            is_complete: false,
            ranges: [("tsdb 01".to_owned(), progress)].into(),
            tables: [("tsdb".to_owned(), rows)].into(),
        };
        file.write(&state).unwrap();
        assert_eq!(file.read(&scope).unwrap(), Some(state));
        let other = file.read(&json!({ "from": "b" })).unwrap_err().to_string();
        assert!(other.contains("belongs to another copy"), "{other}");
        fs::write(&file.path, "[1").unwrap();
        assert!(format!("{:#}", file.read(&scope).unwrap_err()).contains("not the state"));
        fs::write(&file.path, r#"{"format":2}"#).unwrap();
        assert!(format!("{:#}", file.read(&scope).unwrap_err()).contains("format 2"));
    }
}
