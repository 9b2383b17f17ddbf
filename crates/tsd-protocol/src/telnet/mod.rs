//! The line protocol.

mod command;
mod line_cutter;
mod put_line;
mod put_line_error;
pub mod reply;

pub use command::{TelnetCommand, TelnetCommands};
pub use line_cutter::{DEFAULT_LINE_LIMIT, LineCutter};
pub use put_line::{PutLine, parse_tags};
pub use put_line_error::{PutLineError, TelnetPutError};
