//! A server that returns recorded responses.

use parking_lot::Mutex;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use hbase_rs::{
    Cell, CellKind, Compressor, ServerName,
    protocol::{FrameReader, RegionNameParts},
    region::Region,
};
use hbase_rs_protobuf as pb;
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::recording;

/// Maximum length of a frame.
pub(crate) const LIMIT: usize = 16 << 20;

/// Behaviour of the server.
pub(crate) type Script = Arc<Mutex<ServerScript>>;

/// Next response and number of regions.
#[derive(Debug, Default)]
pub(crate) struct ServerScript {
    /// The next response frame. Without one the server reports the end of the region.
    pub(crate) next: Option<Bytes>,
    /// Number of regions of the table `wire` after the first, which start at `1`, `2` and so on.
    pub(crate) more_regions: usize,
}

/// Starts a server with the table `wire`, which responds as scripted.
pub(crate) async fn start(script: Script) -> ServerName {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = ServerName::new("127.0.0.1", listener.local_addr().unwrap().port(), 1);
    let name = server.clone();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(socket, name.clone(), Arc::clone(&script)));
        }
    });
    server
}

async fn serve(mut socket: TcpStream, server: ServerName, script: Script) {
    let mut buffer = BytesMut::new();
    let _ = socket.read_exact(&mut [0; 6]).await;
    // Set once the connection header is read.
    let mut compressor = None;
    loop {
        while let Some(frame) = FrameReader::new(LIMIT).next(&mut buffer).unwrap() {
            let Some(compressor) = compressor else {
                let header = pb::ConnectionHeader::decode(frame).unwrap();
                compressor = Some(recording::compressor(&header));
                continue;
            };
            let response = respond(&frame, &server, compressor, &script);
            if socket.write_all(&response).await.is_err() {
                return;
            }
        }
        if !matches!(socket.read_buf(&mut buffer).await, Ok(count) if count > 0) {
            return;
        }
    }
}

fn respond(
    frame: &[u8],
    server: &ServerName,
    compressor: Option<Compressor>,
    script: &Script,
) -> Bytes {
    let mut prefixed = BytesMut::new();
    prefixed.put_u32(frame.len() as u32);
    prefixed.put_slice(frame);
    let (header, message, _) = recording::request(&prefixed.freeze()).unwrap();
    if header.method_name() == "Scan" {
        let request = pb::ScanRequest::decode(message.clone()).unwrap();
        if request.region.as_ref().is_some_and(|region| region.value == "hbase:meta,,1") {
            let start = request.scan.unwrap().start_row.unwrap();
            let more_regions = script.lock().more_regions;
            let (message, mut block) = meta_row(server, &region_of(&start, more_regions));
            if let Some(compressor) = compressor {
                block = compressor.compress(&block).unwrap();
            }
            return encode_response(
                header.call_id(),
                None,
                &message.encode_length_delimited_to_vec(),
                &block,
            );
        }
    }
    if header.method_name() == "Multi" && is_question(message.clone()) {
        // The server evaluates conditions of groups.
        let result =
            pb::RegionActionResult { processed: Some(true), ..pb::RegionActionResult::default() };
        let answer = pb::MultiResponse {
            region_action_result: vec![result],
            ..pb::MultiResponse::default()
        };
        let answer = answer.encode_length_delimited_to_vec();
        return encode_response(header.call_id(), None, &answer, &[]);
    }
    if let Some(recorded) = script.lock().next.take() {
        return with_call_id(&recorded, header.call_id());
    }
    let end =
        pb::ScanResponse { more_results_in_region: Some(false), ..pb::ScanResponse::default() };
    encode_response(header.call_id(), None, &end.encode_length_delimited_to_vec(), &[])
}

/// True for the request that checks whether the server evaluates conditions: a group without
/// actions.
fn is_question(message: Bytes) -> bool {
    let request = pb::MultiRequest::decode(message).unwrap();
    matches!(&request.region_action[..], [only] if only.condition.is_some() && only.action.is_empty())
}

/// Returns the region of a lookup.
fn region_of(search_key: &[u8], more_regions: usize) -> Region {
    let row = RegionNameParts::parse(search_key).map_or(&[][..], |parts| parts.start_key);
    let first = row.first().map_or(0, |digit| usize::from(digit.saturating_sub(b'0')));
    region_at(first.min(more_regions), more_regions)
}

/// Returns the row of hbase:meta of a region.
fn meta_row(server: &ServerName, region: &Region) -> (pb::ScanResponse, Bytes) {
    let info = [&b"PBUF"[..], &region.to_message().encode_to_vec()].concat();
    let address = format!("{}:{}", server.host(), server.port());
    let columns: [(&[u8], &[u8]); 3] = [
        (b"regioninfo", &info),
        (b"server", address.as_bytes()),
        (b"serverstartcode", &1_u64.to_be_bytes()),
    ];
    let mut block = BytesMut::new();
    for (qualifier, value) in columns {
        let (row, family) = (&region.name()[..], &b"info"[..]);
        Cell { row, family, qualifier, timestamp: 1, kind: CellKind::Put, value }
            .encode(&mut block)
            .unwrap();
    }
    let response = pb::ScanResponse { cells_per_result: vec![3], ..pb::ScanResponse::default() };
    (response, block.freeze())
}

/// Returns the only region of a table without further ones.
pub(crate) fn region() -> Region {
    region_at(0, 0)
}

fn region_at(at: usize, more_regions: usize) -> Region {
    let key = |at: usize| if at == 0 { Bytes::new() } else { at.to_string().into() };
    let end = if at == more_regions { Bytes::new() } else { key(at + 1) };
    Region::new("wire".parse().unwrap(), key(at), end, 1)
}

/// Returns the recorded frame with another call id.
fn with_call_id(recorded: &Bytes, call_id: u32) -> Bytes {
    let mut rest = recorded.slice(4..);
    let length = prost::decode_length_delimiter(&mut rest).unwrap();
    let header = pb::ResponseHeader::decode(rest.split_to(length)).unwrap();
    encode_response(call_id, Some(header), &rest, &[])
}

fn encode_response(
    call_id: u32,
    header: Option<pb::ResponseHeader>,
    message: &[u8],
    block: &[u8],
) -> Bytes {
    let mut header = header.unwrap_or_else(|| pb::ResponseHeader {
        cell_block_meta: (!block.is_empty())
            .then_some(pb::CellBlockMeta { length: Some(block.len() as u32) }),
        ..pb::ResponseHeader::default()
    });
    header.call_id = Some(call_id);
    let body = [&header.encode_length_delimited_to_vec(), message, block].concat();
    [&(body.len() as u32).to_be_bytes()[..], &body].concat().into()
}
