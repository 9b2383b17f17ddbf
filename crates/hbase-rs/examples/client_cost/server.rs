//! A server that answers without doing anything.

use std::collections::HashMap;

use bytes::{BufMut, Bytes, BytesMut};
use hbase_rs::{Cell, CellKind, Region, protocol::FrameReader};
use hbase_rs_protobuf as pb;
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::Outcome;

/// Bytes of cells in one answer to a scan, as HBase's clients ask for.
const ANSWER_BYTES: usize = 2 << 20;

/// Serves until it is killed.
pub(crate) async fn serve() -> Outcome<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    println!("{port}");
    loop {
        let (socket, _) = listener.accept().await?;
        tokio::spawn(async move {
            if let Err(error) = connection(socket, port).await {
                eprintln!("server: {error}");
            }
        });
    }
}

async fn connection(mut socket: TcpStream, port: u16) -> Outcome<()> {
    socket.set_nodelay(true)?;
    socket.read_exact(&mut [0; 6]).await?;
    let mut buffer = BytesMut::with_capacity(1 << 20);
    let mut header_read = false;
    let mut scans = Scans::default();
    loop {
        let mut answers = BytesMut::new();
        while let Some(frame) = FrameReader::new(64 << 20).next(&mut buffer)? {
            if header_read {
                answer(frame, port, &mut scans, &mut answers)?;
            }
            header_read = true;
        }
        socket.write_all(&answers).await?;
        buffer.reserve(256 << 10);
        if socket.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
}

/// Rows that are left to say, and the answer that says most.
#[derive(Default)]
struct Scans {
    left: u32,
    cells_a_row: u32,
    answers: HashMap<(u32, u32), (Vec<u8>, Bytes)>,
}

fn answer(mut frame: Bytes, port: u16, scans: &mut Scans, out: &mut BytesMut) -> Outcome<()> {
    let header = pb::RequestHeader::decode(piece(&mut frame)?)?;
    let message = piece(&mut frame)?;
    let (message, block) = match header.method_name() {
        "Multi" => (done(&pb::MultiRequest::decode(message)?), Bytes::new()),
        "Get" => {
            let result = pb::Result { associated_cell_count: Some(1), ..pb::Result::default() };
            let response = pb::GetResponse { result: Some(result) };
            (response.encode_to_vec(), row(0, 1).freeze())
        }
        "Scan" => {
            let request = pb::ScanRequest::decode(message)?;
            let of_meta =
                request.region.as_ref().is_some_and(|region| region.value == "hbase:meta,,1");
            if of_meta { meta(&request, port) } else { scan(&request, scans) }
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

/// Says of every action that it was done.
fn done(request: &pb::MultiRequest) -> Vec<u8> {
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

fn scan(request: &pb::ScanRequest, scans: &mut Scans) -> (Vec<u8>, Bytes) {
    if request.close_scanner() {
        return (pb::ScanResponse::default().encode_to_vec(), Bytes::new());
    }
    if request.scan.is_some() {
        scans.left = request.limit_of_rows();
        scans.cells_a_row = request.number_of_rows();
    }
    let cells = scans.cells_a_row;
    let rows = (ANSWER_BYTES / row(0, cells).len()) as u32;
    let rows = rows.min(scans.left);
    scans.left -= rows;
    if scans.left == 0 {
        let (mut response, block) = rows_answer(rows, cells);
        response.more_results = Some(false);
        return (response.encode_to_vec(), block);
    }
    let known = scans.answers.entry((rows, cells)).or_insert_with(|| {
        let (response, block) = rows_answer(rows, cells);
        (response.encode_to_vec(), block)
    });
    known.clone()
}

fn rows_answer(rows: u32, cells: u32) -> (pb::ScanResponse, Bytes) {
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

/// Cells of a row as OpenTSDB writes them.
fn row(number: u32, cells: u32) -> BytesMut {
    let mut out = BytesMut::new();
    let key = [&[0; 15][..], &number.to_be_bytes()].concat();
    for at in 0..cells as u16 {
        let (row, family, qualifier) = (&key[..], &b"t"[..], &at.to_be_bytes()[..]);
        let value = &number.to_be_bytes()[..];
        let cell = Cell { row, family, qualifier, timestamp: 1, kind: CellKind::Put, value };
        // Its parts are short.
        let _ = cell.encode(&mut out);
    }
    out
}

/// The only region.
fn meta(request: &pb::ScanRequest, port: u16) -> (Vec<u8>, Bytes) {
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
    // Behind its own row there is nothing.
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

fn piece(frame: &mut Bytes) -> Outcome<Bytes> {
    let length = prost::decode_length_delimiter(&mut *frame)?;
    if length > frame.len() {
        return Err("a frame that ends early".into());
    }
    Ok(frame.split_to(length))
}
