//! One RPC: decodes a request frame, executes the call and encodes the response frame.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use hbase_rs::Compressor;
use hbase_rs_protobuf as pb;
use prost::Message;

use super::{
    call_result::{CallResult, class_name},
    master, registry, row_calls, scan,
    state::{Call, ClusterState, SharedState},
    token_call,
};
use crate::fault::FaultKind;

/// What the connection does after a call.
pub(crate) enum SocketAction {
    Send(Bytes),
    SendLater(Duration, Bytes),
    Nothing,
    SendAndClose(Bytes),
}

/// Maximum length of a decompressed cell block.
const MAX_BLOCK: usize = 64 << 20;

pub(crate) fn handle_frame(
    state: &SharedState,
    server: usize,
    compressor: Option<Compressor>,
    mut frame: Bytes,
) -> SocketAction {
    let header = pb::RequestHeader::decode(split_delimited(&mut frame)).unwrap();
    let message = split_delimited(&mut frame);
    if let Some(compressor) = compressor
        && !frame.is_empty()
    {
        frame = compressor.decompress(&frame, MAX_BLOCK).unwrap();
    }
    let (id, method) = (header.call_id(), header.method_name().to_owned());
    let mut state = state.lock();
    *state.calls.entry(method.clone()).or_default() += 1;
    let of_meta = header.priority() == 300;
    // The client ignores the response to a scanner close.
    let closes = method == "Scan"
        && pb::ScanRequest::decode(message.clone()).is_ok_and(|request| request.close_scanner());
    let fault = if closes { None } else { state.take_fault(&method, server, of_meta) };
    let call = Call { server, method, message, block: frame };
    let respond = |state: &mut ClusterState| {
        let result = execute(state, call.clone(), fault.as_ref());
        encode_response(id, compressor, result)
    };
    match &fault {
        Some(FaultKind::Exception { class, text }) => {
            SocketAction::Send(encode_exception(id, class, text))
        }
        Some(FaultKind::ExceptionAfter { class, text }) => {
            respond(&mut state);
            SocketAction::Send(encode_exception(id, class, text))
        }
        Some(FaultKind::FatalConnectionException) => SocketAction::SendAndClose(encode_exception(
            u32::MAX,
            "ipc.FatalConnectionException",
            "no",
        )),
        Some(FaultKind::NoResponse) => {
            respond(&mut state);
            SocketAction::Nothing
        }
        Some(FaultKind::Late) => {
            state.late_calls.push(call);
            SocketAction::SendAndClose(Bytes::new())
        }
        Some(FaultKind::Close) => SocketAction::SendAndClose(Bytes::new()),
        Some(FaultKind::CloseAfter(bytes)) => {
            let response = respond(&mut state);
            SocketAction::SendAndClose(response.slice(..response.len().min(*bytes)))
        }
        Some(FaultKind::Delay(wait)) => SocketAction::SendLater(*wait, respond(&mut state)),
        Some(FaultKind::UnknownCallIdFirst) => {
            let unrequested =
                encode_exception(id.wrapping_add(1_000_000), "NotServingRegionException", "whose?");
            SocketAction::Send([unrequested, respond(&mut state)].concat().into())
        }
        Some(FaultKind::GarbageResponse) => {
            let header = pb::ResponseHeader { call_id: Some(id), ..pb::ResponseHeader::default() };
            let mut body = header.encode_length_delimited_to_vec();
            body.extend_from_slice(&[3, 0xff, 0xff, 0xff]);
            SocketAction::Send(framed(&body))
        }
        Some(FaultKind::GarbageHeader) => SocketAction::Send(framed(&[3, 0xff, 0xff, 0xff])),
        Some(FaultKind::OversizedFrame) => SocketAction::Send(Bytes::from_static(&[0xff; 12])),
        _ => SocketAction::Send(respond(&mut state)),
    }
}

/// Executes the calls that were delayed.
pub(crate) fn execute_late_calls(state: &mut ClusterState) {
    for call in std::mem::take(&mut state.late_calls) {
        execute(state, call, None).unwrap();
    }
}

fn execute(
    state: &mut ClusterState,
    Call { server, method, message, block }: Call,
    fault: Option<&FaultKind>,
) -> CallResult {
    match &*method {
        "Get" => row_calls::get(state, server, &pb::GetRequest::decode(message).unwrap(), fault),
        "Mutate" => {
            row_calls::mutate(state, server, &pb::MutateRequest::decode(message).unwrap(), block)
        }
        "Multi" => {
            let request = pb::MultiRequest::decode(message).unwrap();
            Ok(row_calls::multi(state, server, &request, block, fault))
        }
        "ExecService" => token_call::handle_call(state, message),
        "Scan" => scan::scan(state, server, &pb::ScanRequest::decode(message).unwrap(), fault),
        _ => registry::handle_call(state, server, &method)
            .unwrap_or_else(|| master::handle_call(state, server, &method, message)),
    }
}

fn encode_response(id: u32, compressor: Option<Compressor>, result: CallResult) -> Bytes {
    let (message, mut block) = match result {
        Ok(response) => response,
        Err((class, text)) => return encode_exception(id, class, &text),
    };
    if let Some(compressor) = compressor
        && !block.is_empty()
    {
        block = compressor.compress(&block).unwrap();
    }
    let length = (!block.is_empty()).then_some(block.len() as u32);
    let header = pb::ResponseHeader {
        call_id: Some(id),
        exception: None,
        cell_block_meta: length.map(|length| pb::CellBlockMeta { length: Some(length) }),
    };
    let mut body = BytesMut::from(&header.encode_length_delimited_to_vec()[..]);
    prost::encode_length_delimiter(message.len(), &mut body).unwrap();
    body.extend_from_slice(&message);
    body.extend_from_slice(&block);
    framed(&body)
}

pub(super) fn encode_exception(id: u32, class: &str, text: &str) -> Bytes {
    let exception = pb::ExceptionResponse {
        exception_class_name: Some(class_name(class)),
        stack_trace: Some(format!("{}: {text}\n\tat fake", class_name(class))),
        do_not_retry: Some(class.contains("DoNotRetry") || class.contains("FailedSanity")),
        ..pb::ExceptionResponse::default()
    };
    let header = pb::ResponseHeader {
        call_id: Some(id),
        exception: Some(exception),
        ..pb::ResponseHeader::default()
    };
    framed(&header.encode_length_delimited_to_vec())
}

/// Prefixes a frame with its length.
fn framed(body: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(4 + body.len());
    frame.put_u32(body.len() as u32);
    frame.put_slice(body);
    frame.freeze()
}

fn split_delimited(frame: &mut Bytes) -> Bytes {
    let length = prost::decode_length_delimiter(&mut *frame).unwrap();
    frame.split_to(length)
}
