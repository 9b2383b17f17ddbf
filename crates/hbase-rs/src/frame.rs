//! Frames: how requests and answers share a connection.
//!
//! ```text
//! total u32 | varint, header | varint, message | cell block
//! ```
//!
//! Framing is independent of what is inside: bytes that cannot be understood fail their own call
//! and leave the connection alone. Only a length over the limit ends it.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hbase_rs_protobuf as pb;
use prost::Message;

use crate::{
    compression::{CompressionError, Compressor},
    exception::RemoteException,
};

/// Call id of an answer that speaks of the connection itself (-1).
pub const CONNECTION_CALL: u32 = u32::MAX;

/// Room behind a frame that has begun: reading its end does not make the buffer grow.
const SLACK: usize = 16 << 10;

/// Room that is made for a frame on its word alone. For a longer one it grows with what comes.
const TRUST: usize = 8 << 20;

/// One call on its way out.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// 0 to 2^31 - 1; not one that may still be answered.
    pub call_id: u32,
    /// Method, in exact case.
    pub method: &'static str,
    /// Queue on the server; by table when absent.
    pub priority: Option<u32>,
    /// How long an answer is of use. The server drops the call without a word when it is over.
    pub timeout: Duration,
    /// Cell block, compressed if the connection says so.
    pub block: &'a [u8],
}

impl Request<'_> {
    /// Appends the frame, all but the cell block: that is the caller's to send behind it.
    pub fn encode_head(&self, message: &impl Message, out: &mut BytesMut) {
        self.encode_header(message.encoded_len(), out);
        out.reserve(message.encoded_len());
        message.encode_raw(out);
    }

    /// Appends the frame up to a message of this length.
    fn encode_header(&self, message: usize, out: &mut BytesMut) {
        let block = (!self.block.is_empty()).then_some(self.block.len() as u32);
        let header = pb::RequestHeader {
            call_id: Some(self.call_id),
            method_name: Some(self.method.to_owned()),
            request_param: Some(true),
            cell_block_meta: block.map(|length| pb::CellBlockMeta { length: Some(length) }),
            priority: self.priority,
            timeout: Some(u32::try_from(self.timeout.as_millis()).unwrap_or(u32::MAX)),
            ..pb::RequestHeader::default()
        };
        let parts = delimited_len(header.encoded_len()) + delimited_len(message);
        out.reserve(4 + parts - message);
        out.put_u32((parts + self.block.len()) as u32);
        // A growing buffer has room.
        let _ = header.encode_length_delimited(out);
        let _ = prost::encode_length_delimiter(message, out);
    }
}

/// What can be sent as the message of a call.
pub(crate) trait CallMessage {
    /// Bytes of the message.
    fn length(&self) -> usize;

    /// Appends the frame up to the cell block. Returns what of it is not in `out` and follows there.
    fn frame(&self, request: &Request<'_>, out: &mut BytesMut) -> Bytes;
}

impl<M: Message> CallMessage for M {
    fn length(&self) -> usize {
        self.encoded_len()
    }

    fn frame(&self, request: &Request<'_>, out: &mut BytesMut) -> Bytes {
        request.encode_head(self, out);
        Bytes::new()
    }
}

/// A message that is encoded already.
#[derive(Debug)]
pub(crate) struct Encoded(pub(crate) Bytes);

impl CallMessage for Encoded {
    fn length(&self) -> usize {
        self.0.len()
    }

    fn frame(&self, request: &Request<'_>, out: &mut BytesMut) -> Bytes {
        request.encode_header(self.0.len(), out);
        self.0.clone()
    }
}

fn delimited_len(length: usize) -> usize {
    prost::length_delimiter_len(length) + length
}

/// Cuts a stream of bytes into frames.
#[derive(Clone, Copy, Debug)]
pub struct FrameReader {
    limit: usize,
}

impl FrameReader {
    /// Frames of at most `limit` bytes.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { limit }
    }

    /// Takes the next frame off `buffer`, without its length; `None` until all of it is there.
    ///
    /// Room for the rest of a frame that has begun is reserved, so that it is read without growing.
    ///
    /// # Errors
    ///
    /// When the frame is longer than the limit. The stream is of no use then.
    pub fn next(self, buffer: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
        let Some(length) = buffer.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > self.limit {
            return Err(FrameError::OverLimit { length, limit: self.limit });
        }
        if buffer.len() - 4 < length {
            let missing = length + 4 - buffer.len();
            if buffer.capacity() - buffer.len() < missing.min(SLACK) {
                buffer.reserve(missing.min(TRUST.max(buffer.len())) + SLACK);
            }
            return Ok(None);
        }
        buffer.advance(4);
        Ok(Some(buffer.split_to(length).freeze()))
    }
}

