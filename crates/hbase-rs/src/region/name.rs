//! Region names, which are the row keys of hbase:meta.
//!
//! ```text
//! <table> , <start key> , <region id> [ _ <replica, 4 upper-case hex digits> ] . <md5, 32 hex digits> .
//! ```
//!
//! Start keys contain any byte, including commas and dots. Names are therefore parsed from both ends:
//! the table up to the first comma, hash and id from the end. The rows of hbase:meta are not in byte
//! order: table, start key and id are compared one after the other ([`compare_meta_rows`]).

use std::{cmp::Ordering, fmt::Write as _};

use bytes::{BufMut, Bytes, BytesMut};
use hbase_rs_protobuf as pb;
use md5::{Digest, Md5};
use pb::region_specifier::RegionSpecifierType;

use crate::{cell::MAX_ROW_LENGTH, table_name::TableName};

/// Length of the hash and its two dots.
const HASH_LENGTH: usize = 34;

/// Parts of a region name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionNameParts<'a> {
    /// Table, with its namespace.
    pub table: &'a [u8],
    /// First row.
    pub start_key: &'a [u8],
    /// Time of creation in epoch milliseconds, in decimal.
    pub id: &'a [u8],
    /// Replica in hexadecimal; empty for the default one.
    pub replica: &'a [u8],
    /// MD5 hash; empty in the old format, which only hbase:meta has.
    pub hash: &'a [u8],
}

impl<'a> RegionNameParts<'a> {
    /// Parses a name.
    #[must_use]
    pub fn parse(name: &'a [u8]) -> Option<Self> {
        let (rest, hash) = match name.split_last() {
            Some((b'.', _)) => {
                let (rest, hash) = name.split_at_checked(name.len().checked_sub(HASH_LENGTH)?)?;
                (rest, hash.strip_prefix(b".")?.strip_suffix(b".")?)
            }
            _ => (name, &[][..]),
        };
        let first = rest.iter().position(|byte| *byte == b',')?;
        let last = rest.iter().rposition(|byte| *byte == b',')?;
        let table = rest.get(..first)?;
        let start_key = rest.get(first + 1..last)?;
        let tail = rest.get(last + 1..)?;
        let (id, replica) = match tail.iter().position(|byte| *byte == b'_') {
            Some(at) => (tail.get(..at)?, tail.get(at + 1..)?),
            None => (tail, &[][..]),
        };
        Some(Self { table, start_key, id, replica, hash })
    }
}

/// Returns the name of a region.
#[must_use]
pub fn region_name(table: &TableName, start_key: &[u8], id: u64, replica: u16) -> Bytes {
    if *table == TableName::meta() && replica == 0 {
        return Bytes::from_static(b"hbase:meta,,1");
    }
    let mut name = BytesMut::with_capacity(table.as_bytes().len() + start_key.len() + 64);
    name.put_slice(table.as_bytes());
    name.put_u8(b',');
    name.put_slice(start_key);
    // Writing to a `BytesMut` does not fail.
    let _ = write!(name, ",{id}");
    if replica > 0 {
        let _ = write!(name, "_{replica:04X}");
    }
    let hash = u128::from_be_bytes(Md5::digest(&name).into());
    let _ = write!(name, ".{hash:032x}.");
    name.freeze()
}

/// Names a region for a region server, which accepts full names only.
pub(crate) fn region_specifier(name: &Bytes) -> pb::RegionSpecifier {
    pb::RegionSpecifier { r#type: RegionSpecifierType::RegionName.into(), value: name.clone() }
}

/// Returns the encoded name, which the master and the file system use.
#[must_use]
pub fn encoded_name(name: &[u8]) -> String {
    match RegionNameParts::parse(name) {
        Some(parts) if !parts.hash.is_empty() => String::from_utf8_lossy(parts.hash).into_owned(),
        _ => jenkins_hash(name).unsigned_abs().to_string(),
    }
}

/// Compares two rows of hbase:meta. A row without a comma is a table name, and sorts before the
/// regions of that table.
#[must_use]
pub fn compare_meta_rows(a: &[u8], b: &[u8]) -> Ordering {
    order_parts(a).cmp(&order_parts(b))
}

/// Sort key of a row: table, and start key and id if there is a comma.
type OrderParts<'a> = (&'a [u8], Option<(&'a [u8], &'a [u8])>);

