//! Logging: one line per event, on standard error and in the events that `/logs` shows.
//!
//! The configured level applies until an operator changes it, for all loggers or for a single one.

mod origin_fields;
mod recent_layer;

use parking_lot::Mutex;
use std::{
    io,
    sync::{Arc, OnceLock},
};

use tracing::Level;
use tracing_subscriber::{
    EnvFilter, Registry,
    filter::{Directive, LevelFilter},
    fmt::{self, format::JsonFields},
    layer::SubscriberExt,
    reload,
    util::SubscriberInitExt,
};
use tsd_server::{LogControl, LogLevelError, RecentLogs};

use self::{origin_fields::WithOrigin, recent_layer::RecentLayer};
use crate::{
    config::{LogFormat, LogSettings},
    terminal::has_colors,
};

/// Crates that log. A logger is one of these crates, or a module in it.
const LOGGERS: [&str; 18] = [
    "hbase_rs",
    "tsd_cli",
    "tsd_cluster_log",
    "tsd_cluster_net",
    "tsd_engine",
    "tsd_files",
    "tsd_meta",
    "tsd_read",
    "tsd_runtime",
    "tsd_server",
    "tsd_storage",
    "tsd_storage_embedded",
    "tsd_storage_hbase",
    "tsd_storage_lsm",
    "tsd_storage_parts",
    "tsd_storage_wal",
    "tsd_tls",
    "tsd_tools",
];
/// Maximum loggers with their own level.
const MAX_OWN_LEVELS: usize = 64;

static LOG: OnceLock<ProcessLog> = OnceLock::new();

/// The log of the process.
struct ProcessLog {
    filter: reload::Handle<EnvFilter, Registry>,
    levels: Mutex<LogLevels>,
    recent: Arc<RecentLogs>,
}

/// The levels in force.
#[derive(Clone, Debug)]
struct LogLevels {
    /// Directives for all loggers.
    all: String,
    /// Levels of single loggers.
    own: Vec<(String, LevelFilter)>,
}

/// Starts logging for the process. A second call has no effect.
pub(crate) fn start(settings: &LogSettings) {
    let levels = LogLevels::new(&settings.level);
    let (filter, handle) = reload::Layer::new(levels.filter().unwrap_or_else(|_| "info".into()));
    let recent = Arc::<RecentLogs>::default();
    let (lines, format) = (fmt::layer().with_writer(io::stderr), fmt::format());
    let registry =
        tracing_subscriber::registry().with(filter).with(RecentLayer(Arc::clone(&recent)));
    let started = match settings.format {
        LogFormat::Text => {
            let format = format.with_ansi(has_colors(&io::stderr()));
            registry.with(lines.event_format(WithOrigin::text(format))).try_init()
        }
        LogFormat::Json => {
            let format = format.json().flatten_event(true);
            let lines = lines.fmt_fields(JsonFields::new());
            registry.with(lines.event_format(WithOrigin::json(format))).try_init()
        }
    };
    // An error means that a subscriber is already installed.
    if started.is_ok() {
        let _ = LOG.set(ProcessLog { filter: handle, levels: Mutex::new(levels), recent });
    }
}

/// Applies another level to all loggers. No effect before [`start`].
pub(crate) fn set_level(level: &str) -> anyhow::Result<()> {
    if let Some(log) = LOG.get() {
        log.change(|levels| *levels = LogLevels::new(level))?;
    }
    Ok(())
}

/// The log of the process for the server; `None` before [`start`].
pub(crate) fn control() -> Option<LogControl> {
    let log = LOG.get()?;
    Some(LogControl::new(Arc::clone(&log.recent), |level, logger| log.set(level, logger)))
}

impl ProcessLog {
    /// Changes the levels, unless the new levels are invalid.
    fn change(&self, change: impl FnOnce(&mut LogLevels)) -> anyhow::Result<()> {
        let mut levels = self.levels.lock();
        let mut changed = levels.clone();
        change(&mut changed);
        self.filter.reload(changed.filter()?)?;
        *levels = changed;
        Ok(())
    }

