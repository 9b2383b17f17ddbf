//! JSON text both ways, as OpenTSDB's library reads and writes it.

mod fault;
mod plain_text;
mod reader;
mod scalar;
mod writer;

pub use fault::{JsonError, JsonFault};
pub(crate) use reader::JsonReader;
pub(crate) use scalar::{Scalar, ScalarKind};
pub use writer::write_json_string;
pub(crate) use writer::{JsonList, JsonObject, write_json_chars};
