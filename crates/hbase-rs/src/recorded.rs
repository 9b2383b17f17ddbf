//! Test data of `tests/data/`, for unit tests and the `wire` tests.

use bytes::Bytes;
use serde_json::Value;

/// Reads a JSON file below `tests/data/`.
pub(crate) fn file(name: &str) -> Value {
    let path = format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Decodes hexadecimal text.
pub(crate) fn unhex(hex: &str) -> Bytes {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// Returns an entry of the vectors in `vectors.json`.
pub(crate) fn entry(name: &str) -> Value {
    let file = file("vectors.json");
    let vectors = file["vectors"].as_array().unwrap();
    vectors
        .iter()
        .find(|vector| vector["name"] == name)
        .unwrap_or_else(|| panic!("no vector {name}"))
        .clone()
}

/// Returns the bytes of a vector in `vectors.json`.
pub(crate) fn vector(name: &str) -> Bytes {
    unhex(entry(name)["hex"].as_str().unwrap())
}

/// Returns a table of `vectors.json`.
pub(crate) fn table(name: &str) -> Vec<Value> {
    file("vectors.json")["tables"][name].as_array().unwrap().clone()
}
