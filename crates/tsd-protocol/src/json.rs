//! Reads and writes JSON like OpenTSDB's library.

mod error;
mod plain_text;
mod reader;
mod scalar;
mod writer;

pub use error::{JsonError, JsonErrorKind};
pub(crate) use reader::JsonReader;
pub(crate) use scalar::{Scalar, ScalarKind};
pub use writer::write_json_string;
pub(crate) use writer::{JsonList, JsonObject, write_json_chars, write_json_list};
