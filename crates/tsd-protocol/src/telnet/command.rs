//! What a telnet line asks for.

/// A command, told by the first word of a line. Case matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TelnetCommand<'l> {
    /// Store a point; the line goes to [`crate::PutLine::parse`].
    Put,
    /// Store a rolled-up point; the line goes to [`crate::RollupLine::parse`].
    Rollup,
    /// Store a histogram; the line goes to [`crate::HistogramLine::parse`].
    Histogram,
    /// Print the daemon's own metrics.
    Stats,
    /// Print what was built.
    Version,
    /// Print how the daemon feels.
    Status,
    /// Forget cached UIDs.
    DropCaches,
    /// List the commands.
    Help,
    /// Close the connection.
    Exit,
    /// Stop the daemon, where that is allowed.
    DieDieDie,
    /// Anything else, with the word.
    Unknown(&'l [u8]),
}

/// Which commands a daemon offers; others are unknown to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TelnetCommands {
    /// `put`, `rollup` and `histogram`: not in read-only mode.
    pub writes: bool,
    /// `diediedie`: only if the configuration allows it.
    pub die: bool,
}

/// Every command with its word, in the order in which `help` lists them.
const WORDS: [(&str, TelnetCommand<'static>); 10] = [
    ("stats", TelnetCommand::Stats),
    ("dropcaches", TelnetCommand::DropCaches),
    ("version", TelnetCommand::Version),
    ("status", TelnetCommand::Status),
    ("exit", TelnetCommand::Exit),
    ("help", TelnetCommand::Help),
    ("put", TelnetCommand::Put),
    ("rollup", TelnetCommand::Rollup),
    ("histogram", TelnetCommand::Histogram),
    ("diediedie", TelnetCommand::DieDieDie),
];

impl TelnetCommands {
    /// Says what `line` asks for.
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
            TelnetCommand::DieDieDie => self.die,
            _ => true,
        }
    }

    /// Words of the commands on offer, in the order of `help`.
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
    fn the_first_word_tells_the_command() {
        assert_eq!(ALL.parse(b"put m 1 1 a=b"), TelnetCommand::Put);
        assert_eq!(ALL.parse(b"put"), TelnetCommand::Put);
        assert_eq!(ALL.parse(b"version now"), TelnetCommand::Version);
        assert_eq!(ALL.parse(b"diediedie"), TelnetCommand::DieDieDie);
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
    fn commands_not_on_offer_are_unknown() {
        assert_eq!(READ_ONLY.parse(b"put m 1 1 a=b"), TelnetCommand::Unknown(b"put"));
        assert_eq!(READ_ONLY.parse(b"histogram"), TelnetCommand::Unknown(b"histogram"));
        assert_eq!(READ_ONLY.parse(b"diediedie"), TelnetCommand::Unknown(b"diediedie"));
        assert_eq!(READ_ONLY.parse(b"stats"), TelnetCommand::Stats);
    }
}
