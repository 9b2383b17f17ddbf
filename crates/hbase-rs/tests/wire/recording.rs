//! Recorded exchanges of `tests/data/wire/`.

use std::fs;

use bytes::{Buf, Bytes, BytesMut};
use hbase_rs::{Compressor, protocol::FrameReader};
use hbase_rs_protobuf as pb;
use prost::Message;
use serde_json::Value;

use crate::recorded::unhex;

/// A recorded call and its response.
pub(crate) struct Exchange {
    /// File, scenario and step, for failure messages.
    pub(crate) name: String,
    /// Service of the connection, `zookeeper`, or `-` for none.
    pub(crate) to: String,
    /// Method, or a description of another step.
    pub(crate) call: String,
    /// Compression of cell blocks on the connection.
    pub(crate) compressor: Option<Compressor>,
    pub(crate) request: Option<Bytes>,
    pub(crate) response: Option<Bytes>,
    /// Readable form of the response.
    pub(crate) decoded: String,
}

/// Reads all exchanges of all files.
pub(crate) fn exchanges() -> Vec<Exchange> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/wire");
    let mut paths: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        let scenarios: Vec<Value> = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let file = path.file_stem().unwrap().to_string_lossy().into_owned();
        for scenario in &scenarios {
            let calls = scenario["exchanges"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|step| !step["on"].is_null());
            all.extend(calls.map(|step| read_exchange(&file, scenario, step)));
        }
    }
    all
}

fn read_exchange(file: &str, scenario: &Value, step: &Value) -> Exchange {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let connection = scenario["connection"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["id"] == step["on"])
        .unwrap();
    let hex = |value: &Value| value.as_str().map(unhex);
    Exchange {
        name: format!(
            "{file}: {}: {} {}",
            text(&scenario["name"]),
            text(&step["call"]),
            text(&step["what"])
        ),
        to: text(&connection["to"]),
        call: text(&step["call"]),
        compressor: header(&hex(&connection["sent_first_hex"]).unwrap_or_default())
            .and_then(|header| compressor(&header)),
        request: hex(&step["request_hex"]),
        response: hex(&step["response_hex"]),
        decoded: text(&step["decoded"]),
    }
}

/// Returns the compressor that a connection header requests.
pub(crate) fn compressor(header: &pb::ConnectionHeader) -> Option<Compressor> {
    let class = header.cell_block_compressor_class.as_deref()?;
    [Compressor::Snappy, Compressor::Lz4, Compressor::Gzip, Compressor::Zlib]
        .into_iter()
        .find(|compressor| compressor.class_name() == class)
}

/// Decodes the connection header after preamble and length.
fn header(sent_first: &Bytes) -> Option<pb::ConnectionHeader> {
    pb::ConnectionHeader::decode(sent_first.get(10..)?).ok()
}

/// Returns the only frame in `bytes`.
pub(crate) fn frame(bytes: &Bytes) -> Bytes {
    let mut buffer = BytesMut::from(&bytes[..]);
    let frame = FrameReader::new(bytes.len()).next(&mut buffer).unwrap().expect("a whole frame");
    assert!(buffer.is_empty(), "one frame only");
    frame
}

/// Splits a request into header, message and cell block. `None` for intentionally invalid requests.
pub(crate) fn request(bytes: &Bytes) -> Option<(pb::RequestHeader, Bytes, Bytes)> {
    let mut rest = bytes.clone();
    (rest.remaining() >= 4 && rest.get_u32() as usize == rest.len()).then_some(())?;
    let header = pb::RequestHeader::decode(split_delimited(&mut rest)?).ok()?;
    let message = split_delimited(&mut rest)?;
    let block = header.cell_block_meta.as_ref().map_or(0, |meta| meta.length() as usize);
    (block == rest.len()).then_some((header, message, rest))
}

fn split_delimited(rest: &mut Bytes) -> Option<Bytes> {
    let length = prost::decode_length_delimiter(&mut *rest).ok()?;
    (length <= rest.len()).then(|| rest.split_to(length))
}
