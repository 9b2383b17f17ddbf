//! Recorded answers through the whole client.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use hbase_rs::{
    Client, ClientConfig, ExceptionClass, FixedDiscovery, Get, OperationError, Put, Row, RowResult,
    Scan, Table,
    protocol::{Answer, CellBlock, Outcome, Response, RowAssembler, ScanAnswer},
};
use hbase_rs_protobuf as pb;

use crate::{
    recording::{self, Exchange},
    server::{LIMIT, Script, region, start},
};

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
        script.lock().unwrap().next.clone_from(&exchange.response);
        let answer = ask(&table, method).await;
        script.lock().unwrap().next.take();
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
