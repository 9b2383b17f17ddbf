//! One call: from frame to frame.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hbase_rs::Compressor;
use hbase_rs_protobuf as pb;
use prost::Message;

use super::{Shared, fault::Misdeed, master, scan, server::framed, state::State, write};

/// What the socket does about a call.
pub(crate) enum Reply {
    Frame(Bytes),
    Late(Duration, Bytes),
    Nothing,
    /// Sends this and closes.
    Last(Bytes),
}

/// Class below HBase's package, and text.
pub(crate) type Refusal = (&'static str, String);

/// Message and cells of an answer.
pub(crate) type Answered = Result<(Vec<u8>, Bytes), Refusal>;

const PACKAGE: &str = "org.apache.hadoop.hbase.";

/// Longest cell block, restored.
const MAX_BLOCK: usize = 64 << 20;

/// Full name of a class.
pub(crate) fn class_name(class: &str) -> String {
    if class.starts_with("java.") { class.to_owned() } else { format!("{PACKAGE}{class}") }
}

pub(crate) fn answer(
    state: &Shared,
    server: usize,
    compressor: Option<Compressor>,
    mut frame: Bytes,
) -> Reply {
    let header = pb::RequestHeader::decode(piece(&mut frame)).unwrap();
    let message = piece(&mut frame);
    if let Some(compressor) = compressor
        && !frame.is_empty()
    {
        frame = compressor.decompress(&frame, MAX_BLOCK).unwrap();
    }
    let (id, method) = (header.call_id(), header.method_name().to_owned());
    let mut state = state.lock();
    *state.calls.entry(method.clone()).or_default() += 1;
    let of_meta = header.priority() == 300;
    // Nobody waits for the answer to a scanner's end.
    let closes = method == "Scan"
        && pb::ScanRequest::decode(message.clone()).is_ok_and(|request| request.close_scanner());
    let misdeed = if closes { None } else { state.misdeed(&method, server, of_meta) };
    let good = |state: &mut State| {
        let answered =
            run(state, server, &method, message.clone(), frame.clone(), misdeed.as_ref());
        good(id, compressor, answered)
    };
    match &misdeed {
        Some(Misdeed::Exception { class, text }) => Reply::Frame(refused(id, class, text)),
        Some(Misdeed::RefuseConnection) => {
            Reply::Last(refused(u32::MAX, "ipc.FatalConnectionException", "no"))
        }
        Some(Misdeed::Silence) => {
            good(&mut state);
            Reply::Nothing
        }
        Some(Misdeed::Close) => Reply::Last(Bytes::new()),
        Some(Misdeed::CloseAfter(bytes)) => {
            let whole = good(&mut state);
            Reply::Last(whole.slice(..whole.len().min(*bytes)))
        }
        Some(Misdeed::Delay(wait)) => Reply::Late(*wait, good(&mut state)),
        Some(Misdeed::UnknownCallFirst) => {
            let stray = refused(id.wrapping_add(1_000_000), "NotServingRegionException", "whose?");
            Reply::Frame([stray, good(&mut state)].concat().into())
        }
        Some(Misdeed::Garbage) => {
            let header = pb::ResponseHeader { call_id: Some(id), ..pb::ResponseHeader::default() };
            let mut body = header.encode_length_delimited_to_vec();
            body.extend_from_slice(&[3, 0xff, 0xff, 0xff]);
            Reply::Frame(framed(&body))
        }
        Some(Misdeed::GarbageHeader) => Reply::Frame(framed(&[3, 0xff, 0xff, 0xff])),
        Some(Misdeed::Oversized) => Reply::Frame(Bytes::from_static(&[0xff; 12])),
        _ => Reply::Frame(good(&mut state)),
    }
}

fn run(
    state: &mut State,
    server: usize,
    method: &str,
    message: Bytes,
    block: Bytes,
    misdeed: Option<&Misdeed>,
) -> Answered {
    match method {
        "Get" => write::get(state, server, &pb::GetRequest::decode(message).unwrap(), misdeed),
        "Mutate" => {
            write::mutate(state, server, &pb::MutateRequest::decode(message).unwrap(), block)
        }
        "Multi" => Ok(write::multi(
            state,
            server,
            &pb::MultiRequest::decode(message).unwrap(),
            block,
            misdeed,
        )),
        "Scan" => scan::scan(state, server, &pb::ScanRequest::decode(message).unwrap(), misdeed),
        _ => master::answer(state, server, method, message),
    }
}

fn good(id: u32, compressor: Option<Compressor>, answered: Answered) -> Bytes {
    let (message, mut block) = match answered {
        Ok(answered) => answered,
        Err((class, text)) => return refused(id, class, &text),
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

fn refused(id: u32, class: &str, text: &str) -> Bytes {
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

fn piece(frame: &mut Bytes) -> Bytes {
    let length = prost::decode_length_delimiter(&mut *frame).unwrap();
    frame.split_to(length)
}
