//! Packets of ZooKeeper's protocol.
//!
//! ```text
//! packet          length u32 | body
//! connect         version i32 | last zxid i64 | timeout ms i32 | session i64 | password | read-only u8
//! its response    version i32 | timeout ms i32 | session i64 | password [| read-only u8]
//! request         xid i32 | type i32 | body
//! its response    xid i32 | zxid i64 | error i32 | body
//! string, buffer  length i32 | bytes
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Maximum length of a received packet in bytes, as in ZooKeeper's own client (`jute.maxbuffer`).
pub(super) const MAX_PACKET: usize = 4 << 20;

/// Maximum number of children in a response.
const MAX_CHILDREN: usize = 1 << 20;

/// Length of a session's password in bytes.
const PASSWORD: usize = 16;

/// Length of the shortest response to a connect: servers before 3.4 have no read-only mode.
const MIN_CONNECT_RESPONSE: usize = 4 + 4 + 8 + 4 + PASSWORD;

/// Types of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum RequestType {
    GetData = 4,
    GetChildren = 8,
    Sasl = 102,
    CloseSession = -11,
}

/// Bytes that no ZooKeeper sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) String);

/// A response to a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    /// Error code, 0 for success.
    pub(super) error: i32,
    pub(super) body: Bytes,
}

/// Encodes the request for a new session with its length.
pub(super) fn connect_request(timeout_ms: i32) -> Bytes {
    let mut packet = BytesMut::new();
    packet.put_u32((MIN_CONNECT_RESPONSE + 8 + 1) as u32);
    packet.put_i32(0);
    packet.put_i64(0);
    packet.put_i32(timeout_ms);
    packet.put_i64(0);
    packet.put_i32(PASSWORD as i32);
    packet.put_bytes(0, PASSWORD);
    packet.put_u8(0);
    packet.freeze()
}

/// Checks the response to a request for a new session. False if the server grants none.
pub(super) fn read_connect_response(mut packet: Bytes) -> Result<bool, Malformed> {
    let length = packet.len();
    let is_long_enough = (MIN_CONNECT_RESPONSE..=MIN_CONNECT_RESPONSE + 1).contains(&length);
    if !is_long_enough {
        return Err(Malformed(format!("{length} bytes instead of a session")));
    }
    let version = packet.get_i32();
    let timeout = packet.get_i32();
    let session = packet.get_i64();
    let password = packet.get_i32();
    if version != 0 || timeout < 0 || password != PASSWORD as i32 {
        return Err(Malformed("a packet of another protocol instead of a session".to_owned()));
    }
    Ok(timeout > 0 && session != 0)
}

/// Encodes a request with its length.
pub(super) fn request(xid: i32, kind: RequestType, body: &[u8]) -> Bytes {
    let mut packet = BytesMut::with_capacity(12 + body.len());
    packet.put_u32(8 + body.len() as u32);
    packet.put_i32(xid);
    packet.put_i32(kind as i32);
    packet.put_slice(body);
    packet.freeze()
}

/// Encodes the body of a read, which sets no watch.
pub(super) fn path_body(path: &str) -> Bytes {
    let mut body = BytesMut::from(&buffer(path.as_bytes())[..]);
    body.put_u8(0);
    body.freeze()
}

/// Encodes a buffer.
pub(super) fn buffer(bytes: &[u8]) -> Bytes {
    let mut buffer = BytesMut::with_capacity(4 + bytes.len());
    buffer.put_i32(bytes.len() as i32);
    buffer.put_slice(bytes);
    buffer.freeze()
}

/// Decodes the response to the request `xid`.
pub(super) fn read_response(mut packet: Bytes, xid: i32) -> Result<Response, Malformed> {
    let header = |_| Malformed(format!("{} bytes instead of a response", packet.len()));
    let mut fields = packet.clone();
    let found = fields.try_get_i32().map_err(header)?;
    fields.try_get_i64().map_err(header)?;
    let error = fields.try_get_i32().map_err(header)?;
    if found != xid {
        return Err(Malformed(format!("a response to request {found} instead of {xid}")));
    }
    packet.advance(4 + 8 + 4);
    Ok(Response { error, body: packet })
}

