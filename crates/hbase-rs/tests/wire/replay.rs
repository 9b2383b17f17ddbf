//! Every answer and every request of the recordings.

use std::collections::HashMap;

use hbase_rs::{
    Recovery,
    protocol::{Cells, Outcome, Response},
};

use crate::{
    answers,
    recording::{self, Exchange},
};

#[test]
fn every_recorded_answer_is_read_whole() {
    let mut answers = 0;
    let mut exceptions = HashMap::new();
    let mut cells = 0;
    for exchange in recording::exchanges() {
        // ZooKeeper's packets, and raw bytes that are no call.
        if exchange.to == "zookeeper" || exchange.call == "(raw)" {
            continue;
        }
        let Some(bytes) = &exchange.response else { continue };
        let response = Response::decode(recording::frame(bytes)).unwrap();
        answers += 1;
        match response.outcome {
            Outcome::Exception(exception) => {
                let said = exchange.decoded.contains(exception.class_name());
                assert!(said, "{}: {exception}", exchange.place);
                *exceptions.entry(exception.class()).or_insert(0) += 1;
            }
            Outcome::Answer(answer) => {
                let request = exchange.request.as_ref().and_then(recording::request);
                let method =
                    method(&exchange, request.as_ref().map(|(header, ..)| header.method_name()));
                cells += answers::read(
                    &exchange,
                    &method,
                    request.map(|(_, message, _)| message),
                    &answer,
                );
            }
            Outcome::Unreadable(error) => panic!("{}: {error}", exchange.place),
        }
    }
    assert_eq!(answers, 689);
    assert_eq!(cells, 1061);
    assert_eq!(exceptions.values().sum::<usize>(), 123);
}

/// Method by the request, or by the step where there is none.
fn method(exchange: &Exchange, of_request: Option<&str>) -> String {
    match of_request {
        Some(method) if !method.is_empty() => method.to_owned(),
        // Six bytes instead of a preamble.
        _ if exchange.to == "-" => "Regist".to_owned(),
        _ => exchange.call.clone(),
    }
}

#[test]
fn cells_of_recorded_requests_are_read_too() {
    let mut blocks = 0;
    for exchange in recording::exchanges() {
        let Some((_, _, block)) = exchange.request.as_ref().and_then(recording::request) else {
            continue;
        };
        // Some steps send what is no cell block, to see what happens.
        let nonsense = exchange.call == "cell block that is no cells"
            || exchange.place.contains("without that library");
        if block.is_empty() || nonsense {
            continue;
        }
        let restored = match exchange.compressor {
            Some(compressor) => compressor
                .decompress(&block, 16 << 20)
                .unwrap_or_else(|error| panic!("{}: {error}", exchange.place)),
            None => block,
        };
        blocks += 1;
        for cell in Cells::new(&restored) {
            cell.unwrap_or_else(|error| panic!("{}: {error}", exchange.place));
        }
    }
    assert_eq!(blocks, 120);
}

#[test]
fn every_recorded_exception_has_a_recovery_of_its_own() {
    let mut unknown = Vec::new();
    for exchange in recording::exchanges() {
        if exchange.to == "zookeeper" || exchange.call == "(raw)" {
            continue;
        }
        let Some(bytes) = &exchange.response else { continue };
        let response = Response::decode(recording::frame(bytes)).unwrap();
        if let Outcome::Exception(exception) = response.outcome
            && exception.class() == hbase_rs::ExceptionClass::Other
        {
            // The one step whose request is nonsense.
            if exchange.call == "cell block that is no cells" {
                continue;
            }
            unknown.push(format!("{}: {exception} -> {:?}", exchange.place, exception.recovery()));
            assert!(matches!(exception.recovery(), Recovery::Relocate | Recovery::Fail));
        }
    }
    assert_eq!(unknown, Vec::<String>::new());
}
