//! The telnet line protocol.

mod command;
mod histogram_line;
mod line_splitter;
mod put_line;
mod put_line_error;
pub mod reply;
mod rollup_line;

pub use command::{AdminCommand, TelnetCommand, TelnetCommands};
pub use histogram_line::{HistogramLine, HistogramLineError};
pub use line_splitter::{InputLine, LineSplitter};
pub use put_line::{PutLine, parse_tags};
pub use put_line_error::{PutLineError, TelnetPutError};
pub use rollup_line::RollupLine;
