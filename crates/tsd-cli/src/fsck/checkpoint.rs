//! The checkpoint of a check: its progress and findings, so that the same command continues there.

use std::{collections::BTreeMap, fs, io, path::PathBuf};

use anyhow::{Context, ensure};
use bytes::Bytes;
use serde_json::{Value, json};
use tsd_model::{from_hex, to_hex};
use tsd_tools::FsckReport;

use crate::properties_file::replace_file;

/// The progress and findings of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Checked {
    /// The last checked row of each key range.
    pub(super) rows: BTreeMap<usize, Bytes>,
    /// Findings and repairs up to these rows.
    pub(super) report: FsckReport,
}

/// The file, and the check that it belongs to.
#[derive(Debug)]
pub(super) struct Checkpoint {
    path: PathBuf,
    scope: Value,
}

/// The counters of a report by name. A new counter does not compile until it is listed here.
macro_rules! counters {
    ($report:expr, $($name:ident)*) => {{
        let FsckReport { $($name),* } = $report;
        [$((stringify!($name), $name)),*]
    }};
}

fn counters(report: &mut FsckReport) -> [(&'static str, &mut u64); 23] {
    counters!(report,
        cells rows valid_points annotations bad_keys bad_keys_deleted duplicates duplicates_resolved orphans
        orphans_deleted future_objects unknown_columns unknown_columns_deleted bad_values bad_values_deleted encodings
        encodings_fixed bad_columns bad_columns_deleted disordered_columns long_integers long_integers_shortened
        bytes_saved)
}

impl Checkpoint {
    /// Opens the checkpoint and reads an existing file. `scope` identifies the check: its rows, their store, and the
    /// repairs.
    pub(super) fn open(path: PathBuf, scope: Value) -> anyhow::Result<(Self, Checked)> {
        let checked = match fs::read(&path) {
            Ok(text) => parse(&text, &scope).with_context(|| path.display().to_string())?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Checked::default(),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        Ok((Self { path, scope }, checked))
    }

    /// Replaces the file.
    pub(super) fn write(&self, checked: &Checked) -> anyhow::Result<()> {
        let rows = checked.rows.iter().map(|(range, key)| (range.to_string(), to_hex(key)));
        let mut report = checked.report;
        let report = counters(&mut report).map(|(name, count)| (name, *count));
        let file = json!({
            "scope": self.scope,
            "rows": rows.collect::<Value>(),
            "report": Value::from_iter(report),
        });
        replace_file(&self.path, &format!("{file:#}\n"))
            .with_context(|| format!("the checkpoint {}", self.path.display()))
    }

    /// Removes the file.
    pub(super) fn remove(&self) -> anyhow::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("the checkpoint {}", self.path.display()))
            }
            _ => Ok(()),
        }
    }
}

fn parse(text: &[u8], scope: &Value) -> anyhow::Result<Checked> {
    let file: Value = serde_json::from_slice(text).context("this is not a checkpoint")?;
    let there = file.get("scope").context("this is not a checkpoint")?;
    ensure!(
        there == scope,
        "this is the checkpoint of another check: of other rows, another store, or with other repairs; name \
         another file, or remove it\nthere: {there}\nhere:  {scope}"
    );
    let object = |name: &str| file.get(name).and_then(Value::as_object);
    let rows = object("rows").context("this is not a checkpoint")?;
    let row = |(range, key): (&String, &Value)| {
        let key = key.as_str().and_then(|key| from_hex(key.as_bytes()));
        Ok((range.parse()?, key.context("a row is not a hexadecimal key")?.into()))
    };
    let counts = object("report").context("this is not a checkpoint")?;
    let mut report = FsckReport::default();
    for (name, count) in counters(&mut report) {
        let there = counts.get(name).and_then(Value::as_u64);
        *count = there.with_context(|| format!("it has no counter {name}"))?;
    }
    Ok(Checked { rows: rows.iter().map(row).collect::<anyhow::Result<_>>()?, report })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn check_goes_on_where_it_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("checkpoint");
        let open = |rows: &str| Checkpoint::open(path.clone(), json!({ "rows": [rows] }));
        let (checkpoint, none) = open("a").unwrap();
        assert_eq!(none, Checked::default());
        let mut report = FsckReport::default();
        for (at, (_, count)) in counters(&mut report).into_iter().enumerate() {
            *count = at as u64 + 1;
        }
        let checked = Checked { rows: [(3, Bytes::from_static(&[0, 0xAB]))].into(), report };
        checkpoint.write(&checked).unwrap();
        assert_eq!(open("a").unwrap().1, checked);
        let other = format!("{:#}", open("b").unwrap_err());
        assert!(other.contains("another check"), "{other}");
        for broken in ["[1", "{}", r#"{"scope":{"rows":["a"]},"rows":{}}"#] {
            fs::write(&path, broken).unwrap();
            let error = format!("{:#}", open("a").unwrap_err());
            assert!(error.contains("not a checkpoint"), "{error}");
        }
        checkpoint.remove().unwrap();
        checkpoint.remove().unwrap();
        assert_eq!(open("a").unwrap().1, Checked::default());
    }
}
