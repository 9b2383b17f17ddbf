//! Renders the report of a copy as lines or as JSON.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use indicatif::{HumanBytes, HumanCount};
use serde_json::{Value, json};
use tsd_tools::{CopiedRows, TableComparison, TableDigest};

use super::state_file::rows_json;
use crate::{console::StopSignal, output::utc};

/// The result of a copy or a comparison.
#[derive(Debug)]
pub(super) struct CopyReport {
    /// False if the command only compared the places.
    pub(super) is_copy: bool,
    pub(super) is_dry: bool,
    /// True if keys were rebuilt from names.
    pub(super) by_name: bool,
    pub(super) since_ms: Option<i64>,
    /// Copied rows by table of the source.
    pub(super) tables: BTreeMap<String, CopiedRows>,
    pub(super) compared: Option<Vec<TableComparison>>,
    /// Numbers of findings by table.
    pub(super) findings: BTreeMap<String, u64>,
    pub(super) duration: Duration,
    pub(super) signal: Option<StopSignal>,
}

impl CopyReport {
    /// True if everything was copied unchanged, and both places are equal.
    pub(super) fn is_clean(&self) -> bool {
        let is_equal = |compared: &Vec<TableComparison>| {
            compared.iter().all(|table| table.is_equal() && table.without_names == 0)
        };
        self.compared.as_ref().is_none_or(is_equal)
            && !self.tables.values().any(CopiedRows::has_losses)
    }

    pub(super) fn as_lines(&self) -> String {
        let mut lines = String::new();
        for (table, rows) in &self.tables {
            lines.push_str(&copied_line(table, rows));
        }
        for table in self.compared.iter().flatten() {
            lines.push_str(&compared_lines(table));
        }
        lines.push_str(&self.last_line());
        lines
    }

    fn last_line(&self) -> String {
        let seconds = self.duration.as_secs_f64();
        let what = match (self.signal, self.is_copy, self.is_dry) {
            (Some(_), _, _) => "Stopped",
            (None, false, _) => "Compared",
            (None, true, true) => "Would be copied",
            (None, true, false) => "Copied",
        };
        let how = match (self.is_copy, self.by_name) {
            (true, true) => ", with keys rebuilt from names",
            (true, false) => ", cell for cell",
            (false, _) => "",
        };
        let since = self.since_ms.map_or_else(String::new, |ms| {
            let time =
                jiff::Timestamp::from_millisecond(ms).map_or_else(|_| format!("{ms} ms"), utc);
            format!(", cells written since {time}")
        });
        let result = match &self.compared {
            None => "",
            Some(_) if self.is_clean() => "; both places are equal",
            Some(_) => "; the places differ",
        };
        format!("{what}{how}{since} in {seconds:.1} s{result}\n")
    }

    pub(super) fn as_json(&self) -> Value {
        let tables: Value =
            self.tables.iter().map(|(table, rows)| (table.as_str(), rows_json(rows))).collect();
        let compared = self.compared.as_ref();
        let compared = compared.map(|tables| tables.iter().map(comparison_json).collect::<Value>());
        json!({
            "completed": self.signal.is_none(),
            "clean": self.is_clean(),
            "dryRun": self.is_dry,
            "keys": if self.by_name { "rebuilt" } else { "same" },
            "sinceMs": self.since_ms,
            "seconds": self.duration.as_secs_f64(),
            "tables": tables,
            "findings": self.findings,
            "compared": compared,
        })
    }
}

fn copied_line(table: &str, rows: &CopiedRows) -> String {
    let mut line = format!(
        "{table}: {} cells of {} rows, {}",
        HumanCount(rows.cells),
        HumanCount(rows.rows),
        HumanBytes(rows.bytes)
    );
    for (count, what) in [
        (rows.kept_cells, "cells were the same or newer in the target"),
        (rows.refused_rows, "rows NOT copied"),
        (rows.refused_cells, "cells NOT copied"),
        (rows.stale_references, "cells copied with a TSUID of the source"),
    ] {
        if count > 0 {
            let _ = write!(line, "; {} {what}", HumanCount(count));
        }
    }
    line + "\n"
}

fn compared_lines(table: &TableComparison) -> String {
    let digest = |side: &TableDigest| {
        let bytes = HumanBytes(side.bytes);
        let (cells, rows) = (HumanCount(side.cells), HumanCount(side.rows));
        format!("{:032x}  {cells} cells of {rows} rows, {bytes}", side.checksum)
    };
    let name = if table.from == table.to {
        table.from.to_string()
    } else {
        format!("{} and {}", table.from, table.to)
    };
    if table.is_equal() && table.without_names == 0 {
        return format!("{name}: equal  {}\n", digest(&table.source));
    }
    let word = if table.is_equal() { "equal" } else { "DIFFERENT" };
    let mut lines = format!(
        "{name}: {word}\n  source  {}\n  target  {}\n",
        digest(&table.source),
        digest(&table.target)
    );
    for (count, what) in [
        (table.only_in_source, "rows only in the source"),
        (table.only_in_target, "rows only in the target"),
        (table.different, "rows with different contents"),
        (table.repaired, "rows of the target were replaced"),
        (
            table.without_names,
            "rows of the source cannot be copied: damaged keys, or UIDs without names",
        ),
    ] {
        if count > 0 {
            let _ = writeln!(lines, "  {} {what}", HumanCount(count));
        }
    }
    if !table.is_complete {
        lines.push_str("  the comparison was stopped\n");
    }
    lines
}

