//! Parser of `/proc/PID/stat`.

use std::{fs, io, time::Duration};

/// The used fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    /// True for a zombie. A process whose first thread has exited while others run still has open files, and is not a
    /// zombie.
    pub(crate) ended: bool,
    /// True if it is stopped by a signal.
    pub(crate) paused: bool,
    /// User and system CPU time.
    pub(crate) cpu: Duration,
    /// Clock ticks between boot and its start.
    pub(crate) start: u64,
}

impl ProcessStat {
    pub(crate) fn read(pid: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let ticks = rustix::param::clock_ticks_per_second();
        Self::parse(&text, ticks).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The name is in parentheses and may contain any character; fields follow.
    fn parse(text: &str, ticks_per_second: u64) -> Option<Self> {
        let (_, fields) = text.rsplit_once(") ")?;
        let mut fields = fields.split_ascii_whitespace();
        let state = fields.next()?;
        let zombie = matches!(state, "Z" | "X" | "x");
        let paused = matches!(state, "T" | "t");
        let user: u64 = fields.nth(10)?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        let threads: u64 = fields.nth(4)?.parse().ok()?;
        let start = fields.nth(1)?.parse().ok()?;
        let cpu = Duration::from_secs_f64((user + system) as f64 / ticks_per_second as f64);
        Some(Self { ended: zombie && threads <= 1, paused, cpu, start })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_name_may_contain_separators() {
        for (name, state, threads, ended, paused) in [
            ("java", "T", 1, false, true),
            ("a) Z (b c", "R", 20, false, false),
            ("x", "Z", 1, true, false),
            ("its first thread ended", "Z", 2, false, false),
        ] {
            let text = format!(
                "42 ({name}) {state} 1 42 42 0 -1 4194304 100 0 0 0 150 50 7 8 20 0 {threads} 0 9876 0"
            );
            let expected = ProcessStat { ended, paused, cpu: Duration::from_secs(2), start: 9_876 };
            assert_eq!(ProcessStat::parse(&text, 100), Some(expected));
        }
    }

    #[test]
    fn other_texts_are_rejected() {
        for text in
            ["", "42 (x", "42 (x) R 1", "42 (x) R a a a a a a a a a a a a a a a a a a a a a"]
        {
            assert_eq!(ProcessStat::parse(text, 100), None);
        }
    }

    #[test]
    fn this_process_runs() {
        let stat = ProcessStat::read(std::process::id()).unwrap();
        assert!(!stat.ended && stat.start > 0);
    }
}
