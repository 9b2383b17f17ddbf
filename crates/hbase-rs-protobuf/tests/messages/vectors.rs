//! Messages of `tests/data/vectors.json`: all decode and encode to the same bytes.

use std::collections::BTreeSet;

use bytes::{Buf, Bytes};
use hbase_rs_protobuf as pb;
use prost::Message;
use serde_json::Value;

/// Decodes a vector, encodes the message and compares.
type VectorCheck = fn(&Vector, Bytes);

/// Checks by vector; a trailing `*` matches any suffix.
const MESSAGES: &[(&str, VectorCheck)] = &[
    ("connection-header-*", connection_header),
    ("get-request", request::<pb::GetRequest>),
    ("get-exists-probe", request::<pb::GetRequest>),
    ("mutate-response-processed", response::<pb::MutateResponse>),
    ("mutate-*", request::<pb::MutateRequest>),
    ("multi-request", request::<pb::MultiRequest>),
    ("scan-open", request::<pb::ScanRequest>),
    ("scan-next", request::<pb::ScanRequest>),
    ("scan-renew", request::<pb::ScanRequest>),
    ("scan-close", request::<pb::ScanRequest>),
    ("scan-meta-lookup", request::<pb::ScanRequest>),
    ("exec-service", request::<pb::CoprocessorServiceRequest>),
    ("get-response-*", response::<pb::GetResponse>),
    ("exists-response", response::<pb::GetResponse>),
    ("multi-response", response::<pb::MultiResponse>),
    ("multi-response-*", response::<pb::MultiResponse>),
    ("scan-response-*", response::<pb::ScanResponse>),
    ("exception-*", exception),
    ("registry-response", response::<pb::GetConnectionRegistryResponse>),
    ("znode-meta-region-server", znode::<pb::MetaRegionServer>),
    ("znode-without-metadata", znode::<pb::MetaRegionServer>),
    ("znode-master", znode::<pb::Master>),
    ("znode-hbaseid", znode::<pb::ClusterId>),
    ("regioninfo-*", znode::<pb::RegionInfo>),
    ("meta-table-state-value", whole::<pb::TableState>),
    ("filter-*", filter),
    ("create-table", request::<pb::CreateTableRequest>),
    ("get-procedure-result", request::<pb::GetProcedureResultRequest>),
    ("procedure-result-running", response::<pb::GetProcedureResultResponse>),
    ("get-table-state", request::<pb::GetTableStateRequest>),
    ("table-state-response", response::<pb::GetTableStateResponse>),
];

/// Vectors without a message of this crate: preambles, SASL steps, cells, names and plain values.
const OTHERS: &[&str] = &[
    "preamble-*",
    "sasl-*",
    "cell-*",
    "meta-server-value",
    "meta-startcode-value",
    "meta-state-value",
    "region-name-*",
    "meta-search-key*",
];

struct Vector {
    name: String,
    exact: bool,
}

impl Vector {
    fn matches(&self, pattern: &str) -> bool {
        match pattern.strip_suffix('*') {
            Some(start) => self.name.starts_with(start),
            None => self.name == pattern,
        }
    }

    /// Decodes a message, and compares its encoding if the vector is exact.
    fn check_message<M: Message + Default>(&self, bytes: impl Into<Bytes>) -> M {
        let bytes = bytes.into();
        let message =
            M::decode(bytes.clone()).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        if self.exact {
            assert_eq!(bytes, message.encode_to_vec(), "{}", self.name);
        }
        message
    }
}

fn vectors() -> Vec<(Vector, Bytes)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/vectors.json");
    let file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    file["vectors"].as_array().unwrap().iter().map(parse_vector).collect()
}

fn parse_vector(vector: &Value) -> (Vector, Bytes) {
    let name = vector["name"].as_str().unwrap().to_owned();
    let exact = vector["check"] == "byte-exact";
    let hex = vector["hex"].as_str().unwrap();
    let bytes =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
    (Vector { name, exact }, bytes.collect())
}

/// Removes and returns the next part, which is prefixed with its length as a varint.
fn take_delimited(bytes: &mut Bytes) -> Bytes {
    let length = prost::decode_length_delimiter(&mut *bytes).unwrap();
    bytes.split_to(length)
}

/// Splits a frame into its header and the rest.
fn frame(vector: &Vector, mut bytes: Bytes) -> (Bytes, Bytes) {
    assert_eq!(bytes.get_u32() as usize, bytes.len(), "{}", vector.name);
    (take_delimited(&mut bytes), bytes)
}

fn request<M: Message + Default>(vector: &Vector, bytes: Bytes) {
    let (header, mut rest) = frame(vector, bytes);
    let header: pb::RequestHeader = vector.check_message(header);
    assert_eq!(header.request_param, Some(true), "{}", vector.name);
    vector.check_message::<M>(take_delimited(&mut rest));
    assert_eq!(header.cell_block_meta.map_or(0, |meta| meta.length() as usize), rest.len());
}

