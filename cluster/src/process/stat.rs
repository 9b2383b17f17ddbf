//! What the kernel says of a process.

use std::{fs, io, time::Duration};

/// Some of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Whether it ended and only waits to be reaped. Its first thread may have ended before the others;
    /// until they have too, its sockets and files are open.
    pub(crate) ended: bool,
    /// Whether it is held.
    pub(crate) paused: bool,
    /// User and system time.
    pub(crate) cpu: Duration,
    /// Ticks of the system's clock before it started.
    pub(crate) start: u64,
}

impl Stat {
    pub(crate) fn read(pid: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let ticks = rustix::param::clock_ticks_per_second();
        Self::parse(&text, ticks).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The name is in parentheses and may hold any; what follows is words.
    fn parse(text: &str, ticks_per_second: u64) -> Option<Self> {
        let (_, words) = text.rsplit_once(") ")?;
        let mut words = words.split_ascii_whitespace();
        let state = words.next()?;
        let zombie = matches!(state, "Z" | "X" | "x");
        let paused = matches!(state, "T" | "t");
        let user: u64 = words.nth(10)?.parse().ok()?;
        let system: u64 = words.next()?.parse().ok()?;
        let threads: u64 = words.nth(4)?.parse().ok()?;
        let start = words.nth(1)?.parse().ok()?;
        let cpu = Duration::from_secs_f64((user + system) as f64 / ticks_per_second as f64);
        Some(Self { ended: zombie && threads <= 1, paused, cpu, start })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_name_may_look_like_the_rest() {
        for (name, state, threads, ended, paused) in [
            ("java", "T", 1, false, true),
            ("a) Z (b c", "R", 20, false, false),
            ("x", "Z", 1, true, false),
            ("its first thread ended", "Z", 2, false, false),
        ] {
            let text = format!(
                "42 ({name}) {state} 1 42 42 0 -1 4194304 100 0 0 0 150 50 7 8 20 0 {threads} 0 9876 0"
            );
            let expected = Stat { ended, paused, cpu: Duration::from_secs(2), start: 9_876 };
            assert_eq!(Stat::parse(&text, 100), Some(expected));
        }
    }

    #[test]
    fn anything_else_is_nothing() {
        for text in
            ["", "42 (x", "42 (x) R 1", "42 (x) R a a a a a a a a a a a a a a a a a a a a a"]
        {
            assert_eq!(Stat::parse(text, 100), None);
        }
    }

    #[test]
    fn this_process_runs() {
        let stat = Stat::read(std::process::id()).unwrap();
        assert!(!stat.ended && stat.start > 0);
    }
}
