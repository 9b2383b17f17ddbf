//! Records the start of the daemon in the audit log, and lets the log catch up while the daemon runs.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::json;
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{MissedTickBehavior, interval},
};

use crate::{AuditLog, ServerConfig, redacted};

/// Interval at which the log sums up refusals, and tries to tell of lost lines.
const INTERVAL: Duration = Duration::from_mins(1);
/// Source of a setting without a value of its own.
const DEFAULT: &str = "default";
/// Begins the source of a setting whose value follows from another setting.
const DERIVED: &str = "default, ";

/// The upkeep of an audit log.
#[derive(Debug)]
pub(crate) struct AuditUpkeep {
    log: Arc<AuditLog>,
    task: JoinHandle<()>,
}

impl AuditUpkeep {
    /// Starts the upkeep, if there is an audit log.
    pub(crate) fn start(config: &ServerConfig) -> Option<Self> {
        let log = config.audit.clone()?;
        record_start(&log, config);
        let task = tokio::spawn(catch_up(Arc::clone(&log)));
        Some(Self { log, task })
    }

    /// Ends the upkeep after the last request.
    pub(crate) fn stop(self) {
        self.task.abort();
        self.log.close();
    }
}

/// Writes the version and the settings of this start. Leaves out settings without a value of their own, and hides
/// secrets.
fn record_start(log: &AuditLog, config: &ServerConfig) {
    let is_set = |key: &str| {
        let source = config.property_sources.get(key);
        source.is_none_or(|from| from != DEFAULT && !from.starts_with(DERIVED))
    };
    let settings: BTreeMap<&str, String> = config
        .properties
        .iter()
        .filter(|(key, _)| is_set(key))
        .map(|(key, value)| (key.as_str(), redacted(key, value)))
        .collect();
    let (version, revision) = (&config.build.version, &config.build.full_revision);
    log.record("start", json!({"version": version, "revision": revision, "settings": settings}));
}

async fn catch_up(log: Arc<AuditLog>) {
    let mut tick = interval(INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let log = Arc::clone(&log);
        if spawn_blocking(move || log.catch_up()).await.is_err() {
            return;
        }
    }
}