/// A frame from the server.
#[derive(Debug)]
pub struct Response {
    /// Call it answers, or [`CONNECTION_CALL`].
    pub call_id: u32,
    /// What came.
    pub outcome: Outcome,
}

/// What a server made of a call.
#[derive(Debug)]
pub enum Outcome {
    /// It answered.
    Answer(Answer),
    /// It refused or failed.
    Exception(RemoteException),
    /// The call is known but the rest of the frame makes no sense.
    Unreadable(FrameError),
}

/// Message and cell block of an answer, still encoded.
#[derive(Clone, Debug)]
pub struct Answer {
    message: Bytes,
    block: Bytes,
}

impl Response {
    /// Reads the header of a frame and finds its parts. Message and block are slices of the frame.
    ///
    /// # Errors
    ///
    /// When the header cannot be read, so that nobody knows which call it is for.
    pub fn decode(mut frame: Bytes) -> Result<Self, FrameError> {
        let header = take_delimited(&mut frame)?;
        let header = pb::ResponseHeader::decode(header)?;
        let call_id = header.call_id();
        let outcome = match header.exception {
            Some(exception) => Outcome::Exception(RemoteException::from_response(&exception)),
            None => match Answer::split(frame, header.cell_block_meta.as_ref()) {
                Ok(answer) => Outcome::Answer(answer),
                Err(error) => Outcome::Unreadable(error),
            },
        };
        Ok(Self { call_id, outcome })
    }
}

impl Answer {
    fn split(mut rest: Bytes, meta: Option<&pb::CellBlockMeta>) -> Result<Self, FrameError> {
        // An answer without a message is an empty message.
        let message = if rest.is_empty() { Bytes::new() } else { take_delimited(&mut rest)? };
        let expected = meta.map_or(0, |meta| meta.length() as usize);
        if rest.len() != expected {
            return Err(FrameError::Block { expected, found: rest.len() });
        }
        Ok(Self { message, block: rest })
    }

    /// The message, still encoded.
    #[must_use]
    pub const fn encoded_message(&self) -> &Bytes {
        &self.message
    }

    /// Whether there are no cells behind the message.
    pub(crate) const fn has_no_block(&self) -> bool {
        self.block.is_empty()
    }

    /// Decodes the message.
    ///
    /// # Errors
    ///
    /// When the bytes are no such message.
    pub fn message<M: Message + Default>(&self) -> Result<M, FrameError> {
        Ok(M::decode(self.message.clone())?)
    }

    /// The cells, restored to at most `limit` bytes if they came compressed.
    ///
    /// # Errors
    ///
    /// When they cannot be restored.
    pub fn block(&self, compressor: Option<Compressor>, limit: usize) -> Result<Bytes, FrameError> {
        match compressor {
            Some(compressor) if !self.block.is_empty() => {
                Ok(compressor.decompress(&self.block, limit)?)
            }
            _ => Ok(self.block.clone()),
        }
    }
}

/// The next piece behind a varint length.
fn take_delimited(bytes: &mut Bytes) -> Result<Bytes, FrameError> {
    let length = prost::decode_length_delimiter(&mut *bytes)?;
    if length > bytes.len() {
        return Err(FrameError::Piece { length, left: bytes.len() });
    }
    Ok(bytes.split_to(length))
}

