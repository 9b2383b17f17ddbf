//! What comes over a telnet connection.

use tsd_model::{InputFormat, parse_point_value, parse_telnet_timestamp};
use tsd_protocol::{
    HistogramLine, LineSplitter, PutLine, RollupLine, SeriesRules, TelnetCommand, TelnetCommands,
};

/// A chunk of a connection, cut into lines.
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
        // Words of a line are read alone too, whatever stands before them.
        for word in line.split(|b| *b == b' ') {
            let _ = parse_telnet_timestamp(word);
            for entrance in [InputFormat::Telnet, InputFormat::Http, InputFormat::Import] {
                let _ = parse_point_value(word, entrance);
            }
        }
    }
    assert!(splitter.consumed() <= input.len(), "no more is consumed than there is");
}
