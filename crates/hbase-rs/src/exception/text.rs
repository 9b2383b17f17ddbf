//! Parses the texts of exceptions, for values that are sent in no other form.

use std::time::Duration;

use super::recovery::MovedTo;
use crate::server_name::ServerName;

/// Returns the first line without the class name, which some texts start with.
pub(super) fn message<'a>(class_name: &str, text: &'a str) -> &'a str {
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix(class_name).map_or(line, |rest| rest.strip_prefix(": ").unwrap_or(rest))
}

/// Parses the time after ` - wait `: hours, minutes, seconds and milliseconds, each optional.
pub(super) fn wait(text: &str) -> Option<Duration> {
    let (_, rest) = text.split_once(" - wait ")?;
    let line = rest.lines().next()?.trim_end();
    let mut millis = 0_u64;
    for part in line.split(", ") {
        let digits = part.find(|letter: char| !letter.is_ascii_digit())?;
        let (number, unit) = part.split_at_checked(digits)?;
        let scale = match unit {
            "hr" | "hrs" => 3_600_000,
            "min" | "mins" => 60_000,
            "sec" | "secs" => 1_000,
            "ms" => 1,
            _ => return None,
        };
        millis = millis.checked_add(number.parse::<u64>().ok()?.checked_mul(scale)?)?;
    }
    Some(Duration::from_millis(millis))
}

/// Parses the new location of a region: `hostname=H port=P startCode=S. As of locationSeqNum=N.`
pub(super) fn moved_to(text: &str) -> Option<MovedTo> {
    let (_, rest) = text.split_once("hostname=")?;
    let (host, rest) = rest.split_once(" port=")?;
    let (port, rest) = rest.split_once(" startCode=")?;
    let (start_code, rest) = rest.split_once(". As of locationSeqNum=")?;
    let (seq_num, _) = rest.split_once('.')?;
    let server = ServerName::new(host, port.parse().ok()?, start_code.parse().ok()?);
    Some(MovedTo { server, seq_num: seq_num.parse().ok()? })
}