    /// Sets the level of a logger, or of all. Returns the number of loggers.
    fn set(&self, level: Option<Level>, logger: Option<&str>) -> Result<usize, LogLevelError> {
        let mut checked = Ok(0);
        let changed = self.change(|levels| checked = levels.set(level, logger));
        let count = checked?;
        changed.map_err(|error| LogLevelError::NotChanged { reason: error.to_string() })?;
        Ok(count)
    }
}

impl LogLevels {
    fn new(all: &str) -> Self {
        Self { all: all.to_owned(), own: Vec::new() }
    }

    /// Sets the level of a logger, or of all loggers, which drops their own levels. Returns the number of loggers.
    fn set(&mut self, level: Option<Level>, logger: Option<&str>) -> Result<usize, LogLevelError> {
        let level = LevelFilter::from(level);
        let Some(logger) = logger else {
            *self = Self::new(&level.to_string());
            return Ok(LOGGERS.len());
        };
        if !is_logger(logger) {
            return Err(LogLevelError::UnknownLogger { logger: logger.to_owned() });
        }
        let is_full = self.own.len() == MAX_OWN_LEVELS;
        match self.own.iter_mut().find(|(known, _)| known == logger) {
            Some((_, own)) => *own = level,
            None if is_full => return Err(LogLevelError::TooManyLoggers),
            None => self.own.push((logger.to_owned(), level)),
        }
        Ok(1)
    }

    fn filter(&self) -> anyhow::Result<EnvFilter> {
        let mut filter = EnvFilter::try_new(&self.all)?;
        for (logger, level) in &self.own {
            filter = filter.add_directive(format!("{logger}={level}").parse::<Directive>()?);
        }
        Ok(filter)
    }
}

/// True for the name of a crate that logs, or of a module in such a crate.
fn is_logger(name: &str) -> bool {
    let mut parts = name.split("::");
    let is_word = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    parts.next().is_some_and(|first| LOGGERS.contains(&first)) && parts.all(is_word)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn loggers_have_their_own_level_until_all_get_one() {
        let mut levels = LogLevels::new("info");
        assert_eq!(levels.set(Some(Level::DEBUG), Some("tsd_engine::uid")), Ok(1));
        assert_eq!(levels.set(None, Some("hbase_rs")), Ok(1));
        assert_eq!(levels.set(Some(Level::TRACE), Some("hbase_rs")), Ok(1));
        let filter = levels.filter().unwrap().to_string();
        for directive in ["info", "tsd_engine::uid=debug", "hbase_rs=trace"] {
            assert!(filter.split(',').any(|part| part == directive), "{filter}");
        }
        assert_eq!(levels.set(Some(Level::WARN), None), Ok(LOGGERS.len()));
        assert_eq!(levels.filter().unwrap().to_string(), "warn");
    }

    #[test]
    fn other_names_are_no_loggers() {
        let mut levels = LogLevels::new("info");
        for name in ["", "root", "tsd", "tsd_engine::", "tsd_engine=trace", "tsd_engine,x", "hyper"]
        {
            let unknown = LogLevelError::UnknownLogger { logger: name.to_owned() };
            assert_eq!(levels.set(Some(Level::INFO), Some(name)), Err(unknown));
        }
        for number in 0..MAX_OWN_LEVELS {
            assert_eq!(levels.set(Some(Level::INFO), Some(&format!("tsd_cli::m{number}"))), Ok(1));
        }
        let full = levels.set(Some(Level::INFO), Some("tsd_cli"));
        assert_eq!(full, Err(LogLevelError::TooManyLoggers));
    }

    #[test]
    fn loggers_are_the_crates_that_log() {
        let crates = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap();
        let mut logging: Vec<String> = crates
            .filter_map(|entry| {
                let path = entry.unwrap().path();
                let manifest = std::fs::read_to_string(path.join("Cargo.toml")).ok()?;
                let logs = manifest.lines().any(|line| line.starts_with("tracing.workspace"));
                logs.then(|| path.file_name().unwrap().to_str().unwrap().replace('-', "_"))
            })
            .collect();
        logging.sort();
        assert_eq!(logging, LOGGERS);
    }
}
