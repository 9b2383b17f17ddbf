//! Result of a call: a message and a cell block, or an exception.

use bytes::Bytes;
use prost::Message;

/// Java class below `org.apache.hadoop.hbase.`, and message.
pub(crate) type RpcException = (&'static str, String);

/// Message and cell block of a response.
pub(crate) type CallResult = Result<(Vec<u8>, Bytes), RpcException>;

const PACKAGE: &str = "org.apache.hadoop.hbase.";

/// Returns the full name of a Java class.
pub(crate) fn class_name(class: &str) -> String {
    if class.starts_with("java.") { class.to_owned() } else { format!("{PACKAGE}{class}") }
}

/// Decodes the message of a request.
pub(crate) fn decode<M: Message + Default>(message: Bytes) -> M {
    M::decode(message).unwrap()
}
