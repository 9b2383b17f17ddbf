//! Replies to commands other than writes. All are UTF-8 and end in `\n`, or in `\r\n` for replies to
//! credentials.

use super::command::TelnetCommands;
use crate::Latin1;

/// Reply to an unknown command.
#[must_use]
pub fn unknown_command(word: &[u8]) -> String {
    format!("unknown command: {}.  Try `help'.\n", Latin1(word))
}

/// Reply of `help`.
#[must_use]
pub fn help(commands: TelnetCommands) -> String {
    let mut out = String::from("available commands: ");
    for word in commands.words() {
        out.push_str(word);
        out.push(' ');
    }
    out.push('\n');
    out
}

/// Reply of `dropcaches`.
pub const CACHES_DROPPED: &str = "Caches dropped.\n";

/// Reply to valid credentials.
pub const AUTH_SUCCESS: &str = "AUTH_SUCCESS\r\n";

/// Reply to credentials that are wrong or no longer valid.
pub const AUTH_FAIL: &str = "AUTH_FAIL\r\n";

/// Text after `<command>: ` in the reply to a point whose sender may not put points.
#[must_use]
pub fn unauthorized_command(command: &str) -> String {
    format!("illegal argument: Unauthorized command: {command}")
}

/// Reply to a line that is longer than `limit` bytes. `command` is the command of a line with a point.
#[must_use]
pub fn line_too_long(command: Option<&str>, limit: usize) -> String {
    let reason = format!(
        "the line is longer than {limit} bytes (tsd.network.max_line_length) and was skipped"
    );
    match command {
        Some(command) => format!("{command}: illegal argument: {reason}\n"),
        None => format!("error: {reason}\n"),
    }
}

/// Reply of `diediedie`, sent before the daemon stops.
pub const CLEANING_UP: &str = "Cleaning up and exiting now.\n";

/// Reply of `status`.
#[must_use]
pub fn status(health: crate::Health) -> String {
    format!("{}\n", health.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Health;

    #[test]
    fn replies() {
        let all = TelnetCommands { writes: true, die: true };
        let read_only = TelnetCommands { writes: false, die: false };
        insta::assert_snapshot!(
            [
                unknown_command(b"bogus"),
                unknown_command(b""),
                unknown_command(b"put\tm\xe9"),
                help(all),
                help(read_only),
                CACHES_DROPPED.into(),
                CLEANING_UP.into(),
                AUTH_SUCCESS.into(),
                AUTH_FAIL.into(),
                unauthorized_command("put"),
                status(Health::Ok),
                status(Health::ShuttingDown),
            ]
            .map(|reply| format!("{reply:?}"))
            .join("\n"),
            @r#"
        "unknown command: bogus.  Try `help'.\n"
        "unknown command: .  Try `help'.\n"
        "unknown command: put\tmé.  Try `help'.\n"
        "available commands: stats dropcaches version status exit help put rollup histogram diediedie \n"
        "available commands: stats dropcaches version status exit help \n"
        "Caches dropped.\n"
        "Cleaning up and exiting now.\n"
        "AUTH_SUCCESS\r\n"
        "AUTH_FAIL\r\n"
        "illegal argument: Unauthorized command: put"
        "ok\n"
        "shutting-down\n"
        "#
        );
    }
}