fn order_parts(row: &[u8]) -> OrderParts<'_> {
    let comma = |byte: &u8| *byte == b',';
    let Some(at) = row.iter().position(comma) else { return (row, None) };
    let (table, rest) = (row.get(..at).unwrap_or_default(), row.get(at + 1..).unwrap_or_default());
    match rest.iter().rposition(comma) {
        Some(at) => (table, rest.get(..at).zip(rest.get(at + 1..))),
        None => (table, Some((rest, &[]))),
    }
}

/// Returns the row at which a reversed scan of hbase:meta for the region that holds `row` starts.
///
/// It sorts after every region of the table that starts at or before the row. A row is truncated if
/// the key would exceed HBase's limit; the scan may then find an earlier region, never a later one.
#[must_use]
pub fn search_key(table: &TableName, row: &[u8]) -> Bytes {
    search(table, row, b"99999999999999")
}

/// Returns the row at which a reversed scan of hbase:meta for the last region that starts before
/// `row` starts; an empty row is the end of the table.
#[must_use]
pub fn search_key_before(table: &TableName, row: &[u8]) -> Bytes {
    if row.is_empty() {
        return [&table.as_bytes()[..], &[0]].concat().into();
    }
    search(table, row, b"00000000000000")
}

fn search(table: &TableName, row: &[u8], id: &[u8]) -> Bytes {
    let max = MAX_ROW_LENGTH.saturating_sub(table.as_bytes().len() + id.len() + 2);
    let row = row.get(..max).unwrap_or(row);
    [&table.as_bytes()[..], b",", row, b",", id].concat().into()
}

/// Returns the first row that a region of the table can have in hbase:meta.
#[must_use]
pub fn first_meta_key(table: &TableName) -> Bytes {
    search(table, b"", b"")
}

/// Returns the first row after all regions of the table, in the order of hbase:meta. In byte order
/// it sorts before them, since a space is lower than a comma, but a table name ends at its comma.
#[must_use]
pub fn end_meta_key(table: &TableName) -> Bytes {
    [&table.as_bytes()[..], b" ,,"].concat().into()
}

/// Bob Jenkins's hash (`lookup3`, one result). Its decimal is the encoded name of names without an
/// MD5 hash.
fn jenkins_hash(bytes: &[u8]) -> i32 {
    let mut state = [0xdead_beef_u32.wrapping_add(bytes.len() as u32); 3];
    let mut chunks = bytes.chunks(12).peekable();
    while let Some(chunk) = chunks.next() {
        for (at, byte) in chunk.iter().enumerate() {
            if let Some(word) = state.get_mut(at / 4) {
                *word = word.wrapping_add(u32::from(*byte) << (at % 4 * 8));
            }
        }
        state = if chunks.peek().is_some() { jenkins_mix(state) } else { jenkins_last(state) };
    }
    let [_, _, c] = state;
    c as i32
}

/// Mixes the state between two chunks. Each round computes one word and rotates the words.
fn jenkins_mix(mut state: [u32; 3]) -> [u32; 3] {
    for bits in [4, 6, 8, 16, 19, 4] {
        let [a, b, c] = state;
        let mixed = a.wrapping_sub(c) ^ c.rotate_left(bits);
        state = [b, c.wrapping_add(b), mixed];
    }
    state
}

