//! A file that says how far a check came, so that the same command goes on there.

use std::{collections::BTreeMap, fs, io, path::PathBuf};

use anyhow::{Context, ensure};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use tsd_model::{from_hex, to_hex};

/// The file, and what is checked.
#[derive(Debug)]
pub(super) struct Checkpoint {
    path: PathBuf,
    scope: Value,
    rows: BTreeMap<usize, Bytes>,
}

impl Checkpoint {
    /// Reads the file, if there is one.
    pub(super) fn open(path: PathBuf, scope: Value) -> anyhow::Result<Self> {
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { path, scope, rows: BTreeMap::new() });
            }
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        let rows = Self::parse(&text, &scope).with_context(|| path.display().to_string())?;
        Ok(Self { path, scope, rows })
    }

    fn parse(text: &[u8], scope: &Value) -> anyhow::Result<BTreeMap<usize, Bytes>> {
        let file: Value = serde_json::from_slice(text).context("this is no checkpoint")?;
        ensure!(
            file.get("scope") == Some(scope),
            "this is the checkpoint of a check of other rows; name another file, or remove it"
        );
        let rows = file.get("rows").and_then(Value::as_object).context("this is no checkpoint")?;
        let row = |(part, key): (&String, &Value)| {
            let key = key.as_str().and_then(|key| from_hex(key.as_bytes()));
            Ok((part.parse()?, key.context("a row is no hexadecimal key")?.into()))
        };
        rows.iter().map(row).collect()
    }

    /// The last row that was checked, of each part.
    pub(super) fn rows(&self) -> BTreeMap<usize, Bytes> {
        self.rows.clone()
    }

    /// Replaces the file.
    pub(super) fn write(&self, rows: &BTreeMap<usize, Bytes>) -> anyhow::Result<()> {
        let rows: Map<String, Value> =
            rows.iter().map(|(part, key)| (part.to_string(), json!(to_hex(key)))).collect();
        let text = format!("{:#}\n", json!({ "scope": self.scope, "rows": rows }));
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &self.path));
        written.with_context(|| format!("the checkpoint {}", self.path.display()))
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn check_goes_on_where_it_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("checkpoint");
        let open = |rows: &str| Checkpoint::open(path.clone(), json!({ "rows": [rows] }));
        let checkpoint = open("a").unwrap();
        assert!(checkpoint.rows().is_empty());
        let rows: BTreeMap<_, _> = [(3, Bytes::from_static(&[0, 0xAB]))].into();
        checkpoint.write(&rows).unwrap();
        assert_eq!(open("a").unwrap().rows(), rows);
        let other = format!("{:#}", open("b").unwrap_err());
        assert!(other.contains("other rows"), "{other}");
        fs::write(&path, "[1").unwrap();
        assert!(format!("{:#}", open("a").unwrap_err()).contains("no checkpoint"));
        checkpoint.remove().unwrap();
        checkpoint.remove().unwrap();
        assert!(open("a").unwrap().rows().is_empty());
    }
}
