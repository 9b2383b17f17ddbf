//! Frames: encoding of requests and decoding of responses on a connection.
//!
//! ```text
//! total u32 | varint, header | varint, message | cell block
//! ```
//!
//! Framing is independent of the contents: undecodable contents fail only their own call. Only a
//! length over the limit ends the connection.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hbase_rs_protobuf as pb;
use prost::Message;

use crate::{
    compression::{CompressionError, Compressor},
    exception::RemoteException,
};

/// Call id (-1) of a response about the connection itself.
pub const CONNECTION_CALL: u32 = u32::MAX;

/// Capacity reserved beyond the current frame.
const SLACK: usize = 16 << 10;

/// Maximum capacity reserved from a frame's length alone. For a longer frame it grows with the data.
const MAX_INITIAL_RESERVE: usize = 8 << 20;

/// Header fields of a request.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Call id, 0 to 2^31 - 1; unique among the pending calls.
    pub call_id: u32,
    /// Method name; case-sensitive.
    pub method: &'static str,
    /// Priority; by default the server derives it from the table.
    pub priority: Option<u32>,
    /// Timeout of the call, after which the server drops it without a response.
    pub timeout: Duration,
    /// Cell block, compressed if the connection header names a compressor.
    pub block: &'a [u8],
}

impl Request<'_> {
    /// Appends the frame without the cell block, which the caller sends after it.
    pub fn encode_head(&self, message: &impl Message, out: &mut BytesMut) {
        self.encode_header(message.encoded_len(), out);
        out.reserve(message.encoded_len());
        message.encode_raw(out);
    }

    /// Appends the frame up to the message, whose encoded length is `message`.
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
        // Writing to a growable buffer cannot fail.
        let _ = header.encode_length_delimited(out);
        let _ = prost::encode_length_delimiter(message, out);
    }
}

/// A message that can be sent as a request.
pub(crate) trait CallMessage {
    /// Encoded length of the message.
    fn length(&self) -> usize;

    /// Appends the frame up to the cell block to `out`. Returns the message if it is not copied to `out`
    /// and has to be sent after it.
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

/// An encoded message.
#[derive(Debug)]
pub(crate) struct EncodedMessage(pub(crate) Bytes);

impl CallMessage for EncodedMessage {
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

/// Splits a byte stream into frames.
#[derive(Clone, Copy, Debug)]
pub struct FrameReader {
    limit: usize,
}

impl FrameReader {
    /// Accepts frames of at most `limit` bytes.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { limit }
    }

    /// Removes the next frame from the front of `buffer` and returns it without its length prefix, or
    /// `None` if it is incomplete.
    ///
    /// Reserves capacity for the rest of an incomplete frame.
    ///
    /// # Errors
    ///
    /// When the frame is longer than the limit. The stream cannot be read any further then.
    pub fn next(self, buffer: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
        let Some(length) = buffer.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > self.limit {
            return Err(FrameError::OverLimit { length, limit: self.limit });
        }
        if buffer.len() - 4 < length {
            let missing = length + 4 - buffer.len();
            if buffer.capacity() - buffer.len() < missing.min(SLACK) {
                buffer.reserve(missing.min(MAX_INITIAL_RESERVE.max(buffer.len())) + SLACK);
            }
            return Ok(None);
        }
        buffer.advance(4);
        Ok(Some(buffer.split_to(length).freeze()))
    }
}

/// A response frame.
#[derive(Debug)]
pub struct Response {
    /// Id of the call, or [`CONNECTION_CALL`].
    pub call_id: u32,
    /// Outcome of the call.
    pub outcome: CallOutcome,
}

/// Outcome of a call.
#[derive(Debug)]
pub enum CallOutcome {
    /// The server responded.
    Response(ResponseBody),
    /// The server responded with an exception.
    Exception(RemoteException),
    /// The frame's header is valid and the rest is not.
    Undecodable(FrameError),
}

/// Encoded message and cell block of a response.
#[derive(Clone, Debug)]
pub struct ResponseBody {
    message: Bytes,
    block: Bytes,
}

impl Response {
    /// Decodes the header of a frame. Message and cell block are slices of the frame.
    ///
    /// # Errors
    ///
    /// When the header cannot be decoded, so that the call is unknown.
    pub fn decode(mut frame: Bytes) -> Result<Self, FrameError> {
        let header = take_delimited(&mut frame)?;
        let header = pb::ResponseHeader::decode(header).map_err(FrameError::message)?;
        let call_id = header.call_id();
        let outcome = match header.exception {
            Some(exception) => CallOutcome::Exception(RemoteException::from_response(&exception)),
            None => match ResponseBody::split(frame, header.cell_block_meta.as_ref()) {
                Ok(body) => CallOutcome::Response(body),
                Err(error) => CallOutcome::Undecodable(error),
            },
        };
        Ok(Self { call_id, outcome })
    }
}

impl ResponseBody {
    fn split(mut rest: Bytes, meta: Option<&pb::CellBlockMeta>) -> Result<Self, FrameError> {
        // A frame without a message has an empty one.
        let message = if rest.is_empty() { Bytes::new() } else { take_delimited(&mut rest)? };
        let expected = meta.map_or(0, |meta| meta.length() as usize);
        if rest.len() != expected {
            return Err(FrameError::Block { expected, found: rest.len() });
        }
        Ok(Self { message, block: rest })
    }

