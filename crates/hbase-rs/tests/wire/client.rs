//! Recorded answers through the whole client: a server that says what a real one said.

use std::sync::{Arc, Mutex};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::TryStreamExt;
use hbase_rs::{
    Cell, CellKind, Client, ClientConfig, Compressor, ExceptionClass, FixedDiscovery, Get,
    OperationError, Put, Region, Row, RowResult, Scan, ServerName, Table,
    protocol::{Answer, CellBlock, FrameReader, Outcome, Response, RowAssembler, ScanAnswer},
};
use hbase_rs_protobuf as pb;
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::recording::{self, Exchange};

const LIMIT: usize = 16 << 20;

/// The recorded frame that is said next, and after it to scans the end of the region.
type Script = Arc<Mutex<Option<Bytes>>>;

/// One server with one region of the table `wire`, for which it says what the script holds.
async fn start(script: Script) -> ServerName {
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
    // Of the connection, once its header is read.
    let mut compressor = None;
    loop {
        while let Some(frame) = FrameReader::new(LIMIT).next(&mut buffer).unwrap() {
            let Some(compressor) = compressor else {
                let header = pb::ConnectionHeader::decode(frame).unwrap();
                compressor = Some(recording::compressor(&header));
                continue;
            };
            let answer = answer(&frame, &server, compressor, &script);
            if socket.write_all(&answer).await.is_err() {
                return;
            }
        }
        if !matches!(socket.read_buf(&mut buffer).await, Ok(count) if count > 0) {
            return;
        }
    }
}

fn answer(
    frame: &[u8],
    server: &ServerName,
    compressor: Option<Compressor>,
    script: &Script,
) -> Bytes {
    let mut whole = BytesMut::new();
    whole.put_u32(frame.len() as u32);
    whole.put_slice(frame);
    let (header, message, _) = recording::request(&whole.freeze()).unwrap();
    if header.method_name() == "Scan" {
        let request = pb::ScanRequest::decode(message).unwrap();
        if request.region.as_ref().is_some_and(|region| region.value == "hbase:meta,,1") {
            let (message, mut block) = meta_row(server);
            if let Some(compressor) = compressor {
                block = compressor.compress(&block).unwrap();
            }
            return reframed(
                header.call_id(),
                None,
                &message.encode_length_delimited_to_vec(),
                &block,
            );
        }
    }
    if let Some(recorded) = script.lock().unwrap().take() {
        return with_call_id(&recorded, header.call_id());
    }
    let end =
        pb::ScanResponse { more_results_in_region: Some(false), ..pb::ScanResponse::default() };
    reframed(header.call_id(), None, &end.encode_length_delimited_to_vec(), &[])
}

/// What hbase:meta says of the only region.
fn meta_row(server: &ServerName) -> (pb::ScanResponse, Bytes) {
    let region = region();
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

fn region() -> Region {
    Region::new("wire".parse().unwrap(), Bytes::new(), Bytes::new(), 1)
}

/// The recorded frame as an answer to another call.
fn with_call_id(recorded: &Bytes, call_id: u32) -> Bytes {
    let mut rest = recorded.slice(4..);
    let length = prost::decode_length_delimiter(&mut rest).unwrap();
    let header = pb::ResponseHeader::decode(rest.split_to(length)).unwrap();
    reframed(call_id, Some(header), &rest, &[])
}

fn reframed(
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

/// What a client must make of a recorded answer.
enum Expected {
    Rows(Vec<Row>),
    Exception(ExceptionClass),
}

fn expected(exchange: &Exchange, method: &str) -> Expected {
    let response = Response::decode(recording::frame(exchange.response.as_ref().unwrap())).unwrap();
    let answer = match response.outcome {
        Outcome::Exception(exception) => return Expected::Exception(exception.class()),
        Outcome::Answer(answer) => answer,
        Outcome::Unreadable(error) => panic!("{}: {error}", exchange.place),
    };
    let block = answer.block(exchange.compressor, LIMIT).unwrap();
    Expected::Rows(match method {
        "Get" => vec![result(answer.message::<pb::GetResponse>().unwrap().result, block)],
        "Mutate" => vec![result(answer.message::<pb::MutateResponse>().unwrap().result, block)],
        _ => scanned(&answer, block),
    })
}

fn result(result: Option<pb::Result>, block: Bytes) -> Row {
    RowResult::decode(&result.unwrap_or_default(), &mut CellBlock::new(block)).unwrap().row
}

fn scanned(answer: &Answer, block: Bytes) -> Vec<Row> {
    let answer = ScanAnswer::decode(&answer.message().unwrap(), block).unwrap();
    let mut assembler = RowAssembler::new(&Scan::all(), LIMIT);
    let mut rows = Vec::new();
    assembler.answer(answer, &region(), &mut rows).unwrap();
    let end = ScanAnswer { region_over: true, ..ScanAnswer::default() };
    assembler.answer(end, &region(), &mut rows).unwrap();
    rows.into_iter().map(|row| row.row).collect()
}

async fn ask(table: &Table, method: &str) -> Result<Vec<Row>, OperationError> {
    match method {
        "Get" => Ok(vec![table.get(&Get::try_new("row").unwrap()).await?]),
        "Mutate" => {
            let put = Put::try_new("row").unwrap().cell(b"a", b"q", 1, b"v").unwrap();
            Ok(vec![table.mutate(put).await?])
        }
        _ => {
            let rows: Vec<_> = table.scan(Scan::all()).try_collect().await?;
            Ok(rows.into_iter().map(|row| row.row).collect())
        }
    }
}

#[tokio::test]
async fn the_client_makes_of_recorded_answers_what_they_say() {
    let script = Script::default();
    let server = start(Arc::clone(&script)).await;
    let mut told = (0, 0);
    for exchange in recording::exchanges() {
        let Some((header, ..)) = exchange.request.as_ref().and_then(recording::request) else {
            continue;
        };
        let method = header.method_name();
        let single = ["Get", "Mutate", "Scan"].contains(&method) && exchange.to == "ClientService";
        if !single || exchange.response.is_none() {
            continue;
        }
        let mut config = ClientConfig::new("wire");
        // What it makes of the answer, not of the next one.
        config.max_attempts = 1;
        config.compressor = exchange.compressor;
        let client = Client::new(config, FixedDiscovery::new(Some(server.clone()), None));
        let table = client.table("wire".parse().unwrap());
        table.locate("row".into()).await.unwrap();
        script.lock().unwrap().clone_from(&exchange.response);
        let answer = ask(&table, method).await;
        script.lock().unwrap().take();
        match (expected(&exchange, method), answer) {
            (Expected::Rows(rows), Ok(seen)) => {
                assert_eq!(seen, rows, "{}", exchange.place);
                told.0 += 1;
            }
            (Expected::Exception(class), Err(error)) => {
                assert_eq!(error.class(), Some(class), "{}", exchange.place);
                told.1 += 1;
            }
            (Expected::Rows(rows), Err(error)) => panic!("{}: {rows:?}, {error:?}", exchange.place),
            (Expected::Exception(class), Ok(seen)) => {
                panic!("{}: {class:?}, {seen:?}", exchange.place)
            }
        }
    }
    assert_eq!(told, (387, 81));
}
