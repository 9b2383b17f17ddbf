//! Lists of files, keys and entries of the store of small tables.

use tsd_storage_lsm::testing;

/// Decodes bytes and encodes the result; `None` for rejected bytes.
fn recode(kind: u8, bytes: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    match kind % 5 {
        0 => testing::recode_file_list(bytes),
        1 => {
            let (row, len) = testing::recode_row_key(bytes)?;
            assert!(len <= bytes.len(), "a key within the bytes");
            Some(row)
        }
        2 => testing::recode_entry(bytes),
        3 => testing::recode_manifest_copy(text).map(String::into_bytes),
        _ => testing::recode_quarantine_record(text).map(String::into_bytes),
    }
}

/// A list, a key or an entry without its checksum. The first byte selects the kind.
pub(crate) fn store_lists(input: &[u8]) {
    let Some((kind, bytes)) = input.split_first() else { return };
    if let Some(again) = recode(*kind, bytes) {
        // A number in a text may only lose leading zeros.
        let limit = if kind % 5 == 1 { 2 * bytes.len() } else { 2 * bytes.len() + 64 };
        assert!(again.len() <= limit, "{} bytes of {}", again.len(), bytes.len());
        assert_eq!(recode(*kind, &again), Some(again), "one form");
    }
}

/// Valid inputs, each with its target.
pub(crate) fn generated() -> Vec<(&'static str, Vec<u8>)> {
    let mut inputs = Vec::new();
    for (kind, bytes) in (0..).zip(testing::written()) {
        assert_eq!(recode(kind, &bytes).as_ref(), Some(&bytes), "kind {kind} is read whole");
        inputs.push(("store_lists", [&[kind][..], &bytes].concat()));
    }
    inputs
}