    /// Returns the encoded message.
    #[must_use]
    pub const fn encoded_message(&self) -> &Bytes {
        &self.message
    }

    /// True if the response has no cell block.
    pub(crate) const fn has_no_block(&self) -> bool {
        self.block.is_empty()
    }

    /// Decodes the message.
    ///
    /// # Errors
    ///
    /// When it cannot be decoded as `M`.
    pub fn message<M: Message + Default>(&self) -> Result<M, FrameError> {
        M::decode(self.message.clone()).map_err(FrameError::message)
    }

    /// Returns the cell block, decompressed to at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// When it cannot be decompressed or is longer than `limit`.
    pub fn block(&self, compressor: Option<Compressor>, limit: usize) -> Result<Bytes, FrameError> {
        match compressor {
            Some(compressor) if !self.block.is_empty() => {
                Ok(compressor.decompress(&self.block, limit)?)
            }
            _ => Ok(self.block.clone()),
        }
    }
}

/// Removes and returns the next part, which is prefixed with its length as a varint.
fn take_delimited(bytes: &mut Bytes) -> Result<Bytes, FrameError> {
    let length = prost::decode_length_delimiter(&mut *bytes).map_err(FrameError::message)?;
    if length > bytes.len() {
        return Err(FrameError::Part { length, remaining: bytes.len() });
    }
    Ok(bytes.split_to(length))
}

/// The reason why a protocol buffer message cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct MessageError(prost::DecodeError);

/// An undecodable frame.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// Longer than the limit; the connection has to be closed.
    #[error("frame is {length} bytes; the limit is {limit}")]
    OverLimit {
        /// Length of the frame.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// Header or message is longer than the rest of the frame.
    #[error("message is {length} bytes; the frame has {remaining} bytes left")]
    Part {
        /// Announced length.
        length: usize,
        /// Rest of the frame.
        remaining: usize,
    },
    /// The cell block's length differs from the length in the header.
    #[error("cell block is {found} bytes; the header says {expected}")]
    Block {
        /// Length in the header.
        expected: usize,
        /// Actual length.
        found: usize,
    },
    /// A message cannot be decoded.
    #[error("undecodable message")]
    Message(#[source] MessageError),
    /// The cell block cannot be decompressed.
    #[error("undecodable cell block")]
    Compression(#[from] CompressionError),
}

impl FrameError {
    pub(crate) const fn message(error: prost::DecodeError) -> Self {
        Self::Message(MessageError(error))
    }
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

    /// Decodes a recorded request and compares its encoding.
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
    fn requests_encode_as_recorded() {
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
    fn response_has_message_and_cell_block() {
        let response = response("get-response-cellblock");
        assert_eq!(response.call_id, 1);
        let CallOutcome::Response(body) = response.outcome else { panic!("{response:?}") };
        let message: pb::GetResponse = body.message().unwrap();
        assert_eq!(message.result.unwrap().associated_cell_count(), 1);
        assert_eq!(body.block(None, 100).unwrap(), recorded::vector("cell-put"));
    }

    #[test]
    fn exceptions_are_decoded() {
        let overloaded = response("exception-overloaded");
        let CallOutcome::Exception(exception) = overloaded.outcome else { panic!() };
        assert_eq!(exception.recovery(), Recovery::Overloaded);
        assert!(exception.is_overload());
        let preamble = response("exception-preamble");
        assert_eq!(preamble.call_id, CONNECTION_CALL);
    }

    #[test]
    fn incomplete_frame_stays_in_the_buffer() {
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
    fn frame_over_the_limit_is_an_error() {
        let mut buffer = BytesMut::from(&[0, 0, 1, 1][..]);
        let error = FrameReader::new(256).next(&mut buffer).unwrap_err();
        assert!(matches!(error, FrameError::OverLimit { length: 257, limit: 256 }), "{error}");
    }

    #[test]
    fn capacity_grows_with_received_data_not_with_the_announced_length() {
        const LENGTH: usize = 40 << 20;
        let reader = FrameReader::new(1 << 30);
        let mut buffer = BytesMut::from(&((LENGTH as u32).to_be_bytes())[..]);
        let part = vec![7; 1 << 20];
        for _ in 0..LENGTH / part.len() {
            assert!(reader.next(&mut buffer).unwrap().is_none());
            assert!(buffer.capacity() <= 3 * buffer.len() + MAX_INITIAL_RESERVE + SLACK);
            buffer.extend_from_slice(&part);
        }
        assert_eq!(reader.next(&mut buffer).unwrap().unwrap().len(), LENGTH);
        assert!(buffer.is_empty());
    }

    #[test]
    fn cell_block_of_wrong_length_fails_only_its_call() {
        let mut frame = recorded::vector("get-response-cellblock").slice(4..).to_vec();
        frame.push(0);
        let response = Response::decode(frame.into()).unwrap();
        assert_eq!(response.call_id, 1);
        assert!(matches!(response.outcome, CallOutcome::Undecodable(FrameError::Block { .. })));
    }

    proptest! {
        #[test]
        fn decoding_arbitrary_frames_does_not_panic(frame in vec(any::<u8>(), 0..60)) {
            if let Ok(Response { outcome: CallOutcome::Response(body), .. }) = Response::decode(frame.into()) {
                let _ = body.message::<pb::ScanResponse>();
                let _ = body.block(Some(Compressor::Snappy), 1 << 10);
            }
        }
    }
}
