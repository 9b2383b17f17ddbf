//! Bounds the lines about refusals, since anybody who reaches the port can cause one.

use jiff::{SignedDuration, Timestamp};

use super::line::AuditLine;

/// Lines about refusals in a minute. Further refusals share a line.
const LINES: u32 = 60;
/// Length of a window.
const WINDOW: SignedDuration = SignedDuration::from_mins(1);

/// The refusals of a minute.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    since: Timestamp,
    lines: u32,
    suppressed: u64,
}

/// What a refusal writes.
#[derive(Debug)]
pub(super) struct Admitted {
    /// True if it has a line of its own.
    pub(super) has_line: bool,
    /// The summary of an earlier minute.
    pub(super) summary: Option<AuditLine>,
}

impl Refusals {
    /// Counts a refusal.
    pub(super) fn admit(&mut self, now: Timestamp) -> Admitted {
        let summary = self.summary(now);
        if self.is_over(now) {
            (self.since, self.lines) = (now, 0);
        }
        let has_line = self.lines < LINES;
        if has_line {
            self.lines += 1;
        } else {
            self.suppressed += 1;
        }
        Admitted { has_line, summary }
    }

    /// Takes the summary of refusals whose minute is over.
    pub(super) fn summary(&mut self, now: Timestamp) -> Option<AuditLine> {
        if self.suppressed == 0 || !self.is_over(now) {
            return None;
        }
        let line = AuditLine::refusals(self.suppressed, self.since);
        self.suppressed = 0;
        Some(line)
    }

    /// True once the minute is over, also if the clock was set back.
    fn is_over(&self, now: Timestamp) -> bool {
        now < self.since || now.duration_since(self.since) >= WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_800_000_000 + seconds)
    }

    #[test]
    fn a_minute_has_few_lines_and_then_a_summary() {
        let mut refusals = Refusals::default();
        let lines = (0..100).filter(|_| refusals.admit(at(0)).has_line).count();
        assert_eq!(lines, LINES as usize);
        assert!(refusals.summary(at(59)).is_none());
        let next = refusals.admit(at(60));
        assert!(next.has_line);
        let summary = next.summary.map(|line| line.render(at(60))).unwrap_or_default();
        assert!(
            summary.contains("40 further sign-ins and acts were refused since 20"),
            "{summary}"
        );
        assert!(refusals.summary(at(999)).is_none());
        assert!(refusals.admit(at(30)).has_line, "the clock was set back");
    }
}
