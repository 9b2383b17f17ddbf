//! Lines of a telnet connection.

use tsd_model::{InputFormat, parse_point_value, parse_telnet_timestamp};
use tsd_protocol::{
    HistogramLine, LineSplitter, PutLine, RollupLine, SeriesRules, TelnetCommand, TelnetCommands,
};

/// A chunk of a connection, split into lines.
pub(crate) fn telnet(input: &[u8]) {
    let commands = TelnetCommands { writes: true, die: true };
    let rules = SeriesRules::default();
    let mut splitter = LineSplitter::new(input);
    for line in splitter.by_ref() {
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
    assert!(splitter.consumed() <= input.len(), "at most the input is consumed");
}
