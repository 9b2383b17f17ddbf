//! Recorded single-row and scan responses, replayed to the client.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use hbase_rs::{
    Client, ClientConfig, Get, OperationError, Put, Row, RowResult, Scan, Table,
    discovery::FixedDiscovery,
    errors::ExceptionClass,
    protocol::{CallOutcome, CellBlock, Response, ResponseBody, RowAssembler, ScanResponse},
};
use hbase_rs_protobuf as pb;

use crate::{
    recording::{self, Exchange},
    server::{LIMIT, Script, region, start},
};

/// Expected result of a recorded response.
enum ExpectedResult {
    Rows(Vec<Row>),
    Exception(ExceptionClass),
}

fn expected(exchange: &Exchange, method: &str) -> ExpectedResult {
    let response = Response::decode(recording::frame(exchange.response.as_ref().unwrap())).unwrap();
    let body = match response.outcome {
        CallOutcome::Exception(exception) => return ExpectedResult::Exception(exception.class()),
        CallOutcome::Response(body) => body,
        CallOutcome::Undecodable(error) => panic!("{}: {error}", exchange.name),
    };
    let block = body.block(exchange.compressor, LIMIT).unwrap();
    ExpectedResult::Rows(match method {
        "Get" => vec![row(body.message::<pb::GetResponse>().unwrap().result, block)],
        "Mutate" => vec![row(body.message::<pb::MutateResponse>().unwrap().result, block)],
        _ => scanned_rows(&body, block),
    })
}

fn row(result: Option<pb::Result>, block: Bytes) -> Row {
    RowResult::decode(&result.unwrap_or_default(), &mut CellBlock::new(block)).unwrap().row
}

fn scanned_rows(body: &ResponseBody, block: Bytes) -> Vec<Row> {
    let response = ScanResponse::decode(&body.message().unwrap(), block).unwrap();
    let mut assembler = RowAssembler::new(&Scan::all(), LIMIT);
    let mut rows = Vec::new();
    assembler.add_response(response, &region(), &mut rows).unwrap();
    let end = ScanResponse { region_complete: true, ..ScanResponse::default() };
    assembler.add_response(end, &region(), &mut rows).unwrap();
    rows.into_iter().map(|row| row.row).collect()
}

async fn call(table: &Table, method: &str) -> Result<Vec<Row>, OperationError> {
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
async fn client_returns_the_rows_and_exceptions_of_recorded_responses() {
    let script = Script::default();
    let server = start(Arc::clone(&script)).await;
    let mut counts = (0, 0);
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
        // No retry: only the recorded response is tested.
        config.max_attempts = 1;
        config.compressor = exchange.compressor;
        let client = Client::new(config, FixedDiscovery::new(Some(server.clone()), None));
        let table = client.table("wire".parse().unwrap());
        table.locate("row".into()).await.unwrap();
        script.lock().next.clone_from(&exchange.response);
        let result = call(&table, method).await;
        script.lock().next.take();
        match (expected(&exchange, method), result) {
            (ExpectedResult::Rows(rows), Ok(actual)) => {
                assert_eq!(actual, rows, "{}", exchange.name);
                counts.0 += 1;
            }
            (ExpectedResult::Exception(class), Err(error)) => {
                assert_eq!(error.class(), Some(class), "{}", exchange.name);
                counts.1 += 1;
            }
            (ExpectedResult::Rows(rows), Err(error)) => {
                panic!("{}: {rows:?}, {error:?}", exchange.name)
            }
            (ExpectedResult::Exception(class), Ok(actual)) => {
                panic!("{}: {class:?}, {actual:?}", exchange.name)
            }
        }
    }
    assert_eq!(counts, (387, 81));
}