fn comparison_json(table: &TableComparison) -> Value {
    let digest = |side: &TableDigest| {
        json!({
            "rows": side.rows,
            "cells": side.cells,
            "bytes": side.bytes,
            "checksum": format!("{:032x}", side.checksum),
        })
    };
    json!({
        "from": table.from.to_string(),
        "to": table.to.to_string(),
        "equal": table.is_equal(),
        "source": digest(&table.source),
        "target": digest(&table.target),
        "onlyInSource": table.only_in_source,
        "onlyInTarget": table.only_in_target,
        "different": table.different,
        "withoutNames": table.without_names,
        "repaired": table.repaired,
        "completed": table.is_complete,
    })
}

#[cfg(test)]
mod tests {
    use tsd_storage::Table;

    use super::*;

    fn ended(tables: &[(&str, CopiedRows)]) -> CopyReport {
        CopyReport {
            is_copy: true,
            is_dry: false,
            by_name: false,
            since_ms: None,
            tables: tables.iter().map(|(name, rows)| ((*name).to_owned(), *rows)).collect(),
            compared: None,
            findings: BTreeMap::new(),
            duration: Duration::from_millis(2_500),
            signal: None,
        }
    }

    fn rows() -> CopiedRows {
        CopiedRows { rows: 1_200, cells: 34_567, bytes: 2_048, ..CopiedRows::default() }
    }

    fn comparison(source: TableDigest, target: TableDigest) -> TableComparison {
        TableComparison {
            from: Table::new("tsdb"),
            to: Table::new("new"),
            source,
            target,
            only_in_source: 0,
            only_in_target: 0,
            different: 0,
            without_names: 0,
            repaired: 0,
            is_complete: true,
        }
    }

    #[test]
    fn a_line_of_a_table_has_what_was_not_copied() {
        let whole = ended(&[("tsdb", rows())]);
        assert!(whole.is_clean());
        assert_eq!(
            whole.as_lines(),
            "tsdb: 34,567 cells of 1,200 rows, 2.00 KiB\nCopied, cell for cell in 2.5 s\n"
        );
        let losses = CopiedRows { refused_rows: 100_000, stale_references: 3, ..rows() };
        let partly = CopyReport { by_name: true, ..ended(&[("tsdb", losses)]) };
        assert!(!partly.is_clean());
        assert_eq!(
            partly.as_lines(),
            "tsdb: 34,567 cells of 1,200 rows, 2.00 KiB; 100,000 rows NOT copied; 3 cells copied with a TSUID of the \
             source\nCopied, with keys rebuilt from names in 2.5 s\n"
        );
    }

    #[test]
    fn cells_that_the_target_had_are_no_loss() {
        let kept = CopiedRows { kept_cells: 5, ..rows() };
        assert!(ended(&[("tsdb", kept)]).is_clean());
        let refused = CopiedRows { refused_cells: 1, ..rows() };
        assert!(!ended(&[("tsdb", kept), ("tsdb-uid", refused)]).is_clean());
    }

    #[test]
    fn the_last_line_says_what_was_done() {
        let last = |ended: CopyReport| ended.last_line();
        let since = CopyReport { since_ms: Some(1_600_000_000_000), ..ended(&[]) };
        assert_eq!(
            last(since),
            "Copied, cell for cell, cells written since 2020-09-13 12:26:40 UTC in 2.5 s\n"
        );
        assert_eq!(
            last(CopyReport { is_dry: true, ..ended(&[]) }),
            "Would be copied, cell for cell in 2.5 s\n"
        );
        let stopped = CopyReport { signal: Some(StopSignal::Terminate), ..ended(&[]) };
        assert_eq!(last(stopped), "Stopped, cell for cell in 2.5 s\n");
        let compared = CopyReport { is_copy: false, compared: Some(Vec::new()), ..ended(&[]) };
        assert_eq!(last(compared), "Compared in 2.5 s; both places are equal\n");
    }

    #[test]
    fn differences_are_counted_below_both_checksums() {
        let digest = TableDigest { rows: 2, cells: 3, bytes: 4, checksum: 0xAB };
        let equal = comparison(digest, digest);
        let text = compared_lines(&equal);
        assert_eq!(text, format!("tsdb and new: equal  {:032x}  3 cells of 2 rows, 4 B\n", 0xAB));
        let other = TableDigest { checksum: 0xAC, ..digest };
        let differs =
            TableComparison { only_in_source: 1, different: 2_000, ..comparison(digest, other) };
        let text = compared_lines(&differs);
        assert!(text.starts_with("tsdb and new: DIFFERENT\n  source  "), "{text}");
        assert!(
            text.ends_with("\n  1 rows only in the source\n  2,000 rows with different contents\n"),
            "{text}"
        );
        let unnamed = TableComparison { without_names: 1, ..equal };
        let ended = CopyReport { is_copy: false, compared: Some(vec![unnamed]), ..ended(&[]) };
        assert!(!ended.is_clean() && ended.as_lines().ends_with("; the places differ\n"));
    }

    #[test]
    fn the_json_report_has_counts_and_findings() {
        let mut ended = ended(&[("tsdb", CopiedRows { refused_rows: 7, ..rows() })]);
        ended.findings.insert("tsdb".to_owned(), 7);
        let value = ended.as_json();
        assert_eq!(value.pointer("/tables/tsdb/refusedRows"), Some(&json!(7)));
        assert_eq!(value.pointer("/findings/tsdb"), Some(&json!(7)));
        assert_eq!(value.get("clean"), Some(&json!(false)));
        assert_eq!(value.get("keys"), Some(&json!("same")));
        assert_eq!(value.get("compared"), Some(&Value::Null));
    }
}
