//! Reads a password from the terminal without showing it, or from the first line of standard input.

use std::io::{self, BufRead as _, IsTerminal as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::{output::write_error, tell};

/// Maximum bytes of a password.
const MAX_BYTES: u64 = 4_096;

/// Enables the echo of the terminal again when dropped.
struct EchoOff(Termios);

impl EchoOff {
    fn new() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(before))
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
        // The terminal did not show the line end.
        tell!("");
    }
}

/// True if the command can ask a user.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal()
}

/// Reads a line. Shows the question only on a terminal.
pub(crate) fn read(question: &str) -> io::Result<String> {
    let _echo = if is_interactive() {
        write_error(format_args!("{question}"));
        Some(EchoOff::new()?)
    } else {
        None
    };
    let mut line = String::new();
    io::Read::take(io::stdin().lock(), MAX_BYTES).read_line(&mut line)?;
    let text = line.strip_suffix('\n').unwrap_or(&line);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}
