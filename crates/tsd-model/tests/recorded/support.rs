//! Access to the recorded files.

use std::{fs, path::PathBuf};

use bytes::Bytes;
use serde_json::Value;
use tsd_model::{Cell, Family, KindUid, KnownKind, TableSchema, from_hex, to_hex};

/// Path of a file under the workspace's `tests/data`.
pub(crate) fn data_path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(name)
}

/// A JSON file of recorded data.
pub(crate) fn load(name: &str) -> Value {
    let path = data_path(name);
    let text = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    from_hex(text.as_bytes()).unwrap_or_else(|| panic!("{text} is no hex"))
}

/// Short access to required fields.
pub(crate) trait Fields {
    fn at(&self, key: &str) -> &Value;
    fn text(&self, key: &str) -> &str;
    fn int(&self, key: &str) -> i64;
    fn hex(&self, key: &str) -> Vec<u8>;
    fn list(&self, key: &str) -> &[Value];
    fn has(&self, key: &str) -> bool;
}

impl Fields for Value {
    fn at(&self, key: &str) -> &Value {
        self.get(key).unwrap_or_else(|| panic!("no {key} in {self}"))
    }

    fn text(&self, key: &str) -> &str {
        self.at(key).as_str().unwrap_or_else(|| panic!("{key} is no text in {self}"))
    }

    fn int(&self, key: &str) -> i64 {
        self.at(key).as_i64().unwrap_or_else(|| panic!("{key} is no integer in {self}"))
    }

    fn hex(&self, key: &str) -> Vec<u8> {
        hex(self.text(key))
    }

    fn list(&self, key: &str) -> &[Value] {
        self.at(key).as_array().unwrap_or_else(|| panic!("{key} is no list in {self}"))
    }

    fn has(&self, key: &str) -> bool {
        self.get(key).is_some_and(|v| !v.is_null())
    }
}

pub(crate) fn uid<K: KnownKind>(text: &str) -> KindUid<K> {
    KindUid::try_new(&hex(text)).unwrap_or_else(|e| panic!("{text}: {e}"))
}

pub(crate) fn schema(widths: [usize; 3], salt_width: usize, buckets: u32) -> TableSchema {
    let [metric, tagk, tagv] = widths;
    TableSchema::try_new(metric, tagk, tagv, salt_width, buckets).unwrap_or_else(|e| panic!("{e}"))
}

/// A cell of a data row.
pub(crate) fn point_cell(qualifier: &str, value: &str, timestamp_ms: i64) -> Cell {
    Cell {
        family: Family::T,
        qualifier: hex(qualifier).into(),
        value: hex(value).into(),
        timestamp_ms,
    }
}

/// `[qualifier, value]` in the form of the vectors.
pub(crate) fn pair(qualifier: &Bytes, value: &Bytes) -> Value {
    serde_json::json!([to_hex(qualifier), to_hex(value)])
}