/// Bytes from a server that are no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Longer than this client takes; the connection is of no use any more.
    #[error("frame of {length} bytes, more than the limit of {limit}")]
    OverLimit {
        /// What the server announces.
        length: usize,
        /// What is allowed.
        limit: usize,
    },
    /// Header or message would end behind the frame.
    #[error("piece of {length} bytes where {left} are left in the frame")]
    Piece {
        /// What the frame says.
        length: usize,
        /// What it has.
        left: usize,
    },
    /// The cell block has another length than the header says.
    #[error("cell block of {found} bytes instead of {expected}")]
    Block {
        /// What the header says.
        expected: usize,
        /// What the frame has.
        found: usize,
    },
    /// No such message.
    #[error("undecodable message")]
    Message(#[from] prost::DecodeError),
    /// The block cannot be restored.
    #[error("unreadable cell block")]
    Compression(#[from] CompressionError),
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{exception::Recovery, recorded};

    #[track_caller]
    fn response(vector: &str) -> Response {
        let mut buffer = BytesMut::from(&recorded::vector(vector)[..]);
        let frame = FrameReader::new(1 << 20).next(&mut buffer).unwrap().unwrap();
        assert!(buffer.is_empty());
        Response::decode(frame).unwrap()
    }

    /// Header, message and block of a recorded request, encoded again.
    #[track_caller]
    fn check_request<M: Message + Default>(vector: &str, method: &'static str) {
        let bytes = recorded::vector(vector);
        let mut frame = bytes.slice(4..);
        let header = pb::RequestHeader::decode(take_delimited(&mut frame).unwrap()).unwrap();
        let message = M::decode(take_delimited(&mut frame).unwrap()).unwrap();
        let request = Request {
            call_id: header.call_id(),
            method,
            priority: header.priority,
            timeout: Duration::from_millis(header.timeout().into()),
            block: &frame,
        };
        let mut out = BytesMut::new();
        request.encode_head(&message, &mut out);
        out.put_slice(&frame);
        assert_eq!(out, bytes);
    }

    #[test]
    fn requests_are_framed_like_the_examples() {
        check_request::<pb::GetRequest>("get-request", "Get");
        check_request::<pb::MutateRequest>("mutate-put-cellblock", "Mutate");
        check_request::<pb::MultiRequest>("multi-request", "Multi");
        check_request::<pb::ScanRequest>("scan-meta-lookup", "Scan");
        check_request::<pb::ScanRequest>("scan-close", "Scan");
        check_request::<pb::CreateTableRequest>("create-table", "CreateTable");
        check_request::<pb::GetProcedureResultRequest>(
            "get-procedure-result",
            "getProcedureResult",
        );
    }

    #[test]
    fn an_answer_has_a_message_and_a_block() {
        let response = response("get-response-cellblock");
        assert_eq!(response.call_id, 1);
        let Outcome::Answer(answer) = response.outcome else { panic!("{response:?}") };
        let message: pb::GetResponse = answer.message().unwrap();
        assert_eq!(message.result.unwrap().associated_cell_count(), 1);
        assert_eq!(answer.block(None, 100).unwrap(), recorded::vector("cell-put"));
    }

    #[test]
    fn an_exception_has_neither() {
        let overloaded = response("exception-overloaded");
        let Outcome::Exception(exception) = overloaded.outcome else { panic!() };
        assert_eq!(exception.recovery(), Recovery::Overloaded);
        assert!(exception.is_overload());
        let preamble = response("exception-preamble");
        assert_eq!(preamble.call_id, CONNECTION_CALL);
    }

    #[test]
    fn a_frame_is_taken_only_when_it_is_whole() {
        let bytes = recorded::vector("get-response-cellblock");
        let reader = FrameReader::new(bytes.len());
        for end in 0..bytes.len() {
            let mut buffer = BytesMut::from(&bytes[..end]);
            assert!(reader.next(&mut buffer).unwrap().is_none());
            assert_eq!(buffer, bytes[..end]);
        }
        let mut two = BytesMut::from(&[&bytes[..], &bytes[..]].concat()[..]);
        assert_eq!(reader.next(&mut two).unwrap().unwrap(), bytes[4..]);
        assert_eq!(reader.next(&mut two).unwrap().unwrap(), bytes[4..]);
        assert!(two.is_empty());
    }

    #[test]
    fn a_frame_over_the_limit_is_an_error_at_once() {
        let mut buffer = BytesMut::from(&[0, 0, 1, 1][..]);
        let error = FrameReader::new(256).next(&mut buffer).unwrap_err();
        assert!(matches!(error, FrameError::OverLimit { length: 257, limit: 256 }), "{error}");
    }

    #[test]
    fn room_is_made_for_what_comes_and_not_for_what_is_announced() {
        const LENGTH: usize = 40 << 20;
        let reader = FrameReader::new(1 << 30);
        let mut buffer = BytesMut::from(&((LENGTH as u32).to_be_bytes())[..]);
        let piece = vec![7; 1 << 20];
        for _ in 0..LENGTH / piece.len() {
            assert!(reader.next(&mut buffer).unwrap().is_none());
            assert!(buffer.capacity() <= 3 * buffer.len() + TRUST + SLACK);
            buffer.extend_from_slice(&piece);
        }
        assert_eq!(reader.next(&mut buffer).unwrap().unwrap().len(), LENGTH);
        assert!(buffer.is_empty());
    }

    #[test]
    fn a_block_of_another_length_fails_its_call_only() {
        let mut frame = recorded::vector("get-response-cellblock").slice(4..).to_vec();
        frame.push(0);
        let response = Response::decode(frame.into()).unwrap();
        assert_eq!(response.call_id, 1);
        assert!(matches!(response.outcome, Outcome::Unreadable(FrameError::Block { .. })));
    }

    proptest! {
        #[test]
        fn any_frame_is_read_or_an_error(frame in vec(any::<u8>(), 0..60)) {
            if let Ok(Response { outcome: Outcome::Answer(answer), .. }) = Response::decode(frame.into()) {
                let _ = answer.message::<pb::ScanResponse>();
                let _ = answer.block(Some(Compressor::Snappy), 1 << 10);
            }
        }
    }
}