/// Mixes the state after the last chunk.
fn jenkins_last([a, b, c]: [u32; 3]) -> [u32; 3] {
    let mut state = [c, a, b];
    for bits in [14, 11, 25, 16, 4, 14, 24] {
        let [c, a, b] = state;
        let mixed = (c ^ b).wrapping_sub(b.rotate_left(bits));
        state = [a, b, mixed];
    }
    state
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::recorded;

    fn table(name: &str) -> TableName {
        name.parse().unwrap()
    }

    #[track_caller]
    fn check(vector: &str, table_name: &str, start: &[u8], id: u64, replica: u16) {
        let entry = recorded::entry(vector);
        let name = region_name(&table(table_name), start, id, replica);
        assert_eq!(name, recorded::vector(vector));
        if let Some(encoded) = entry["fields"]["encoded"].as_str() {
            assert_eq!(encoded_name(&name), encoded);
        }
        let parts = RegionNameParts::parse(&name).unwrap();
        assert_eq!(parts.table, table_name.as_bytes());
        assert_eq!(parts.start_key, start);
        assert_eq!(parts.id, id.to_string().as_bytes());
        assert_eq!(parts.replica.is_empty(), replica == 0);
    }

    #[test]
    fn names_have_table_start_id_replica_and_hash() {
        check("region-name-first", "tsdb", b"", 1_700_000_000_000, 0);
        check("region-name-second", "tsdb", &[0, 0, 2], 1_700_000_000_001, 0);
        check("region-name-replica-1", "tsdb", b"", 1_700_000_000_000, 1);
        check("region-name-namespace", "prod:tsdb", b"", 1_700_000_000_000, 0);
        check("region-name-meta", "hbase:meta", b"", 1, 0);
    }

    #[test]
    fn names_without_a_hash_are_encoded_by_jenkins_hash() {
        for row in recorded::table("jenkins_encoded_names") {
            let name = row["name"].as_str().unwrap();
            assert_eq!(encoded_name(name.as_bytes()), row["encoded"].as_str().unwrap());
        }
    }

    #[test]
    fn meta_rows_are_ordered_by_table_start_and_id() {
        let rows = recorded::table("meta_row_order");
        assert!(!rows.is_empty());
        for row in rows {
            let (a, b) = (row["a"].as_str().unwrap(), row["b"].as_str().unwrap());
            let before = compare_meta_rows(a.as_bytes(), b.as_bytes()) == Ordering::Less;
            assert_eq!(before, row["a_before_b"].as_bool().unwrap(), "{a} {b}");
        }
    }

    #[test]
    fn search_keys_equal_those_of_hbase() {
        let row = [0, 0, 1, 0x65, 0x52, 0, 0, 0, 0, 1, 0, 0, 2];
        let key = search_key(&table("tsdb"), &row);
        assert!(recorded::vector("meta-search-key").starts_with(&key[..10]));
        assert_eq!(
            search_key(&table("tsdb"), &[0, 0, 1, 0x65, 0x52, 0, 0, 0, 0, 1, 0, 0, 2]),
            recorded::vector("meta-search-key")
        );
        assert_eq!(search_key_before(&table("tsdb"), b"k"), "tsdb,k,00000000000000");
        assert_eq!(search_key_before(&table("tsdb"), b""), "tsdb\0");
        assert_eq!(search_key(&table("tsdb"), &vec![7; 40_000]).len(), MAX_ROW_LENGTH);
    }

    #[test]
    fn rows_of_a_table_are_between_its_two_keys() {
        let name = region_name(&table("tsdb"), b" ,", 1_700_000_000_000, 0);
        assert_eq!(compare_meta_rows(&first_meta_key(&table("tsdb")), &name), Ordering::Less);
        assert_eq!(compare_meta_rows(&name, &end_meta_key(&table("tsdb"))), Ordering::Less);
        let other = region_name(&table("tsdb-uid"), b"", 1_700_000_000_000, 0);
        assert_eq!(compare_meta_rows(&end_meta_key(&table("tsdb")), &other), Ordering::Less);
    }

    #[test]
    fn rows_that_are_no_region_names_are_ordered() {
        let name = region_name(&table("t"), b"p", 1, 0);
        for (row, expected) in
            [("t\0", Ordering::Less), ("t", Ordering::Greater), ("t,p", Ordering::Greater)]
        {
            assert_eq!(compare_meta_rows(&name, row.as_bytes()), expected, "{row:?}");
        }
    }

    proptest! {
        #[test]
        fn start_keys_of_any_bytes_are_parsed(start in vec(any::<u8>(), 0..30), id: u64, replica in 0..3_u16) {
            let name = region_name(&table("ns:t-1"), &start, id, replica);
            let parts = RegionNameParts::parse(&name).unwrap();
            prop_assert_eq!(parts.start_key, &start[..]);
            let id = id.to_string();
            prop_assert_eq!(parts.id, id.as_bytes());
            prop_assert_eq!(encoded_name(&name).len(), 32);
        }

        #[test]
        fn parsing_any_bytes_does_not_panic(bytes in vec(prop::sample::select(b"a,._0\xff".to_vec()), 0..50)) {
            let _ = RegionNameParts::parse(&bytes);
            let _ = encoded_name(&bytes);
        }
    }
}