fn response<M: Message + Default>(vector: &Vector, bytes: Bytes) {
    let (header, mut rest) = frame(vector, bytes);
    let header: pb::ResponseHeader = vector.check_message(header);
    assert_eq!(header.exception, None, "{}", vector.name);
    vector.check_message::<M>(take_delimited(&mut rest));
    assert_eq!(header.cell_block_meta.map_or(0, |meta| meta.length() as usize), rest.len());
}

fn exception(vector: &Vector, bytes: Bytes) {
    let (header, rest) = frame(vector, bytes);
    let header: pb::ResponseHeader = vector.check_message(header);
    assert!(header.exception.is_some() && rest.is_empty(), "{}", vector.name);
}

fn connection_header(vector: &Vector, mut bytes: Bytes) {
    assert_eq!(bytes.get_u32() as usize, bytes.len());
    let header: pb::ConnectionHeader = vector.check_message(bytes);
    assert!(header.service_name.is_some(), "{}", vector.name);
}

/// Checks a value of ZooKeeper or hbase:meta: optional metadata of the writer, `PBUF`, the message.
fn znode<M: Message + Default>(vector: &Vector, mut bytes: Bytes) {
    if bytes[0] == 0xff {
        bytes.advance(1);
        let metadata = bytes.get_u32() as usize;
        bytes.advance(metadata);
    }
    assert_eq!(bytes.split_to(4), "PBUF", "{}", vector.name);
    vector.check_message::<M>(bytes);
}

fn whole<M: Message + Default>(vector: &Vector, bytes: Bytes) {
    vector.check_message::<M>(bytes);
}

fn filter(vector: &Vector, bytes: Bytes) {
    let filter: pb::Filter = vector.check_message(bytes);
    let body = filter.serialized_filter.expect("sent even when empty");
    match filter.name.rsplit('.').next().unwrap() {
        "RowFilter" => {
            let row: pb::RowFilter = vector.check_message(body);
            let comparator = row.compare_filter.comparator.unwrap();
            vector.check_message::<pb::RegexStringComparator>(
                comparator.serialized_comparator.unwrap(),
            );
        }
        "QualifierFilter" => {
            let qualifier: pb::QualifierFilter = vector.check_message(body);
            let comparator = qualifier.compare_filter.comparator.unwrap();
            vector.check_message::<pb::BinaryComparator>(comparator.serialized_comparator.unwrap());
        }
        "PrefixFilter" => whole::<pb::PrefixFilter>(vector, body),
        "KeyOnlyFilter" => whole::<pb::KeyOnlyFilter>(vector, body),
        "FirstKeyOnlyFilter" => whole::<pb::FirstKeyOnlyFilter>(vector, body),
        "ColumnPrefixFilter" => whole::<pb::ColumnPrefixFilter>(vector, body),
        "ColumnRangeFilter" => whole::<pb::ColumnRangeFilter>(vector, body),
        "ColumnPaginationFilter" => whole::<pb::ColumnPaginationFilter>(vector, body),
        "TimestampsFilter" => whole::<pb::TimestampsFilter>(vector, body),
        "PageFilter" => whole::<pb::PageFilter>(vector, body),
        "FuzzyRowFilter" => whole::<pb::FuzzyRowFilter>(vector, body),
        "MultiRowRangeFilter" => whole::<pb::MultiRowRangeFilter>(vector, body),
        "FilterList" => whole::<pb::FilterList>(vector, body),
        other => panic!("{}: {other} is not checked", vector.name),
    }
}

#[test]
fn messages_decode_and_encode_as_recorded() {
    let mut messages = 0;
    for (vector, bytes) in vectors() {
        if OTHERS.iter().any(|pattern| vector.matches(pattern)) {
            continue;
        }
        let (_, check) =
            MESSAGES.iter().find(|(pattern, _)| vector.matches(pattern)).expect(&vector.name);
        check(&vector, bytes);
        messages += 1;
    }
    assert_eq!(messages, 58);
}

#[test]
fn every_pattern_matches_a_vector() {
    let names: Vec<_> = vectors().into_iter().map(|(vector, _)| vector).collect();
    let patterns = MESSAGES.iter().map(|(pattern, _)| *pattern).chain(OTHERS.iter().copied());
    let unused: BTreeSet<_> =
        patterns.filter(|pattern| !names.iter().any(|name| name.matches(pattern))).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

#[test]
fn repeated_numbers_decode_packed_and_unpacked() {
    for bytes in [&[0x0a, 2, 2, 1][..], &[0x08, 2, 0x08, 1]] {
        let response = pb::ScanResponse::decode(bytes).unwrap();
        assert_eq!(response.cells_per_result, [2, 1]);
    }
}

#[test]
fn unknown_fields_are_skipped() {
    let id = pb::ClusterId::decode(&[0xfa, 0x3f, 1, b'?', 0x0a, 2, b'i', b'd'][..]).unwrap();
    assert_eq!(id.cluster_id, "id");
}
