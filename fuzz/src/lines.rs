//! Lines of a telnet connection.

use tsd_model::{InputFormat, parse_point_value, parse_telnet_timestamp};
use tsd_protocol::{
    Credentials, HistogramLine, InputLine, LineSplitter, PutLine, RollupLine, SeriesRules,
    TelnetCommand, TelnetCommands, parse_authorization, parse_telnet_credentials,
};

/// Longest line, bytes.
const MAX_LINE: usize = 1_024;

/// A chunk of a connection, split into lines.
pub(crate) fn telnet(input: &[u8]) {
    let commands = TelnetCommands { writes: true, die: true };
    let rules = SeriesRules::default();
    let (mut splitter, mut consumed) = (LineSplitter::new(MAX_LINE), 0);
    while let Some(line) = splitter.next_line(input, &mut consumed) {
        let line = match line {
            InputLine::Complete(line) => line,
            InputLine::TooLong(beginning) => {
                assert_eq!(beginning.len(), MAX_LINE, "the beginning is as long as a line may be");
                continue;
            }
        };
        match commands.parse(line) {
            TelnetCommand::Put => {
                if let Ok(point) = PutLine::parse(line) {
                    let _ = point.tags(&rules);
                }
            }
            TelnetCommand::Rollup => {
                for enabled in [false, true] {
                    if let Ok(rolled) = RollupLine::parse(line, enabled) {
                        let _ = rolled.point.tags(&rules);
                    }
                }
            }
            TelnetCommand::Histogram => {
                if let Ok(histogram) = HistogramLine::parse(line) {
                    let _ = histogram.tags(&rules);
                }
            }
            _ => {}
        }
        // Each word of a line is also parsed as a timestamp and as a value.
        for word in line.split(|b| *b == b' ') {
            let _ = parse_telnet_timestamp(word);
            for format in [InputFormat::Telnet, InputFormat::Http, InputFormat::Import] {
                let _ = parse_point_value(word, format);
            }
        }
    }
    assert!(consumed <= input.len(), "at most the input is consumed");
    assert!(input.len() - consumed <= MAX_LINE, "an unfinished line is bounded");
}

/// A telnet line of credentials, or the value of an `Authorization` header.
pub(crate) fn credentials(input: &[u8]) {
    let parsed = [parse_telnet_credentials(input).ok(), parse_authorization(input).ok()];
    for credentials in parsed.into_iter().flatten() {
        let shown = format!("{credentials:?}");
        let secret = match &credentials {
            Credentials::Basic { user, password } => {
                assert!(!user.is_empty() && user.len() <= input.len(), "a user");
                assert!(!user.contains([':', ' ', '\n']), "a name is one word");
                password
            }
            Credentials::Bearer(token) => token,
            Credentials::Certificate(name) => {
                panic!("{name}: a certificate comes from a handshake")
            }
        };
        assert!(!secret.bytes().is_empty() && secret.bytes().len() <= input.len(), "a secret");
        assert!(shown.contains("***"), "secrets are not shown");
    }
}