/// Splits a buffer from the front; a negative length is an empty buffer.
pub(super) fn read_buffer(body: &mut Bytes) -> Result<Bytes, Malformed> {
    let cut = || Malformed("a cut buffer".to_owned());
    let length = body.try_get_i32().map_err(|_| cut())?;
    let length = usize::try_from(length).unwrap_or(0);
    if length > body.len() {
        return Err(cut());
    }
    Ok(body.split_to(length))
}

/// Decodes the names in a response to a request for children.
pub(super) fn read_children(mut body: Bytes) -> Result<Vec<String>, Malformed> {
    let count = body.try_get_i32().map_err(|_| Malformed("a cut list".to_owned()))?;
    let count = usize::try_from(count).unwrap_or(0).min(MAX_CHILDREN);
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(String::from_utf8_lossy(&read_buffer(&mut body)?).into_owned());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// The response to a connect.
    fn granted(timeout: i32, session: i64) -> BytesMut {
        let mut packet = BytesMut::new();
        packet.put_i32(0);
        packet.put_i32(timeout);
        packet.put_i64(session);
        packet.put_slice(&buffer(&[7; PASSWORD]));
        packet.put_u8(0);
        packet
    }

    #[test]
    fn sessions_are_granted_with_and_without_the_read_only_flag() {
        let packet = granted(6000, 5).freeze();
        assert_eq!(read_connect_response(packet.slice(..36)), Ok(true));
        assert_eq!(read_connect_response(packet.clone()), Ok(true));
        assert_eq!(read_connect_response(granted(0, 0).freeze()), Ok(false));
        for end in 0..36 {
            assert!(read_connect_response(packet.slice(..end)).is_err(), "{end}");
        }
        let mut other = BytesMut::from(&packet[..]);
        other[0] = 1;
        assert!(read_connect_response(other.freeze()).is_err());
    }

    #[test]
    fn requests_have_length_xid_and_type() {
        let body = path_body("/a");
        assert_eq!(body[..], *b"\0\0\0\x02/a\0");
        let packet = request(3, RequestType::GetData, &body);
        assert_eq!(packet[..], *b"\0\0\0\x0f\0\0\0\x03\0\0\0\x04\0\0\0\x02/a\0");
        let connect = connect_request(1000);
        assert_eq!(connect.len(), 4 + connect[3] as usize);
    }

    #[test]
    fn responses_belong_to_their_requests() {
        let packet = Bytes::from_static(b"\0\0\0\x02\0\0\0\0\0\0\0\x09\xff\xff\xff\x9bbody");
        let response = read_response(packet.clone(), 2).unwrap();
        assert_eq!(response, Response { error: -101, body: Bytes::from_static(b"body") });
        assert!(read_response(packet.clone(), 3).is_err());
        for end in 0..16 {
            assert!(read_response(packet.slice(..end), 2).is_err(), "{end}");
        }
    }

    #[test]
    fn lists_are_whole_or_refused() {
        let mut list = BytesMut::new();
        list.put_i32(2);
        list.put_slice(&buffer(b"a"));
        list.put_slice(&buffer(b"bc"));
        let list = list.freeze();
        assert_eq!(read_children(list.clone()).unwrap(), ["a", "bc"]);
        for end in 0..list.len() {
            assert!(read_children(list.slice(..end)).is_err(), "{end}");
        }
    }

    proptest! {
        #[test]
        fn decoding_arbitrary_bytes_does_not_panic(bytes in vec(any::<u8>(), 0..60)) {
            let bytes = Bytes::from(bytes);
            let _ = read_connect_response(bytes.clone());
            let _ = read_response(bytes.clone(), 1);
            let _ = read_buffer(&mut bytes.clone());
            let _ = read_children(bytes);
        }
    }
}
