//! Commands of telnet lines.

/// A command: the first word of a line, case-sensitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TelnetCommand<'l> {
    /// Store a point; parsed by [`crate::PutLine::parse`].
    Put,
    /// Store a rolled-up point; parsed by [`crate::RollupLine::parse`].
    Rollup,
    /// Store a histogram; parsed by [`crate::HistogramLine::parse`].
    Histogram,
    /// A command about the daemon or the connection.
    Admin(AdminCommand),
    /// Any other word.
    Unknown(&'l [u8]),
}

/// A command that stores nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminCommand {
    /// Print the daemon's own metrics.
    Stats,
    /// Print build information.
    Version,
    /// Print the health of the daemon.
    Status,
    /// Drop cached UIDs.
    DropCaches,
    /// List the commands.
    Help,
    /// Close the connection.
    Exit,
    /// Stop the daemon, if enabled.
    DieDieDie,
}

/// Enabled commands. Other commands are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TelnetCommands {
    /// Enables `put`, `rollup` and `histogram`.
    pub writes: bool,
    /// Enables `diediedie`.
    pub die: bool,
}

/// Every command, in the order of `help`.
const WORDS: [(&str, TelnetCommand<'static>); 10] = [
    ("stats", TelnetCommand::Admin(AdminCommand::Stats)),
    ("dropcaches", TelnetCommand::Admin(AdminCommand::DropCaches)),
    ("version", TelnetCommand::Admin(AdminCommand::Version)),
    ("status", TelnetCommand::Admin(AdminCommand::Status)),
    ("exit", TelnetCommand::Admin(AdminCommand::Exit)),
    ("help", TelnetCommand::Admin(AdminCommand::Help)),
    ("put", TelnetCommand::Put),
    ("rollup", TelnetCommand::Rollup),
    ("histogram", TelnetCommand::Histogram),
    ("diediedie", TelnetCommand::Admin(AdminCommand::DieDieDie)),
];

impl TelnetCommands {
    /// Parses the command of `line`.
    #[must_use]
    #[inline]
    pub fn parse(self, line: &[u8]) -> TelnetCommand<'_> {
        if self.writes && line.starts_with(b"put ") {
            return TelnetCommand::Put;
        }
        self.parse_any(line)
    }

    fn parse_any(self, line: &[u8]) -> TelnetCommand<'_> {
        let word = line.split(|b| *b == b' ').next().unwrap_or_default();
        let known = WORDS.iter().find(|(text, _)| text.as_bytes() == word);
        match known {
            Some((_, command)) if self.offers(*command) => *command,
            _ => TelnetCommand::Unknown(word),
        }
    }

    fn offers(self, command: TelnetCommand<'_>) -> bool {
        match command {
            TelnetCommand::Put | TelnetCommand::Rollup | TelnetCommand::Histogram => self.writes,
            TelnetCommand::Admin(AdminCommand::DieDieDie) => self.die,
            _ => true,
        }
    }

    /// Returns the words of the enabled commands, in the order of `help`.
    pub(crate) fn words(self) -> impl Iterator<Item = &'static str> {
        WORDS.iter().filter(move |(_, command)| self.offers(*command)).map(|(word, _)| *word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: TelnetCommands = TelnetCommands { writes: true, die: true };
    const READ_ONLY: TelnetCommands = TelnetCommands { writes: false, die: false };

    #[test]
    fn the_first_word_selects_the_command() {
        assert_eq!(ALL.parse(b"put m 1 1 a=b"), TelnetCommand::Put);
        assert_eq!(ALL.parse(b"put"), TelnetCommand::Put);
        assert_eq!(ALL.parse(b"version now"), TelnetCommand::Admin(AdminCommand::Version));
        assert_eq!(ALL.parse(b"diediedie"), TelnetCommand::Admin(AdminCommand::DieDieDie));
        for (word, command) in WORDS {
            assert_eq!(ALL.parse(word.as_bytes()), command);
        }
    }

    #[test]
    fn other_words_are_unknown() {
        assert_eq!(ALL.parse(b""), TelnetCommand::Unknown(b""));
        assert_eq!(ALL.parse(b" put m 1 1 a=b"), TelnetCommand::Unknown(b""));
        assert_eq!(ALL.parse(b"put\tm 1 1 a=b"), TelnetCommand::Unknown(b"put\tm"));
        assert_eq!(ALL.parse(b"Version"), TelnetCommand::Unknown(b"Version"));
        assert_eq!(ALL.parse(b"\xff\xfe x"), TelnetCommand::Unknown(b"\xff\xfe"));
    }

    #[test]
    fn disabled_commands_are_unknown() {
        assert_eq!(READ_ONLY.parse(b"put m 1 1 a=b"), TelnetCommand::Unknown(b"put"));
        assert_eq!(READ_ONLY.parse(b"histogram"), TelnetCommand::Unknown(b"histogram"));
        assert_eq!(READ_ONLY.parse(b"diediedie"), TelnetCommand::Unknown(b"diediedie"));
        assert_eq!(READ_ONLY.parse(b"stats"), TelnetCommand::Admin(AdminCommand::Stats));
    }
}
