//! Output of commands: the result goes to standard output, everything else to standard error.
//!
//! Failed writes to standard error are ignored. A result that cannot be written is an error, unless its reader has
//! closed the pipe.

use std::{
    fmt,
    io::{self, Write as _},
};

use jiff::Timestamp;
use serde_json::Value;

/// Writes a line to standard error, which may be full or closed. `eprintln!` would then panic in the middle of the
/// work.
macro_rules! tell {
    ($($text:tt)*) => { $crate::output::write_error(format_args!("{}\n", format_args!($($text)*))) };
}
pub(crate) use tell;

/// Writes text with its line ends to standard error.
pub(crate) fn write_error(text: fmt::Arguments<'_>) {
    // There is no other place to report a failure.
    let _ = io::stderr().lock().write_fmt(text);
}

/// The result of a command could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write: {0}")]
pub(crate) struct CannotWrite(pub(crate) io::Error);

/// Prints text to standard output. A reader that has closed its pipe, such as `head`, is not an error.
pub(crate) fn print_lines(text: &str) -> Result<(), CannotWrite> {
    write_lines(&mut io::stdout().lock(), text)
}

/// A time as text in UTC.
pub(crate) fn utc(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Prints a result as JSON, or as text.
pub(crate) fn print_result(
    is_json: bool,
    result: &Value,
    text: impl FnOnce() -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let text = if is_json { format!("{result:#}\n") } else { text()? };
    Ok(print_lines(&text)?)
}

fn write_lines(out: &mut impl io::Write, text: &str) -> Result<(), CannotWrite> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(CannotWrite),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(io::ErrorKind);

    impl io::Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_a_closed_pipe_is_no_error() {
        assert!(write_lines(&mut Failing(io::ErrorKind::BrokenPipe), "a\n").is_ok());
        let full = write_lines(&mut Failing(io::ErrorKind::StorageFull), "a\n");
        let text = full.map_err(|error| error.to_string());
        assert_eq!(text, Err("cannot write: no storage space".to_owned()));
    }
}
