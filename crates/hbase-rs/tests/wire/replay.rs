//! Decoding of all recorded responses and requests.

use std::collections::HashMap;

use hbase_rs::{
    errors::Recovery,
    protocol::{CallOutcome, Cells, Response},
};

use crate::{
    recording::{self, Exchange},
    responses,
};

#[test]
fn recorded_responses_are_decoded_completely() {
    let mut responses = 0;
    let mut exceptions = HashMap::new();
    let mut cells = 0;
    for exchange in recording::exchanges() {
        // ZooKeeper packets, and raw bytes that do not form a call.
        if exchange.to == "zookeeper" || exchange.call == "(raw)" {
            continue;
        }
        let Some(bytes) = &exchange.response else { continue };
        let response = Response::decode(recording::frame(bytes)).unwrap();
        responses += 1;
        match response.outcome {
            CallOutcome::Exception(exception) => {
                let matches = exchange.decoded.contains(exception.class_name());
                assert!(matches, "{}: {exception}", exchange.name);
                *exceptions.entry(exception.class()).or_insert(0) += 1;
            }
            CallOutcome::Response(body) => {
                let request = exchange.request.as_ref().and_then(recording::request);
                let method =
                    method(&exchange, request.as_ref().map(|(header, ..)| header.method_name()));
                cells += responses::decode(
                    &exchange,
                    &method,
                    request.map(|(_, message, _)| message),
                    &body,
                );
            }
            CallOutcome::Undecodable(error) => panic!("{}: {error}", exchange.name),
        }
    }
    assert_eq!(responses, 689);
    assert_eq!(cells, 1061);
    assert_eq!(exceptions.values().sum::<usize>(), 123);
}

/// Returns the method of the request, or of the step if there is no request.
fn method(exchange: &Exchange, of_request: Option<&str>) -> String {
    match of_request {
        Some(method) if !method.is_empty() => method.to_owned(),
        // Six bytes in place of a preamble.
        _ if exchange.to == "-" => "Regist".to_owned(),
        _ => exchange.call.clone(),
    }
}

#[test]
fn cells_of_recorded_requests_are_decoded() {
    let mut blocks = 0;
    for exchange in recording::exchanges() {
        let Some((_, _, block)) = exchange.request.as_ref().and_then(recording::request) else {
            continue;
        };
        // Some steps send an invalid cell block on purpose.
        let invalid = exchange.call == "cell block that is no cells"
            || exchange.name.contains("without that library");
        if block.is_empty() || invalid {
            continue;
        }
        let decompressed = match exchange.compressor {
            Some(compressor) => compressor
                .decompress(&block, 16 << 20)
                .unwrap_or_else(|error| panic!("{}: {error}", exchange.name)),
            None => block,
        };
        blocks += 1;
        for cell in Cells::new(&decompressed) {
            cell.unwrap_or_else(|error| panic!("{}: {error}", exchange.name));
        }
    }
    assert_eq!(blocks, 120);
}

#[test]
fn recorded_exceptions_are_classified() {
    let mut unknown = Vec::new();
    for exchange in recording::exchanges() {
        if exchange.to == "zookeeper" || exchange.call == "(raw)" {
            continue;
        }
        let Some(bytes) = &exchange.response else { continue };
        let response = Response::decode(recording::frame(bytes)).unwrap();
        if let CallOutcome::Exception(exception) = response.outcome
            && exception.class() == hbase_rs::errors::ExceptionClass::Other
        {
            // The only step with an invalid request.
            if exchange.call == "cell block that is no cells" {
                continue;
            }
            unknown.push(format!("{}: {exception} -> {:?}", exchange.name, exception.recovery()));
            assert!(matches!(exception.recovery(), Recovery::Relocate | Recovery::Fail));
        }
    }
    assert_eq!(unknown, Vec::<String>::new());
}
