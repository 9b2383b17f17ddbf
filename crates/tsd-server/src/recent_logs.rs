//! The last log events of the process, for `/logs`, and changes of its log level.
//!
//! The subscriber of the process adds events to [`RecentLogs`], and passes in the function that changes
//! its level.

use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use metrics::counter;
use tracing::Level;

/// Maximum kept events, as in OpenTSDB's configuration of its log.
const MAX_EVENTS: usize = 1_024;
/// Maximum bytes of the kept events.
const MAX_BYTES: usize = 1 << 20;
/// Maximum bytes of an event's text; longer texts are cut.
const MAX_EVENT_BYTES: usize = 8 << 10;
/// Marks the end of a cut text.
const CUT: &str = " [...]";

/// Every level with its label in metrics.
const LEVELS: [(Level, &str); 5] = [
    (Level::ERROR, "error"),
    (Level::WARN, "warn"),
    (Level::INFO, "info"),
    (Level::DEBUG, "debug"),
    (Level::TRACE, "trace"),
];

/// An event of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEvent {
    /// Time of the event, in seconds since the epoch.
    pub epoch_secs: u64,
    /// Level of the event.
    pub level: Level,
    /// Name of the thread.
    pub thread: String,
    /// Module path of the code that logged the event.
    pub logger: String,
    /// Message and fields.
    pub text: String,
}

/// The last events. Evicts the oldest events when their number or size exceeds a limit.
#[derive(Debug, Default)]
pub struct RecentLogs {
    events: Mutex<KeptEvents>,
    /// Events of each level since the start.
    counts: [AtomicU64; LEVELS.len()],
}

#[derive(Debug, Default)]
struct KeptEvents {
    /// The events, oldest first.
    events: VecDeque<LogEvent>,
    bytes: usize,
}

impl RecentLogs {
    /// Adds an event. Escapes line ends in its texts, so that an event stays one line.
    pub fn add(&self, mut event: LogEvent) {
        if let Some(count) = self.count(event.level) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        for text in [&mut event.thread, &mut event.logger, &mut event.text] {
            cut(text);
            if text.contains(['\n', '\r']) {
                *text = text.replace('\n', "\\n").replace('\r', "\\r");
            }
        }
        let mut kept = self.events.lock();
        kept.bytes += event.size();
        kept.events.push_back(event);
        while kept.events.len() > MAX_EVENTS || kept.bytes > MAX_BYTES {
            let Some(oldest) = kept.events.pop_front() else { break };
            kept.bytes = kept.bytes.saturating_sub(oldest.size());
        }
    }

    /// Renders the events as OpenTSDB's lines, newest first.
    pub(crate) fn lines(&self) -> Vec<String> {
        let kept = self.events.lock();
        kept.events.iter().rev().map(ToString::to_string).collect()
    }

    /// Publishes the numbers of events.
    pub(crate) fn set_counters(&self) {
        for (level, label) in LEVELS {
            if let Some(count) = self.count(level) {
                counter!("tsd_server_log_events_total", "level" => label)
                    .absolute(count.load(Ordering::Relaxed));
            }
        }
    }

    fn count(&self, level: Level) -> Option<&AtomicU64> {
        let at = LEVELS.iter().position(|(known, _)| *known == level)?;
        self.counts.get(at)
    }
}

impl LogEvent {
    /// Returns the bytes of memory.
    fn size(&self) -> usize {
        size_of::<Self>() + self.thread.len() + self.logger.len() + self.text.len()
    }
}

impl fmt::Display for LogEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epoch_secs, level, thread, logger, text } = self;
        write!(f, "{epoch_secs}\t{level}\t{thread}\t{logger}\t{text}")
    }
}

/// Cuts a text that is too long.
fn cut(text: &mut String) {
    if text.len() <= MAX_EVENT_BYTES {
        return;
    }
    let end = text.floor_char_boundary(MAX_EVENT_BYTES - CUT.len());
    text.truncate(end);
    text.push_str(CUT);
}

/// Why a log level cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogLevelError {
    /// No logger has this name.
    #[error("Invalid logger: {logger}")]
    UnknownLogger {
        /// The name as given.
        logger: String,
    },
    /// Too many other loggers have levels of their own.
    #[error("Too many loggers have a level of their own: set the level of all loggers first")]
    TooManyLoggers,
    /// The subscriber rejected the level.
    #[error("The log level cannot be changed: {reason}")]
    NotChanged {
        /// Reason of the subscriber.
        reason: String,
    },
}

/// Sets the level of one logger or of all loggers; `None` turns them off. Returns the number of loggers.
type SetLogLevel =
    Arc<dyn Fn(Option<Level>, Option<&str>) -> Result<usize, LogLevelError> + Send + Sync>;

/// The log of the process, for `/logs`.
#[derive(Clone)]
pub struct LogControl {
    pub(crate) recent: Arc<RecentLogs>,
    set_level: SetLogLevel,
}

impl LogControl {
    /// Creates the control of a log whose last events are `recent`.
    pub fn new(
        recent: Arc<RecentLogs>,
        set_level: impl Fn(Option<Level>, Option<&str>) -> Result<usize, LogLevelError>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self { recent, set_level: Arc::new(set_level) }
    }

    /// Sets the level of one logger or of all loggers; `None` turns them off. Returns the number of loggers.
    pub(crate) fn set_level(
        &self,
        level: Option<Level>,
        logger: Option<&str>,
    ) -> Result<usize, LogLevelError> {
        (self.set_level)(level, logger)
    }
}

impl fmt::Debug for LogControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogControl").field("recent", &self.recent).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: impl Into<String>) -> LogEvent {
        LogEvent {
            epoch_secs: 7,
            level: Level::WARN,
            thread: "main".to_owned(),
            logger: "tsd_server::http".to_owned(),
            text: text.into(),
        }
    }

    #[test]
    fn newest_lines_are_first_and_the_oldest_are_removed() {
        let logs = RecentLogs::default();
        for number in 0..MAX_EVENTS + 10 {
            logs.add(event(number.to_string()));
        }
        let lines = logs.lines();
        assert_eq!(lines.len(), MAX_EVENTS);
        assert_eq!(
            lines.first().map(String::as_str),
            Some("7\tWARN\tmain\ttsd_server::http\t1033")
        );
        assert_eq!(lines.last().map(String::as_str), Some("7\tWARN\tmain\ttsd_server::http\t10"));
        assert_eq!(logs.count(Level::WARN).map(|count| count.load(Ordering::Relaxed)), Some(1_034));
    }

    #[test]
    fn bytes_are_bounded() {
        let logs = RecentLogs::default();
        for _ in 0..MAX_EVENTS {
            logs.add(event("é".repeat(MAX_EVENT_BYTES)));
        }
        let kept: usize = logs.lines().iter().map(String::len).sum();
        assert!(kept > MAX_BYTES / 2 && kept <= MAX_BYTES, "{kept}");
        assert!(logs.lines().iter().all(|line| line.ends_with(CUT)));
    }

    #[test]
    fn an_event_is_one_line() {
        let logs = RecentLogs::default();
        logs.add(event("a\nb\r\nc"));
        assert_eq!(logs.lines(), ["7\tWARN\tmain\ttsd_server::http\ta\\nb\\r\\nc"]);
    }
}
