//! `rollup` lines, all of which are refused: no rollups are configured.
//!
//! What OpenTSDB answers without them depends on how far a line gets, and some clients read it.

use tsd_protocol::{PutErrorKind, PutLine, PutLineError};

/// Words that OpenTSDB says are needed, and those it really needs with the command.
const NEEDED_AS_SAID: usize = 7;
const NEEDED: usize = 6;

/// Why a line is refused: the kind of error, and the whole reply.
pub(super) fn refusal(line: &[u8]) -> (PutErrorKind, String) {
    match read(line) {
        Err(error) => (error.kind(), format!("rollup: {error}\n")),
        Ok(aggregator) => (
            PutErrorKind::IllegalArgument,
            format!("rollup: illegal argument: Invalid tag name with value [{aggregator}]: null\n"),
        ),
    }
}

/// Reads a line as far as OpenTSDB does. With a group-by aggregator alone the point itself is read, and
/// then fails on the tag that would carry the aggregator: its key is set by a rollup configuration.
fn read(line: &[u8]) -> Result<String, PutLineError> {
    let words = line.split(|b| *b == b' ').count();
    let mut parts = line.splitn(3, |b| *b == b' ');
    let (_, spec, rest) = (parts.next(), parts.next(), parts.next());
    let (Some(spec), Some(rest), true) = (spec, rest, words >= NEEDED) else {
        return Err(PutLineError::NotEnoughArguments { needed: NEEDED_AS_SAID, got: words - 1 });
    };
    if spec.is_empty() {
        return Err(PutLineError::MissingRollupSpec);
    }
    let first = spec.split(|b| *b == b':').next().unwrap_or_default();
    if first.contains(&b'-') {
        return Err(PutLineError::RollupsDisabled);
    }
    let as_put = [b"put ", rest].concat();
    PutLine::parse(&as_put)?;
    Ok(String::from_utf8_lossy(first).to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let (_, reply) = refusal(line.as_bytes());
        assert_eq!(reply, format!("rollup: {expected}\n"), "{line}");
    }

    #[test]
    fn lines_are_refused_as_without_rollup_configuration() {
        let few = "illegal argument: not enough arguments (need least 7, got";
        check("rollup", &format!("{few} 0)"));
        check("rollup 1h-sum m 1 1", &format!("{few} 4)"));
        check("rollup  m 1 1 a=b", "illegal argument: Missing interval or aggregator");
        for spec in ["1h-sum", "1h-sum:sum"] {
            check(
                &format!("rollup {spec} m 1 1 a=b"),
                "illegal argument: No rollup or aggregations were configured",
            );
        }
        check("rollup sum m 1 1 a=b", "illegal argument: Invalid tag name with value [SUM]: null");
        check("rollup sum m 0 1 a=b", "illegal argument: invalid timestamp: 0");
        check("rollup sum m 1 x a=b", "invalid value: Invalid character 'x' in x");
    }
}
