//! JSON text both ways, as OpenTSDB's library reads and writes it.

mod fault;
mod reader;
mod writer;

pub use fault::{JsonError, JsonFault};
pub(crate) use reader::{JsonReader, Scalar, ScalarKind};
pub use writer::write_json_string;
pub(crate) use writer::{JsonList, JsonObject, write_json_chars};
