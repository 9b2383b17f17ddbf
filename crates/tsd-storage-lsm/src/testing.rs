//! Decoders of the store's own lists, without their checksums, for the fuzz targets.
//!
//! Each decodes bytes and encodes the result; `None` for rejected bytes.

use bytes::Bytes;

use crate::{
    checksum, entry, key_encoding,
    manifest::{Manifest, TreeFile, parse_levels},
    quarantine::{KeyRange, QuarantineRecord},
};

fn sealed(body: &str) -> String {
    let mut text = body.to_owned();
    checksum::seal(&mut text);
    text
}

fn body(text: &str) -> Option<String> {
    checksum::unseal(text).map(str::to_owned)
}

/// The lines of the copy of a manifest.
#[must_use]
pub fn recode_manifest_copy(lines: &str) -> Option<String> {
    body(&Manifest::parse_copy(&sealed(lines))?.encode_copy())
}

/// The list of files in a manifest.
#[must_use]
pub fn recode_file_list(list: &[u8]) -> Option<Vec<u8>> {
    Some(Manifest { version: 0, levels: parse_levels(list)? }.encode_levels())
}

/// The lines of a record of the quarantine.
#[must_use]
pub fn recode_quarantine_record(lines: &str) -> Option<String> {
    body(&QuarantineRecord::parse("record", &sealed(lines))?.encode())
}

/// The row key at the start of a key of a tree, with its length there.
#[must_use]
pub fn recode_row_key(key: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (row, len) = key_encoding::decode(key)?;
    Some((key_encoding::encoded(&row), len))
}

/// The entry of a cell.
#[must_use]
pub fn recode_entry(cell: &[u8]) -> Option<Vec<u8>> {
    let (timestamp_ms, value) = entry::decode(&Bytes::copy_from_slice(cell))?;
    Some(entry::encode(&value, timestamp_ms))
}

/// Samples of the store's output without checksums: a list of files, a row key, an entry, the copy of a
/// manifest and a record of the quarantine.
#[must_use]
pub fn written() -> [Vec<u8>; 5] {
    let file = |id: u64| TreeFile { id, checksum: 0xff << id, seqno: id + 1, range: None };
    let levels = vec![vec![vec![file(7), file(8)], vec![file(3)]], Vec::new(), vec![vec![file(1)]]];
    let mut manifest = Manifest { version: 3, levels };
    let list = manifest.encode_levels();
    // The ranges of all files but the first are known.
    for file in manifest.levels.iter_mut().flatten().flatten().skip(1) {
        file.range = Some((vec![0, file.id as u8], b"\xffz".to_vec()));
    }
    let record = QuarantineRecord {
        name: "t.tsdb-uid-7".to_owned(),
        file: "t.tsdb-uid/tables/7".to_owned(),
        what: "a block".to_owned(),
        bytes: 7,
        checksum: 9,
        kept: true,
        lost: vec![
            KeyRange { start: b"a".to_vec(), end: Some(b"b".to_vec()) },
            KeyRange { start: b"c".to_vec(), end: None },
        ],
    };
    let texts = [manifest.encode_copy(), record.encode()];
    let [copy, record] = texts.map(|text| body(&text).unwrap_or_default().into_bytes());
    let key = key_encoding::encoded(&[0, 0, 1, 0, b'a', 0, 0]);
    [list, key, entry::encode(b"value", 1_356_998_400_000), copy, record]
}
