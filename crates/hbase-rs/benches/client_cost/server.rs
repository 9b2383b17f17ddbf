//! Region server that responds without storing anything.

use std::collections::HashMap;

use bytes::{BufMut, Bytes, BytesMut};
use hbase_rs::{Cell, CellKind, protocol::FrameReader, region::Region};
use hbase_rs_protobuf as pb;
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::BenchResult;

/// Bytes of cells per scan response: the default of HBase's clients.
const RESPONSE_BYTES: usize = 2 << 20;

/// Serves until the process is killed.
pub(crate) async fn serve() -> BenchResult<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    println!("{port}");
    loop {
        let (socket, _) = listener.accept().await?;
        tokio::spawn(async move {
            if let Err(error) = serve_connection(socket, port).await {
                eprintln!("server: {error}");
            }
        });
    }
}

async fn serve_connection(mut socket: TcpStream, port: u16) -> BenchResult<()> {
    socket.set_nodelay(true)?;
    socket.read_exact(&mut [0; 6]).await?;
    let mut buffer = BytesMut::with_capacity(1 << 20);
    let mut header_read = false;
    let mut scans = ScanState::default();
    loop {
        let mut responses = BytesMut::new();
        while let Some(frame) = FrameReader::new(64 << 20).next(&mut buffer)? {
            if header_read {
                respond(frame, port, &mut scans, &mut responses)?;
            }
            header_read = true;
        }
        socket.write_all(&responses).await?;
        buffer.reserve(256 << 10);
        if socket.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
}

/// Rows that the scanner has not sent, and responses by rows and cells per row.
#[derive(Default)]
struct ScanState {
    remaining_rows: u32,
    cells_a_row: u32,
    responses: HashMap<(u32, u32), (Vec<u8>, Bytes)>,
}

fn respond(
    mut frame: Bytes,
    port: u16,
    scans: &mut ScanState,
    out: &mut BytesMut,
) -> BenchResult<()> {
    let header = pb::RequestHeader::decode(split_delimited(&mut frame)?)?;
    let message = split_delimited(&mut frame)?;
    let (message, block) = match header.method_name() {
        "Multi" => (acknowledge(&pb::MultiRequest::decode(message)?), Bytes::new()),
        "Get" => {
            let result = pb::Result { associated_cell_count: Some(1), ..pb::Result::default() };
            let response = pb::GetResponse { result: Some(result) };
            (response.encode_to_vec(), row(0, 1).freeze())
        }
        "Scan" => {
            let request = pb::ScanRequest::decode(message)?;
            let of_meta =
                request.region.as_ref().is_some_and(|region| region.value == "hbase:meta,,1");
            if of_meta { scan_meta(&request, port) } else { scan(&request, scans) }
        }
        other => return Err(other.into()),
    };
    let meta = pb::CellBlockMeta { length: Some(block.len() as u32) };
    let header = pb::ResponseHeader {
        call_id: header.call_id,
        cell_block_meta: (!block.is_empty()).then_some(meta),
        ..pb::ResponseHeader::default()
    };
    let mut body = header.encode_length_delimited_to_vec();
    prost::encode_length_delimiter(message.len(), &mut body)?;
    out.reserve(4 + body.len() + message.len() + block.len());
    out.put_u32((body.len() + message.len() + block.len()) as u32);
    out.put_slice(&body);
    out.put_slice(&message);
    out.put_slice(&block);
    Ok(())
}

/// Returns a response that reports success for every action.
fn acknowledge(request: &pb::MultiRequest) -> Vec<u8> {
    let entry = |action: &pb::Action| pb::ResultOrException {
        index: action.index,
        result: Some(pb::Result::default()),
        ..pb::ResultOrException::default()
    };
    let region = |region: &pb::RegionAction| pb::RegionActionResult {
        result_or_exception: region.action.iter().map(entry).collect(),
        ..pb::RegionActionResult::default()
    };
    let region_action_result = request.region_action.iter().map(region).collect();
    let response = pb::MultiResponse { region_action_result, ..pb::MultiResponse::default() };
    response.encode_to_vec()
}

fn scan(request: &pb::ScanRequest, scans: &mut ScanState) -> (Vec<u8>, Bytes) {
    if request.close_scanner() {
        return (pb::ScanResponse::default().encode_to_vec(), Bytes::new());
    }
    if request.scan.is_some() {
        scans.remaining_rows = request.limit_of_rows();
        scans.cells_a_row = request.number_of_rows();
    }
    let cells = scans.cells_a_row;
    let rows = (RESPONSE_BYTES / row(0, cells).len()) as u32;
    let rows = rows.min(scans.remaining_rows);
    scans.remaining_rows -= rows;
    if scans.remaining_rows == 0 {
        let (mut response, block) = scan_response(rows, cells);
        response.more_results = Some(false);
        return (response.encode_to_vec(), block);
    }
    let cached = scans.responses.entry((rows, cells)).or_insert_with(|| {
        let (response, block) = scan_response(rows, cells);
        (response.encode_to_vec(), block)
    });
    cached.clone()
}

fn scan_response(rows: u32, cells: u32) -> (pb::ScanResponse, Bytes) {
    let mut block = BytesMut::new();
    for number in 0..rows {
        block.extend_from_slice(&row(number, cells));
    }
    let response = pb::ScanResponse {
        cells_per_result: vec![cells; rows as usize],
        partial_flag_per_result: vec![false; rows as usize],
        scanner_id: Some(1),
        more_results: Some(true),
        more_results_in_region: Some(true),
        ..pb::ScanResponse::default()
    };
    (response, block.freeze())
}

/// Encodes a row with cells of the sizes that OpenTSDB writes.
fn row(number: u32, cells: u32) -> BytesMut {
    let mut out = BytesMut::new();
    let key = [&[0; 15][..], &number.to_be_bytes()].concat();
    for at in 0..cells as u16 {
        let (row, family, qualifier) = (&key[..], &b"t"[..], &at.to_be_bytes()[..]);
        let value = &number.to_be_bytes()[..];
        let cell = Cell { row, family, qualifier, timestamp: 1, kind: CellKind::Put, value };
        // Fails only for parts above their length limits.
        let _ = cell.encode(&mut out);
    }
    out
}

/// Scans hbase:meta, which has the row of one region.
fn scan_meta(request: &pb::ScanRequest, port: u16) -> (Vec<u8>, Bytes) {
    let region = Region::new(
        "t".parse().unwrap_or_else(|_| hbase_rs::TableName::meta()),
        Bytes::new(),
        Bytes::new(),
        1,
    );
    let start = request.scan.as_ref().map(|scan| scan.start_row().to_vec()).unwrap_or_default();
    let mut block = BytesMut::new();
    let mut response =
        pb::ScanResponse { more_results_in_region: Some(false), ..pb::ScanResponse::default() };
    // A scan that starts at the region's own row is past the end.
    if start != region.name()[..] {
        let info = [&b"PBUF"[..], &region.to_message().encode_to_vec()].concat();
        let address = format!("127.0.0.1:{port}");
        let columns: [(&[u8], &[u8]); 3] = [
            (b"regioninfo", &info),
            (b"server", address.as_bytes()),
            (b"serverstartcode", &1_u64.to_be_bytes()),
        ];
        for (qualifier, value) in columns {
            let (row, family) = (&region.name()[..], &b"info"[..]);
            let cell = Cell { row, family, qualifier, timestamp: 1, kind: CellKind::Put, value };
            let _ = cell.encode(&mut block);
        }
        response.cells_per_result.push(3);
    }
    (response.encode_to_vec(), block.freeze())
}

fn split_delimited(frame: &mut Bytes) -> BenchResult<Bytes> {
    let length = prost::decode_length_delimiter(&mut *frame)?;
    if length > frame.len() {
        return Err("truncated frame".into());
    }
    Ok(frame.split_to(length))
}
